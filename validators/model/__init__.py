"""The model oracle: whether a whole model still answers as its original BF16 weights do."""
