"""How good a model is: at answers, at labels, at running text."""
