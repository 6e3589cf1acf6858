"""Floor 0: shared basics that all other floors use; it knows nothing of transformers."""
