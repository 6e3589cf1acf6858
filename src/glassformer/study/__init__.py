"""Studies. A grid of settings over seeds, each arm a run of its own, summarised in a table and plots."""
