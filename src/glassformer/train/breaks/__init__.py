"""Classic mistakes, made on purpose: their names and symptoms, and the surgery that makes them."""
