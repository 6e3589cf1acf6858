"""What can be done with a run that has learned: score it, let it answer or write."""
