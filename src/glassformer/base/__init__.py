"""Shared basics that all other floors use; it knows nothing of transformers."""
