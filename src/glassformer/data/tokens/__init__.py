"""Text to token ids and back: the kinds of tokenizers, and what they share."""
