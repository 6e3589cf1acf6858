"""Floor 4: files on disk. Writing loses nothing; reading trusts nothing."""
