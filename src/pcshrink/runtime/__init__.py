"""Running models: one file for each runtime, found by name in ``registry``; ``run`` is how others use them."""
