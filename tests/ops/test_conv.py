"""Convolutions of one to three spatial dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import check, data, targets
from hypothesis import assume, given
from hypothesis import strategies as st
from jax import lax
from tiering import covering, examples, sampled

import tilewright as tw
from tilewright.api.compiling import lower
from tilewright.backends.interpreter import run_graph

TARGETS = targets()
SPATIAL = "DHW"
NHWC = ("NHWC", "HWIO", "NHWC")


@sampled(2)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8"])
@examples(5)
@given(draw=st.data(), target=TARGETS)
def test_conv(dtype: str, draw: st.DataObject, target: str) -> None:
    on_vector = target == "ascend-310" and dtype in (
        "f32",
        "bf16",
    )  # one contraction for each window position
    rank = draw.draw(st.sampled_from([1, 2, 2, 2, 3]))
    space = SPATIAL[-rank:]
    layouts = draw.draw(
        st.sampled_from(
            [
                (f"N{space}C", f"{space}IO", f"N{space}C"),
                (f"NC{space}", f"OI{space}", f"NC{space}"),
                (f"C{space}N", f"I{space}O", f"C{space}N"),
                (f"N{space}C", f"OI{space}", f"NC{space}"),
            ]
        )
    )
    groups = draw.draw(st.sampled_from([1, 1, 2, 3]))
    features_in = (
        draw.draw(st.sampled_from([1, 2, 5, 17])) if groups == 1 else draw.draw(st.sampled_from([1, 2]))
    )
    features_out = draw.draw(st.sampled_from([1, 4, 8])) * groups
    each = [
        (
            draw.draw(st.sampled_from([5, 7, 13] if rank < 3 else [3, 5])),
            draw.draw(st.sampled_from([1, 2, 3, 5] if rank < 3 and not on_vector else [1, 2])),
            draw.draw(st.integers(1, 3)),
            (draw.draw(st.integers(-1, 2)), draw.draw(st.integers(0, 2))),
            draw.draw(st.sampled_from([1, 1, 1, 2])),
            draw.draw(st.sampled_from([1, 1, 2])),
        )
        for _ in range(rank)
    ]
    sizes, window, strides, padding, lhs_dilation, rhs_dilation = (tuple(v) for v in zip(*each, strict=True))
    assume(all((n - 1) * a + 1 + sum(p) > (w - 1) * b for n, w, _, p, a, b in each))

    def shape(layout: str, named: dict[str, int]) -> list[int]:
        return [named[c] for c in layout]

    x = data(
        dtype, shape(layouts[0], {"N": 2, "C": features_in * groups, **dict(zip(space, sizes, strict=True))})
    )
    w = data(
        dtype,
        shape(layouts[1], {"I": features_in, "O": features_out, **dict(zip(space, window, strict=True))}),
    )

    def fn(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x,
            w,
            strides,
            padding,
            lhs_dilation,
            rhs_dilation,
            layouts,
            feature_group_count=groups,
            preferred_element_type=jnp.int32 if dtype == "i8" else None,
        )

    check(fn, x, w, target=target, length=math.prod(window) * features_in)


@examples(5)
@given(draw=st.data(), target=TARGETS)
def test_batch_groups(draw: st.DataObject, target: str) -> None:
    """Parts of the batch that meet filters of their own, and the gradient of a grouped convolution, which has them."""
    layouts = draw.draw(st.sampled_from([NHWC, ("CHWN", "OHWI", "HNWC"), ("NCHW", "OIHW", "NCHW")]))
    groups, batch, outputs = (draw.draw(st.sampled_from(n)) for n in ((2, 3), (1, 2), (1, 4)))
    sizes = {"N": groups * batch, "C": 3, "I": 3, "O": groups * outputs}
    x = data("f32", [sizes.get(c) or {"H": 6, "W": 5}[c] for c in layouts[0]])
    w = data("f32", [sizes.get(c) or {"H": 3, "W": 2}[c] for c in layouts[1]])

    def fn(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 2), "SAME", None, (2, 1), layouts, batch_group_count=groups)

    check(fn, x, w, target=target, length=18)

    def loss(x: Any, w: Any) -> Any:
        y = lax.conv_general_dilated(x, w, (2, 1), "SAME", None, None, NHWC, feature_group_count=groups)
        return (y * y).sum()

    x, w = data("f32", (2, 5, 6, groups * 2)), data("f32", (3, 3, 2, groups * outputs))
    check(jax.grad(loss, (0, 1)), x, w, target=target, length=60)


@examples(10)
@given(draw=st.data(), target=TARGETS)
def test_windows_with_one_place(draw: st.DataObject, target: str) -> None:
    """Where the window fills a dimension or is a point in it, the convolution is a product; groups are its batch."""
    layouts = draw.draw(
        st.sampled_from([NHWC, ("NCHW", "OIHW", "NCHW"), ("CHWN", "OHWI", "HNWC"), ("HNCW", "WOHI", "CWNH")])
    )
    groups, height, width = (draw.draw(st.sampled_from(n)) for n in ((1, 3), (1, 5), (1, 4)))
    window = draw.draw(st.sampled_from([(height, width), (height, 1), (1, width)]))
    sizes = {"N": 2, "C": 2 * groups, "H": height, "W": width}
    x = data("f32", [sizes[c] for c in layouts[0]])
    w = data("f32", [{"I": 2, "O": 4 * groups, "H": window[0], "W": window[1]}[c] for c in layouts[1]])

    def fn(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1, 1), "VALID", None, None, layouts, feature_group_count=groups
        )

    check(fn, x, w, target=target, length=40)


@covering()
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310", "ascend-950pr"])
@pytest.mark.parametrize("dtype", ["f16", "i8"])
@pytest.mark.parametrize("sizes", [(5, 1), (1, 5), (1, 1), (4, 1, 3), (3, 4, 1), (2, 1, 1)])
def test_results_of_one_place_beside_others(dtype: str, sizes: tuple[int, ...], target: str) -> None:
    """Windows along dimensions in which the result has one place, and the image too, which they reach out of."""
    space = SPATIAL[-len(sizes) :]
    x, w = data(dtype, (2, *sizes, 8)), data(dtype, (*[2] * len(sizes), 8, 16))

    def fn(x: Any, w: Any) -> Any:
        pads = [(0, 1)] * len(sizes)
        layouts = (f"N{space}C", f"{space}IO", f"N{space}C")
        return lax.conv_general_dilated(x, w, (1,) * len(sizes), pads, dimension_numbers=layouts)

    check(fn, x, w, target=target, length=64)


@covering()
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310", "ascend-950pr"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
@pytest.mark.parametrize(
    ("shape", "stride"), [((2, 20, 14, 14), 2), ((1, 33, 9, 17), 3), ((3, 16, 1, 56), 2), ((1, 5, 7, 40), 20)]
)
def test_a_point_filter_over_every_other_place(
    shape: tuple[int, ...], stride: int, dtype: str, target: str
) -> None:
    """Where places lie next to each other, as in PyTorch's layout, whole rows are loaded: single elements would take a
    burst each."""
    x, w = data(dtype, shape), data(dtype, (24, shape[1], 1, 1), 1)
    wide = jnp.int32 if dtype == "i8" else None

    def fn(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(x, w, (stride, stride), "VALID", preferred_element_type=wide)

    check(fn, x, w, target=target, length=shape[1])


def test_a_point_filter_over_every_other_place_takes_no_single_elements() -> None:
    x, w = jax.ShapeDtypeStruct((1, 256, 56, 56), "float16"), jax.ShapeDtypeStruct((512, 256, 1, 1), "float16")
    report = tw.compile(lambda x, w: lax.conv_general_dilated(x, w, (2, 2), "VALID"), x, w).report()
    assert report.microseconds < 15


def test_gradient_of_a_point_filter_takes_no_single_elements() -> None:
    """Its input lies by features: what is added up, the positions, is what lies together."""

    def gradient(x: Any, y: Any, dims: tuple[str, str, str]) -> Any:
        w = jnp.zeros([{"O": 32, "I": 16, "H": 1, "W": 1}[c] for c in dims[1]])
        return jax.vjp(lambda w: lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=dims), w)[
            1
        ](y)

    times = []
    for dims in (NHWC, ("NCHW", "OIHW", "NCHW")):
        shapes = [
            [{"N": 4, "C": c, "H": 28, "W": 28}[d] for d in layout]
            for layout, c in ((dims[0], 16), (dims[2], 32))
        ]
        args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
        times.append(tw.compile(lambda x, y, d=dims: gradient(x, y, d), *args).report().microseconds)
    assert times[1] < 3 * times[0]


def conv(x: jax.Array, w: jax.Array, **options: Any) -> jax.Array:
    return lax.conv_general_dilated(
        x, w, (1, 1), options.pop("padding", "SAME"), dimension_numbers=NHWC, **options
    )


IMAGE, FILTER = data("f16", (2, 9, 11, 3)), data("f16", (3, 3, 3, 8))
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[jax.Array, ...]]] = {
    "scale, bias, relu": (
        lambda x, w, b: jax.nn.relu(conv(x, w) * b + b),
        (IMAGE, FILTER, data("f16", (8,))),
    ),
    "a residual": (lambda x, w: conv(x, w) + x, (IMAGE, data("f16", (3, 3, 3, 3)))),
    "a padded input": (
        lambda x, w: conv(jnp.pad(x, ((0, 0), (1, 1), (2, 2), (0, 0))), w, padding="VALID"),
        (IMAGE, FILTER),
    ),
    "reversed weights": (
        lambda x, w: conv(x, w[::-1, ::-1].transpose(0, 1, 3, 2)),
        (IMAGE, data("f16", (3, 3, 8, 3))),
    ),
    "the image's dimensions swapped in the result": (
        lambda x, w: (
            lax.conv_general_dilated(x, w, (1, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NWHC")) + 1
        ),
        (IMAGE, data("f16", (3, 2, 3, 8))),
    ),
    "the result's features first": (
        lambda x, w: (
            lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "CNWH")) * 2
        ),
        (IMAGE, FILTER),
    ),
    "transposed": (lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), (IMAGE, FILTER)),
    "depthwise": (lambda x, w: conv(x, w, feature_group_count=3), (IMAGE, data("f16", (3, 3, 1, 6)))),
    "depthwise and relu": (
        lambda x, w: jax.nn.relu(conv(x, w, feature_group_count=3) + 1),
        (IMAGE, data("f16", (3, 3, 1, 6))),
    ),
    "one output": (lambda x, w: conv(x, w, padding="VALID"), (IMAGE, data("f16", (9, 11, 3, 8)))),
    "a filter larger than the image": (
        lambda x, w: conv(x, w, padding=((2, 2), (2, 2))),
        (data("f16", (2, 3, 3, 3)), data("f16", (5, 5, 3, 8))),
    ),
    "then pooling": (
        lambda x, w: lax.reduce_window(conv(x, w), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        (IMAGE, FILTER),
    ),
    "then the mean over the image": (lambda x, w: conv(x, w).mean((1, 2)), (IMAGE, FILTER)),
    "windows far apart": (
        lambda x, w: lax.conv_general_dilated(x, w, (16, 16), "VALID", dimension_numbers=NHWC),
        (data("f16", (1, 224, 224, 3)), data("f16", (16, 16, 3, 32))),
    ),
    "many tiles": (conv, (data("f16", (1, 40, 40, 64)), data("f16", (3, 3, 64, 64)))),
}


@sampled(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_around_a_conv(name: str) -> None:
    fn, args = PROGRAMS[name]
    check(fn, *args, length=32)


@covering(2)
@pytest.mark.parametrize("out", ["NCHW", "CNHW", "NHWC", "WNCH"])
@pytest.mark.parametrize("image", ["NCHW", "NHWC", "HWNC"])
def test_an_epilogue_in_any_layout(image: str, out: str) -> None:
    """Cores take rows of an image each: their parts of the result lie apart in device memory."""

    def fn(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        y = lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=(image, "OIHW", out))
        return jax.nn.relu(y + b.reshape([b.size if d == "C" else 1 for d in out]))

    sizes = {"N": 1, "H": 56, "W": 28, "C": 3}
    x = data("f32", tuple(sizes[d] for d in image))
    program = check(fn, x, data("f32", (8, 3, 4, 4)), data("f32", (8,)), length=48)
    assert [kernel.cores for kernel in program.report().kernels] > [1]


@covering()
@pytest.mark.parametrize("target", ["ascend-310", "ascend-910a", "ascend-910b1"])
@pytest.mark.parametrize("out", ["NCHW", "CNHW", "NHWC", "WNCH"])
def test_an_epilogue_with_an_operand_of_the_result(out: str, target: str) -> None:
    """A residual: it lies as the result does, whose axes a fused core has in the accumulator's order."""

    def fn(x: jax.Array, w: jax.Array, r: jax.Array) -> jax.Array:
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", out))
        return jnp.minimum(y, r) + r[::-1]

    sizes = {"N": 2, "C": 8, "H": 5, "W": 7}
    residual = data("f16", tuple(sizes[d] for d in out), 2)
    check(fn, data("f16", (2, 3, 5, 7)), data("f16", (8, 3, 3, 3)), residual, target=target, length=27)


