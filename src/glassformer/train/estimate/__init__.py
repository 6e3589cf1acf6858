"""Estimate, before a run, what it will need and how to set it."""
