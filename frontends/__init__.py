"""JAX functions and StableHLO to the graph level; importing this package imports neither jax nor jaxlib.

The names are loaded when they are first asked for: `tilewright-opt` wants only the error.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import FrontendError

if TYPE_CHECKING:
    from .jax import Lowered, artifact_of, lower_function, lower_staged, staged_artifact
    from .stablehlo import convert_module, is_stablehlo, lower_stablehlo, stablehlo_artifact, stablehlo_text

__all__ = [
    "FrontendError",
    "Lowered",
    "artifact_of",
    "convert_module",
    "is_stablehlo",
    "lower_function",
    "lower_staged",
    "lower_stablehlo",
    "staged_artifact",
    "stablehlo_artifact",
    "stablehlo_text",
]

_OF_JAX = frozenset({"Lowered", "artifact_of", "lower_function", "lower_staged", "staged_artifact"})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "jax" if name in _OF_JAX else "stablehlo"
    return getattr(import_module(f".{home}", __name__), name)
