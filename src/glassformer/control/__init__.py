"""Acting: a model of trajectories in an environment (Decision Transformer)."""
