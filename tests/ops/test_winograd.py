"""Winograd's convolutions: values within their stated bound, what is chosen, what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import JAX_DTYPE, data
from memories import outputs
from tiering import covering, later, sampled
from xdsl.dialects.builtin import TensorType, f32
from xdsl.ir import Attribute, Block, Operation, SSAValue

import tilewright as tw
from tilewright.passes.forms.tensor_builder import TensorBuilder
from tilewright.passes.simplify.winograd import along_each
from tilewright.passes.simplify.winograd_transforms import TAPS, transforms

UNIT_ROUNDOFF = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}


def convolution(
    x: Any, w: Any, padding: Any = "SAME", layouts: tuple[str, str, str] = ("NHWC", "HWIO", "NHWC")
) -> Any:
    strides = (1,) * (len(layouts[0]) - 2)
    return jax.lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=layouts)


def applied(matrix: np.ndarray, x: np.ndarray, first: int, dims: int) -> np.ndarray:
    """A matrix applied along each of `dims` dimensions from `first` on."""
    for d in range(first, first + dims):
        x = np.moveaxis(np.tensordot(matrix, x, (1, d)), 0, d)
    return x


def by_tiles(x: np.ndarray, w: np.ndarray, places: int, magnitudes: bool) -> np.ndarray:
    """A^T [(G w) * (B^T x)] of padded x [n, *spatial, c] and w [*3, c, k], in f64. magnitudes: of all numbers in it."""
    how, dims = transforms(places), w.ndim - 2
    output, weights, inputs = (
        np.array([[float(c) for c in row] for row in m]) for m in (how.output, how.weights, how.input)
    )
    if magnitudes:
        output, weights, inputs, x, w = map(np.abs, (output, weights, inputs, x, w))
    out = [n - TAPS + 1 for n in x.shape[1:-1]]
    tiles = [-(-n // places) for n in out]
    room = [(0, t * places + TAPS - 1 - n) for t, n in zip(tiles, x.shape[1:-1], strict=True)]
    x = np.pad(x, [(0, 0), *room, (0, 0)])
    u = applied(weights, w, 0, dims)
    y = np.zeros((x.shape[0], *(t * places for t in tiles), w.shape[-1]))
    for tile in np.ndindex(*tiles):
        at = (slice(None), *(slice(t * places, t * places + how.products) for t in tile))
        v = applied(inputs, x[at], 1, dims)
        m = np.einsum("n...c,...ck->n...k", v, u)
        to = (slice(None), *(slice(t * places, (t + 1) * places) for t in tile))
        y[to] = applied(output, m, 1, dims)
    return y[(slice(None), *(slice(0, n) for n in out))]


class CountingBuilder(TensorBuilder):
    """Counts what it makes, in a block."""

    def __init__(self) -> None:
        self.block = Block()

    def add(
        self, cls: type[Operation], operands: Sequence[SSAValue], result: Attribute, **properties: Attribute
    ) -> SSAValue:
        op = cls.create(operands=operands, result_types=[result], properties=properties)
        self.block.add_op(op)
        return op.results[0]


@pytest.mark.parametrize(
    ("places", "which", "additions", "products"),
    [
        (2, "input", 32, 0),
        (2, "weights", 21, 28),
        (2, "output", 24, 0),
        (4, "input", 144, 120),
        (4, "weights", 54, 63),
        (4, "output", 100, 60),
    ],
)
def test_mirrored_rows_and_columns_share_their_halves(
    places: int, which: str, additions: int, products: int
) -> None:
    """Instructions for a tile of a 2D convolution; the 32 and 24 additions are those of Lavin and Gray, "Fast
    Algorithms for Convolutional Neural Networks", section 4.1."""
    matrix = getattr(transforms(places), which)
    build, tile = CountingBuilder(), [*np.ndindex(len(matrix[0]), len(matrix[0]))]
    values = Block(arg_types=[TensorType(f32, [4])] * len(tile)).args
    along_each(build, dict(zip(tile, values, strict=True)), matrix)
    made = Counter(op.name for op in build.block.ops)
    assert (made["graph.add"] + made["graph.sub"], made["graph.mul"]) == (additions, products)


def bound(x: np.ndarray, w: np.ndarray, places: int, dtype: str, exact: np.ndarray) -> np.ndarray:
    """docs/numerics.md, "Winograd's convolutions": for each element of the result."""
    narrow, wide = UNIT_ROUNDOFF[dtype], UNIT_ROUNDOFF["f32"]
    how, dims, channels = transforms(places), w.ndim - 2, w.shape[-2]
    own = (channels + how.roundings(dims)) * wide + (2 * narrow if narrow > wide else 0.0)
    first = own * by_tiles(x, w, places, magnitudes=True)
    return 1.01 * (first + narrow * np.abs(exact)) + float(jnp.finfo(JAX_DTYPE[dtype]).tiny) * how.products**dims


