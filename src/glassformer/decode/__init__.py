"""Floor 4: ids in, ids out."""
