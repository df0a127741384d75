"""When the commands of a host program run: by hand, and loops against each of their rounds."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_simulator import B1, launches
from xdsl.ir import Operation

from tilewright.backends.simulator import Copy, Launch, Repeat, Scalars, Transfer, simulate
from tilewright.backends.simulator.steps import Record, Step, Wait
from tilewright.backends.simulator.timeline import Placed, Rest, lay_out, makespan
from tilewright.dialects.npu.streams import QUEUES
from tilewright.dialects.npu.structure import NpuYieldOp

OP: Operation = NpuYieldOp.create()


def work(queue: str | None, microseconds: float) -> Step:
    return Copy(0, 0, 0, microseconds, OP, queue)


def rec(event: int, queue: str) -> Step:
    return Record(event, queue)


def wait(event: int, queue: str) -> Step:
    return Wait(event, queue)


def test_streams_run_side_by_side_until_an_event_joins_them():
    one, two = work("compute", 3.0), work("copy_in", 5.0)
    assert makespan([one, two]) == 5
    assert makespan([two, rec(0, "copy_in"), wait(0, "compute"), one]) == 8
    assert makespan([two, rec(0, "copy_in"), two, wait(0, "compute"), one]) == 10
    assert makespan([one, wait(0, "compute"), one]) == 6  # an event that never was holds up nobody


def test_a_synchronous_command_waits_and_holds_up():
    assert makespan([work("copy_in", 5.0), work(None, 1.0), work("compute", 2.0), work("copy_out", 3.0)]) == 9


def test_what_the_programs_thread_waits_for_all_that_follows_does():
    steps = [work("copy_out", 4.0), rec(0, "copy_out"), work("compute", 1.0), wait(0, "program")]
    assert makespan([*steps, work("program", 0.5), work("compute", 1.0), work("copy_in", 1.0)]) == 5.5


def test_one_stream_is_the_sum_exactly():
    steps = [
        work("compute", 0.1),
        Repeat((work("compute", 0.3), work("compute", 0.7)), 1000),
        work("compute", 0.2),
    ]
    assert makespan(steps) == sum(step.microseconds for step in steps)


def test_a_pipeline_of_rounds():
    """Two buffers' worth of slack: the slowest stage sets the pace, the others are hidden."""
    body = (
        work("copy_in", 3.0),
        rec(0, "copy_in"),
        wait(0, "compute"),
        work("compute", 5.0),
        rec(1, "compute"),
        wait(1, "copy_out"),
        work("copy_out", 2.0),
    )
    assert makespan([Repeat(body, 1000)]) == 3 + 1000 * 5 + 2
    held = (wait(1, "copy_in"), *body)  # the next copy waits until the data is used
    assert makespan([rec(1, "compute"), Repeat(held, 1000)]) == 1000 * 8 + 2


def test_a_functions_events_are_its_own():
    inner = (work("copy_in", 7.0), rec(0, "copy_in"), wait(0, "compute"), work("compute", 1.0))
    steps = [
        work("compute", 1.0),
        rec(0, "compute"),
        Repeat(inner, 1, OP),
        wait(0, "copy_out"),
        work("copy_out", 1.0),
    ]
    assert makespan(steps) == 8
    assert [round(p.begin, 6) for p in lay_out(steps, 100)] == [0, 0, 7, 1]


queues = st.sampled_from([q for q in QUEUES if q != "program"])
events = st.integers(0, 2)
leaves = st.one_of(
    st.builds(work, st.sampled_from([*QUEUES, None]), st.integers(0, 20).map(float)),
    st.builds(rec, events, queues),
    st.builds(wait, events, st.sampled_from(QUEUES)),
)
programs: Any = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda steps, times: Repeat(tuple(steps), times),
        st.lists(inner, min_size=1, max_size=6),
        st.integers(1, 4),
    ),
    max_leaves=12,
)


def unrolled(steps: Any) -> list[Step]:
    out: list[Step] = []
    for step in steps:
        if isinstance(step, Repeat):
            for _ in range(step.times):
                out += unrolled(step.steps)
        else:
            out.append(step)
    return out


@settings(deadline=None, max_examples=60)
@given(st.lists(programs, max_size=6))
def test_loops_against_their_rounds_one_by_one(steps: Any) -> None:
    """Powers of a round, and all rounds: events that go around, loops in loops, queues that run ahead."""
    assert makespan(steps) == makespan(unrolled(steps))
    for commands in (1, 10**6):
        spans = list(lay_out(steps, commands))
        ends = [p.end for p in spans]
        assert not ends or max(ends) <= makespan(steps) + 1e-6
        for queue in QUEUES:
            mine = [p for p in spans if (p.queue if isinstance(p, Rest) else p.step.queue) == queue]
            for one, other in itertools.pairwise(mine):
                assert other.begin >= one.end
    every = [(p.begin, p.end) for p in lay_out(steps, 10**6) if isinstance(p, Placed)]
    assert every == [(p.begin, p.end) for p in lay_out(unrolled(steps), 1) if isinstance(p, Placed)]


