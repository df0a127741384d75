"""A program as one file: its container, its manifest, and the weights in it."""
