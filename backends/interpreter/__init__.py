"""Executes the graph and the npu level with JAX. Importing this package imports JAX, so import it where it is used."""

from .graph import run_graph
from .open_kernels import open_numbers
from .program import Executable

__all__ = ["Executable", "open_numbers", "run_graph"]
