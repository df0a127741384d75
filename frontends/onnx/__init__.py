"""ONNX models as JAX functions, which the rest of Tilewright takes like any other; `onnx` is an optional extra.

`reading.py` reads and checks a model, `walk.py` runs its nodes on JAX values by the rules in `rules/`, and
`function.py` is the function that JAX traces. Importing this package imports neither onnx nor jax.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import OnnxError
    from .function import OnnxFunction
    from .reading import OnnxModel, read_model

__all__ = ["OnnxError", "OnnxFunction", "OnnxModel", "read_model"]

_HOMES = {"OnnxError": "errors", "OnnxFunction": "function", "OnnxModel": "reading", "read_model": "reading"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
