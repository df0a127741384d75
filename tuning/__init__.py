"""Tuning: the best plan of each kernel, with the proof, and what is known of it the next time."""
