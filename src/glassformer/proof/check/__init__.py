"""Tests a learner's own code, property by property."""
