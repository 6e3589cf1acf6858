"""The model, and nothing but the model: attention, its parts, stacks and the transformer that they build."""
