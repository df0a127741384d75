"""Tiles side by side against the same tiles one by one."""

from math import prod

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from tiering import examples
from xdsl.dialects import test
from xdsl.dialects.builtin import Float32Type, IntegerAttr, StringAttr, i32, i64

from tilewright.backends.functions.scope import Box, Scope
from tilewright.backends.interpreter import batching, wide
from tilewright.backends.interpreter.batching import Batch
from tilewright.backends.interpreter.instructions import LEADING, RULES, Spec
from tilewright.backends.interpreter.views import View
from tilewright.backends.interpreter.wide import Wide, apart, boxed, extents, grouped, together
from tilewright.dialects.affine import Expr
from tilewright.dialects.base import ints
from tilewright.dialects.npu import ELEMENTWISE, BufferType, VArgReduceOp, VBroadcastOp, VFillOp, VReduceOp
from tilewright.dialects.npu.cumulate import VCumulateOp

jax.config.update("jax_platforms", "cpu")

F32 = np.dtype(np.float32)
SCOPE = Scope(lax.abs(np.float32(0)))


def numbers(shape) -> np.ndarray:
    return np.arange(1, prod(shape) + 1, dtype=np.float32).reshape(shape)


@st.composite
def layouts(draw: st.DrawFn):
    """(tile shape, parts, counts of the batched dimensions)."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=3)))
    counts = draw(st.lists(st.integers(2, 4), max_size=3))
    where = [draw(st.integers(-1, len(shape) - 1)) for _ in counts]
    order = draw(st.permutations(range(len(counts))))
    return shape, tuple(tuple(p for p in order if where[p] == d) for d in range(len(shape))), counts


def leading(parts, counts) -> list[int]:
    return [n if any(p in part for part in parts) else 1 for p, n in enumerate(counts)]


def wide_of(tiles: np.ndarray, shape, parts, counts) -> Wide:
    """By numpy: tile number (i, j, ...) at its place, the first of a dimension's parts the outermost."""
    out = np.zeros(extents(shape, parts, counts), tiles.dtype)
    for at in np.ndindex(*leading(parts, counts)):
        place = []
        for n, part in zip(shape, parts, strict=True):
            number = 0
            for p in part:
                number = number * counts[p] + at[p]
            place.append(slice(number * n, (number + 1) * n))
        out[tuple(place)] = tiles[at]
    return Wide(jax.numpy.asarray(out), shape, parts)


@examples(80)
@given(layouts())
def test_apart_and_together(layout) -> None:
    shape, parts, counts = layout
    tiles = numbers((*leading(parts, counts), *shape))
    found = together(jax.numpy.asarray(tiles), shape, parts, counts)
    expected = wide_of(tiles, shape, parts, counts)
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(apart(found, counts), tiles)
    copies = jax.numpy.asarray(np.broadcast_to(tiles, (*counts, *shape)))  # other dimensions do not differ
    np.testing.assert_array_equal(together(copies, shape, parts, counts).x, expected.x)
    one = jax.numpy.asarray(tiles[tuple(slice(0, 1) for _ in counts)])  # the same in all iterations
    same = np.broadcast_to(one, tiles.shape)
    np.testing.assert_array_equal(together(one, shape, parts, counts).tiles(counts), same)


def op(name: str, shapes, out, along=()):
    """A vector instruction on buffers of these shapes, `along` some dimensions."""
    types = [BufferType.of(s, Float32Type(), "ub") for s in (*shapes, out)]
    types += [BufferType.of(out, i32, "ub")] * (name == "arg_reduce")
    values = test.TestOp(result_types=types).results
    if name == "arg_reduce":
        number = {"dim": IntegerAttr(along[0], i64)}
        return VArgReduceOp.create(operands=values, properties={"kind": StringAttr("max"), **number})
    if name == "broadcast":
        return VBroadcastOp.create(operands=values)
    if name == "fill":
        return VFillOp.create(operands=values, properties={"value": IntegerAttr(3, i64)})
    if name == "reduce":
        return VReduceOp.create(operands=values, properties={"kind": StringAttr("sum"), "dims": ints(along)})
    if name == "cumulate":
        number = {"dim": IntegerAttr(along[0], i64), "reverse": IntegerAttr(0, i64)}
        return VCumulateOp.create(operands=values, properties={"kind": StringAttr("max"), **number})
    return ELEMENTWISE[name].create(operands=values)


