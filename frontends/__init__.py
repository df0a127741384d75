"""JAX functions and StableHLO to the graph level; importing this package imports neither jax nor jaxlib.

The names are loaded when they are first asked for: `tilewright-opt` wants only the error.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import FrontendError

if TYPE_CHECKING:
    from .jax import Lowered, lower_function, lower_staged
    from .stablehlo import convert_module, is_stablehlo, lower_stablehlo

__all__ = [
    "FrontendError",
    "Lowered",
    "convert_module",
    "is_stablehlo",
    "lower_function",
    "lower_staged",
    "lower_stablehlo",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "jax" if name in ("Lowered", "lower_function", "lower_staged") else "stablehlo"
    return getattr(import_module(f".{home}", __name__), name)
