"""Many trainings that belong together: methods side by side, and settings one against the other."""
