"""What leaves device memory for a while: programs stay right, and need what is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tilewright.passes.order.memory_problem import (
    MemoryOp,
    MemoryProblem,
    MemoryRun,
    MemoryState,
    MemoryValue,
)
from tilewright.passes.order.remat_choice import Link, RematSearch


def chain(n: int, bytes_: int = 100) -> MemoryProblem:
    """A net of n layers and its gradient: layer i makes value i from the one before, the gradient uses all, the last
    first."""
    forward = [MemoryOp(10.0, 8.0, (i - 1,) if i else (), (i,)) for i in range(n)]
    backward = [
        MemoryOp(20.0, 16.0, (n - 1 - i, *((n + i - 1,) if i else ())), (n + i,)) for i in range(n)
    ]
    values = [MemoryValue(bytes_) for _ in range(2 * n - 1)] + [MemoryValue(bytes_, kept=True)]
    return MemoryProblem([*forward, *backward], values, 50)


@st.composite
def problems(draw: st.DrawFn) -> MemoryProblem:
    n = draw(st.integers(2, 24))
    ops, values = [], [MemoryValue(draw(st.integers(1, 50)), given=True)]
    for i in range(n):
        uses = tuple(sorted(draw(st.sets(st.integers(0, i), max_size=3))))
        ops.append(
            MemoryOp(
                us := draw(st.integers(1, 30)),
                us / 2,
                uses,
                (i + 1,),
                draw(st.integers(0, 9)),
                draw(st.booleans()),
            )
        )
        values.append(MemoryValue(draw(st.integers(1, 50)), kept=i == n - 1 or draw(st.integers(0, 5)) == 0))
    return MemoryProblem(ops, values, draw(st.integers(0, 20)))


def live(problem: MemoryProblem, runs: Sequence[MemoryRun]) -> int:
    """The most bytes in device memory, of a program that is run run by run. Fails where a run lacks a value."""
    where: dict[int, list[int]] = {v: [-1] for v, value in enumerate(problem.values) if value.given}
    host: set[int] = set()
    spans: list[tuple[int, int, int]] = []

    def end(v: int) -> None:
        if v in where:
            touched = where.pop(v)
            spans.append((touched[0], touched[-1], problem.values[v].bytes))

    for at, run in enumerate(runs):
        if run.moves:
            if run.out:
                where[run.value].append(at)
                host.add(run.value)
            else:
                assert run.value in host
                end(run.value)
                where[run.value] = [at]
            continue
        for v in problem.ops[run.op].uses:
            where[v].append(at)
        for v in problem.ops[run.op].makes:
            end(v)
            where[v] = [at]
    for v in list(where):
        if problem.values[v].kept:
            where[v].append(len(runs))
        end(v)
    return problem.fixed + max(
        (0 if run.moves else problem.ops[run.op].alone)
        + sum(b for first, last, b in spans if first <= at <= last)
        for at, run in enumerate(runs)
    )


@given(problems(), st.integers(30, 100), st.booleans())
def test_a_program_stays_right_and_needs_what_is_said(problem: MemoryProblem, share: int, linked: bool) -> None:
    start = problem.start()
    state = MemoryState(problem, start)
    assert state.peak == live(problem, start)
    enough = state.peak * share // 100
    search = RematSearch(problem, start, enough, Link(0.5, 10.0) if linked else None)
    fits = search.run(enough, enough)
    assert live(problem, search.state.runs) == search.state.peak <= state.peak
    assert fits == (search.state.peak <= enough)
    first = [run.op for run in search.state.runs if not run.moves and not run.again]
    assert first == list(range(len(problem.ops)))
    assert all(problem.ops[run.op].again for run in search.state.runs if run.again)


def test_a_net_fits_into_less_by_running_layers_again() -> None:
    problem = chain(16)
    full = MemoryState(problem, problem.start()).peak
    assert full == 50 + 1700
    search = RematSearch(problem, problem.start(), full // 2, None)
    assert search.run(full // 2, full // 2)
    assert 0 < search.microseconds <= 16 * 10.0
    assert not any(run.moves for run in search.state.runs)


def test_what_cannot_run_again_goes_over_the_link() -> None:
    whole = chain(16)
    problem = MemoryProblem([replace(op, again=False) for op in whole.ops], whole.values, 50)
    aim = MemoryState(problem, problem.start()).peak * 8 // 10
    assert not RematSearch(problem, problem.start(), aim, None).run(aim, aim)
    search = RematSearch(problem, problem.start(), aim, Link(0.5, 100.0))
    assert search.run(aim, aim)
    assert not any(run.again for run in search.state.runs)
    assert search.microseconds == 0 and not search.stalls


def test_a_slow_link_is_waited_for_only_where_nothing_else_helps() -> None:
    problem = chain(16)
    aim = MemoryState(problem, problem.start()).peak * 6 // 10
    slow = RematSearch(problem, problem.start(), aim, Link(0.01, 0.1))
    assert slow.run(aim, aim)
    assert not slow.stalls
