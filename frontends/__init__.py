"""JAX functions and StableHLO to the graph level; importing this package imports neither jax nor jaxlib."""

from .errors import FrontendError
from .jax import Lowered, lower_function
from .stablehlo import convert_module, is_stablehlo, lower_stablehlo

__all__ = [
    "FrontendError",
    "Lowered",
    "convert_module",
    "is_stablehlo",
    "lower_function",
    "lower_stablehlo",
]
