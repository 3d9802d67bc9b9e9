"""Small bridges to other libraries; each module needs the library it is named after, and nothing imports them here."""
