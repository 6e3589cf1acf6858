"""Show and record the events of a run."""
