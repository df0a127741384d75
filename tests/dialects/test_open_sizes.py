"""`OpenSize`: the arithmetic of ints, answers for an example, and what they assume."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.ir import Attribute
from xdsl.parser import Parser

from tilewright.dialects import make_context
from tilewright.dialects.affine import Expr, Symbol
from tilewright.dialects.base import encode as encode_rows
from tilewright.dialects.base import integer, integer_attr, ints, to_ints, unpack
from tilewright.dialects.dtypes import element_type, shape_in, tensor
from tilewright.dialects.npu.types import GmType
from tilewright.dialects.open_sizes import (
    OpenSize,
    Undecided,
    as_written,
    assuming,
    certain,
    choosing,
    decode,
    encode,
    example,
    is_open,
    typical_sizes,
    value_at,
)
from tilewright.dialects.open_text import reading
from tilewright.dialects.sizes import evaluate

B, S = Symbol("b", 2, 64), Symbol("s", 2)
b, s = (OpenSize(Expr.of(symbol)) for symbol in (B, S))
ARITHMETIC: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]

terms = st.recursive(
    st.sampled_from([b, s]) | st.integers(1, 9),
    lambda inner: st.tuples(st.sampled_from(ARITHMETIC[:4]), inner, inner),
    max_leaves=5,
)
sizes = st.fixed_dictionaries({"b": st.integers(2, 64), "s": st.integers(2, 500)})


def computed(tree: Any, at: dict[str, int] | None) -> Any:
    """A tree of arithmetic: of open sizes, or of their values. None where it divides by what is not positive."""
    if not isinstance(tree, tuple):
        return tree if at is None else value_at(tree, at)
    make, *operands = tree
    left, right = (computed(operand, at) for operand in operands)
    return None if left is None or right is None else make(left, right)


def divides(tree: Any, at: dict[str, int]) -> bool:
    """Whether a tree divides by 0 somewhere."""
    if not isinstance(tree, tuple):
        return False
    if any(divides(operand, at) for operand in tree[1:]):
        return True
    return tree[0] is operator.floordiv and computed(tree[2], at) == 0


@given(terms, sizes)
def test_arithmetic_is_that_of_ints(tree: Any, at: dict[str, int]) -> None:
    if divides(tree, at):
        return
    with assuming(at):
        try:
            made = computed(tree, None)
        except ValueError:  # a divisor that is 0 for all sizes
            return
    assert value_at(made, at) == computed(tree, at)


@given(terms, terms, sizes, sizes, st.sampled_from(COMPARISONS))
def test_an_answer_holds_where_its_constraints_do(
    one: Any, other: Any, at: dict[str, int], elsewhere: dict[str, int], compare: Callable[[Any, Any], bool]
) -> None:
    if any(divides(tree, where) for tree in (one, other) for where in (at, elsewhere)):
        return
    with assuming(at) as assumed:
        try:
            answer = compare(computed(one, None), computed(other, None))
        except ValueError:
            return
    assert answer == compare(computed(one, at), computed(other, at))
    if all(c.holds(elsewhere) for c in assumed.made):
        assert answer == compare(computed(one, elsewhere), computed(other, elsewhere))


def test_what_the_bounds_settle_assumes_nothing() -> None:
    with assuming({"b": 8, "s": 100}) as assumed:
        assert b >= 2 and not b > 64 and b != 65 and b + s > 3 and bool(b) and b * 2 != 1
        assert -(-b // 64) == 1  # at most 64 rows are one tile of 64
    assert not assumed.made


def test_a_number_is_that_of_the_example_and_assumed() -> None:
    with assuming({"b": 8, "s": 100}) as assumed:
        assert list(range(b)) == list(range(8)) and float(s) == 100 and [0, 1, 2][b - 8] == 0
    assert sorted(map(str, assumed.made)) == ["b - 8 == 0", "b == 8", "s == 100"]


def test_choices_assume_nothing() -> None:
    @choosing()
    def chosen() -> int:
        return int(b) if s > 50 else 0

    with assuming({"b": 8, "s": 100}) as assumed:
        assert chosen() == 8 and example(s * 2) == 200
        assert f"{b * s:.0f} {s:,}" == "800 100" and f"{s}" == "s"
    assert not assumed.made
    with choosing():
        pass  # outside of a compilation it is nothing


def test_sizes_as_they_are_written_assume_nothing() -> None:
    """Those of an example that has the same numbers for two are two all the same."""
    with assuming({"b": 8, "s": 8}) as assumed:
        with as_written():
            assert (b, s * 2, 3) == (b, s + s, 3)
            assert b != s and (b, 3) != (s, 3) and s != 8
        assert not assumed.made
        assert b == s and assumed.made
    with as_written():
        assert b != s  # no compilation is asked


def test_there_is_no_answer_outside_of_a_compilation() -> None:
    assert b < 65
    for ask in (lambda: s < 65, lambda: int(b), lambda: s == 3):
        with pytest.raises(Undecided, match="known only at run time"):
            ask()
    with typical_sizes():
        assert s < 65 and s != 3


def test_attributes_hold_open_sizes() -> None:
    numbers = (3, b, -1, b * s + 1)
    assert to_ints(ints(numbers)) == numbers and integer(integer_attr(b * 2)) == b * 2
    assert ints([b, 1]) == ints([OpenSize(Expr.of(B)), 1]) != ints([s, 1])
    assert decode(encode(b)) is decode(encode(OpenSize(Expr.of(B)))) and encode(7) == 7
    kind = tensor([b, 128, s * 8], element_type("f32"))
    assert (
        shape_in(kind) == (b, 128, s * 8) and str(kind) == 'tensor<?x128x?xf32, #graph.sizes<["b", "8*s"]>>'
    )
    assert str(GmType.of([b, s], element_type("f16"))) == '!npu.gm<?x?xf16, sizes ["b", "s"]>'
    assert GmType.of([b, s], element_type("f16")).strides == (s, 1)


TEXTS = [
    (ints([1, b, s * 8 + 1]), '#graph.ints<[1, "b", "8*s + 1"]>'),
    (integer_attr(b * 8), '#graph.size<"8*b">'),
    (ints([1, 2]), "array<i64: 1, 2>"),
]


@pytest.mark.parametrize(("attribute", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_attributes_print_open_sizes_not_the_numbers_of_this_process(attribute: Attribute, text: str) -> None:
    assert str(attribute) == text
    with reading({"b": B, "s": S}):
        assert Parser(make_context(), text).parse_attribute() == attribute
    if "b" in text:  # the symbols of text have bounds of their own
        assert Parser(make_context(), text).parse_attribute() != attribute


def test_expressions_have_open_coefficients() -> None:
    place = Expr.of(0, b * 4) + Expr.of(1) + s
    assert str(place) == '#0 * "4*b" + #1 + "s"' and is_open(place.constant)
    assert place.evaluate([2, 5]) == b * 8 + 5 + s
    with assuming({"b": 8, "s": 100}) as assumed:
        stored = encode_rows([place], [0, 1])
        assert unpack(stored, [0, 1]) == (place,)
    assert not assumed.made
    assert evaluate((place.evaluate([2, 5])).size, {"b": 8, "s": 100}) == 169


@given(terms, terms, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), sizes)
def test_what_is_certain_holds_for_all_sizes(left: Any, right: Any, compare: str, at: dict[str, int]) -> None:
    if divides(left, at) or divides(right, at):
        return
    try:
        with assuming(at):
            open_left, open_right = computed(left, None), computed(right, None)
    except ValueError:
        return
    if certain(open_left, compare, open_right):
        assert COMPARE[compare](computed(left, at), computed(right, at))


COMPARE = dict(zip(["==", "!=", "<", "<=", ">", ">="], COMPARISONS, strict=True))


def test_certain_assumes_nothing() -> None:
    with assuming({"b": 64, "s": 128}) as assumed:
        assert not certain(b, "==", 64) and not certain(b, "!=", 64) and not certain(s % 2, "==", 0)
        assert certain(b, "<=", 64) and certain(b * 4 % 4, "==", 0) and certain(b, "!=", 1)
        assert certain(b - b // 2 * 2, "<=", 1) and certain(b - b // 2 * 2, ">=", 0)
        assert not assumed.made
