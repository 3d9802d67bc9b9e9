"""Programs that measure; run one from the root of the repository: ``python -m benchmarks.NAME``."""
