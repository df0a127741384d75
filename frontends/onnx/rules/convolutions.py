"""convolutions."""
