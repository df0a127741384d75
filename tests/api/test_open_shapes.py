"""Shapes with open dimensions: which sizes they have, and what is said where there are none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from open_programs_of import dims, dynamic, struct

import tilewright as tw
from tilewright.api.sizes.shapes import LARGEST, OpenShapes
from tilewright.dialects.affine import Symbol
from tilewright.dialects.sizes import evaluate, parse_constraint, parse_size


def added(x: Any) -> Any:
    return x + 1


def shapes(*rows: str, constraints: Sequence[str] = (), **bounds: tuple[int, int | None]) -> OpenShapes:
    """Inputs whose dimensions are written `b|8*s`."""
    symbols = {n: Symbol(n, *b) for n, b in bounds.items()}
    inputs = tuple((tuple(parse_size(d, symbols) for d in row.split("|")), "f32") for row in rows)
    return OpenShapes(inputs, symbols, tuple(parse_constraint(c, symbols) for c in constraints))


FREE = (0, None)


@pytest.mark.parametrize(
    ("open_", "called", "said"),
    [
        (shapes("b|4", b=FREE), [(3, 5)], "f: dimension 1 of x0 is 5, and must be 4"),
        (shapes("b|4", b=FREE), [(3,)], "x0 of f must be f32[b, 4], got shape [3]"),
        (shapes("b", "b", b=FREE), [(3,), (4,)], "f: dimension 0 of x1 is 4, and must be b = 3 (b = 3 from "
         "dimension 0 of x0)"),
        (shapes("3*b+1", b=FREE), [(6,)], "f: dimension 0 of x0 is 6, which 3*b + 1 is for no whole b"),
        (shapes("b-4", b=(5, None)), [(0,)], "f: b is 4 (dimension 0 of x0), and must be at least 5"),
        (shapes("b-4", b=(0, 9)), [(6,)], "f: b is 10 (dimension 0 of x0), and must be at most 9"),
        (shapes("b*s", b=FREE, s=FREE), [(6,)], "f: the size b does not follow from the shapes of the inputs"),
        (shapes("b", "s", constraints=["s <= 2*b"], b=FREE, s=FREE), [(2,), (5,)],
         "f: s <= 2*b does not hold for s = 5 (dimension 0 of x1), b = 2 (dimension 0 of x0)"),
        (shapes("b", "s", constraints=["b // s >= 0"], b=FREE, s=FREE), [(2,), (0,)],
         "f: floordiv(b, s) >= 0 does not hold for b = 2 (dimension 0 of x0), s = 0 (dimension 0 of x1)"),
        (shapes("b", b=FREE), [(LARGEST + 1,)], f"f: b is {LARGEST + 1} (dimension 0 of x0), and must be at most "
         f"{LARGEST}"),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit_are_one_sentence(
    open_: OpenShapes, called: list[tuple[int, ...]], said: str
) -> None:
    with pytest.raises(tw.CompileError, match=f"^{re.escape(said)}$"):
        open_.solve("f", [f"x{i}" for i in range(len(called))], called, {})


def test_a_dimension_is_not_negative() -> None:
    open_ = shapes("b", "b-4", b=FREE)
    with pytest.raises(
        tw.CompileError, match=r"^f: dimension 0 of input 1 is b - 4 = -1, and cannot be negative$"
    ):
        open_.checked("f", {"b": 3})


def attend(q: Any, k: Any) -> Any:
    return jax.nn.softmax(q @ k["w"].T)


@pytest.mark.parametrize(
    ("q", "k", "said"),
    [
        ((4, 2056), (4, 2056), "attend: s is 2056 (dimension 1 of argument q), and must be at most 2048"),
        ((1, 24), (1, 24), "attend: b is 1 (dimension 0 of argument q), and must be at least 2"),
        ((4, 12), (4, 12), "attend: mod(s, 8) == 0 does not hold for s = 12 (dimension 1 of argument q)"),
        ((16, 8), (16, 8), "attend: s >= b does not hold for s = 8 (dimension 1 of argument q), b = 16 "
         "(dimension 0 of argument q)"),
        ((4, 8), (4, 16), "attend: dimension 1 of argument k['w'] is 16, and must be s = 8 (s = 8 from dimension 1 of "
         "argument q)"),
        ((4, 8), (8, 4), "attend: dimension 0 of argument k['w'] is 8, and must be b = 4 (b = 4 from dimension 0 of "
         "argument q)"),
        ((4, 0), (4, 0), "attend: s is 0 (dimension 1 of argument q), and must be at least 1"),
        ((4, 8, 1), (4, 8), "argument q of attend must be f32[b, s], got shape [4, 8, 1]"),
        ((4, 8), (4,), "argument k['w'] of attend must be f32[b, s], got shape [4]"),
        ((1 << 45, 8), (4, 8), "attend: dimension 0 of argument k['w'] is 4, and must be b = 35184372088832 "
         "(b = 35184372088832 from dimension 0 of argument q)"),
        ((1 << 45, 8), (1 << 45, 8), "attend: b is 35184372088832 (dimension 0 of argument q), and must be at most "
         "1099511627776"),
        ((1 << 39, 2048), (1 << 39, 2048), "attend: s >= b does not hold for s = 2048 (dimension 1 of argument q), "
         "b = 549755813888 (dimension 0 of argument q)"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_named_with_their_dimension(
    q: tuple[int, ...], k: tuple[int, ...], said: str
) -> None:
    b, s = dims("b, s", "b >= 2", "s <= 2048", "mod(s, 8) == 0", "s >= b")
    program = dynamic(attend, struct(b, s), {"w": struct(b, s)})
    with pytest.raises(tw.CompileError, match=f"^{re.escape(said)}$"):
        program.check(struct(*q), {"w": struct(*k)})
    assert not program.versions and not program.ranges


def test_sizes_that_make_an_input_impossible_name_it() -> None:
    (h,) = dims("h")
    program = dynamic(added, struct(h, 64))
    said = r"^added: argument x is f32\[h, 64\] = \[549755813888, 64\], which is more than 1099511627776 elements$"
    with pytest.raises(tw.CompileError, match=said):
        program.at(h=1 << 39)
    with pytest.raises(tw.CompileError, match=said):
        program.check(struct(1 << 39, 64))
    short = dynamic(added, struct(*dims("s - 3", "s >= 2")))
    with pytest.raises(
        tw.CompileError, match=r"^added: dimension 0 of argument x is s - 3 = -1, and cannot be negative$"
    ):
        short.at(s=2)


def test_what_a_scope_says_of_sizes_that_a_program_has_not_is_nothing_to_it() -> None:
    b, s = dims("b, s", "b <= 8", "s <= 4", "s >= b")
    program = dynamic(added, struct(s, 2))
    assert dict(program.symbols) == {"s": Symbol("s", 1, 4)}
    assert program.constraints == ("s <= 4",)
    assert dict(dynamic(added, struct(b)).symbols) == {"b": Symbol("b", 1, 8)}


SIZES = st.fixed_dictionaries({n: st.integers(0, 99) for n in ("b", "s", "t")})
DIMS = st.lists(
    st.sampled_from(
        ["2*b", "s + 3", "b*s", "8*t + 5", "b + s + t", "mod(b, 3)", "max(s, t)", "7", "floordiv(t, 2)*s"]
    ),
    max_size=6,
)


@settings(max_examples=100)
@given(SIZES, DIMS, st.permutations(["b", "3*s + b", "t + b*s"]))
def test_the_sizes_are_found_again(sizes: dict[str, int], more: list[str], rows: list[str]) -> None:
    """Three dimensions that decide the sizes one after the other, in any order, among others."""
    open_ = shapes(*more, *rows, b=FREE, s=FREE, t=FREE)
    called = [shape for shape, _ in open_.types(sizes)]
    assert open_.solve("f", [""] * len(called), called, {}) == sizes
    for (dimension, *_), _ in open_.inputs:
        assert evaluate(dimension, sizes) >= 0
