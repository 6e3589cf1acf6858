"""Floor 0: what every other floor stands on; it knows nothing of transformers."""
