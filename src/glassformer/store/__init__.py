"""Files on disk. Writing loses nothing; reading trusts nothing."""
