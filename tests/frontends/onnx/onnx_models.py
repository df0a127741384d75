"""Small ONNX models for tests, and what the frontend and ONNX's own evaluator make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import onnx
from onnx import helper, parser
from onnx.reference import ReferenceEvaluator

from tilewright.frontends.onnx import OnnxFunction, read_model
from tilewright.frontends.onnx.errors import ValueNeeded


def model_of(
    op: str,
    inputs: Sequence[Any],
    outputs: int = 1,
    opset: int = 28,
    domain: str = "",
    domain_version: int = 1,
    constants: Sequence[int] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node. inputs: arrays, whose types the model's inputs have; None for one that is left out.
    constants: the numbers of inputs that are initialisers."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    given = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, given, name="n", domain=domain, **attributes)
    types, initializers = [], []
    for i, x in enumerate(inputs):
        if x is None:
            continue
        array = np.asarray(x)
        if i in constants:
            initializers.append(onnx.numpy_helper.from_array(array, names[i]))
        else:
            element = helper.np_dtype_to_tensor_dtype(array.dtype)
            types.append(helper.make_tensor_value_info(names[i], element, array.shape))
    results = [onnx.ValueInfoProto(name=n) for n in given]  # their types are inferred
    graph = helper.make_graph([node], f"one_{op}", types, results, initializers)
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, domain_version))
    return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def outputs(model: onnx.ModelProto, *arrays: Any) -> list[Any]:
    """What the frontend's function gives, flat; inputs whose values decide shapes are known ones."""
    fn = OnnxFunction(read_model(model))
    names = [i.name for i in fn.model.inputs]
    known: dict[str, Any] = {}
    while True:
        left = [a for n, a in zip(names, arrays, strict=True) if n not in known]
        try:
            with jax.enable_x64(True):
                return jax.tree.leaves(jax.jit(fn.with_known(known))(*left))
        except ValueNeeded as error:
            if not error.inputs:
                raise
            known |= {n: a for n, a in zip(names, arrays, strict=True) if n in error.inputs}


def check(model: onnx.ModelProto, *arrays: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Compares with ONNX's own evaluator: shapes, dtypes and values."""
    names = [v.name for v in model.graph.input]
    want = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))
    got = outputs(model, *arrays)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        b = np.asarray(b)
        assert (a.shape, np.dtype(a.dtype)) == (b.shape, b.dtype)
        exact = b.dtype.kind in "biu"
        kind = b.dtype if exact else np.float64
        np.testing.assert_allclose(
            np.asarray(a).astype(kind), b.astype(kind), rtol=0 if exact else rtol, atol=0 if exact else atol
        )


def same(model: onnx.ModelProto, want: Any, *arrays: Any, rtol: float = 1e-5, atol: float = 0.0) -> None:
    """Compares with values that are known: one, or a tuple of them."""
    got = outputs(model, *arrays)
    want = want if isinstance(want, tuple) else (want,)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        b = np.asarray(b)
        assert (a.shape, np.dtype(a.dtype)) == (b.shape, b.dtype)
        np.testing.assert_allclose(np.asarray(a), b, rtol=rtol, atol=atol)


def parsed(text: str, opset: int = 21) -> onnx.ModelProto:
    """A model from ONNX's text form."""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')
