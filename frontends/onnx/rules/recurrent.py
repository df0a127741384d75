"""recurrent."""
