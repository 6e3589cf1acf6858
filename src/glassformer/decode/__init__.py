"""Floor 4: decoding. It turns ids of prompts or sources into ids of answers."""
