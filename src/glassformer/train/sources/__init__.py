"""What a run learns from: pairs, labelled texts or running text, as batches."""
