"""CIFAR-10: fetched, read from any of its forms, checked byte by byte, kept as one file."""
