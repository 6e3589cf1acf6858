"""What is asked of running text, one idea a file: masked tokens, hidden spans, noise; and batches made of windows."""
