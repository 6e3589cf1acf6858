"""The explorer's page: plain HTML, CSS and ES modules that any browser runs as they are."""
