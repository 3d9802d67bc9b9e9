"""Which channels leave together: units, the walk over a recording, groups, a rule for each operation."""
