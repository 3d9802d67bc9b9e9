"""What all parts share and none owns: whole files, text tables, progress, registries, how to install."""
