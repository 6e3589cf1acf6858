"""A learner's own code, tested property by property."""
