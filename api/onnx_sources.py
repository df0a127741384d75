"""ONNX models as sources: the function of a model, example inputs from its types, and the values that decide shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from ..dialects.dtypes import name_of_numpy
from ..frontends.jax import tracing
from ..passes.errors import CompileError
from .arguments.calls import refuse_tracers
from .arguments.specs import Dims, symbolic_shapes
from .sizes.probing import sizes_to_try
from .sizes.shapes import exported_shapes, is_symbolic, structs_at
from .sources import as_compile_error
from .torch_sources import is_torch, torch_function

if TYPE_CHECKING:
    from ..frontends.onnx import OnnxFunction
    from ..frontends.onnx.errors import ValueNeeded
    from ..frontends.onnx.reading import Dim, ModelInput

Arguments = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""A source and what it is called with."""


def onnx_function(source: Any, weights_as_arguments: bool = False) -> OnnxFunction:
    """The function of an ONNX model, which JAX traces and every part of Tilewright takes.

    Args:
        source: An `onnx.ModelProto`, or the path of a model.
        weights_as_arguments: Whether the initialisers are an argument, `weights=`, a dict of arrays by name, as
            `fn.weights` is, which a program takes where a call has none; otherwise they are constants.

    Returns:
        `fn(*inputs)` in the order of the model's inputs.

    Raises:
        CompileError: The model cannot be read.
    """
    from ..frontends.onnx import OnnxFunction, read_model

    with as_compile_error():
        return OnnxFunction(read_model(source), None, weights_as_arguments)


def resolved(source: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """A source that is an ONNX model as a function, and what this is called with: without arguments, types as the model
    has them. Inputs whose values decide shapes are left out: these are known to the function. Others are as they are.
    Raises CompileError."""
    from ..frontends.onnx import OnnxFunction
    from ..frontends.onnx.reading import is_model

    if is_torch(source):
        source, args = torch_function(source, args, kwargs)
        kwargs = {}
    if not isinstance(source, OnnxFunction):
        if not is_model(source):
            return source, tuple(args), dict(kwargs)
        source = onnx_function(source)
    kwargs = {**source.default_arguments, **kwargs}
    only_weights = not args and kwargs.keys() <= source.default_arguments.keys()
    args = tuple(example_of(source)) if only_weights else tuple(args)
    try:
        bound = source.__signature__.bind(*args, **kwargs)
    except TypeError as error:
        raise CompileError(f"{source.model.where} cannot be called with these inputs: {error}") from None
    keywords = {name: kwargs[name] for name in source.default_arguments}
    given = [value for name, value in bound.arguments.items() if name not in keywords]
    for one, value in zip(source.inputs, given, strict=True):
        _check_fits(source, one, value)
    source, given = _settled(source, given, keywords)
    return source, tuple(given), keywords


def example_of(fn: OnnxFunction) -> list[Any]:
    """Types that a model's function takes, with symbolic shapes where the model has open dimensions: called as the
    model calls them, or after the input and the dimension's number. Raises CompileError for an input without a shape.
    """
    import jax

    rows: list[Dims] = []
    for one in fn.inputs:
        if one.dims is None or one.dtype is None:
            what = "no shape" if one.dtype is not None else f"no tensor but a {one.kind}"
            raise CompileError(
                f"{fn.model.where}: the input {one.name!r} has {what} in the model: give an example input"
            )
        rows.append(tuple(_dim(d, one.name, i) for i, d in enumerate(one.dims)))
    shapes: list[tuple[Any, ...]] = [tuple(row) for row in rows]
    if any(isinstance(d, str) for row in rows for d in row):
        shapes = symbolic_shapes(rows, [], fn.model.where)
    return [jax.ShapeDtypeStruct(shape, one.dtype) for shape, one in zip(shapes, fn.inputs, strict=True)]


_EXPRESSION = re.compile(r"(\d+\s*\*\s*)*[A-Za-z_]\w*(\s*[+*-]\s*(\w+))*")


def _dim(dim: Dim, name: str, i: int) -> int | str:
    """A dimension as a number, or as the text of a size."""
    if isinstance(dim, int) and dim >= 0:
        return dim
    if isinstance(dim, str) and _EXPRESSION.fullmatch(dim):
        return dim
    said = dim if isinstance(dim, str) else f"{name}_{i}"
    return re.sub(r"^(\d)", r"d\1", re.sub(r"\W+", "_", said).strip("_") or f"d{i}")


def _check_fits(fn: OnnxFunction, one: ModelInput, value: Any) -> None:
    """Raises CompileError where an input has another rank, size or dtype than the model says."""
    if one.dtype is not None and one.dtype.kind in "OUS":
        raise CompileError(f"input {one.name} of {fn.model.where} is text, which no device has")
    if one.dtype is None or not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return
    refuse_tracers(fn.model.where, [value], "tw.compile")
    dims = one.dims
    fits = dims is None or (
        len(dims) == len(value.shape)
        and all(
            not isinstance(d, int) or d < 0 or not isinstance(n, int) or d == n
            for d, n in zip(dims, value.shape, strict=True)
        )
    )
    if fits and value.dtype == one.dtype:
        return
    wanted = "" if dims is None else ",".join("?" if d is None else str(d) for d in dims)
    given = f"{name_of_numpy(value.dtype)}[{','.join(map(str, value.shape))}]"
    raise CompileError(
        f"input {one.name} of {fn.model.where} must be {name_of_numpy(one.dtype)}[{wanted}], got {given}"
    )


def _settled(
    fn: OnnxFunction, given: list[Any], keywords: Mapping[str, Any]
) -> tuple[OnnxFunction, list[Any]]:
    """The function, told the values of inputs that decide shapes, and the others. Only numbers and short lists of them
    can: where there are none, the model is not traced for it."""
    import jax

    while any(one.dims is None or len(one.dims) <= 1 or one.dtype is None for one in fn.inputs):
        values = {one.name: v for one, v in zip(fn.inputs, given, strict=True)}
        with as_compile_error():
            needed = _needed(fn, given, keywords)
            if needed is None:
                break
            known = {n: values[n] for n in needed.inputs if not isinstance(values[n], jax.ShapeDtypeStruct)}
            if not known or known.keys() < needed.inputs:
                raise needed
        fn = fn.with_known(known)
        given = [values[one.name] for one in fn.inputs]
    return fn, given


def _needed(fn: OnnxFunction, given: Sequence[Any], keywords: Mapping[str, Any]) -> ValueNeeded | None:
    """The first node that needs the value of inputs. What cannot be traced with open sizes is looked at with numbers in
    their place; None where that is no use either: whoever compiles the function says so. Raises as it does."""
    import jax

    from ..frontends.onnx.errors import ValueNeeded

    leaves, tree = jax.tree.flatten((list(given), dict(keywords)))
    is_open = any(is_symbolic(n) for leaf in leaves for n in leaf.shape)
    tries: Iterable[list[Any]] = [leaves]
    if is_open:
        dtypes = [name_of_numpy(leaf.dtype) for leaf in leaves]
        shapes = exported_shapes(leaves, dtypes, fn.smallest_size)
        tries = chain(tries, (structs_at(leaves, shapes, sizes) for sizes in sizes_to_try(shapes)))
    for each in tries:
        args, kwargs = jax.tree.unflatten(tree, each)
        try:
            with tracing(fn):
                jax.eval_shape(fn, *args, **kwargs)
            break
        except ValueNeeded as error:
            if error.inputs or not is_open:
                return error
        except Exception:  # what its nodes raise
            if not is_open:
                raise
    return None
