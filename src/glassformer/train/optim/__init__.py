"""The optimizers and their settings, the learning rate schedules, and the moving average of the weights."""
