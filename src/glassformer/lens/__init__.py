"""Floor 5: looking inside a model."""