@sampled(2)
@pytest.mark.parametrize("name", ["scale, bias, relu", "depthwise and relu", "then pooling"])
def test_around_a_conv_on_a_fused_core(name: str) -> None:
    fn, args = PROGRAMS[name]
    check(fn, *args, target="ascend-310", length=32)


@covering()
@pytest.mark.parametrize("dtype", ["f32", "i32"])
@pytest.mark.parametrize("groups", [1, 3])
def test_types_the_cube_lacks(dtype: str, groups: int) -> None:
    def fn(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x,
            w,
            (2, 1),
            ((1, 0), (1, 1)),
            (1, 2),
            (2, 1),
            ("NCHW", "OIHW", "NHWC"),
            feature_group_count=groups,
        )

    x, w = data(dtype, (2, 3, 7, 5)), data(dtype, (6, 3 // groups, 2, 3))
    program = check(fn, x, w, target="ascend-310", length=18)
    assert not any(kernel.macs for kernel in program.report().kernels)


def test_gradients() -> None:
    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        return (lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=NHWC) ** 2).sum()

    x, w = data("f32", (2, 9, 11, 3)), data("f32", (3, 3, 3, 8))
    check(jax.grad(loss, (0, 1)), x, w, length=100)


@sampled(2)
@pytest.mark.parametrize(
    ("dtype", "layouts", "images"),
    [
        ("f32", ("CHWN", "IHWO", "HWNC"), 32),
        ("f16", ("NCHW", "OIHW", "NCHW"), 8),  # of C, no batch
        ("i8", ("CHWN", "IHWO", "HWNC"), 48),
        ("f32", ("CHWN", "OIHW", "CNHW"), 37),  # no parts of one size
    ],
)
def test_few_results_of_long_sums(dtype: str, layouts: tuple[str, str, str], images: int) -> None:
    """As in the gradient of a first layer's weights: the images (features, for the convolution) are shared out."""
    sizes = {"C": images, "I": images, "N": 3, "O": 24, "H": 32, "W": 31}
    x, y = (data(dtype, [sizes[d] for d in layout]) for layout in layouts[:2])

    def fn(x: jax.Array, y: jax.Array) -> jax.Array:
        kind = jnp.int32 if dtype == "i8" else None
        return lax.conv_general_dilated(
            x, y, (1, 1), [(1, 1), (0, 1)], dimension_numbers=layouts, preferred_element_type=kind
        )

    program = check(fn, x, y, length=images * 32 * 31)
    assert max(k.cores for k in program.report().kernels if k.macs) >= 4


@sampled(2)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_sums_that_wrap(dtype: type) -> None:
    """The graph level computes few products of bytes in f32; sums beyond a byte wrap there too."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(0, 127, shape).astype(dtype) for shape in [(1, 5, 5, 3), (2, 2, 3, 4)])
    assert tw.verify(lambda x, w: conv(x, w), x, w).ok


def test_sums_of_constants_that_wrap() -> None:
    """Against numpy: XLA folds them, and stops at the largest number."""
    x, w = np.int32([2**31 - 1, 5, 7]).reshape(1, 3, 1), np.int32([3, 3]).reshape(2, 1, 1)

    def fn(n: jax.Array) -> jax.Array:
        y = lax.conv_general_dilated(
            jnp.asarray(x), jnp.asarray(w), (1,), "VALID", dimension_numbers=("NHC", "HIO", "NHC")
        )
        return y + n

    n = np.int32(0)
    want = np.int64([3 * (2**31 - 1) + 15, 36]).astype(np.int32)
    values = [tw.compile(fn, n)(n), run_graph(lower(fn, n)[0], n)[0]]
    for got in values:
        np.testing.assert_array_equal(np.asarray(got).ravel(), want)


@covering()
@pytest.mark.parametrize("features", [16, 300])
@pytest.mark.parametrize("layouts", [("HNC", "OIH", "HNC"), ("CHN", "OIH", "HNC"), ("NCH", "HIO", "NCH")])
def test_groups_in_any_layout(layouts: tuple[str, str, str], features: int) -> None:
    """The features of a group are a part of the image's: no window, however the image lies."""
    sizes = {"N": 2, "C": 2 * features, "H": 5, "O": 6, "I": features}
    x = data("f32", [sizes[d] for d in layouts[0]])
    w = data("f32", [3 if d == "H" else sizes[d] for d in layouts[1]])

    def fn(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=layouts, feature_group_count=2)

    check(fn, x, w, length=3 * features)
