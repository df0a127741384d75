"""Random programs and models as ONNX: of every generator, of odd shapes, and models that came from ONNX."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import data_models
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from fuzz.generate import Program
from fuzz.tables import program_of
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from onnx.reference import ReferenceEvaluator
from onnx_out import OnnxJudge, check, is_mistaken

import tilewright as tw

SAMPLE = 32
"""Random programs, from seed 0 on."""

OPEN = 3
"""One random model in so many is read back, too."""


def plain(program: Program) -> Program:
    """A program without zeros of both signs, NaN and infinity in its inputs: ONNX leaves open where TopK and MaxPool
    have these, and what a Cast to integers makes of them."""
    inputs = {n: replace(i, kind="plain" if i.kind == "special" else i.kind) for n, i in program.inputs.items()}
    return replace(program, inputs=inputs)


@pytest.mark.parametrize("part", range(4))
def test_random_programs(part: int) -> None:
    """What is refused has complex numbers, or ops that the host computes."""
    done = 0
    for seed in range(part, SAMPLE, 4):
        verdict = OnnxJudge(plain(program_of(seed)), back=seed % OPEN == 0).run()
        if verdict.kind and "NotInOnnx" in verdict.message:
            assert "graph.host" in verdict.message or "elements of c64" in verdict.message, verdict.message
        elif not verdict.refused:
            assert verdict.ok, f"seed {seed}, {verdict.where}: {verdict.message}"
            done += 1
    assert done >= SAMPLE // 4 * 6 // 10


EXTENT = st.sampled_from((0, 1, 2, 3, 5, 7, 11, 13))
SOME = st.sampled_from((1, 2, 3, 5, 7, 11, 13))


def filled(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype("f4")


@given(EXTENT, EXTENT, EXTENT, EXTENT)
@settings(max_examples=16)
def test_shapes_of_products(b: int, m: int, k: int, n: int) -> None:
    check(lambda x, y: (jnp.matmul(x, y), jnp.einsum("bmk,kn->mbn", x, y[0])), filled(b, m, k), filled(max(b, 1), k, n)
          if b else filled(1, k, n))  # fmt: skip


@given(EXTENT, SOME, EXTENT)
@settings(max_examples=16)
def test_shapes_of_what_moves(a: int, b: int, c: int) -> None:
    def fn(x: Any, v: Any) -> Any:
        padded = lax.pad(x, v, ((1, -min(1, a), 0), (0, 2, 1), (2, 0, 2)))
        parts = jnp.concatenate([x, x[:, : b // 2], padded[: x.shape[0], :1, : x.shape[2]]], 1) if a else x
        return padded, parts, x[::2, ::-1], jnp.moveaxis(x, 0, 2).reshape(b, -1), x.sum(1), x.max(1), jnp.cumsum(x, 0)

    check(fn, filled(a, b, c), np.float32(3))


@given(SOME, EXTENT, st.integers(-3, 14))
@settings(max_examples=16)
def test_shapes_of_what_is_read_and_written(a: int, n: int, at: int) -> None:
    size = min(a, n)

    def fn(x: Any, u: Any, i: Any) -> Any:
        start = (i[0], i[0] if n else 0)
        part = lax.dynamic_slice(x, start, (size, x.shape[1]))
        return part, lax.dynamic_update_slice(x, u[:size], start), x[i % a], x.at[i].add(u[:2]), x.at[i].set(u[:2])

    check(fn, filled(a, n), filled(max(a, 2), n), np.asarray([at, at // 2], np.int32))


@given(SOME, SOME, st.integers(1, 3), st.integers(1, 3), st.sampled_from(("SAME", "VALID", ((2, 1), (0, 3)))))
@settings(max_examples=16)
def test_shapes_of_windows(h: int, w: int, window: int, stride: int, padding: Any) -> None:
    def fn(x: Any, k: Any) -> Any:
        sides = ((0, 0), *padding, (0, 0)) if isinstance(padding, tuple) else padding
        pools = [
            lax.reduce_window(x, start, op, (1, window, window, 1), (1, stride, stride, 1), sides)
            for start, op in ((-jnp.inf, lax.max), (0.0, lax.add))
        ]
        layout = ("NHWC", "HWIO", "NHWC")
        return pools, lax.conv_general_dilated(x, k, (stride, 1), padding, dimension_numbers=layout)

    check(fn, filled(2, h, w, 3), filled(window, window, 3, 5))


@pytest.mark.parametrize("part", range(3))
def test_random_onnx_models(part: int) -> None:
    """Models whose sizes data decides, read, written again, and evaluated by ONNX on all data."""
    done = 0
    for seed in range(part, 24, 3):
        model, calls = data_models.random_model(seed)
        try:
            again = tw.compile(model).to_onnx()
        except tw.CompileError:  # what is read is not the matter here
            continue
        onnx.checker.check_model(again, full_check=True)
        if is_mistaken(again):
            continue
        names = [v.name for v in again.graph.input]
        for arrays, wanted in calls:
            got = ReferenceEvaluator(again).run(None, {name: arrays[name] for name in names})
            for a, b in zip(got, wanted, strict=True):
                assert (np.shape(a), np.asarray(a).dtype) == (b.shape, b.dtype)
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
            done += 1
    assert done >= 10


