"""Prove the cut on known architectures: ``python -m benchmarks.zoo``, or ``make zoo``."""
