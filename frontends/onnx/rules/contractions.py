"""contractions."""
