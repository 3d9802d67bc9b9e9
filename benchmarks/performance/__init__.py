"""Goal and figure side by side: what training with gates costs, and what a small network gains."""
