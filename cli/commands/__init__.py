"""The commands of `tilewright`: those that take a program, and one module for each of the others."""
