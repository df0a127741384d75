"""What other implementations make of a model: onnxruntime where it is installed, ONNX's own evaluator otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from .errors import OnnxError
from .reading import OnnxModel, import_onnx


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
            return list(ReferenceEvaluator(proto).run(None, dict(inputs)))  # pyright: ignore
    except Exception as error:  # each op of either has errors of its own
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise OnnxError(f"{model.where}: {reference_name()} does not run it: {said}") from None


def _with_weights(model: OnnxModel, weights: Mapping[str, np.ndarray]) -> Any:
    """The model with values of its own in each tensor: of its initialisers, and of files beside it."""
    from onnx import ModelProto, numpy_helper

    if not weights and all(t.data_location != t.EXTERNAL for t in model.graph.initializer):
        return model.proto
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    for tensor in proto.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(weights[tensor.name]), tensor.name))
        elif tensor.data_location == tensor.EXTERNAL:
            tensor.CopyFrom(numpy_helper.from_array(model.initializers[tensor.name], tensor.name))
    return proto