@examples(120)
@given(layouts(), st.data())
def test_elementwise(layout, data) -> None:
    """Operands that move with all batched dimensions, with none, that are one element or repeated: where they can be
    computed side by side, the tiles are those computed one by one."""
    shape, parts, counts = layout
    none = ((),) * len(shape)
    sources: list[Wide] = []
    for kind in (data.draw(st.sampled_from(["whole", "still", "one", "row"])) for _ in range(2)):
        if kind == "whole":
            sources.append(wide_of(numbers((*leading(parts, counts), *shape)), shape, parts, counts))
        elif kind == "still":
            sources.append(Wide(jax.numpy.asarray(numbers(shape)), shape, none))
        elif kind == "one":
            ones = (1,) * len(shape)
            sources.append(Wide(jax.numpy.full(ones, 7, F32), ones, none))
        else:  # one row, repeated by vbroadcast
            row = (*(1 for _ in shape[1:]), shape[-1])
            along = (*none[1:], parts[-1])
            x = wide_of(numbers((*leading(along, counts), *row)), row, along, counts)
            repeated = wide.compute(op("broadcast", [row], shape), SCOPE, [x], [Spec(shape, F32)])
            assert repeated is not None
            rank = len(counts)
            tiles = LEADING[VBroadcastOp](
                op("broadcast", [row], shape), SCOPE, [x.tiles(counts)], Spec(shape, F32), rank
            )
            sources += repeated
            np.testing.assert_array_equal(*np.broadcast_arrays(repeated[0].tiles(counts), tiles))
    if all(s.shape != shape for s in sources):
        return
    add = op("add", [s.shape for s in sources], shape)
    found = wide.compute(add, SCOPE, sources, [Spec(shape, F32)])
    if len({s.parts for s in sources if s.x.size > 1}) < 2:
        assert found is not None
    if found is not None:
        tiles = [s.tiles(counts) for s in sources]
        expected = LEADING[type(add)](add, SCOPE, tiles, Spec(shape, F32), len(counts))
        np.testing.assert_array_equal(*np.broadcast_arrays(found[0].tiles(counts), expected))


@examples(120)
@given(layouts(), st.sampled_from(["reduce", "arg_reduce", "cumulate"]), st.data())
def test_along_dimensions(layout, name: str, data) -> None:
    """Tiles are combined along some dimensions where they lie side by side: unless they lie so along one of these."""
    shape, parts, counts = layout
    dims = sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape))))
    dims = dims if name == "reduce" else dims[:1]
    smaller = tuple(1 if d in dims and name != "cumulate" else n for d, n in enumerate(shape))
    out = [Spec(smaller, F32), Spec(smaller, np.dtype(np.int32))][: 1 + (name == "arg_reduce")]
    x = wide_of(numbers((*leading(parts, counts), *shape)), shape, parts, counts)
    if data.draw(st.booleans()):  # all elements along a dimension may be one number
        d = data.draw(st.integers(0, len(shape) - 1))
        alike = tuple(() if i == d else part for i, part in enumerate(parts))
        x = Wide(lax.slice_in_dim(x.x, 0, 1, axis=d), shape, alike)
    instruction = op(name, [shape], smaller, dims)
    found = wide.compute(instruction, SCOPE, [x], out)
    assert (found is None) == any(x.parts[d] for d in dims)
    if found is not None:
        tiles, rule = x.tiles(counts), RULES[type(instruction)]
        expected = batching.lift(lambda t: rule(instruction, SCOPE, [t], out), [tiles], len(counts))
        for y, tile, spec in zip(found, expected, out, strict=True):
            assert (y.shape, y.x.dtype) == (spec.shape, spec.dtype)
            np.testing.assert_array_equal(*np.broadcast_arrays(y.tiles(counts), tile))


