"""Networks, checks and recipes that tests and benchmarks share; never installed."""
