"""Classic mistakes, made on purpose: their names and symptoms, and the changes that make them."""