def test_diagonal() -> None:
    """Rows of a tile that move with an index, and columns of another that move with it too, do not make tiles that lie
    side by side; nor do boxes that it moves along a diagonal."""
    out = [Spec((2, 3), F32)]
    row = Wide(jax.numpy.ones((8, 1)), (2, 1), ((0,), ()))
    column = Wide(jax.numpy.ones((1, 12)), (1, 3), ((), (0,)))
    rows, columns = (wide.compute(op("broadcast", [x.shape], (2, 3)), SCOPE, [x], out) for x in (row, column))
    assert rows is not None and columns is not None
    assert wide.compute(op("add", [(2, 3)] * 2, (2, 3)), SCOPE, [*rows, *columns], out) is None
    assert batching.side_by_side([[(2, 0, 4)], [(3, 0, 4)]], (2, 3)) is None


def test_fill() -> None:
    found = wide.compute(op("fill", [], (2, 3)), SCOPE, [], [Spec((2, 3), F32)])
    assert found is not None
    np.testing.assert_array_equal(found[0].tiles([4]), np.full((1, 2, 3), 3))


@pytest.mark.parametrize(
    ("sizes", "parts", "shape", "expected"),
    [
        ((7, 14, 64), ((1,), (), (0,)), (7, 14, 64), ((1,), (), (0,))),
        ((64,), ((0,),), (1, 1, 64), ((), (), (0,))),
        ((1, 14, 64), ((1,), (2,), (0,)), (14, 64), ((1, 2), (0,))),
        ((7, 14, 64), ((1,), (), (0,)), (98, 64), ((1,), (0,))),
        ((7, 14, 64), ((), (1,), (0,)), (98, 64), None),
        ((98, 64), ((), (0,)), (7, 14, 64), None),
        ((64, 1), ((), (0,)), (64,), None),
        ((64, 1), ((0,), ()), (64,), ((0,),)),
    ],
)
def test_grouped(sizes, parts, shape, expected) -> None:
    """Dimensions of a box become dimensions of a tile where what lies side by side still does."""
    assert grouped(sizes, parts, shape) == expected


def test_boxed() -> None:
    """Tiles go back to where boxes lie alike; one number is repeated; others must be taken apart."""
    counts = [2, 3]
    x = wide_of(numbers((2, 3, 4, 5)), (4, 5), ((1,), (0,)), counts)
    np.testing.assert_array_equal(boxed(x, (4, 5), ((1,), (0,)), counts), x.x)
    assert boxed(x, (4, 5), ((0,), (1,)), counts) is None
    assert boxed(x, (4, 5), ((1,), ()), counts) is None
    one = Wide(jax.numpy.full((1, 1), 7, F32), (4, 5), ((), ()))
    np.testing.assert_array_equal(boxed(one, (1, 4, 5), ((0,), (1,), ()), counts), np.full((2, 12, 5), 7))


@pytest.mark.parametrize(("coefficients", "side_by_side"), [((3, 6), True), ((2, 4), False), ((3, 7), False)])
def test_load_and_store(coefficients, side_by_side: bool) -> None:
    """Boxes of three elements at `c0 * i + c1 * j`: a load of those side by side cuts nothing; its tiles are those of
    numpy, and a store of them gives the tensor back."""
    block = test.TestOp(result_types=[Float32Type()] * 2)
    i, j = block.results
    batch = Batch({i: 2, j: 3})
    box = Box((Expr(1, dict(zip((i, j), coefficients, strict=True))),), (3,), (1,))
    source = np.arange(40, dtype=np.float32)
    found = batching.load(
        jax.numpy.asarray(source), View.dense((40,)), box, SCOPE, batch, np.float32(0), (3,)
    )
    assert isinstance(found, Wide) == side_by_side
    a, b = coefficients
    expected = np.stack([[source[a * m + b * n + 1 :][:3] for n in range(3)] for m in range(2)])
    np.testing.assert_array_equal(apart(found, batch.sizes), expected)
    if side_by_side:
        stored = batching.store(jax.numpy.zeros(40), View.dense((40,)), found, box, SCOPE, batch)
        kept = np.zeros(40, np.float32)
        kept[1:19] = source[1:19]
        np.testing.assert_array_equal(stored, kept)
