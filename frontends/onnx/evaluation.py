"""What other implementations make of a model: onnxruntime where it is installed, ONNX's own evaluator otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import OnnxError
from .reading import OnnxModel, graphs_of, import_onnx
from .table import own_domain

if TYPE_CHECKING:
    import onnx


def reference_name() -> str:
    """The implementation that values are compared with."""
    return "onnxruntime" if find_spec("onnxruntime") is not None else "onnx.reference"


def evaluate(model: OnnxModel, inputs: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> list[Any]:
    """The outputs of a model for inputs by name. weights: initialisers that have other values than in the model. Raises
    OnnxError where the implementation does not run it."""
    import_onnx()
    proto = _with_weights(model, weights)
    try:
        if reference_name() == "onnxruntime":
            import onnxruntime  # pyright: ignore[reportMissingImports]

            session = onnxruntime.InferenceSession(
                proto.SerializeToString(), providers=["CPUExecutionProvider"]
            )
            return list(session.run(None, dict(inputs)))
        from onnx.reference import ReferenceEvaluator

        with np.errstate(all="ignore"):
            return list(ReferenceEvaluator(_inlined(proto)).run(None, dict(inputs)))  # pyright: ignore
    except Exception as error:  # each op of either has errors of its own
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise OnnxError(f"{model.where}: {reference_name()} does not run it: {said}") from None


def _inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model without calls of its own functions: ONNX's evaluator knows no defaults of their attributes, and its
    inliner loses them, so that calls are given them first."""
    from onnx import inliner

    functions = {(own_domain(f.domain), f.name): f for f in proto.functions}
    for key, function in sorted(functions.items(), key=lambda item: -_depth(item[1], functions)):
        for node in (n for graph in graphs_of(proto.graph) for n in graph.node):
            if (own_domain(node.domain), node.op_type) == key:
                given = {a.name for a in node.attribute}
                node.attribute.extend(a for a in function.attribute_proto if a.name not in given)
        proto = inliner.inline_selected_functions(proto, [(function.domain, function.name)])
    return proto


def _depth(function: onnx.FunctionProto, functions: Mapping[tuple[str, str], onnx.FunctionProto]) -> int:
    """How deep calls of functions go from a function on: more than from all those that it calls."""
    inner = [a.g for n in function.node for a in n.attribute if a.HasField("g")]
    nodes = [*function.node, *(n for body in inner for graph in graphs_of(body) for n in graph.node)]
    called = {(own_domain(n.domain), n.op_type) for n in nodes}
    return 1 + max((_depth(functions[key], functions) for key in called & functions.keys()), default=0)


def _with_weights(model: OnnxModel, weights: Mapping[str, np.ndarray]) -> Any:
    """A copy of the model with values of its own in each tensor: of its initialisers, and of files beside it."""
    from onnx import ModelProto, numpy_helper

    proto = ModelProto()
    proto.CopyFrom(model.proto)
    for tensor in proto.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(weights[tensor.name]), tensor.name))
        elif tensor.data_location == tensor.EXTERNAL:
            tensor.CopyFrom(numpy_helper.from_array(model.initializers[tensor.name], tensor.name))
    return proto
