"""One forward pass of a model, recorded operation by operation, and small helpers around models."""
