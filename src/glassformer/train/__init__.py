"""Floor 5: model meets data."""
