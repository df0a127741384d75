"""The `.tw` language: text to the graph level and back. Importing this package imports neither jax nor lark."""

from .diagnostics import Diagnostic, TwError
from .source import find_tw

__all__ = ["Diagnostic", "TwError", "find_tw"]