def padded(x: np.ndarray, low: int, high: int) -> np.ndarray:
    return np.pad(x, [(0, 0), *[(low, high)] * (x.ndim - 2), (0, 0)])


def held(x: Any, w: Any, places: int, dtype: str, target: str = "ascend-910b1", pad: tuple[int, int] = (1, 1)) -> float:
    """Compiles and runs a convolution in both memories, each element within its bound; the largest share of it."""
    dims = w.ndim - 2
    letters = "HW"[:dims]
    layouts = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    program = tw.compile(
        lambda x, w: convolution(x, w, [pad] * dims, layouts),
        x,
        w,
        target=target,
        options=tw.Options(winograd=str(places)),
    )
    assert not any(k.name.startswith("conv_") for k in program.report().kernels)
    (got,) = outputs(program, [x, w])
    wide_x, wide_w = (np.asarray(v, np.float64) for v in (x, w))
    ready = padded(wide_x, *pad)
    exact = by_tiles(ready, wide_w, places, magnitudes=False)
    ratio = np.abs(got.astype(np.float64) - exact) / bound(ready, wide_w, places, dtype, exact)
    assert ratio.max() <= 1
    return float(ratio.max())


@pytest.mark.parametrize("places", [2, 4])
def test_the_matrices_are_exact(places: int) -> None:
    how = transforms(places)
    for i in range(places):
        for k in range(TAPS):
            for d in range(how.products):
                terms = [how.output[i][j] * how.weights[j][k] * how.input[j][d] for j in range(how.products)]
                assert sum(terms) == (d == i + k)


@covering(1)
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (7, 5), (13, 17)])
@pytest.mark.parametrize("channels", [(1, 1), (3, 17), (97, 31)])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("places", [2, 4])
def test_each_element_is_within_its_bound(
    places: int, dtype: str, channels: tuple[int, int], size: tuple[int, int]
) -> None:
    x, w = data(dtype, (2, *size, channels[0])), data(dtype, (3, 3, *channels), 1)
    held(x, w, places, dtype)


@covering(1)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("places", [2, 4])
@pytest.mark.parametrize("pad", [(0, 0), (2, 1), (0, 3)])
def test_paddings_of_one_dimension(pad: tuple[int, int], places: int, dtype: str) -> None:
    held(data(dtype, (3, 19, 13)), data(dtype, (3, 13, 7), 1), places, dtype, pad=pad)


@sampled(2)
@pytest.mark.parametrize(("target", "places"), [("ascend-310", 2), ("ascend-310p3", 4)])
def test_other_machines(target: str, places: int) -> None:
    held(data("f16", (1, 5, 6, 33)), data("f16", (3, 3, 33, 18), 1), places, "f16", target)


@sampled(2)
@pytest.mark.parametrize("places", [2, 4])
def test_far_apart_magnitudes(places: int) -> None:
    """What a large number in a tile leaves of the small results beside it."""
    x = np.asarray(data("f32", (1, 12, 12, 5))).copy()
    x[0, 3, 4] *= 1e6
    held(jnp.asarray(x), data("f32", (3, 3, 5, 4), 1), places, "f32")


