"""Rows that do not fit on chip, read in pieces by one kernel: values of JAX in both memories, and where it pays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import assert_close, data, tolerance
from memories import outputs
from tiering import covering, sampled

import tilewright as tw
from tilewright.machine import Machine
from tilewright.passes.npu.check import check as hazards


def in_pieces(fn: Callable[..., Any], *args: Any, tile: tuple[int, ...] | None = None) -> tw.Program:
    """One kernel along long rows, or along rows that a pinned tile cuts, whose values in both memories are JAX's."""
    options = tw.Options() if tile is None else tw.Options(schedule=tw.Schedule(tile=tile))
    program = tw.compile(fn, *args, options=options)
    assert len(program.report().kernels) == 1
    assert hazards(program.module("npu"), Machine.load("ascend-910b1")) == []
    want = jax.tree.leaves(jax.jit(fn)(*args))
    allowed = tolerance([x.dtype for x in (*args, *want)], max(args[0].shape))
    for i, (got, expected) in enumerate(zip(outputs(program, program.flatten(args)), want, strict=True)):
        assert_close(got, expected, allowed, f"result {i}")
    return program


def walks(program: tw.Program) -> int:
    """Loads of the first input: one for each walk over its rows."""
    first = next(line for line in program.ir("tile").splitlines() if "^bb0(%0: index" in line)
    name = next(word.split(":")[0] for word in first.split("%")[1:] if ": !npu.gm" in word)
    return program.ir("tile").count(f"tile.load %{name} at")


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x, axis=-1)


def norm(x: Any, w: Any, b: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * w + b


def scaled(x: Any) -> Any:
    """Of integers: two reductions in one walk, and what needs both in the next."""
    return (x - x.max(-1, keepdims=True)) * x.sum(-1, keepdims=True)


def chances(x: Any) -> Any:
    return jnp.exp(x - jax.nn.logsumexp(x, axis=-1, keepdims=True))


def best(x: Any) -> Any:
    return x.max(-1), x.argmax(-1), x.argmin(-1)


LENGTHS = [(26, 16_411), (48, 16_384), (25, 20_011)]


@covering(2)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("shape", LENGTHS, ids=str)
def test_softmax(dtype: str, shape: tuple[int, int]) -> None:
    """A walk for the maxima, one for the sums, one that stores."""
    assert walks(in_pieces(softmax, data(dtype, shape))) == 3


def test_norm_with_weight_and_bias() -> None:
    shape = (25, 9_001)
    program = in_pieces(norm, data("f32", shape), data("f32", shape[1:], 1), data("f32", shape[1:], 2))
    assert walks(program) == 3


def test_integers() -> None:
    assert walks(in_pieces(scaled, data("i32", (25, 19_001)))) == 2


def test_what_is_stored_along_rows_and_narrow_results() -> None:
    """What needs no reduction is stored in the first walk, the logarithms of sums behind the second."""

    def both(x: Any) -> Any:
        y = jnp.tanh(x)
        top = y.max(-1, keepdims=True)
        return y, jnp.log(jnp.exp(y - top).sum(-1)) + top[:, 0]

    assert walks(in_pieces(both, data("f32", (48, 19_001)))) == 2


def test_the_best_of_a_row_and_its_place() -> None:
    """One walk finds all three; NaN counts as more, and as less, than numbers."""
    x = np.array(data("f32", (25, 12_007)))
    x[3, 11_000] = x[4, 12_006] = x[4, 7] = np.nan
    x[5, [100, 9_000]] = 9.0
    assert walks(in_pieces(best, x)) == 1


PINNED: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "one row": (softmax, (1, 100), (1, 32)),
    "no multiples": (softmax, (7, 101), (3, 24)),
    "pieces that are alike": (softmax, (6, 96), (2, 32)),
    "one element": (softmax, (5, 13), (2, 1)),
    "the last piece has one element": (chances, (5, 97), (5, 48)),
    "columns": (lambda x: jax.nn.softmax(x, axis=0), (101, 40), (16, 16)),
    "stored transposed": (lambda x: softmax(x).T, (19, 70), (4, 32)),
    "two axes": (lambda x: x - x.mean((0, 2), keepdims=True) * x.max((0, 2), keepdims=True), (6, 5, 40), (4, 2, 16)),
    "no room for lanes": (lambda x: x.max(-1), (40, 1024), (32, 512)),
    "the best of a piece": (lambda x: best(jnp.abs(x)), (9, 130), (4, 32)),
}


@sampled(4)
@pytest.mark.parametrize("name", PINNED)
def test_pinned_tiles_cut_rows(name: str) -> None:
    fn, shape, tile = PINNED[name]
    assert "scf.for" in in_pieces(fn, data("f32", shape), tile=tile).ir("tile")


def test_a_pin_that_cuts_rows_of_different_axes_is_refused() -> None:
    def sums(x: Any) -> Any:
        y = jnp.tanh(x)
        return y - y.sum(1, keepdims=True) - y.sum(0, keepdims=True)

    x = jax.ShapeDtypeStruct((32, 48), np.float32)
    assert len(tw.compile(sums, x).report().kernels) == 1
    with pytest.raises(tw.CompileError, match=r"cannot obey .*reduces along different axes.* in pieces"):
        tw.compile(sums, x, options=tw.Options(schedule=tw.Schedule(tile=(16, 16))))


def test_the_loss_of_a_large_vocabulary_and_its_gradient() -> None:
    """The gradient compares positions with labels: all of that is made where the softmax is."""

    def loss(x: Any, y: Any) -> Any:
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1))

    x, y = data("f32", (30, 9_001)), jnp.arange(30) * 300
    for fn, wide in ((loss, 1), (jax.grad(loss), 1)):
        program = tw.compile(fn, x, y)
        assert sum(kernel.bytes["read"] >= x.nbytes for kernel in program.report().kernels) == wide
        assert_close(program(x, y), jax.jit(fn)(x, y), 1e-6)


def test_open_rows_and_lengths() -> None:
    """One version serves lengths that are no multiples of its pieces, and a batch of any size."""
    (n,) = jax.export.symbolic_shape("n")
    for shape, sizes in (((30, n), (9_001, 9_016)), ((n, 9_001), (40, 50))):
        program = tw.compile(softmax, jax.ShapeDtypeStruct(shape, np.float32))
        for size in sizes:
            x = data("f32", tuple(size if s is n else s for s in shape))
            assert_close(program(x), jax.jit(softmax)(x), tolerance([x.dtype], x.shape[1]))
        assert len(program.ranges) == 1


def test_it_takes_less_time_than_several_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where later walks find their rows in L2; and a few rows are left to all cores."""
    from tilewright.passes.fusion import groups

    shapes = {softmax: [(1024, 32_000)], norm: [(256, 65_536), (65_536,), (65_536,)], best: [(1024, 32_000)]}
    args = {fn: [jax.ShapeDtypeStruct(s, np.float32) for s in each] for fn, each in shapes.items()}
    one = {fn: tw.compile(fn, *each).report() for fn, each in args.items()}
    few = tw.compile(softmax, jax.ShapeDtypeStruct((2, 1_000_000), np.float32)).report()
    monkeypatch.setattr(groups, "why_not_in_pieces", lambda *_: "they are not")
    for fn, report in one.items():
        apart = tw.compile(fn, *args[fn]).report()
        assert report.microseconds < 0.8 * apart.microseconds
        (kernel,) = report.kernels
        assert kernel.bytes["read"] > 2 * kernel.bytes["hbm"] - kernel.bytes["write"] or fn is best
    assert len(few.kernels) > 1
