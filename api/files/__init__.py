"""Programs as files: what is saved, and what is loaded again."""
