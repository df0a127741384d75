"""Products whose results are pooled: values, what is one kernel and what is not, pins, and the modelled time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import FLOATS, JAX_DTYPE, check, data
from hypothesis import given, note
from hypothesis import strategies as st
from jax import export, lax
from tiering import covering, examples

import tilewright as tw
from tilewright.dialects.graph import CubeSchedule, FusionOp
from tilewright.dialects.graph.schedules import to_schedules
from tilewright.passes.choose.pooling_choice import PooledProduct
from tilewright.passes.lower.cube import pooled, pooling
from tilewright.passes.reasons import reasons_asked

KINDS: dict[str, tuple[float, Callable[..., Any]]] = {
    "max": (-np.inf, lax.max),
    "min": (np.inf, lax.min),
    "sum": (0.0, lax.add),
}
LAYOUTS = {"NHWC": ("NHWC", "HWIO", "NHWC"), "NCHW": ("NCHW", "OIHW", "NCHW")}
ALWAYS = patch.object(PooledProduct, "pays", lambda self, made, now: True)
"""One kernel wherever there may be one, whatever it takes."""


@dataclass(frozen=True)
class Pool:
    """Windows over the spatial dimensions of images."""

    kind: str
    window: Sequence[int]
    strides: Sequence[int]
    padding: Sequence[tuple[int, int]]
    dilation: Sequence[int] = (1, 1)

    def __call__(self, y: jax.Array, layout: str) -> jax.Array:
        at = layout.index("H")

        def all_dims(spatial: Sequence[Any], other: Any) -> tuple[Any, ...]:
            return (*[other] * at, *spatial, *[other] * (2 - at))

        init, function = KINDS[self.kind]
        window, strides, dilation = (all_dims(p, 1) for p in (self.window, self.strides, self.dilation))
        padding = all_dims(self.padding, (0, 0))
        start = jnp.asarray(init, y.dtype)
        return lax.reduce_window(y, start, function, window, strides, padding, window_dilation=dilation)


def layer(pool: Callable[..., jax.Array], layout: str = "NHWC", stride: int = 1) -> Callable[..., jax.Array]:
    """A convolution with a bias and relu, pooled."""

    def convolved(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        y = lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=LAYOUTS[layout])
        return pool(jax.nn.relu(y + (b if layout == "NHWC" else b[:, None, None])), layout)

    return convolved


def arguments(
    dtype: str, images: int, height: int, width: int, inner: int, outer: int, taps: int, layout: str = "NHWC"
) -> tuple[jax.Array, ...]:
    x, w = (images, height, width, inner), (taps, taps, inner, outer)
    if layout == "NCHW":
        x, w = (images, inner, height, width), (outer, inner, taps, taps)
    return data(dtype, x), data(dtype, w, 1) / JAX_DTYPE[dtype](taps * inner**0.5), data(dtype, (outer,), 2)


def kernels(program: Any) -> list[str]:
    return [kernel.name for kernel in program.report().kernels]


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    window = [draw(st.integers(1, 3)) for _ in range(2)]
    dilation = [draw(st.sampled_from((1, 1, 2))) for _ in range(2)]
    reach = [(w - 1) * d for w, d in zip(window, dilation, strict=True)]
    padding = [(draw(st.integers(0, n)), draw(st.integers(0, n))) for n in reach]
    strides = [draw(st.integers(1, 3)) for _ in range(2)]
    return Pool(draw(st.sampled_from(sorted(KINDS))), window, strides, padding, dilation)


@examples(24)
@given(
    pools(),
    st.sampled_from(FLOATS),
    st.sampled_from(["NHWC", "NCHW"]),
    st.sampled_from([(1, 1), (3, 1), (3, 2)]),
    st.tuples(
        st.integers(1, 3), st.integers(5, 20), st.integers(5, 20), st.integers(1, 20), st.integers(1, 40)
    ),
    st.sampled_from(["ascend-910b1", "ascend-910b1", "ascend-310"]),
)
def test_pooled_convolutions(
    pool: Pool, dtype: str, layout: str, how: tuple[int, int], sizes: tuple[int, ...], target: str
) -> None:
    note(f"{pool} {dtype} {layout} {how} {sizes} {target}")
    taps, stride = how
    args = arguments(dtype, *sizes, taps, layout)
    length = taps * taps * sizes[3] + int(np.prod(pool.window))
    with ALWAYS:
        check(layer(pool, layout, stride), *args, target=target, length=length)


TWO = Pool("max", (2, 2), (2, 2), [(0, 0)] * 2)
THREE = Pool("max", (3, 3), (2, 2), [(1, 1)] * 2)
ROWS = Pool("sum", (3, 1), (1, 1), [(1, 1), (0, 0)])


@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("pool", [TWO, THREE, ROWS], ids=["2x2", "3x3", "3x1"])
@covering(2)
def test_one_kernel(pool: Pool, layout: str, target: str) -> None:
    """Windows that overlap and that do not, with a border and without."""
    with ALWAYS:
        program = check(
            layer(pool, layout), *arguments("f16", 2, 19, 22, 16, 32, 3, layout), target=target, length=150
        )
    assert kernels(program) == ["conv_0"]


@pytest.mark.parametrize("keep", [False, True], ids=["dropped", "kept"])
@pytest.mark.parametrize("taps", [1, 3])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
@covering()
def test_means_of_images(dtype: str, layout: str, taps: int, keep: bool) -> None:
    """The sum over all positions is the sum over the only window; what is done to it is in the kernel, too."""

    def mean(y: jax.Array, layout: str) -> jax.Array:
        return jnp.mean(y, axis=(1, 2) if layout == "NHWC" else (2, 3), keepdims=keep)

    with ALWAYS:
        program = check(layer(mean, layout), *arguments(dtype, 3, 7, 7, 24, 48, taps, layout), length=300)
    assert kernels(program) == ["conv_0"] or (layout, taps) == ("NCHW", 1)


def test_averages() -> None:
    """Elementwise ops behind the windows join, also such with a number for each feature."""
    pool = Pool("sum", (2, 2), (2, 2), [(0, 0)] * 2)

    def averaged(x: jax.Array, w: jax.Array, b: jax.Array, s: jax.Array) -> jax.Array:
        return jnp.tanh(layer(pool)(x, w, b) / 4 * s)

    program = check(averaged, *arguments("f16", 1, 16, 16, 16, 32, 3), data("f16", (32,), 5), length=150)
    assert kernels(program) == ["conv_0"]


def test_products() -> None:
    """The rows of a matrix product may be places of images, too."""

    def projected(x: jax.Array, w: jax.Array) -> jax.Array:
        return TWO(jnp.einsum("nhwc,cd->nhwd", x, w), "NHWC")

    with ALWAYS:
        program = check(projected, data("f16", (2, 16, 12, 32)), data("f16", (32, 48)) / 6, length=32)
    assert kernels(program) == ["contract_0"]


def test_edges_of_residuals() -> None:
    """What is loaded for each element of the product is loaded with the same border."""

    def added(x: jax.Array, w: jax.Array, b: jax.Array, r: jax.Array) -> jax.Array:
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAYOUTS["NHWC"]) + b
        return THREE(y + r, "NHWC")

    args = arguments("f16", 1, 21, 17, 8, 24, 3)
    with ALWAYS:
        program = check(added, *args, data("f16", (1, 21, 17, 24), 9), length=80)
    assert kernels(program) == ["conv_0"]


def told(fn: Callable[..., Any], *args: Any, **how: Any) -> list[str]:
    with reasons_asked() as found:
        tw.compile(fn, *args, **how)
    return [r.why for r in found if r.kind == "not fused"]


APART: dict[str, tuple[Callable[..., Any], str]] = {
    "what is not pooled is a result": (
        lambda x, w, b: (layer(lambda y, _: y)(x, w, b), layer(TWO)(x, w, b)),
        pooling.NOT_ALONE,
    ),
    "windows over features": (
        lambda x, w, b: lax.reduce_window(
            layer(lambda y, _: y)(x, w, b),
            jnp.asarray(-np.inf, x.dtype),
            lax.max,
            (1, 1, 1, 2),
            (1, 1, 1, 2),
            "VALID",
        ),
        pooling.COLUMNS,
    ),
    "a mean that is spread over the image": (
        lambda x, w, b: jnp.tanh(
            layer(lambda y, _: jnp.broadcast_to(y.mean((1, 2), keepdims=True), y.shape))(x, w, b)
        ),
        pooling.MIXED,
    ),
    "long windows": (layer(Pool("max", (17, 1), (1, 1), [(0, 0)] * 2)), pooling.LARGE),
}


@pytest.mark.parametrize("case", APART)
def test_why_not(case: str) -> None:
    fn, why = APART[case]
    assert why in told(fn, *arguments("f16", 1, 20, 20, 16, 32, 3))


def test_why_not_rows_side_by_side() -> None:
    with ALWAYS:
        assert pooled.WINDOWS_ACROSS in told(layer(TWO, "NCHW"), *arguments("f16", 1, 20, 20, 16, 32, 1, "NCHW"))


def test_why_not_by_time() -> None:
    """Where two kernels take less, there are two, and both times are said."""
    with patch.object(PooledProduct, "pays", lambda self, made, now: False):
        (why,) = told(layer(THREE), *arguments("f16", 1, 20, 20, 16, 32, 3))
    assert re.fullmatch(r"one kernel takes [\d.]+ us, in tiles of whole windows, and 2 take [\d.]+", why)


def test_switch() -> None:
    args = arguments("f16", 1, 16, 16, 16, 32, 3)
    apart = tw.compile(layer(TWO), *args, options=tw.Options(without={"pooled"}))
    assert kernels(apart) == ["conv_0", "reduce_window_0"]
    assert kernels(tw.compile(layer(TWO), *args)) == ["conv_0"]


def test_pins() -> None:
    """A step of rows is one of whole windows: what is pinned is obeyed, or refused with the reason."""
    args = arguments("f16", 1, 33, 33, 16, 32, 3)

    def pinned(**pins: Any) -> tw.Options:
        return tw.Options(schedule={"conv_0": tw.Schedule(**pins)})

    with ALWAYS:
        program = check(
            layer(THREE), *args, options=pinned(base_m=96, base_n=32, base_k=16, l0c=1), length=150
        )
        fusion = next(op for op in program.module("graph").walk() if isinstance(op, FusionOp))
    (schedule,) = to_schedules(fusion.schedule)
    assert isinstance(schedule, CubeSchedule) and schedule.step is not None and schedule.l0c == 1
    height, width, columns, *_ = schedule.step
    assert height % 2 == width % 2 == 1 and 80 < height * width <= 96 and columns == 32
    with ALWAYS, pytest.raises(tw.CompileError, match="no tile of whole windows has base_m=192"):
        tw.compile(layer(THREE), *args, options=pinned(base_m=192))


def test_pins_for_all() -> None:
    """A pin for all kernels that one kernel could not obey leaves two, which can."""
    args = arguments("f16", 1, 32, 32, 16, 32, 3)
    options = tw.Options(schedule=tw.Schedule(base_m=192))
    assert kernels(tw.compile(layer(THREE), *args, options=options)) == ["conv_0", "reduce_window_0"]


def test_open_sizes() -> None:
    """Where sizes are known only at run time there are two kernels."""
    batch = export.symbolic_shape("b, 16, 16, 8")
    args = [jax.ShapeDtypeStruct(s, "float16") for s in (batch, (3, 3, 8, 16), (16,))]
    given = arguments("f16", 3, 16, 16, 8, 16, 3)
    with ALWAYS:
        program = tw.compile(layer(TWO), *args)
        got = np.asarray(program(*given))
    np.testing.assert_allclose(got, np.asarray(layer(TWO)(*given)), rtol=0, atol=0.02)


AVERAGE = Pool("sum", (3, 3), (1, 1), [(1, 1)] * 2)
MODELLED: dict[str, tuple[Callable[..., jax.Array], int, tuple[int, ...]]] = {
    "stem of ResNet": (THREE, 2, (1, 224, 224, 3, 64, 7)),
    "2x2": (TWO, 1, (1, 56, 56, 64, 64, 3)),
    "average": (lambda y, layout: AVERAGE(y, layout) / 9, 1, (1, 28, 28, 64, 64, 1)),
}


@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310"])
@pytest.mark.parametrize("case", MODELLED)
def test_modelled_time(case: str, target: str) -> None:
    """One kernel is chosen, and takes less time than two."""
    pool, stride, sizes = MODELLED[case]
    args = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments("f16", *sizes)]
    fn = layer(pool, stride=stride)
    together, apart = (
        tw.compile(fn, *args, target=target, options=tw.Options(without=out)).report() for out in ((), "pooled")
    )
    assert len(together.kernels) == 1
    assert together.microseconds < 0.9 * apart.microseconds
