"""Floor 6: a run as a server, with the completions of OpenAI's API. Needs the extra `serve`."""
