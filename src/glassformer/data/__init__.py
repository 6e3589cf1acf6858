"""From text to batches of token ids. Nothing here sees a network, and importing this folder loads no torch."""
