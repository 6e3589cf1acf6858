"""Public data sets by name, and how one is fetched."""
