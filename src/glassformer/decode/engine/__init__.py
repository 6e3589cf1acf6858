"""Many texts written at once: rows that finished leave the batch, waiting ones enter."""
