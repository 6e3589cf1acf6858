"""Checks that a user can run on the library, on a trained run, or on code of their own."""
