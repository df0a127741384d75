"""Strided views against numpy's as_strided."""

import math

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tiering import examples

from tilewright.backends.interpreter.views import View, plan_view, realise

jax.config.update("jax_platforms", "cpu")


def strided(flat: np.ndarray, view: View) -> np.ndarray:
    steps = [s * flat.itemsize for s in view.strides]
    return np.lib.stride_tricks.as_strided(flat[view.offset :], view.shape, steps)


@st.composite
def views(draw: st.DrawFn) -> tuple[tuple[int, ...], View]:
    """A source shape and any view that stays inside it; dimensions may repeat, step, turn round and
    overlap."""
    source = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    count = math.prod(source)
    shape, strides, low, high = [], [], 0, 0
    for _ in range(draw(st.integers(1, 3))):
        stride = draw(st.integers(-count, count))
        room = (count - 1 - high + low) // abs(stride) if stride else 5
        n = draw(st.integers(1, max(1, min(room + 1, 6))))
        reach = (n - 1) * stride
        low, high = low + min(reach, 0), high + max(reach, 0)
        shape.append(n)
        strides.append(stride)
    offset = draw(st.integers(-low, count - 1 - high))
    return source, View(tuple(shape), tuple(strides), offset)


@st.composite
def boxes_of_source(draw: st.DrawFn) -> tuple[tuple[int, ...], View]:
    """Slices, reversals, transposes and broadcasts of a source: what passes make."""
    source = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    dims, offset = [], 0
    for d, n in enumerate(source):
        weight, step = math.prod(source[d + 1 :]), draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        start = draw(st.integers(0, n - 1))
        size = draw(st.integers(1, (n - 1 - start) // abs(step) + 1))
        offset += (start if step > 0 else start + (size - 1) * -step) * weight
        dims.append((size, step * weight))
    if draw(st.booleans()):
        dims.append((draw(st.integers(1, 4)), 0))
    dims = draw(st.permutations(dims))
    return source, View(tuple(n for n, _ in dims), tuple(s for _, s in dims), offset)


@examples(80)
@given(st.one_of(views(), boxes_of_source()))
def test_realise(case: tuple[tuple[int, ...], View]) -> None:
    source, view = case
    flat = np.arange(math.prod(source), dtype=np.int32)
    got = realise(jax.numpy.asarray(flat.reshape(source)), view)
    np.testing.assert_array_equal(np.asarray(got), strided(flat, view))


@examples(200)
@given(st.one_of(views(), boxes_of_source()))
def test_a_plan_addresses_the_same_elements(case: tuple[tuple[int, ...], View]) -> None:
    source, view = case
    way = plan_view(source, view)
    if way is None:
        return
    flat = np.arange(math.prod(source), dtype=np.int32)
    base = np.concatenate([flat[way.skip :], np.full(way.pad, -1, np.int32)]).reshape(way.base)
    want = strided(flat, view)
    for index in np.ndindex(*view.shape):
        at = list(way.fixed)
        for i, axis in zip(index, way.axes, strict=True):
            if axis is not None:
                at[axis.dim] = axis.start + i * axis.step
        assert base[tuple(at)] == want[index]


@examples(100)
@given(boxes_of_source())
def test_boxes_of_a_source_need_no_gather(case: tuple[tuple[int, ...], View]) -> None:
    source, view = case
    way = plan_view(source, view)
    assert way is not None
    assert way.skip == way.pad == 0


@examples(200)
@given(st.one_of(views(), boxes_of_source()), st.data())
def test_a_view_of_a_part(case: tuple[tuple[int, ...], View], data: st.DataObject) -> None:
    source, view = case
    d = data.draw(st.integers(0, len(source) - 1))
    length = data.draw(st.integers(1, source[d]))
    here = view.of_part(source, d, length)
    if here is None or source[d] == 1:
        return
    flat = np.arange(math.prod(source), dtype=np.int32)
    want = strided(flat, view)
    for e in range(len(view.shape)):
        if view.source_dim(e, source) == d:
            want = np.take(want, range(length), e)
    part = np.ascontiguousarray(np.take(flat.reshape(source), range(length), d))
    np.testing.assert_array_equal(strided(part.reshape(-1), here), want)


def test_a_part_in_views_that_merge_and_drop_dimensions() -> None:
    source = (1, 7, 7, 512)
    assert View.dense((49, 512)).of_part(source, 3, 96) == View.dense((49, 96))
    assert View.dense((7, 7, 512)).of_part(source, 1, 2) == View.dense((2, 7, 512))
    assert View.dense((512, 7, 7)).of_part((512, 7, 7), 1, 2) == View.dense((512, 2, 7))
    assert View.dense((49, 512)).of_part(source, 1, 2) is None
    assert View((512, 49), (1, 512)).of_part(source, 3, 96) == View((96, 49), (1, 96))


def test_identity_and_transpose_stay_cheap() -> None:
    x = jax.ShapeDtypeStruct((3, 5), np.float32)
    assert "gather" not in str(jax.make_jaxpr(lambda a: realise(a, View((5, 3), (1, 5))))(x))
    assert str(jax.make_jaxpr(lambda a: realise(a, View.dense((3, 5))))(x)).count(" = ") == 0


def test_overlapping_windows_are_gathered() -> None:
    x = np.arange(6, dtype=np.float32)
    got = realise(jax.numpy.asarray(x), View((4, 3), (1, 1)))
    np.testing.assert_array_equal(np.asarray(got), np.lib.stride_tricks.sliding_window_view(x, 3))
