"""Executes the three levels with JAX. Import its modules where they are used: they import JAX."""
