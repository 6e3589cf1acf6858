"""Continuous batching: finished rows leave the batch and waiting requests enter it at any step."""
