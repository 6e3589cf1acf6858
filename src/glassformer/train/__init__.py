"""Model meets data."""
