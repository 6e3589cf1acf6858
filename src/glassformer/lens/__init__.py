"""Floor 6: interpretability tools for models, and the explorer of runs."""
