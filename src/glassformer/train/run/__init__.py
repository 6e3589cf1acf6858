"""A run from its first step to its last: starting, saving and resuming it."""
