"""Episodes of an agent in an environment: their files, what a model reads of them, an environment of our own."""
