"""Top floor: the command line. It parses and prints; what it does is done below."""
