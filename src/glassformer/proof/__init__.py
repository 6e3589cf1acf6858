"""Floor 6: what a user can run to see that the library, a model of theirs or their own code is right."""
