"""The explorer's page: plain HTML, CSS and ES modules, which any browser runs as they stand here."""
