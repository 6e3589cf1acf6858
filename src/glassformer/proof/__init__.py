"""Floor 6: checks that a user can run: on a model, and on code of their own."""
