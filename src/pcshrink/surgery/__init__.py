"""Models in, models out: recording, coupling, plans, compaction and proofs."""
