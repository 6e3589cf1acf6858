"""What happens in a run, shown and kept."""
