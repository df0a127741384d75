"""Functions that ask of open sizes what these do not decide: traced with ranges of sizes, or with those of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from open_programs_of import dims, dynamic, struct

import tilewright as tw
from tilewright.passes.templates import NoTemplate


def row(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.float32) - 3


def check(fn: Callable[..., Any], program: tw.DynamicProgram, *lengths: tuple[int, ...]) -> None:
    """The program gives what the function gives at each of these lengths of its arguments."""
    for each in lengths:
        arrays = [row(n) for n in each]
        np.testing.assert_array_equal(np.asarray(program(*arrays)), fn(*arrays))


def test_an_equality_that_is_open_is_not_taken_for_false() -> None:
    """JAX says that n == 7 is False; the version for 5 to 8 says that it is for others."""

    def seventh(x: Any) -> Any:
        return -x if x.shape[0] == 7 else x

    program = dynamic(seventh, struct(*dims("n")))
    check(seventh, program, *((n,) for n in range(1, 10)))
    (version,) = (v for key, v in program.ranges.items() if key == ((5, 8),))
    assert not isinstance(version, NoTemplate)
    assert "n != 7" in map(str, version.template.constraints)
    assert "traced by size" not in repr(program)  # JAX decides it, wrongly, and the range makes good for it


def test_sizes_that_are_equal_have_a_program_of_their_own() -> None:
    def same(x: Any, y: Any) -> Any:
        return x + (y.sum() if x.shape == y.shape else 0)

    program = dynamic(same, struct(*dims("n")), struct(*dims("m")))
    check(same, program, (3, 3), (3, 4), (4, 3), (4, 4), (1, 1), (5, 7), (7, 7), (8, 6))
    assert any("!=" in op.guard.data for op in program.dispatch.cases)


def test_a_comparison_that_is_open_is_decided_by_range_or_by_size() -> None:
    def short(x: Any) -> Any:
        return x * 2 if x.shape[0] > 5 else x + 1

    program = dynamic(short, struct(*dims("n")))
    assert "0 versions for ascend-910b1; traced by size, as " in repr(program)
    assert "'n' > '5' is inconclusive" in repr(program)
    assert "\n" not in repr(program)
    check(short, program, *((n,) for n in range(1, 12)))
    found = {key: isinstance(v, NoTemplate) for key, v in program.ranges.items()}
    assert found == {((2, 2),): False, ((3, 4),): False, ((5, 8),): True, ((9, 16),): False} or found == {
        ((3, 4),): False,
        ((5, 8),): True,
        ((9, 16),): False,
    }


@pytest.mark.parametrize(
    ("fn", "lengths"),
    [
        (lambda x, y: x + y, [(1, 4), (4, 4), (6, 6), (6, 1)]),
        (lambda x, y: jnp.concatenate([x, x]) + y, [(2, 4), (3, 6), (1, 1)]),
        (lambda x, y: jnp.append(x, 1) * y, [(3, 4), (7, 8)]),
    ],
)
def test_sizes_that_have_to_fit_are_asked_of_the_call(fn: Callable[..., Any], lengths: list[Any]) -> None:
    program = dynamic(fn, struct(*dims("n")), struct(*dims("m")))
    check(fn, program, *lengths)
    assert "traced by size, as " in repr(program)
    with pytest.raises((TypeError, tw.CompileError), match="incompatible shapes"):
        program(row(5), row(9))


def test_a_size_that_has_to_be_a_number() -> None:
    n, k = dims("n, k")
    w = np.ones((37, 2), np.float32)
    program = dynamic(lambda x: x @ w, struct(n, k))
    for rows in (2, 5):
        np.testing.assert_allclose(program(np.ones((rows, 37), np.float32)), np.full((rows, 2), 37.0))


def test_two_sizes_that_have_to_be_equal_share_a_version() -> None:
    program = dynamic(jnp.add, struct(*dims("n")), struct(*dims("m")))
    check(jnp.add, program, (6, 6), (7, 7), (1, 7))
    (version,) = (v for key, v in program.ranges.items() if key == ((5, 8), (5, 8)))
    assert not isinstance(version, NoTemplate)
    assert "n == m" in map(str, version.template.constraints)


def test_what_is_wrong_at_all_sizes_is_said_when_it_is_compiled() -> None:
    (n,) = dims("n")
    with pytest.raises(TypeError, match=r"dot_general requires contracting dimensions .* \(3,\) and \(4,\)"):
        tw.compile(jnp.matmul, struct(n, 3), struct(4, 2))
    with pytest.raises(TypeError, match=r"incompatible shapes"):
        tw.compile(jnp.add, struct(n, 3), struct(dims("m")[0], 4))

    def broken(x: Any) -> Any:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        tw.compile(broken, struct(n, 3))


def test_a_size_may_be_zero_where_the_function_says_so() -> None:
    def joined(x: Any, y: Any) -> Any:
        return jnp.concatenate([x, y]) * 2

    program = dynamic(joined, struct(*dims("p", "p >= 0")), struct(*dims("t")))
    assert program.symbols["p"].lower == 0
    check(joined, program, (0, 3), (1, 2), (5, 4))
    with pytest.raises(tw.CompileError, match=r"t is 0 .*, and must be at least 1"):
        program(row(2), row(0))
