"""Orders that need less memory: against all orders of small blocks, and as orders of large ones."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from tilewright.passes.order.least_peak import EXACT, OrderProblem, SharedBytes, least_peak


@st.composite
def problems(draw: st.DrawFn, most: int) -> OrderProblem:
    """Blocks of up to `most` ops in an order that respects what they need."""
    n = draw(st.integers(1, most))
    numbers = st.integers(0, n - 1)
    before = [sorted({j for j in draw(st.lists(numbers, max_size=2)) if j < i}) for i in range(n)]
    tensors = []
    for i in range(n):
        users = tuple(j for j in range(n) if i in before[j])
        tensors.append(SharedBytes(draw(st.integers(1, 9)), (i, *users), kept=draw(st.booleans())))
    for _ in range(draw(st.integers(0, 2))):
        ops = tuple(sorted(draw(st.sets(numbers, min_size=1, max_size=3))))
        tensors.append(SharedBytes(draw(st.integers(1, 9)), ops, given=True, kept=draw(st.booleans())))
    return OrderProblem(before, [draw(st.integers(0, 3)) for _ in range(n)], tensors)


def valid(problem: OrderProblem, order: tuple[int, ...] | list[int]) -> bool:
    place = {i: at for at, i in enumerate(order)}
    return sorted(order) == list(range(len(problem.alone))) and all(
        place[j] < place[i] for i, before in enumerate(problem.before) for j in before
    )


def peak(problem: OrderProblem, order: tuple[int, ...] | list[int]) -> int:
    """The most that is live, position by position."""
    place = {i: at for at, i in enumerate(order)}
    spans = []
    for t in problem.tensors:
        touched = [place[i] for i in t.ops]
        first, last = 0 if t.given else min(touched), len(order) if t.kept else max(touched)
        spans.append((first, last, t.bytes))
    return max(
        problem.alone[i] + sum(b for first, last, b in spans if first <= at <= last) for at, i in enumerate(order)
    )


@given(problems(6))
def test_small_blocks_get_the_best_order(problem: OrderProblem) -> None:
    found = least_peak(problem)
    best = min(
        peak(problem, order) for order in permutations(range(len(problem.alone))) if valid(problem, order)
    )
    assert valid(problem, found)
    assert peak(problem, found) == problem.peak(found) == best >= problem.floor()


@given(problems(EXACT + 15))
def test_large_blocks_get_no_worse(problem: OrderProblem) -> None:
    given_ = list(range(len(problem.alone)))
    found = least_peak(problem)
    assert valid(problem, found)
    assert peak(problem, found) == problem.peak(found) <= peak(problem, given_)
    for order in (problem.eager(given_), problem.lazy(given_)):
        assert valid(problem, order)
    assert found == least_peak(problem)


def test_gradients_are_used_as_soon_as_they_are_there() -> None:
    """Four large gradients one after the other, and behind them what makes a small result of each."""
    n = 14  # pairs: op i makes a gradient of 10 bytes, op n + i a result of 1 byte from it
    before = [[i - 1] if i else [] for i in range(n)] + [[i] for i in range(n)]
    tensors = [SharedBytes(10, (i, n + i)) for i in range(n)] + [
        SharedBytes(1, (n + i,), kept=True) for i in range(n)
    ]
    problem = OrderProblem(before, [0] * (2 * n), tensors)
    assert problem.peak(range(2 * n)) == 141
    assert problem.peak(least_peak(problem)) == 10 + n
