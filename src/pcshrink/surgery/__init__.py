"""Models in, models out: plans, cuts, gates, folding."""