@sampled(3)
@pytest.mark.parametrize("layouts", [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NCHW"), ("CHWN", "IHWO", "NHWC")])
def test_layouts(layouts: tuple[str, str, str]) -> None:
    sizes = {"N": 2, "C": 5, "H": 7, "W": 9, "I": 5, "O": 6}
    x = data("f32", [sizes[c] for c in layouts[0]])
    w = data("f32", [3 if c in "HW" else sizes[c] for c in layouts[1]], 1)
    program = tw.compile(lambda x, w: convolution(x, w, "SAME", layouts), x, w, options=tw.Options(winograd="4"))
    want = convolution(x, w, "SAME", layouts)
    np.testing.assert_allclose(program(x, w), want, rtol=0, atol=2e-4)


def test_gradients() -> None:
    """That of the input is such a convolution, too; that of the weights has a wide window."""
    x, w = data("f32", (2, 8, 8, 5)), data("f32", (3, 3, 5, 6), 1)

    def loss(x: Any, w: Any) -> Any:
        return (convolution(x, w) ** 2).sum()

    program = tw.compile(jax.grad(loss, (0, 1)), x, w, options=tw.Options(winograd="2"))
    for got, want in zip(program(x, w), jax.grad(loss, (0, 1))(x, w), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * float(jnp.abs(want).max()))
    assert sum(k.name.startswith("conv_") for k in program.report().kernels) <= 1


@pytest.mark.parametrize(("dtype", "places"), [pytest.param("f32", "4", marks=later()), ("f16", "2")])
def test_verify(dtype: str, places: str) -> None:
    """After the pass, what it makes is what the others are judged against."""
    x, w = data(dtype, (1, 9, 7, 20)), data(dtype, (3, 3, 20, 18), 1)
    found = tw.verify(lambda x, w: jax.nn.relu(convolution(x, w) + 1), x, w, options=tw.Options(winograd=places))
    assert found.ok, found


# -- what is chosen -----------------------------------------------------------------------------------------------

Sizes = tuple[int, int, int]
"""Images, their side, features."""


def chosen(sizes: Sizes, dtype: str, choice: Any, target: str = "ascend-910b1") -> list[str]:
    """The kernels of a convolution behind another op, without its values."""
    n, side, c = sizes
    kind = JAX_DTYPE[dtype]
    x, w = jax.ShapeDtypeStruct((n, side, side, c), kind), jax.ShapeDtypeStruct((3, 3, c, c), kind)
    program = tw.compile(
        lambda x, w: convolution(jnp.exp(x), w), x, w, target=target, options=tw.Options(winograd=choice)
    )
    return [k.name for k in program.report().kernels]


def is_direct(kernels: Sequence[str]) -> bool:
    return any(name.startswith("conv_") for name in kernels)


def test_auto_takes_what_is_faster_within_the_bound_of_the_convolution() -> None:
    assert not is_direct(chosen((8, 28, 512), "f32", "auto"))
    assert is_direct(chosen((8, 28, 512), "f32", "off"))
    assert is_direct(chosen((8, 28, 48), "f32", "auto"))  # slower, and the bound is larger
    assert is_direct(chosen((8, 28, 512), "f16", "auto"))  # rounding transformed inputs is more than the bound


def test_nothing_is_rewritten_unasked() -> None:
    assert is_direct(chosen((1, 8, 16), "f32", "off"))
    assert tw.Options().winograd == "off"


def test_convolutions_are_chosen_by_name() -> None:
    def net(params: Any, x: Any) -> Any:
        return convolution(jnp.exp(convolution(x, params["first"])), params["second"])

    params = {"first": data("f32", (3, 3, 5, 6)), "second": data("f32", (3, 3, 6, 5), 1)}
    x = data("f32", (1, 7, 7, 5))
    program = tw.compile(net, params, x, options=tw.Options(winograd={"params['second']": "4"}))
    names = [k.name for k in program.report().kernels]
    assert sum(n.startswith("conv_") for n in names) == 1 and sum(n.startswith("contract_") for n in names) == 1
    want = np.asarray(net(params, x))
    np.testing.assert_allclose(program(params, x), want, rtol=0, atol=1e-5 * np.abs(want).max())
    with pytest.raises(tw.CompileError, match=r"no convolution is called 'third'; they are .*first.*second"):
        tw.compile(net, params, x, options=tw.Options(winograd={"third": "4"}))


@pytest.mark.parametrize("asked", ["3", "on", "a=", "=2", "2,4", "a=2,b"])
def test_choices_that_make_no_sense(asked: str) -> None:
    with pytest.raises(tw.CompileError, match="winograd"):
        tw.Options(winograd=asked)


def test_a_convolution_that_is_none_is_refused_by_name_only() -> None:
    x, w = data("f32", (1, 7, 7, 5)), data("f32", (5, 5, 5, 6), 1)
    assert is_direct([k.name for k in tw.compile(convolution, x, w, options=tw.Options(winograd="2")).report().kernels])
    with pytest.raises(tw.CompileError, match=r"cannot be computed by F\(2, 3\): its window is 5 x 5"):
        tw.compile(convolution, x, w, options=tw.Options(winograd={"w": "2"}))


def test_constant_weights_are_transformed_when_compiling() -> None:
    x, w = data("f32", (1, 7, 7, 5)), np.asarray(data("f32", (3, 3, 5, 6), 1))
    program = tw.compile(lambda x: convolution(x, w), x, options=tw.Options(winograd="2"))
    assert len(program.report().kernels) == 4  # input, product, output, and the odd row cut off
    np.testing.assert_allclose(program(x), convolution(x, w), rtol=0, atol=2e-5)


@pytest.mark.parametrize("places", ["2", "4"])
def test_packed_weights_are_transformed_once(places: str) -> None:
    x, w = data("f32", (1, 8, 8, 5)), data("f32", (3, 3, 5, 6), 1)
    options = tw.Options(winograd=places, weights="w")
    program = tw.compile(lambda x, w: convolution(x, w), x, w, options=options)
    whole = tw.compile(lambda x, w: convolution(x, w), x, w, options=tw.Options(winograd=places))
    np.testing.assert_array_equal(np.asarray(program(x, program.pack(w))), np.asarray(whole(x, w)))
    assert len(program.report().kernels) == len(whole.report().kernels) - (1 if places == "2" else 2)
