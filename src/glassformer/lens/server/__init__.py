"""The explorer's server: a page for one run, reachable from this machine only."""
