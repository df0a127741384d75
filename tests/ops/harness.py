"""What the tests of whole programs share: data, the comparison with JAX, strategies for shapes and dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from judging import Elements
from memories import outputs
from references import reference
from tiering import Memory
from visible import check_visible

import tilewright as tw
from tilewright.api.compiling import lower
from tilewright.api.program import Program

DTYPES = ("f32", "f16", "bf16", "i8", "i32", "i1")
FLOATS = ("f32", "f16", "bf16")
INTEGERS = ("i16", "ui8", "ui16", "ui32")
"""Integer types beside those of DTYPES."""
JAX_DTYPE = {
    "f32": jnp.float32,
    "f16": jnp.float16,
    "bf16": jnp.bfloat16,
    "i8": jnp.int8,
    "i32": jnp.int32,
    "i1": jnp.bool_,
    "i16": jnp.int16,
    "ui8": jnp.uint8,
    "ui16": jnp.uint16,
    "ui32": jnp.uint32,
}
SIZES = (1, 2, 3, 5, 7, 13, 17, 31, 64, 97, 128, 130, 257)
LARGEST = 20_000
"""Elements of a test's tensors at most, where the test does not ask for more."""


def data(dtype: str, shape: Sequence[int], seed: int = 0) -> jax.Array:
    """Values of a dtype: floats around 0, integers over most of the range of i8, mixed bools."""
    rng = np.random.default_rng(seed + 17 * len(shape) + math.prod(shape))
    if dtype == "i1":
        return jnp.asarray(rng.random(shape) < 0.5)
    if dtype in ("i8", "i32"):
        return jnp.asarray(rng.integers(-100, 100, shape), JAX_DTYPE[dtype])
    if dtype in INTEGERS:
        info = jnp.iinfo(JAX_DTYPE[dtype])
        return jnp.asarray(rng.integers(info.min, info.max, shape, endpoint=True), JAX_DTYPE[dtype])
    return jnp.asarray(rng.standard_normal(shape), jnp.float32).astype(JAX_DTYPE[dtype])


def tolerance(dtypes: Sequence[Any], length: int) -> float:
    """The largest difference allowed, relative to the largest number in a result (at least 1).

    Rounding `length` partial sums of the narrowest float that takes part, in another order than XLA's, moves
    a result by about sqrt(length) units in its last place; 8 leaves room for a chain of functions.
    """
    widths = [float(jnp.finfo(d).eps) for d in dtypes if jnp.issubdtype(d, jnp.floating)]
    return 8 * max(widths, default=0.0) * math.sqrt(max(length, 1))


def assert_close(got: Any, want: Any, allowed: float, what: str = "") -> None:
    """Same shape and dtype; equal integers and bools; floats within `allowed` of the largest."""
    got, want = np.asarray(got), np.asarray(want)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.abs(want[np.isfinite(want)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    np.testing.assert_allclose(got, want, rtol=0, atol=allowed * scale, err_msg=what)


def host_ops(program: Program) -> list[str]:
    """What a program runs on the host."""
    return [op.op.data for op in program.module("graph").walk() if op.name == "graph.host"]


def check(
    fn: Callable[..., Any],
    *args: Any,
    target: str = "ascend-910b1",
    memories: Sequence[Memory] | None = None,
    length: int = 1,
    host: bool = False,
    options: tw.Options | None = None,
) -> Program:
    """Compiles `fn`, runs it in each of these memories (None: those of the tier), and compares with JAX.

    The memories must agree bit for bit. Each result is held against its largest number (`assert_close`; length: of the
    longest sum), and each element against the bound of its own roundings. Nothing may run on the host unless `host`.
    """
    program = tw.compile(fn, *args, target=target, options=options)
    check_visible(program.module("tile"))
    check_visible(program.module("npu"))
    assert host or not host_ops(program)
    want = reference(fn, *args)
    got = outputs(program, program.flatten(args), memories)
    allowed = tolerance([x.dtype for x in (*jax.tree.leaves(args), *want)], length)
    for i, (result, expected) in enumerate(zip(got, want, strict=True)):
        assert_close(result, expected, allowed, f"result {i}")
    Elements(lambda: lower(fn, *args, target=target)).hold(got, want)
    return program


# -- strategies ---------------------------------------------------------------------------------------


@st.composite
def shapes(
    draw: st.DrawFn, low: int = 0, high: int = 4, empty: bool = False, largest: int = LARGEST
) -> tuple[int, ...]:
    """Shapes of rank low..high with few elements; a dimension may be 0 where `empty`."""
    rank = draw(st.integers(low, high))
    shape: list[int] = []
    for _ in range(rank):
        room = largest // max(math.prod(shape), 1)
        shape.append(draw(st.sampled_from([s for s in ((0,) if empty else ()) + SIZES if s <= room])))
    return tuple(draw(st.permutations(shape)))


def targets() -> st.SearchStrategy[str]:
    return st.sampled_from(["ascend-910b1", "ascend-910b1", "ascend-310"])


def subset(n: int, low: int = 0) -> st.SearchStrategy[tuple[int, ...]]:
    """Some of 0..n-1, in order."""
    chosen = st.lists(st.integers(0, max(n - 1, 0)), min_size=min(low, n), max_size=n, unique=True)
    return chosen.map(lambda dims: tuple(sorted(dims)))
