"""Sizes against the whole numbers of Python: their values, bounds and texts, and what constraints say."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright.dialects.affine import Expr, Symbol
from tilewright.dialects.sizes import (
    Constraint,
    SizeError,
    bounded,
    bounds,
    ceildiv,
    evaluate,
    fixed,
    names_in,
    parse_constraint,
    parse_guard,
    parse_size,
    size_text,
    symbols_of,
    times,
)

SYMBOLS = {"b": Symbol("b", 1, 64), "s": Symbol("s", 0, 9), "t": Symbol("t", 2)}
PYTHON = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
    "ceildiv": lambda a, b: -(-a // b),
}
MANY = settings(max_examples=200)
"""An example takes a fraction of a millisecond."""

NAMES = st.sampled_from(sorted(SYMBOLS))
LEAVES = st.one_of(NAMES, st.integers(-5, 9).map(str))


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(st.sampled_from("+-*"), pair).map(lambda p: f"({p[1][0]} {p[0]} {p[1][1]})"),
        st.tuples(st.sampled_from(sorted(PYTHON)), pair).map(lambda p: f"{p[0]}({', '.join(p[1])})"),
        st.tuples(st.sampled_from(("//", "%")), pair).map(lambda p: f"({p[1][0]} {p[0]} {p[1][1]})"),
        inner.map(lambda a: f"(-{a})"),
        inner.map(lambda a: f"({a})**2"),
    )


TEXTS = st.recursive(LEAVES, _grown, max_leaves=6)
VALUES = st.fixed_dictionaries({"b": st.integers(1, 64), "s": st.integers(0, 9), "t": st.integers(2, 10**6)})


def in_python(text: str, values: Mapping[str, int]) -> int | None:
    """The value of a text as Python has it; None where it divides by zero."""
    try:
        return eval(text, {**PYTHON, **values})
    except ZeroDivisionError:
        return None


@MANY
@given(TEXTS, VALUES)
@example("floordiv((8 * s + 9), 8)", {"b": 1, "s": 3, "t": 2})
@example("mod((3 - s), 4)", {"b": 1, "s": 9, "t": 2})
def test_the_value_is_that_of_python(text: str, values: dict[str, int]) -> None:
    want = in_python(text, values)
    try:
        got = evaluate(parse_size(text, SYMBOLS), values)
    except SizeError:
        assert want is None
        return
    assert want is None or got == want  # what is divided by zero may have been left out: 0 * (1 // 0)


@MANY
@given(TEXTS, VALUES)
def test_bounds_have_the_value_between_them(text: str, values: dict[str, int]) -> None:
    want = in_python(text, values)
    try:
        low, high = bounds(parse_size(text, SYMBOLS))
    except SizeError:
        return
    if want is not None:
        assert low is None or low <= want
        assert high is None or want <= high


@MANY
@given(TEXTS)
@example("max(0, ceildiv(0, b))")
def test_the_text_of_a_size_is_read_as_that_size(text: str) -> None:
    try:
        size = parse_size(text, SYMBOLS)
    except SizeError:
        return
    assert parse_size(size_text(size), SYMBOLS) == size
    assert names_in(size_text(size)) == {s.name for s in symbols_of(size)}


@MANY
@given(TEXTS, VALUES)
def test_names_stand_for_numbers_and_sizes_too(text: str, values: dict[str, int]) -> None:
    """A size of which a part is known has the value that it has where the part is told later."""
    want = in_python(text, values)
    if want is None:
        return
    known = {"b": values["b"], "s": Expr.of(SYMBOLS["s"]) + 0, "t": SYMBOLS["t"]}
    try:
        size = parse_size(text, known)
    except SizeError:
        pytest.fail(f"{text} has the value {want}")
    assert "b" not in {s.name for s in symbols_of(size)}
    assert evaluate(size, values) == want


COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@MANY
@given(TEXTS, st.sampled_from(sorted(COMPARE)), TEXTS, VALUES)
@example("s", "<=", "9", {"b": 1, "s": 3, "t": 2})
@example("s", "<", "0", {"b": 1, "s": 0, "t": 2})
@example("b - b", "==", "0", {"b": 1, "s": 0, "t": 2})
def test_a_constraint_holds_as_in_python(left: str, compare: str, right: str, values: dict[str, int]) -> None:
    sides = in_python(left, values), in_python(right, values)
    if None in sides:
        return
    constraint = parse_constraint(f"{left} {compare} {right}", SYMBOLS)
    want = COMPARE[compare](*sides)
    assert constraint.holds(values) is want
    assert constraint.always() in (None, want)
    assert parse_constraint(str(constraint), SYMBOLS) == constraint


@MANY
@given(
    st.integers(-4, 4).filter(bool),
    st.integers(-9, 9),
    st.sampled_from(sorted({*COMPARE} - {"!="})),  # which leaves bounds as they are
    st.integers(-9, 40),
)
def test_bounds_say_what_constraints_of_one_symbol_say(a: int, c: int, compare: str, limit: int) -> None:
    n = Symbol("n", 0, 50)
    constraint = parse_constraint(f"{a}*n + {c} {compare} {limit}", {"n": n})
    taken = [value for value in range(51) if constraint.holds({"n": value})]
    if not taken:  # a number that no n gives, as 2*n == 3, leaves bounds where it would be
        with pytest.raises(SizeError) if compare != "==" else suppress(SizeError):
            bounded({"n": n}, [constraint])
        return
    found = bounded({"n": n}, [constraint])["n"]
    assert (found.lower, found.upper) == (taken[0], taken[-1])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("8*s + 1", "8*s + 1"),
        ("s*8 - b", "-b + 8*s"),
        ("floordiv(8*s + 9, 8)", "s + 1"),
        ("s // 2 * 2 + s % 2", "2*floordiv(s, 2) + mod(s, 2)"),
        ("(b + 1)*(b - 1)", "b*b - 1"),
        ("max(s, 9, 3)", "9"),
        ("min(b, 65)", "b"),
        ("max(b, 2)", "max(2, b)"),
        ("ceildiv(s, 4)", "ceildiv(s, 4)"),
        ("mod(9*s + 13, 8)", "mod(s + 5, 8)"),
        ("b^2", "b*b"),
    ],
)
def test_sizes_are_shown_as_people_write_them(text: str, shown: str) -> None:
    assert size_text(parse_size(text, SYMBOLS)) == shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is no size: write it as in 8*s + 1 or floordiv(b, 2)"),
        ("8 s", "'8 s' is no size: write it as in 8*s + 1 or floordiv(b, 2)"),
        ("s / 2", "'s / 2' is no size: write it as in 8*s + 1 or floordiv(b, 2)"),
        ("1.5", "'1.5' is no size: write it as in 8*s + 1 or floordiv(b, 2)"),
        ("True", "'True' is no size: write it as in 8*s + 1 or floordiv(b, 2)"),
        ("exp(s, 1)", "'exp(s, 1)' is no size: write it as in 8*s + 1 or floordiv(b, 2)"),
        ("q + 1", "there is no symbol q, which 'q + 1' has; there are b, s, t"),
        ("b**9", "'b**9' has a power of 9: sizes have powers from 0 to 8"),
        ("b // 0", "a size is divided by zero"),
        ("mod(b, 1 - 1)", "a size is divided by zero"),
    ],
)
def test_a_text_that_is_no_size_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(SizeError) as error:
        parse_size(text, SYMBOLS)
    assert str(error.value) == said


def test_a_text_that_is_no_constraint_is_one_sentence() -> None:
    with pytest.raises(SizeError, match=r"^'b' is no constraint: write it as in s <= 2048 or mod"):
        parse_constraint("b", SYMBOLS)
    with pytest.raises(SizeError, match=r"^there is no symbol q, which 'q' has; there is none$"):
        parse_constraint("q <= 3", {})
    with pytest.raises(SizeError, match=r"^the symbol b has no value from 9 to 4$"):
        bounded({"b": Symbol("b")}, [parse_constraint(c, SYMBOLS) for c in ("b <= 4", "b >= 9")])


def test_a_guard_is_constraints_joined_by_and() -> None:
    guard = parse_guard("s <= 5 and mod(b, 2) == 0", SYMBOLS)
    assert [str(c) for c in guard] == ["s <= 5", "mod(b, 2) == 0"]
    assert [s.name for c in guard for s in c.symbols] == ["s", "b"]


def test_division_by_a_size_that_is_zero() -> None:
    with pytest.raises(SizeError, match=r"^floordiv\(b, s\) divides by zero$"):
        evaluate(parse_size("b // s", SYMBOLS), {"b": 1, "s": 0})
    with pytest.raises(KeyError):
        evaluate(parse_size("b", SYMBOLS), {})


def test_powers_as_jax_writes_them() -> None:
    assert parse_size("2*b^2 + 3*b", SYMBOLS) == parse_size("2*b*b + 3*b", SYMBOLS)
    assert names_in("b^2 + s") == {"b", "s"}


def test_products_are_multiplied_out() -> None:
    b, s = (Expr.of(SYMBOLS[n]) for n in "bs")
    assert times(b + 1, s + fixed(2)) == times(b, s) + s + b * 2 + 2
    assert times() == fixed(1)
    assert evaluate(ceildiv(s, fixed(4)), {"s": 9}) == 3
    assert Constraint(b, "<=", s).symbols == (SYMBOLS["b"], SYMBOLS["s"])
