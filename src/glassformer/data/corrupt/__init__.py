"""The objectives of running text, one per file: masked tokens, hidden spans, noise; and batches of windows."""
