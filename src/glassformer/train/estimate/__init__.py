"""What a run will need and how it is best set, before it is begun."""
