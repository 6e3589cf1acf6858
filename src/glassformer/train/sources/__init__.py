"""The sources of training data: pairs, labelled texts or running text, as batches."""
