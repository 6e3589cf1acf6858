"""Floor 6: studies. A grid of settings over seeds, each arm a run of its own, and what is learned from all of them."""
