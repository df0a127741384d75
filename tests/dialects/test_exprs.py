"""`Expr` against plain arithmetic: a dict of coefficients, evaluated and listed value by value."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
from collections.abc import Hashable
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import DenseArrayBase, i32, i64
from xdsl.ir import Block, SSAValue

from tilewright.dialects.affine import Expr, Symbol
from tilewright.dialects.base import INDEX, encode, pack, to_ints, unpack, unpack_over

BATCH = Symbol("b", 1, 6)
LENGTH = Symbol("n", 0, 5)
OPEN = Symbol("m", 2)
_BLOCK = Block(arg_types=[INDEX] * 3)
VALUES: list[SSAValue] = list(_BLOCK.args)
for _value, _hint in zip(VALUES, "ijk", strict=True):
    _value.name_hint = _hint
VARIABLES: list[Hashable] = [-2, 0, 1, 7, *VALUES, BATCH, LENGTH, OPEN]

small = st.integers(-6, 6)
terms = st.dictionaries(st.sampled_from(VARIABLES), small, max_size=5)
environments = st.fixed_dictionaries(dict.fromkeys(VARIABLES, small))
Plain = dict[Hashable, int]


def expr_of(constant: int, plain: Plain) -> Expr[Any]:
    return Expr(constant, plain)


exprs = st.builds(expr_of, small, terms)


def value(e: Expr[Any], env: Plain) -> int:
    return e.constant + sum(c * env[v] for v, c in e.terms)


def is_canonical(e: Expr[Any]) -> bool:
    """No zero, no variable twice, numbers first and ascending, symbols last by name."""
    kinds = [0 if isinstance(v, int) else 2 if isinstance(v, Symbol) else 1 for v, _ in e.terms]
    numbers = [v for v, _ in e.terms if isinstance(v, int)]
    names = [v.name for v, _ in e.terms if isinstance(v, Symbol)]
    return (
        all(c != 0 for _, c in e.terms)
        and len(set(e.variables)) == len(e.terms)
        and (kinds, numbers, names) == (sorted(kinds), sorted(numbers), sorted(names))
    )


# -- arithmetic ------------------------------------------------------------------------------------------------


@given(exprs, exprs, small, environments)
def test_arithmetic(a: Expr[Any], b: Expr[Any], n: int, env: Plain) -> None:
    x, y = value(a, env), value(b, env)
    for found, want in (
        (a + b, x + y),
        (a - b, x - y),
        (a + n, x + n),
        (n + a, n + x),
        (a - n, x - n),
        (n - a, n - x),
        (a * n, x * n),
        (n * a, n * x),
        (-a, -x),
        (Expr.combine(n, [(2, a), (-3, b), (n, a)]), n + 2 * x - 3 * y + n * x),
        (Expr.gathered(n, [*a.terms, *b.terms]), n + x - a.constant + y - b.constant),
    ):
        assert is_canonical(found)
        assert value(found, env) == found.evaluate(env) == want


@given(exprs, exprs, exprs, small)
def test_one_value_has_one_expression(a: Expr[Any], b: Expr[Any], c: Expr[Any], n: int) -> None:
    for one, other in (
        (a + b, b + a),
        ((a + b) + c, a + (b + c)),
        ((a + b) * n, a * n + b * n),
        (a - a, Expr()),
        (a * 0, Expr()),
        (a * 1, a),
        (a - b, a + b * -1),
    ):
        assert one == other and hash(one) == hash(other) and one in {other}


@given(st.integers(-6, 6), terms, st.randoms())
def test_terms_are_equal_in_any_order(constant: int, plain: Plain, order: random.Random) -> None:
    shuffled = list(plain.items())
    order.shuffle(shuffled)
    one, other = expr_of(constant, plain), expr_of(constant, dict(shuffled))
    assert is_canonical(one) and is_canonical(other)
    assert one == other and hash(one) == hash(other)
    ranked = [t for t in one.terms if not isinstance(t[0], SSAValue)]
    assert ranked == [t for t in other.terms if not isinstance(t[0], SSAValue)]


@given(exprs, exprs)
def test_different_expressions_differ(a: Expr[Any], b: Expr[Any]) -> None:
    alike = a.constant == b.constant and dict(a.terms) == dict(b.terms)
    assert (a == b) is alike
    assert a + 1 != a and a != a.constant


def test_values_keep_the_order_in_which_they_came() -> None:
    i, j, k = (Expr.of(v) for v in VALUES)
    assert (k + i * 2 + j).variables == (VALUES[2], VALUES[0], VALUES[1])
    assert (k + i - k + k * 3).variables == (VALUES[0], VALUES[2])
    assert (Expr.of(BATCH) + k + Expr.of(7) + i + Expr.of(-2)).variables == (
        -2,
        7,
        VALUES[2],
        VALUES[0],
        BATCH,
    )


def test_symbols_of_one_name_are_ordered_by_bounds() -> None:
    wanted = [Symbol("a", 9), Symbol("b", 1, 2), Symbol("b", 1, 7), Symbol("b", 1), Symbol("b", 2, 2)]
    for shuffled in itertools.permutations(wanted):
        assert Expr(0, dict.fromkeys(shuffled, 1)).variables == tuple(wanted)


# -- values ----------------------------------------------------------------------------------------------------


@given(exprs, st.dictionaries(st.sampled_from(VARIABLES), st.one_of(small, exprs), max_size=6), environments)
def test_substitute(e: Expr[Any], known: dict[Hashable, Expr[Any] | int], env: Plain) -> None:
    found = e.substitute(known)
    inner = {v: value(x, env) if isinstance(x, Expr) else x for v, x in known.items()}
    assert is_canonical(found)
    assert value(found, env) == value(e, {**env, **inner})


@given(exprs)
def test_span_holds_what_values_there_are(e: Expr[Any]) -> None:
    ranges = {-2: (-3, 0), 0: (0, 4), 1: (2, 2), 7: (-1, 1), **dict.fromkeys(VALUES, (0, 2))}
    if e.coefficient(OPEN):
        low, high = e.span(ranges)
        least, most = e.without([OPEN]).span(ranges)
        assert (low is None, high is None) == (e.coefficient(OPEN) < 0, e.coefficient(OPEN) > 0)
        at_two = 2 * e.coefficient(OPEN)
        assert low in (None, least + at_two) and high in (None, most + at_two)
        return
    bounds = {**ranges, BATCH: (1, 6), LENGTH: (0, 5)}
    # the least and the greatest value are met at ends of the ranges
    met = [
        value(e, dict(zip(e.variables, point, strict=True)))
        for point in itertools.product(*(bounds[v] for v in e.variables))
    ]
    assert e.span(ranges) == (min(met), max(met))


def test_open_symbols_may_cancel_or_leave_both_ends_open() -> None:
    other = Symbol("m", 3)
    assert (Expr.of(OPEN) - Expr.of(OPEN) + 4).span({}) == (4, 4)
    assert (Expr.of(OPEN) - Expr.of(other)).span({}) == (None, None)


@given(st.dictionaries(st.integers(0, 3), small), small, st.lists(st.integers(1, 5), min_size=4, max_size=4))
def test_reach_and_sequences(plain: dict[int, int], constant: int, counts: list[int]) -> None:
    e = Expr(constant, plain)
    ranges = [(0, n - 1) for n in counts]
    met = [e.evaluate(point) for point in itertools.product(*map(range, counts))]
    assert e.reach(counts) == e.span(ranges) == (min(met), max(met))


@given(exprs, st.sets(st.sampled_from(VARIABLES)), environments)
def test_parts(e: Expr[Any], some: set[Hashable], env: Plain) -> None:
    within, rest = e.only(some), e.without(some)
    assert within + rest == e and within.constant == 0
    assert set(within.variables) <= some and some.isdisjoint(rest.variables)
    assert e == Expr(e.constant, {v: e.coefficient(v) for v in VARIABLES})
    assert e == sum((Expr.of(v, e.coefficient(v)) for v in e.variables), Expr()) + e.constant


def test_evaluate_with_traced_integers_and_arrays() -> None:
    e: Expr[int | Symbol] = Expr(5, {0: 3, BATCH: -2})
    assert jax.jit(lambda x, b: e.evaluate({0: x, BATCH: b}))(jnp.int32(4), jnp.int32(7)) == 5 + 12 - 14
    first = np.arange(3)
    np.testing.assert_array_equal(e.evaluate({0: first, BATCH: np.ones(3, int)}), 3 + 3 * np.arange(3))
    np.testing.assert_array_equal(first, np.arange(3))
    with pytest.raises(KeyError):
        e.evaluate({0: 1})


# -- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [Expr.of(BATCH), Expr(2), 1.5, "2", Fraction(1, 2), jnp.float32(2), None])
def test_a_product_that_is_not_linear(factor: Any) -> None:
    e: Expr[Any] = Expr.of(VALUES[0], 3) + Expr.of(LENGTH)
    with pytest.raises(
        TypeError, match=r"\(%i \* 3 \+ n\) times \(.*\) is not linear: the factor must be a whole"
    ):
        e * factor
    if not isinstance(factor, Expr):
        with pytest.raises(TypeError, match="whole number"):
            factor * e
        with pytest.raises(TypeError, match="whole numbers"):
            Expr.of(0, factor)
        with pytest.raises(TypeError, match="whole numbers"):
            Expr(0, {0: factor})
        with pytest.raises(TypeError, match="unsupported operand"):
            e + factor
        with pytest.raises(TypeError, match="unsupported operand"):
            e - factor


def test_a_traced_factor() -> None:
    with pytest.raises(TypeError, match="is not linear: the factor must be a whole number"):
        jax.jit(lambda x: (Expr.of(0) * x).evaluate([1]))(jnp.int32(3))


def test_numbers_of_numpy_become_ints() -> None:
    e = Expr(np.int64(2), {0: np.int32(3)}) * np.int64(2) + np.int8(1)
    assert e == Expr(5, {0: 6}) and type(e.constant) is int and type(e.terms[0][1]) is int


def test_a_symbol_without_values() -> None:
    with pytest.raises(ValueError, match="the symbol b has no value from 3 to 2"):
        Symbol("b", 3, 2)


def test_it_does_not_change() -> None:
    e = Expr(3, {0: 2})
    for name in ("constant", "terms", "other"):
        with pytest.raises(AttributeError, match="an Expr does not change"):
            setattr(e, name, 1)
    with pytest.raises(AttributeError, match="an Expr does not change"):
        del e.constant
    assert (e.constant, e.terms) == (3, ((0, 2),))


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_copies(again: Any) -> None:
    e: Expr[Any] = Expr(3, {1: 2, 0: -1, BATCH: 4, OPEN: 1})
    assert again(e) == e and again(e).terms == e.terms and hash(again(e)) == hash(e)


# -- text and what ops store -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (Expr(), "0"),
        (Expr(-3), "-3"),
        (Expr.of(VALUES[1], 128) + Expr.of(VALUES[0]) + -3, "%j * 128 + %i + -3"),
        (Expr.of(BATCH) * -2 + Expr.of(VALUES[2]), "%k + b * -2"),
        (Expr.of(-1) + Expr.of(-2, 4) + 1, "#-2 * 4 + #-1 + 1"),
        (Expr.of(Block(arg_types=[INDEX]).args[0]), "%?"),
    ],
)
def test_text(e: Expr[Any], text: str) -> None:
    assert str(e) == text and repr(e) == f"Expr({text})"


over_values = st.builds(
    lambda constant, plain: Expr(constant, plain),
    small,
    st.dictionaries(st.sampled_from(VALUES), small, max_size=3),
)


@given(st.lists(over_values, max_size=4), environments)
def test_what_ops_store(some: list[Expr], env: Plain) -> None:
    indices, stored = pack(some)
    assert indices == list(dict.fromkeys(v for e in some for v in e.variables))
    assert list(unpack(stored, indices)) == some
    assert encode(some, indices) == stored
    rows = [[*(e.coefficient(v) for v in indices), e.constant] for e in some]
    assert list(to_ints(stored)) == [n for row in rows for n in row]
    known = [Expr.of(n, 2) + env[v] for n, v in enumerate(indices)]
    there = {v: 2 * n + env[v] for n, v in enumerate(indices)}
    found = [e.evaluate(range(3)) for e in unpack_over(stored, known)]
    # each variable n of the operands' expressions has the value n
    assert found == [value(e, {**env, **there}) for e in some]


def test_rows_of_another_width_have_the_same_bytes() -> None:
    """An i64 of 1 and the two i32 1 and 0 are one string of bytes."""
    wide, narrow = (DenseArrayBase.from_list(t, n) for t, n in ((i64, [1]), (i32, [1, 0])))
    assert wide.data.data == narrow.data.data
    assert unpack(wide, ()) == (Expr(1),) and unpack(narrow, ()) == (Expr(1), Expr())


def test_one_operand_twice() -> None:
    stored = encode([Expr(4, {0: 2, 1: 3})], [0, 1])
    assert unpack(stored, [VALUES[0], VALUES[0]]) == (Expr(4, {VALUES[0]: 5}),)
    assert unpack_over(stored, [Expr.of(BATCH), Expr.of(BATCH, -1)]) == (Expr(4, {BATCH: -1}),)


def test_an_op_has_no_operand_for_a_symbol() -> None:
    some: Any = [Expr.of(VALUES[0]) + Expr.of(BATCH)]
    with pytest.raises(TypeError, match="b is no index operand: substitute it before an op is made"):
        pack(some)
    with pytest.raises(TypeError, match=r"%i \+ b has a variable that is no index operand"):
        encode(some, VALUES)
    assert pack([e.substitute({BATCH: 3}) for e in some]) == pack([Expr.of(VALUES[0]) + 3])
