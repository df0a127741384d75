"""The `.tw` language: text to the graph level and back. Importing this package imports neither jax nor lark."""

from .diagnostics import Diagnostic, TwError
from .source import decoded, find_tw

__all__ = ["Diagnostic", "TwError", "decoded", "find_tw"]
