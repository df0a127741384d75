"""ONNX's attention ops of opset 23 and later."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import export
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from onnx_models import check, model_of, outputs

import tilewright as tw
from tilewright.frontends.onnx import OnnxFunction, read_model

RNG = np.random.default_rng(0)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def checked(
    inputs: list[Any], outputs_: int = 1, opset: int = 28, rtol: float = 1e-4, **attributes: Any
) -> None:
    arrays = [x for x in inputs if x is not None]
    model = model_of("Attention", inputs, outputs_, opset, **attributes)
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    want = ReferenceEvaluator(model).run(None, feeds)
    got = outputs(model, *arrays)
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(
            np.asarray(a).astype(np.float64), b.astype(np.float64), rtol=rtol, atol=rtol
        )


@settings(max_examples=40, deadline=None)
@given(
    heads=st.sampled_from([(1, 1), (2, 2), (4, 2), (6, 2), (3, 1)]),
    lengths=st.sampled_from([(1, 1), (3, 5), (5, 3), (4, 4), (1, 7)]),
    past=st.sampled_from([0, 0, 2]),
    causal=st.booleans(),
    mask=st.sampled_from(["", "bool 2", "bool 4", "float 2", "float 3", "float 1", "short"]),
    window=st.sampled_from([(-1, -1), (-1, -1), (1, 0), (2, 1), (-1, 0)]),
    nonpad=st.booleans(),
    mode=st.integers(0, 3),
    softcap=st.sampled_from([0.0, 1.5]),
    flat=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_all_at_once(
    heads: Any, lengths: Any, past: int, causal: bool, mask: str, window: Any, nonpad: bool, mode: int,
    softcap: float, flat: bool, dtype: Any,
) -> None:  # fmt: skip
    count, groups = heads
    queries, keys = lengths
    total = past + keys
    q, k, v = normal(2, count, queries, 4), normal(2, groups, keys, 4), normal(2, groups, keys, 3)
    attributes: dict[str, Any] = {"is_causal": int(causal), "qk_matmul_output_mode": mode, "softcap": softcap}
    attributes |= {"left_window_size": window[0], "right_window_size": window[1]}
    if flat:
        q, k, v = (np.swapaxes(x, 1, 2).reshape(2, x.shape[2], -1) for x in (q, k, v))
        attributes |= {"q_num_heads": count, "kv_num_heads": groups}
    q, k, v = (x.astype(dtype) for x in (q, k, v))
    some: Any = {
        "": None,
        "bool 2": (queries, total),
        "bool 4": (2, 1, queries, total),
        "float 2": (queries, total),
        "float 3": (count, queries, total),
        "float 1": (total,),
        "short": (queries, max(total - 1, 1)),
    }[mask]
    bias = None if some is None else normal(*some).astype(dtype)
    bias = bias > 0 if bias is not None and mask.startswith("bool") else bias
    if bias is not None and bias.ndim == 1:
        bias = np.broadcast_to(
            bias, (queries, total)
        ).copy()  # the evaluator does not take rank 1 with a causal mask
    inputs = [q, k, v, bias, None, None, None]
    if past:
        inputs[4:6] = normal(2, groups, past, 4).astype(dtype), normal(2, groups, past, 3).astype(dtype)
    elif nonpad and mask != "short":
        inputs[6] = np.array([keys, max(keys - 1, 1)], np.int64)
    with np.errstate(all="ignore"):
        checked(inputs, 4 if past else 1, **attributes)


@pytest.mark.parametrize("opset", [23, 24, 25])
def test_opsets(opset: int) -> None:
    q, k, v = (normal(1, 2, 4, 8) for _ in range(3))
    checked([q, k, v], opset=opset, is_causal=1, scale=0.3)


@pytest.mark.parametrize("precision", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_narrow_floats(precision: int) -> None:
    q, k, v = (normal(1, 2, 5, 8, dtype=np.float16) for _ in range(3))
    checked([q, k, v], rtol=5e-3, softmax_precision=precision)


def test_rows_without_keys_are_zero() -> None:
    q, k, v = (normal(1, 1, 3, 4) for _ in range(3))
    mask = np.array([[True, False, True], [False] * 3, [True] * 3])
    checked([q, k, v, mask])
    checked([q, k, v, np.where(mask, 0, -np.inf).astype(np.float32)])


def test_empty() -> None:
    (got,) = outputs(model_of("Attention", [normal(0, 2, 3, 4)] * 3), *[normal(0, 2, 3, 4)] * 3)
    assert got.shape == (0, 2, 3, 4)


def test_open_sizes() -> None:
    q = normal(2, 3, 8)
    model = model_of(
        "Attention", [q, normal(2, 3, 4), normal(2, 3, 4)], q_num_heads=4, kv_num_heads=2, is_causal=1
    )
    batch, length = export.symbolic_shape("batch, length")
    types = [jax.ShapeDtypeStruct((batch, length, n), np.float32) for n in (8, 4, 4)]
    fn = OnnxFunction(read_model(model))
    exported = export.export(jax.jit(fn))(*types)
    for b, n in ((1, 1), (2, 7)):
        arrays = [normal(b, n, w) for w in (8, 4, 4)]
        np.testing.assert_allclose(exported.call(*arrays), fn(*arrays), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "dims",
    [("b s e", "b t f"), ("b s e", "c t f"), ("b 5 e", "b t 24"), ("b h s d", "b k t d"), ("b h s e", "c k t f")],
)
def test_names_of_sizes_that_have_to_be_one(dims: tuple[str, str]) -> None:
    """Features of grouped heads are of one size where quotients of others are equal; a scale of an open size."""
    flat = len(dims[0].split()) == 3
    heads = {"q_num_heads": 9, "kv_num_heads": 3} if flat else {}
    q, k = (normal(2, 5, 72), normal(2, 7, 24)) if flat else (normal(2, 9, 5, 8), normal(2, 3, 7, 8))
    model = model_of("Attention", [q, k, k], **heads)
    for argument, names in zip(model.graph.input, (dims[0], dims[1], dims[1]), strict=True):
        for dim, name in zip(argument.type.tensor_type.shape.dim, names.split(), strict=True):
            if not name.isdigit():
                dim.dim_param = name
    del model.graph.value_info[:], model.graph.output[:]
    model.graph.output.append(onnx.ValueInfoProto(name="y0"))
    want = ReferenceEvaluator(model).run(None, {"x0": q, "x1": k, "x2": k})[0]
    np.testing.assert_allclose(np.asarray(tw.compile(model)(q, k, k)), want, rtol=1e-4, atol=1e-5)


def test_a_mask_and_a_cache_of_open_lengths() -> None:
    """Whether the mask is too short for all keys is open, too: fillers are behind it, as many as there may be."""
    x, past = normal(2, 4, 12), normal(2, 3, 5, 4)
    for short in (0, 2):
        model = model_of("Attention", [x, x, x, normal(4, 9 - short), past, past], 3, q_num_heads=3, kv_num_heads=3)
        arrays = [x, x, x, normal(4, 9 - short), past, past]
        want = ReferenceEvaluator(model).run(None, {f"x{i}": a for i, a in enumerate(arrays)})
        count = iter(range(100))
        for argument in model.graph.input:
            for dim in argument.type.tensor_type.shape.dim:
                dim.dim_param = f"s{next(count)}"
        for result in model.graph.output:
            result.type.tensor_type.ClearField("shape")
        found = jax.tree.leaves(tw.compile(model)(*arrays))
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-4, atol=1e-5)


def test_attention_is_two_products() -> None:
    q, k, v = normal(1, 4, 8, 16), normal(1, 2, 8, 16), normal(1, 2, 8, 16)
    fn = OnnxFunction(read_model(model_of("Attention", [q, k, v], is_causal=1)))
    program = tw.compile(fn, q, k, v)
    walked = [op.name for op in program.module("graph").walk()]
    assert walked.count("graph.contract") == 2
    assert walked.count("graph.fusion") <= 4
    np.testing.assert_allclose(program(q, k, v), fn(q, k, v), rtol=1e-3, atol=1e-4)


# -- rotary embedding --------------------------------------------------------------------------------------


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("part", [0, 4])
@pytest.mark.parametrize("by_position", [False, True])
def test_rotary_embedding(interleaved: int, flat: bool, part: int, by_position: bool) -> None:
    x = normal(2, 5, 24) if flat else normal(2, 3, 5, 8)
    pairs = (part or 8) // 2
    cache = (9, pairs) if by_position else (2, 5, pairs)
    inputs = [x, normal(*cache), normal(*cache)]
    inputs += [RNG.integers(0, 9, (2, 5))] if by_position else []
    attributes = {"num_heads": 3} if flat else {}
    attributes |= {"rotary_embedding_dim": part} if part else {}
    check(model_of("RotaryEmbedding", inputs, interleaved=interleaved, **attributes), *inputs)


@pytest.mark.parametrize("op", ["SwiGLU"])
def test_ops_with_bodies(op: str) -> None:
    x, y = normal(3, 4), normal(3, 4)
    check(model_of(op, [x, y], alpha=1.5), x, y)
