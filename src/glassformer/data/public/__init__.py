"""Public data sets by name, and how to fetch them."""
