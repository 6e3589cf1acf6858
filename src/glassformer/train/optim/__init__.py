"""The optimizers and their settings, the learning rate, the average of the weights."""
