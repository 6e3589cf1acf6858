"""Floor 3: assembles parts into whole models. It never sees text."""
