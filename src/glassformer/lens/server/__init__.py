"""The server of the explorer: a page for one run, on this machine alone."""
