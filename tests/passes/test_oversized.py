"""A fusion that does not fit on chip is split in two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import assert_close, data, tolerance
from hypothesis import given
from programs import programs
from tiering import examples
from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp

import tilewright as tw
from tilewright.backends.interpreter import run_graph
from tilewright.dialects.base import to_ints
from tilewright.dialects.graph import FusionOp
from tilewright.frontends import lower_function
from tilewright.passes.choose import choose
from tilewright.passes.choose.oversized import split_in_two
from tilewright.passes.fusion.groups import Grouper
from tilewright.passes.pipeline import PIPELINE, make_pass


def fused(fn: Callable[..., Any], *args: jax.Array) -> ModuleOp:
    """The module as graph-schedule gets it."""
    module = lower_function(fn, args).module
    for stage in PIPELINE:
        if stage.name == "graph-schedule":
            return module
        make_pass(stage, "ascend-910b1").apply(Context(), module)
    raise AssertionError("there is no graph-schedule")


def fusions(module: ModuleOp) -> list[FusionOp]:
    return [op for op in module.walk() if isinstance(op, FusionOp) and not op.on_host]


def cut_all(module: ModuleOp) -> int:
    """Cuts every fusion that has more than one member once; how many there were."""
    found = [parts for op in fusions(module) if (parts := split_in_two(op))]
    module.verify()
    return len(found)


def normalise(x: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    mean = x.mean(axis=(0, 1))
    centred = x - mean
    variance = jnp.square(centred).mean(axis=(0, 1))
    return centred * jax.lax.rsqrt(variance + 1e-5) * scale[None, None], mean, variance


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (normalise, ((7, 5, 12), (12,))),
        (lambda x, w: jax.nn.softmax(jax.nn.gelu(x @ w).T, axis=0), ((9, 8), (8, 13))),
        (lambda x: (x.T[::2] * 2, x[1:] + x[:-1], x.sum()), ((6, 7),)),
    ],
    ids=["several results", "a product and its epilogue", "views and sums"],
)
def test_parts_do_what_the_whole_did(fn: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> None:
    args = tuple(data("f32", s, i) for i, s in enumerate(shapes))
    module = fused(fn, *args)
    want = [np.asarray(x) for x in run_graph(module, *args)]
    while cut_all(module):
        for got, expected in zip(run_graph(module, *args), want, strict=True):
            np.testing.assert_allclose(np.asarray(got), expected, rtol=2e-6, atol=2e-6)
    assert all(sum("axes" in o.attributes for o in op.body.block.ops) <= 1 for op in fusions(module))


@examples(15)
@given(programs())
def test_parts_of_random_programs(program: Any) -> None:
    args = tuple(program.arguments("f32"))
    module = fused(program, *args)
    cut_all(module)
    want = jax.tree.leaves(jax.jit(program)(*args))
    allowed = tolerance([x.dtype for x in (*args, *want)], program.length)
    for a, b in zip(run_graph(module, *args), want, strict=True):
        assert_close(a, b, allowed, str(program))


def test_a_step_that_does_not_fit_is_compiled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution without a cube, and the batch norm behind it, all of which is wanted: more than ub holds."""
    cuts: list[FusionOp] = []

    def cut(fusion: FusionOp) -> list[FusionOp]:
        cuts.append(fusion)
        return split_in_two(fusion)

    def step(x: jax.Array, w: jax.Array) -> list[jax.Array]:
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        mean = y.mean(axis=(0, 1, 2))
        centred = y - mean
        variance = jnp.square(centred).mean(axis=(0, 1, 2))
        scaled = centred * jax.lax.rsqrt(variance + 1e-5)
        return [y, centred, scaled, jax.nn.relu(scaled), scaled * 2 + y, mean, variance, jnp.exp(scaled)]

    # whatever graph-fuse estimates
    monkeypatch.setattr(Grouper, "_rows_misfit", lambda *_: None)
    monkeypatch.setattr(choose, "split_in_two", cut)
    x, w = data("f32", (3, 16, 16, 2), 0), data("f32", (3, 3, 2, 4), 1)
    program = tw.compile(step, x, w, target="ascend-310")
    assert cuts
    for got, want in zip(program(x, w), jax.jit(step)(x, w), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-5)


def test_a_part_has_its_own_axes_only() -> None:
    """A mean of complex numbers: the numbers made of the two sums do not move along what was summed."""

    def mean(x: jax.Array, v: jax.Array) -> jax.Array:
        return jax.lax.pad(x, v, [(-1, 0, 1), (-2, 2, 0), (1, -2, 1), (2, 3, 2), (-1, 0, 0)]).mean()

    parts = np.random.default_rng(0).standard_normal((2, 7, 5, 5, 1, 3)).astype(np.float32)
    x, v = parts[0] + 1j * parts[1], np.complex64(0.5 - 1j)
    program = tw.compile(mean, x, v)
    for fusion in fusions(fused(mean, jnp.asarray(x), jnp.asarray(v))):
        for part in split_in_two(fusion):
            named = [op.attributes["axes"] for op in part.body.block.ops if "axes" in op.attributes]
            used = {a for axes in named if isinstance(axes, DenseArrayBase) for a in to_ints(axes)}
            assert all(n == 1 or a in used for a, n in enumerate(to_ints(part.domain)))
    np.testing.assert_allclose(np.asarray(program(x, v)), np.asarray(jax.jit(mean)(x, v)), 1e-5)
