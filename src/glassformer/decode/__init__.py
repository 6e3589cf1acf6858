"""Decoding. It turns ids of prompts or sources into ids of answers."""
