"""A run from its first step to its last: begun, saved, gone on with."""
