"""Traces: one run of a model over one input, with all that the explorer shows of it, in memory and as a file."""
