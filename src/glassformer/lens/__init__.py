"""Floor 6: looking inside a model, and a run."""
