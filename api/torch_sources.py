"""PyTorch modules and exported programs as sources: `torch.onnx.export` makes ONNX of them.

torch is never imported here: whoever has a module has imported it.
"""

from __future__ import annotations

import inspect
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..dialects.affine import Symbol
from ..dialects.sizes import evaluate, names_in, parse_size
from ..passes.errors import CompileError
from .arguments.tensors import as_array, is_tensor
from .sizes.shapes import is_symbolic
from .sources import as_compile_error

EXAMPLES = (3, 5, 7, 11, 13, 17, 19, 23)
"""Sizes that open dimensions have while PyTorch traces: it takes 0 and 1, and equal ones, for fixed."""


def is_torch(source: Any) -> bool:
    """Whether a source is a `torch.nn.Module` or a `torch.export.ExportedProgram`."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return False
    kinds = [torch.nn.Module]
    export = getattr(torch, "export", None)
    return isinstance(source, (*kinds, export.ExportedProgram) if export is not None else tuple(kinds))


def torch_function(source: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """The function of a module or an exported program, and its flat inputs for example arguments. Its parameters are
    the argument `weights=`, with their values. Arguments of a module with symbolic shapes open dimensions; those of an
    exported program are open as it was exported, where no arguments are given.

    Raises CompileError where the module is in training mode, or PyTorch does not export it.
    """
    import jax

    torch: Any = sys.modules["torch"]
    is_module = isinstance(source, torch.nn.Module)
    title = type(source).__name__
    if is_module and source.training:
        raise CompileError(
            f"{title} is in training mode: call its eval() first; training is compiled from JAX functions"
        )
    given = _bound(source.forward, args, kwargs, title) if is_module else {**dict(enumerate(args)), **kwargs}
    exported = source
    with _quiet(), _as_compile_error(title):
        if is_module:
            sizes = _examples(jax.tree.leaves(given))
            tensors = {n: jax.tree.map(lambda leaf: _tensor_like(leaf, sizes), v) for n, v in given.items()}
            dims = {n: jax.tree.map(_open_dims, v) for n, v in given.items()} if sizes else None
            exported = torch.export.export(source, (), tensors, dynamic_shapes=dims)
        proto = torch.onnx.export(exported, dynamo=True, verbose=False).model_proto
    with as_compile_error():
        fn = _function(proto, title, source if is_module else source.module())
    leaves = [leaf for value in given.values() for leaf in jax.tree.leaves(value)]
    return fn, list(map(as_array, leaves))


def _bound(
    forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], title: str
) -> dict[str, Any]:
    """The arguments of a call by name, in the order of the parameters; those that are None are left out."""
    try:
        bound = inspect.signature(forward).bind(*args, **kwargs)
    except TypeError as error:
        raise CompileError(f"{title} cannot be called with these arguments: {error}") from None
    if bound.args[len(bound.arguments) :] or any(
        p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and n in bound.arguments
        for n, p in bound.signature.parameters.items()
    ):
        raise CompileError(
            f"{title} takes *args or **kwargs, which have no names: wrap it in a module with named ones"
        )
    return {n: v for n, v in bound.arguments.items() if v is not None}


def _function(proto: Any, title: str, call: Callable[..., Any]) -> Any:
    """The function of what PyTorch has exported, whose reference is the module itself."""
    from ..frontends.onnx import OnnxFunction, read_model

    proto.graph.name = title

    class TorchFunction(OnnxFunction):
        """A function that PyTorch exported."""

        @property
        def reference_name(self) -> str:
            return "PyTorch"

        def reference(self, *args: Any, **kwargs: Any) -> Any:
            given, weights = self._given(args, kwargs)
            return _eagerly(call, given, weights)

    return TorchFunction(read_model(proto), None, True)


def _eagerly(call: Callable[..., Any], given: Sequence[Any], weights: Mapping[str, Any]) -> Any:
    """What a module computes, as arrays. weights: values that its parameters have for this, where there are any."""
    import jax

    torch: Any = sys.modules["torch"]
    inputs = [_tensor_like(np.asarray(v)) for v in given]
    with torch.no_grad():
        state = getattr(call, "state_dict", dict)()
        values = {n: _tensor_like(np.asarray(w)) for n, w in weights.items() if n in state}
        made = torch.func.functional_call(call, values, tuple(inputs)) if values else call(*inputs)
    leaves = [as_array(leaf) for leaf in jax.tree.leaves(_plain(made))]
    return leaves[0] if len(leaves) == 1 else tuple(leaves)


def _plain(value: Any) -> Any:
    """Results as tuples, lists and dicts: those of some libraries are mappings of their own."""
    return dict(value) if isinstance(value, Mapping) else value


def _examples(leaves: Sequence[Any]) -> dict[str, int]:
    """A size for each open dimension of the arguments."""
    names = {
        n for leaf in leaves for d in getattr(leaf, "shape", ()) if is_symbolic(d) for n in names_in(str(d))
    }
    return dict(zip(sorted(names), EXAMPLES * (1 + len(names) // len(EXAMPLES)), strict=False))


def _tensor_like(value: Any, sizes: Mapping[str, int] | None = None) -> Any:
    """A tensor of the type of an array, with its values where it has some; tensors and numbers as they are."""
    torch: Any = sys.modules["torch"]
    if is_tensor(value) or not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return value
    if hasattr(value, "__array__"):
        array = np.array(value)
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)
    symbols = {n: Symbol(n) for n in sizes or ()}
    shape = [evaluate(parse_size(str(d), symbols), sizes or {}) if is_symbolic(d) else d for d in value.shape]
    return torch.zeros(shape, dtype=getattr(torch, value.dtype.name))


def _open_dims(value: Any) -> dict[int, Any] | None:
    """The open dimensions of an argument, as PyTorch is told of them."""
    torch: Any = sys.modules["torch"]
    return {
        i: torch.export.Dim.DYNAMIC for i, d in enumerate(getattr(value, "shape", ())) if is_symbolic(d)
    } or None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings and the progress that PyTorch writes while it exports; its loggers are as before then."""
    loggers = [logging.getLogger(n) for n in ("torch.onnx", "torch.export", "torch")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _as_compile_error(title: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise CompileError(
            f"{title}: PyTorch exports with {error.name}: pip install 'tilewright[torch]'"
        ) from None
    except Exception as error:  # PyTorch has dozens of its own, of many lines
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise CompileError(f"{title}: PyTorch does not export it: {said[:300]}") from error
