"""What people look at: inspections of models, tables and figures of runs."""