def test_passes_are_laid_out_as_far_as_there_is_room():
    """Two loops, one in the other: of each as many passes as make 22 commands, and one at least."""
    inner = Repeat((work("compute", 1.0), work("copy_in", 0.25)), 5)
    steps = [work("compute", 2.0), Repeat((inner, work("compute", 3.0)), 4)]
    spans = list(lay_out(steps, 22))
    assert sum(isinstance(p, Placed) for p in spans) == 1 + 3 * (3 * 2 + 1)  # 4 passes would be 37
    rests = [(p.queue, p.passes, p.begin, p.end) for p in spans if isinstance(p, Rest)]
    assert rests[0] == ("compute", 2, 5.0, 7.0)
    assert rests[-2:] == [("compute", 1, 26.0, 34.0), ("copy_in", 1, 3.75, 5.0)]
    assert makespan(steps) == 34
    (first, *_) = lay_out(steps, 1)
    assert first.end == 2.0 and sum(isinstance(p, Placed) for p in lay_out(steps, 1)) == 4


HOSTED = """%h = npu.to_host %x {stream = "copy_out"} : (GM) -> tensor<1048576xf16>
npu.record_event {event = 0, stream = "copy_out"}
npu.wait_event {event = 0, stream = "host"}
%s = npu.host_call %h {module = "m", op = "sort", stream = "host"} : tensor<1048576xf16>
npu.record_event {event = 1, stream = "host"}
npu.wait_event {event = 1, stream = "copy_in"}
npu.to_device %s, %z {stream = "copy_in"} : (tensor<1048576xf16>, GM)
npu.launch @k %x, %y {outputs = 1, workspaces = 0, stream = "compute"} : (GM, GM)
"""


def test_a_host_call_behind_a_launch():
    """The link down, the host, the link up: 2 MiB each way at the link's rate, 4 MiB of work, one call."""
    simulation = simulate(launches(HOSTED), B1)
    launch = next(s for s, _ in simulation.flat() if isinstance(s, Launch))
    link, call = [s for s, _ in simulation.flat() if isinstance(s, Transfer)], B1.host
    assert [s.microseconds for s in link] == [pytest.approx((2 << 20) / call.pcie_bytes_per_us)] * 2
    hosted = call.call_us + (4 << 20) / call.compute_bytes_per_us
    assert simulation.microseconds == pytest.approx(sum(s.microseconds for s in link) + hosted)
    plain = re.sub(r'npu.\w+_event.*\n|{stream = "\w+"}|, stream = "\w+"', "", HOSTED)
    serial = simulate(launches(plain), B1)
    assert serial.microseconds == pytest.approx(simulation.microseconds + launch.microseconds)


def test_numbers_hide_behind_launches():
    """A loop that counts on the host: the thread gives out the next launch while the last one runs."""
    host = """%i = npu.scalars : () -> tensor<i32> {
      %a = graph.constant {value = #graph.data<i32, [], (1)>} : () -> tensor<i32>
      graph.yield %a : (tensor<i32>)
    }
    %last = npu.loop %x, %i {trip_count = 50} : (GM, tensor<i32>) -> tensor<i32> {
      npu.yield
    } {
    ^bb0(%s: GM, %j: tensor<i32>):
      %k = npu.scalars %j : tensor<i32> {
      ^bb1(%l: tensor<i32>):
        %m = graph.add %l, %l : tensor<i32>
        graph.yield %m : (tensor<i32>)
      }
      npu.launch @k %s, %y {outputs = 1, stream = "compute", workspaces = 0} : (GM, GM)
      npu.yield %s, %k : (GM, tensor<i32>)
    }"""
    simulation = simulate(launches(host), B1)
    numbers = sum(s.microseconds * n for s, n in simulation.flat() if isinstance(s, Scalars))
    device = sum(s.microseconds * n for s, n in simulation.flat() if isinstance(s, Launch))
    assert numbers == pytest.approx(50 * B1.host.scalar_us)
    assert simulation.microseconds == pytest.approx(device + B1.host.scalar_us)


def test_unscheduled_is_one_command_after_the_other():
    text = "npu.launch @k %x, %y LAUNCH\nnpu.copy %x, %z : (GM, GM)\nnpu.launch @k %x, %y LAUNCH"
    plain = simulate(launches(text), B1)
    assert plain.microseconds == sum(step.microseconds for step, _ in plain.flat())
