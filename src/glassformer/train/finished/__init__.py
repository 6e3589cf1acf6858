"""Use a trained run: score it, let it answer or write."""
