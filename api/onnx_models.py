"""Programs as ONNX models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.onnx import OPSET, NotInOnnx, model_of
from ..dialects.dtypes import numpy_dtype
from ..dialects.graph.extents import extents_of
from ..frontends.onnx.reading import import_onnx
from ..passes.pipeline import level_of
from .arguments.signature import CompileError, Signature
from .mains import main_results
from .source import Source
from .sources import as_compile_error, entry_of

if TYPE_CHECKING:
    import onnx


def to_onnx(source: Source, weights: Mapping[str, Any], opset: int | None) -> onnx.ModelProto:
    """The graph level of a source, before any pass, as a model. weights: values of arguments, which become
    initializers. Raises CompileError."""
    with as_compile_error():
        import_onnx()
    module, signature = source.lower()
    if level_of(module) != "graph":
        raise CompileError(f"{source.name} starts at the {level_of(module)} level; ONNX says the graph level")
    for name in weights:
        if not signature.takes(name):
            raise CompileError(f"{source.name} has no argument {name!r} that weights= gives a value to")
    values = dict(_values(source.name, signature, {**signature.parameters.defaults, **weights}))
    hidden = {extent.by for extent in extents_of(entry_of(module))}
    outputs = _output_names(signature, len(main_results(module)) - len(hidden))
    try:
        return model_of(module, source.name, signature.names, outputs, OPSET if opset is None else opset, values)
    except NotInOnnx as error:
        raise CompileError(f"{source.name}: {error}") from None


def _values(name: str, signature: Signature, values: Mapping[str, Any]) -> Iterator[tuple[int, np.ndarray]]:
    """The values of flat inputs, by their numbers. Raises CompileError for those of other structures or types."""
    import jax

    if signature.in_tree is None or not values:
        return
    by_position, by_keyword = jax.tree.unflatten(signature.in_tree, range(len(signature.inputs)))
    labelled = {signature.parameters.label(i): part for i, part in enumerate(by_position)} | by_keyword
    for label, part in labelled.items():
        if label not in values:
            continue
        numbers, tree = jax.tree.flatten(part)
        leaves, given = jax.tree.flatten(values[label])
        if given != tree:
            raise CompileError(f"argument {label} of {name} was compiled for {tree}, and its value is {given}")
        for i, leaf in zip(numbers, leaves, strict=True):
            (shape, dtype), array = signature.inputs[i], np.asarray(leaf)
            if array.shape != shape:
                raise CompileError(f"{signature.place(i)} of {name} must be {dtype}{list(shape)}, got {array.shape}")
            yield i, array.astype(numpy_dtype(dtype))


def _output_names(signature: Signature, count: int) -> list[str]:
    """The path of each flat output, such as `['loss']` or `[0]`; `out` where it is the only one."""
    import jax

    if signature.out_tree is None:
        return ["out"] if count == 1 else [f"[{i}]" for i in range(count)]
    numbered = jax.tree.unflatten(signature.out_tree, range(count))
    return [jax.tree_util.keystr(path) or "out" for path, _ in jax.tree_util.tree_leaves_with_path(numbered)]
