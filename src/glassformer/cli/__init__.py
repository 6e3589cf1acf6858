"""Floor 7: the command line. It parses arguments and prints; the work is done in the floors below."""
