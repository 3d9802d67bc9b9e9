"""The paper and nothing else: tensors in, tensors out."""
