"""Training one run with several processes."""
