"""A trace: one run of a model over one input, with everything that the explorer shows of it, as a value and a file."""
