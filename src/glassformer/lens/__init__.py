"""Interpretability tools for models, and the explorer of runs."""
