"""Running text of any size: its files, its tokens on disk, and windows of them."""
