"""Searches over spaces of plans (kernels/space.py). What they ask is plain data; who judges, they do not know."""
