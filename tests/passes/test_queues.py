"""The order in which units go to queues: on random units, against what it promises and against all orders."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.dialects.npu.streams import COMPUTE, COPY_IN, COPY_OUT, HOST, PROGRAM
from tilewright.passes.order.queues import TensorLife, Unit, arrange, run


def kernel(us: float, *needs: int) -> Unit:
    return Unit([(COMPUTE, us)], set(needs))


def host(us: float, *needs: int) -> Unit:
    return Unit([(COPY_OUT, 1.0), (HOST, us), (COPY_IN, 1.0)], set(needs))


def test_what_waits_for_the_host_goes_behind_what_is_ready() -> None:
    units = [host(50.0), kernel(2.0, 0), kernel(20.0), kernel(20.0, 2), kernel(20.0, 3)]
    assert arrange(units) == [0, 2, 3, 4, 1]
    assert run(units, range(5), None).end == 114
    assert run(units, [0, 2, 3, 4, 1], None).end == 62


def test_it_goes_on_as_soon_as_the_host_is_done() -> None:
    units = [host(8.0), kernel(1.0, 0), host(30.0, 1), *(kernel(5.0) for _ in range(9)), kernel(1.0, 2)]
    assert arrange(units) == [0, 3, 4, 1, 2, *range(5, 12), 12]


def test_what_the_host_waits_for_goes_first() -> None:
    assert arrange([kernel(30.0), kernel(1.0), host(30.0, 1), kernel(1.0, 0, 2)]) == [1, 2, 0, 3]


def test_what_holds_up_the_programs_thread_goes_late() -> None:
    number = Unit([(COPY_OUT, 10.0)], {1})
    branch = Unit([(COMPUTE, 1.0)], {2}, {2})
    units = [host(30.0), kernel(1.0), number, branch, kernel(15.0), kernel(15.0), kernel(1.0, 0)]
    assert arrange(units) == [0, 1, 2, 4, 3, 5, 6]


def test_without_the_host_nothing_moves() -> None:
    units = [kernel(5.0), Unit([(COPY_OUT, 50.0)], {0}), Unit([(PROGRAM, 1.0)], {1}, {1}), kernel(5.0)]
    assert arrange(units) == [0, 1, 2, 3]


def test_a_tensor_that_would_have_to_wait_keeps_its_kernel_waiting() -> None:
    """Eight tensors, each used by a kernel that also needs the host: making them all while it works takes eight at
    once, where the order of the program takes one, and what the host brings is less than a second."""
    makers = range(1, 17, 2)
    units = [host(100.0), *(u for i in makers for u in (kernel(5.0), kernel(5.0, 0, i)))]
    tensors = [TensorLife(40, 0, {*range(2, 17, 2)}), *(TensorLife(100, i, {i + 1}) for i in makers)]
    assert arrange(units, tensors, room=10**6) == list(range(17))
    assert arrange(units, tensors[:1], room=10**6)[:9] == [0, *makers]


UNITS = st.sampled_from(["kernel", "kernel", "kernel", "host", "number", "scalars", "loop"])


@st.composite
def programs(draw: st.DrawFn, most: int) -> tuple[list[Unit], list[TensorLife]]:
    units: list[Unit] = []
    tensors: list[TensorLife] = []
    for i in range(draw(st.integers(2, most))):
        needs = draw(st.sets(st.integers(0, i - 1), max_size=2)) if i else set[int]()
        us = draw(st.sampled_from([1.0, 3.0, 10.0, 40.0]))
        match draw(UNITS):
            case "kernel":
                unit = kernel(us, *needs)
            case "host":
                unit = host(us, *needs)
            case "number":
                unit = Unit([(COPY_OUT, us)], needs)
            case "scalars":
                unit = Unit([(PROGRAM, us)], needs, set(needs))
            case _:
                unit = Unit([(COMPUTE, us)], needs, whole=True)
        unit.bytes = draw(st.sampled_from([0, 0, 5]))
        units.append(unit)
        tensors.append(TensorLife(draw(st.sampled_from([1, 4, 20])), i, kept=draw(st.integers(0, 5)) == 0))
    tensors.append(TensorLife(10, -1))
    for i, unit in enumerate(units):
        for j in unit.needs:
            tensors[j].users.add(i)
        if draw(st.integers(0, 3)) == 0:
            tensors[-1].users.add(i)
    return units, tensors


def most(units: Sequence[Unit], tensors: Sequence[TensorLife], order: Sequence[int]) -> int:
    """The bytes that are alive at one time, tensor by tensor and step by step."""
    place = {i: p for p, i in enumerate(order)}
    peak = 0
    for p, i in enumerate(order):
        alive = units[i].bytes
        for t in tensors:
            first = place.get(t.maker, -1)
            last = len(order) if t.kept else max((place[u] for u in t.users), default=first)
            alive += t.bytes * (first <= p <= last)
        peak = max(peak, alive)
    return peak


def orders(units: Sequence[Unit]) -> Iterator[tuple[int, ...]]:
    for order in itertools.permutations(range(len(units))):
        place = {i: p for p, i in enumerate(order)}
        if all(place[j] < place[i] for i, u in enumerate(units) for j in u.needs):
            yield order


@settings(max_examples=250)
@given(programs(14), st.sampled_from([0, 40, 10**6]))
def test_needs_time_and_memory(program: tuple[list[Unit], list[TensorLife]], room: int) -> None:
    units, tensors = program
    plain = list(range(len(units)))
    found = arrange(units, tensors, room=room)
    assert sorted(found) == plain
    place = {i: p for p, i in enumerate(found)}
    assert all(place[j] < place[i] for i, u in enumerate(units) for j in u.needs)
    assert run(units, found, None).end <= run(units, plain, None).end
    peak = most(units, tensors, plain)
    brought = max((tensors[i].bytes for i, u in enumerate(units) if u.calls), default=0)
    assert most(units, tensors, found) <= peak + min(brought, max(0, room - peak) // 2)


@settings(max_examples=60)
@given(programs(6))
def test_seldom_far_from_the_best_order(program: tuple[list[Unit], list[TensorLife]]) -> None:
    """List scheduling ends before twice the best order does."""
    units, _ = program
    best = min(run(units, order, None).end for order in orders(units))
    assert run(units, arrange(units), None).end < 2 * best + 1e-9
