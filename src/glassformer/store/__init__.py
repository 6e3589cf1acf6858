"""Floor 4: what lies on disk, written so that nothing is lost and read so that nothing is trusted."""
