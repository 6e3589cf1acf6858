"""Scores of a model: of its answers, of its labels, of running text."""
