"""What all parts share and none owns: files that are whole or not there, text tables, progress, how to install."""
