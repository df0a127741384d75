"""The public face: sources in, programs out."""
