"""Loops taken by matrix and cores taken by class agree, to the cycle, with simulating each trip of each."""

import itertools
from collections.abc import Iterator

import pytest
from event_simulation import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiering import ALL
from xdsl.parser import Parser

from tilewright.backends.simulator import TimedKernel, core
from tilewright.backends.simulator.affine import Clip, TransferRow, steady_runs
from tilewright.dialects import make_context
from tilewright.dialects.affine import Expr
from tilewright.dialects.npu.interface import valid_extent
from tilewright.dialects.npu.structure import KernelOp
from tilewright.machine import Machine

B1 = Machine.load("ascend-910b1")
PIPES = ("V", "MTE2", "MTE3", "S")
SIZES = (16, 128, 1024)
EXTENT = 700


@pytest.fixture(autouse=True)
def always_by_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MATRIX_PERIODS", 1)
    monkeypatch.setattr(core, "MATRIX_WORK", 0)


class Writer:
    """Writes a random section that cannot deadlock: each wait comes after a set of the same flag."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.names = map(str, itertools.count())
        self.indices = ["%g"]
        self.credits: list[tuple[str, str, int, int]] = []

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def choice(self, *options: str) -> str:
        return self.draw(st.sampled_from(options))

    def linear(self, low: int, high: int) -> str:
        used = [i for i in self.indices if self.integer(0, 1)]
        terms = [f"{i} * {self.integer(low, high)}" for i in used]
        return " + ".join([*terms, str(self.integer(low, high))])

    def flag(self) -> tuple[str, str]:
        """A set and the wait that takes it, with the same counter."""
        slots = self.integer(1, 3)
        source, target, event = self.choice(*PIPES), self.choice(*PIPES), self.integer(0, 3)
        rest = f'{{source = "{source}", target = "{target}", event = {event}, slots = {slots}}}'
        at = f"at [{self.linear(0, 5)}]"
        return f"npu.set_flag {at} {rest}", f"npu.wait_flag {at} {rest}"

    def work(self, pipe: str | None = None) -> str:
        pipe = pipe or self.choice("V", "MTE2", "MTE3")
        size = self.draw(st.sampled_from(SIZES))
        buffer, gm = f"!npu.buffer<{size}xf16, ub>", f"!npu.gm<{EXTENT}xf16>"
        where = f"at [{self.linear(-70, 70)}] {{sizes = [{size}]}}"
        if pipe == "MTE2":
            return f"npu.load_nd %x, %b{size} {where} : ({gm}, {buffer})"
        if pipe == "MTE3":
            return f"npu.store_nd %b{size}, %y {where} : ({buffer}, {gm})"
        return f"npu.vabs %b{size}, %b{size} : ({buffer}, {buffer})"

    def give_credits(self) -> Iterator[str]:
        """Sets, once for each slot, of the flags that `handshake` waits for and sets again."""
        for event in (5, 6):
            slots = self.integer(1, 2) if event == 6 else self.integer(1, 3)
            target, source = self.draw(st.sampled_from([("MTE2", "V"), ("V", "MTE3"), ("MTE2", "MTE3")]))
            self.credits.append((source, target, event, slots))
            for slot in range(slots):
                yield self.credit("set", self.credits[-1], str(slot))

    def credit(self, kind: str, credit: tuple[str, str, int, int], counter: str) -> str:
        source, target, event, slots = credit
        fields = f'source = "{source}", target = "{target}", event = {event}, slots = {slots}'
        return f"npu.{kind}_flag at [{counter}] {{{fields}}}"

    def handshake(self) -> Iterator[str]:
        """What a multi-buffer does: take a slot back, fill it, hand it on, use it, give it back."""
        credit = self.draw(st.sampled_from(self.credits))
        source, target, _, _ = credit
        counter = self.linear(0, 3)
        yield self.credit("wait", credit, counter)
        yield self.work(target)
        yield self.credit("set", (target, source, 7, 1), "0")
        yield self.credit("wait", (target, source, 7, 1), "0")
        yield self.work(source)
        yield self.credit("set", credit, counter)

    def nodes(self, depth: int) -> Iterator[str]:
        for _ in range(self.integer(1, 3)):
            kind = self.integer(0, 9)
            if kind < 2:
                yield self.work()
            elif kind == 2:
                before, after = self.flag()
                yield from (before, self.work(), after)
            elif kind < 6:
                yield from self.handshake()
            elif kind == 6 and self.integer(0, 3) == 0:
                yield "npu.barrier"
            elif depth:
                yield from self.loop(depth)

    def loop(self, depth: int) -> Iterator[str]:
        """A loop; perhaps with flags that pile up in it and are taken in a second one."""
        index = f"%i{next(self.names)}"
        low, trips, step = self.integer(0, 2), self.integer(0, 13), self.integer(1, 3)
        numbers = [f"{index}{end}" for end in ("low", "high", "step")]
        for name, value in zip(numbers, (low, low + trips * step, step), strict=True):
            yield f"{name} = arith.constant {value} : index"
        head = f"scf.for {index} = {numbers[0]} to {numbers[1]} step {numbers[2]} {{"
        self.indices.append(index)
        body = list(self.nodes(depth - 1))
        piled = self.flag()
        self.indices.pop()
        if self.integer(0, 4) == 0:
            yield from (head, *body, piled[0], "}", head, self.work(), piled[1], "}")
        else:
            yield from (head, *body, "}")


@st.composite
def kernels(draw: st.DrawFn) -> str:
    writer = Writer(draw)
    body = "\n".join([*writer.give_credits(), *writer.nodes(3)])
    allocs = "\n".join(f"%b{n} = npu.alloc : () -> !npu.buffer<{n}xf16, ub>" for n in SIZES)
    return f"""
    npu.kernel @k {{grid = [{writer.integer(1, 9)}], kind = "vector", outputs = 1, workspaces = 0}} {{
    ^bb0(%g: index, %x: !npu.gm<{EXTENT}xf16>, %y: !npu.gm<{EXTENT}xf16>):
      npu.section {{core = "vector", units = 1}} {{
      ^bb1(%u: index):
        {allocs}
        {body}
      }}
    }}"""


@settings(
    max_examples=100 if ALL else 40,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
@given(kernels())
def test_extrapolated_is_full(text: str):
    module = Parser(make_context(), text).parse_module()
    module.verify()
    op = module.body.block.first_op
    assert isinstance(op, KernelOp)
    quick, full = (TimedKernel(op, B1, extrapolate) for extrapolate in (True, False))
    assert quick.totals == full.totals
    for missing in ((1.0, 0.0), (0.3, 1.0)):
        fast, slow = quick.run(missing), full.run(missing)
        assert fast.cycles == slow.cycles
        assert fast.pipes == slow.pipes
        assert fast.limited == slow.limited
        prices = quick._prices(missing)
        for alike in quick._classes.values():
            ends = [core.end for core in quick._block(alike.point, prices)]
            assert ends == run(quick, alike.point, prices)


@given(
    st.integers(-50, 50),
    st.integers(-9, 9),
    st.integers(1, 6),
    st.integers(-3, 3),
    st.integers(1, 40),
    st.integers(0, 5),
    st.integers(1, 20),
)
def test_steady_runs_clip_alike(
    constant: int, slope: int, count: int, step: int, extent: int, inner: int, trips: int
):
    """Within a steady run, every trip clips alike for each inner index; and a key tells all differences."""
    row = TransferRow(Expr(constant, {0: slope, 1: 2}), count, step, extent)
    ranges = [(0, trips - 1), (0, inner)]
    seen = {}

    def clips(trip: int) -> list[int]:
        return [valid_extent(constant + slope * trip + 2 * i, count, step, extent) for i in range(inner + 1)]

    clip = Clip(row, {1}, 0, ranges)
    if slope:
        for start, length, steady in steady_runs([clip.steady([0, 0], 0, 1)], trips):
            if steady:
                assert all(clips(trip) == clips(start) for trip in range(start, start + length))
    outside = Clip(row, {1}, None, ranges)
    for trip in range(trips):
        assert seen.setdefault(outside.key([trip, 0]), clips(trip)) == clips(trip)


def test_what_a_finished_loop_left_counts_whole():
    """After the loop that filled it in part, a buffer counts whole: the loop's index has no value any more."""
    buffer, gm = "!npu.buffer<128xf16, ub>", "!npu.gm<700xf16>"
    text = f"""
    npu.kernel @k {{grid = [1], kind = "vector", outputs = 1, workspaces = 0}} {{
    ^bb0(%g: index, %x: {gm}, %y: {gm}):
      npu.section {{core = "vector", units = 1}} {{
      ^bb1(%u: index):
        %b = npu.alloc : () -> {buffer}
        %low = arith.constant 0 : index
        %high = arith.constant 13 : index
        %one = arith.constant 1 : index
        scf.for %i = %low to %high step %one {{
          npu.load_nd %x, %b at [%i * 60] {{sizes = [128]}} : ({gm}, {buffer})
        }}
        scf.for %i = %low to %high step %one {{
          npu.vabs %b, %b : ({buffer}, {buffer})
        }}
      }}
    }}"""
    module = Parser(make_context(), text).parse_module()
    op = module.body.block.first_op
    assert isinstance(op, KernelOp)
    runs = [TimedKernel(op, B1, extrapolate).run((0.0, 0.0)) for extrapolate in (True, False)]
    assert runs[0].cycles == runs[1].cycles
    assert runs[0].pipes["V"] == runs[1].pipes["V"] == 13 * B1.vector.cycles("abs", "f16", 128)
