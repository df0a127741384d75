"""Verify and bisect: values after every pass, the first pass that changes them wrongly, and a small program that
shows it."""
