"""Serving a run over HTTP with the completions of OpenAI's API. Needs the extra `serve`."""
