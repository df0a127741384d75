"""Which of two sizes is larger, what divides a size and what it may be: never against whole numbers, and known where
memory plans need it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewright.dialects.affine import Expr, Symbol
from tilewright.dialects.size_order import MOST_ALTERNATIVES, aligned, alternatives, at_most, divides
from tilewright.dialects.sizes import SizeError, Sizes, evaluate, maximum, parse_size, times

SYMBOLS = {"b": Symbol("b", 3, 12), "s": Symbol("s", 33, 64), "t": Symbol("t", 1)}
"""Two that have both bounds, and one without an upper one."""


def size(text: str) -> Expr[object]:
    return parse_size(text, SYMBOLS)


def values(t: int = 40) -> list[Sizes]:
    return [{"b": b, "s": s, "t": n} for b, s, n in product((3, 4, 7, 12), (33, 40, 63, 64), (1, 2, t))]


LEAF = st.one_of(st.sampled_from("bst"), st.integers(-40, 900).map(str))


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(st.sampled_from("+-*"), pair).map(lambda p: f"({p[1][0]} {p[0]} {p[1][1]})"),
        st.tuples(st.sampled_from(["floordiv", "ceildiv"]), inner, st.integers(1, 64)).map(
            lambda p: f"{p[0]}({p[1]}, {p[2]})"
        ),
        st.tuples(st.sampled_from(["max", "min", "mod"]), pair).map(
            lambda p: f"{p[0]}({p[1][0]}, {p[1][1]})"
        ),
    )


TEXTS = st.recursive(LEAF, _grown, max_leaves=7)


def numbers(text: str, sizes: Mapping[str, int]) -> int:
    try:
        return evaluate(size(text), sizes)
    except SizeError:
        assume(False)
        raise


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS, st.integers(1, 5000))
def test_what_is_at_most_another_is_so_at_every_value(a: str, b: str, t: int) -> None:
    try:
        known = at_most(size(a), size(b))
    except SizeError:  # one divides by zero
        assume(False)
        return
    if known:
        assert all(numbers(a, at) <= numbers(b, at) for at in values(t))


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.integers(2, 64))
def test_what_divides_a_size_divides_every_value(text: str, n: int) -> None:
    try:
        known = divides(n, size(text))
    except SizeError:
        assume(False)
        return
    if known:
        assert all(numbers(text, at) % n == 0 for at in values())


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("2*s", "3*s"),
        ("s*s", "64*s"),
        ("33*s", "s*s"),
        ("b*s", "12*s"),
        ("3*s*b + 7", "b*b*s + 7"),
        ("512*ceildiv(s, 3)", "512*ceildiv(2*s, 3)"),
        ("512*ceildiv(100*s, 512)", "512*ceildiv(200*s, 512)"),
        ("t", "t*t"),
        ("512*ceildiv(t, 2)", "512*t"),
        ("1024*floordiv(t, 2)", "512*t"),
        ("512*ceildiv(s*s, 512)", "512*ceildiv(64*s, 512)"),
        ("max(b, 3) * 0", "t - 1"),
        ("1024*ceildiv(3*t, 2) + 768*t", "1536*ceildiv(t, 2) + 1536*t"),
        ("ceildiv(3*t, 2)", "t + ceildiv(t, 2)"),
        ("512*ceildiv(b*s*s, 64) + 8*b*s*s", "1024*b*s"),
        ("512*ceildiv(3*s, 2) + 512*ceildiv(s*s, 64) + 128*s + 768", "1024*ceildiv(3*s, 2) + 768"),
        ("512*ceildiv(3*s, 128) + 1024*ceildiv(3*s, 512)", "512*ceildiv(9*s, 128)"),  # at each of the few sizes
    ],
)
def test_what_is_known(a: str, b: str) -> None:
    assert at_most(size(a), size(b))
    assert not at_most(size(b) + 1, size(a))


@pytest.mark.parametrize(("a", "b"), [("s", "b*5"), ("t", "s"), ("s*s", "40*s")])
def test_what_depends_on_the_size_is_not_known(a: str, b: str) -> None:
    assert not at_most(size(a), size(b)) and not at_most(size(b), size(a))


def test_what_divides() -> None:
    assert divides(512, size("512*s + 1024*ceildiv(b, 7)")) and divides(6, size("max(6*s, 12) + 18"))
    assert divides(6, size("(2*s) * (3*b)")) and not divides(4, size("2*s"))
    assert not divides(2, size("max(2*s, 9*b)")) and not divides(2, size("2*s + 1"))


def test_alternatives_are_written_out_up_to_a_limit() -> None:
    assert {str(a) for a in alternatives(size("max(s, 5*b) + 7"))} == {
        str(size("s + 7")),
        str(size("5*b + 7")),
    }
    assert len(alternatives(size("max(s, 5*b) + 2*max(t, 9*b, s*b)"))) == 6
    assert alternatives(size("-max(s, 5*b)")) == (size("-max(s, 5*b)"),)
    pairs = [maximum(size(f"s + {100 * i}*b"), size(f"t*{i}")) for i in range(1, 8)]
    many = sum(pairs, Expr(0))
    assert 2 ** len(pairs) > MOST_ALTERNATIVES and alternatives(many) == (many,)


@pytest.mark.parametrize("text", ["4*s", "24*s*s", "100*b*s + 3", "512*t", "0"])
def test_aligned_sizes_are_the_next_multiples(text: str) -> None:
    for at in values():
        exact = evaluate(size(text), at)
        assert evaluate(aligned(size(text), 512), at) == -(-exact // 512) * 512
    assert divides(512, aligned(size(text), 512))
    assert times(size("s"), size("b")) == size("s*b")
