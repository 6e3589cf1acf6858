"""Floor 3: whole models from parts. It never sees text."""
