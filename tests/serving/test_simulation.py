"""Simulated services against queueing theory, against small cases by hand, and against a slow simulation."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tilewright as tw
from tilewright.serving import (
    Arrivals,
    BatchCost,
    BatchPolicy,
    LatencyGoal,
    ServiceReport,
    ServingError,
    simulate,
)
from tilewright.serving.policies import BatchCosts
from tilewright.serving.replay import ServiceReplay, replay

MS = 1e-3


def constant(milliseconds: float, joules: float = 0.0) -> BatchCosts:
    """Batches of any size, of which each takes the same."""
    return BatchCosts("constant", None, lambda size: BatchCost(1e3 * milliseconds, joules))


def served(
    arrivals: Arrivals, policy: str, costs: BatchCosts, devices: int = 1, room: int | None = None
) -> ServiceReplay:
    return replay(arrivals, BatchPolicy.of(policy), [costs], devices, room)


# -- theory ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_waiting_is_as_pollaczek_and_khinchine_say(load: float) -> None:
    """M/D/1: the mean wait is load * service / (2 * (1 - load))."""
    arrivals = Arrivals.poisson(load / MS, seconds=200, seed=3)
    found = served(arrivals, "none", constant(1))
    wait = float((found.starts - arrivals.seconds).mean())
    assert wait == pytest.approx(load * MS / (2 * (1 - load)), rel=0.03)
    assert found.busy / found.span == pytest.approx(load, rel=0.02)


def test_two_devices_are_as_an_m_d_2_queue() -> None:
    """The mean wait of M/D/c is about half of that of M/M/c (Erlang's C), times a factor by Cosmetatos, which is
    right to about a hundredth."""
    load = 0.7
    factor = 1 + (1 - load) * (math.sqrt(14) - 2) / (32 * load)
    arrivals = Arrivals.poisson(2 * load / MS, seconds=100, seed=5)
    found = served(arrivals, "none", constant(1), devices=2)
    waits = load**2 * 2 / (1 + load)  # the chance to wait, of two servers
    markov = waits * MS / (2 * (1 - load))
    assert float((found.starts - arrivals.seconds).mean()) == pytest.approx(factor * markov / 2, rel=0.05)


@pytest.mark.parametrize("policy", ["none", "batch=4,wait=2ms", "fixed=3", "batch=4,wait=1ms,deadline=3ms"])
@pytest.mark.parametrize("room", [None, 5])
def test_littles_law_holds_exactly(policy: str, room: int | None) -> None:
    """The mean length of the queue is what begins in a second times the mean wait."""
    given: Any = {1: BatchCost(900), 4: BatchCost(1500)}
    found = simulate(given, "poisson:1200,seconds=5,seed=2", [policy], queue=room).rows[0]
    assert found.queue_mean == pytest.approx(found.throughput * found.wait_ms * 1e-3, rel=1e-9)
    assert found.served + found.rejected == len(found.replay.arrivals.seconds)
    assert room is None or found.queue_most <= room


def test_more_than_can_be_done() -> None:
    costs: Any = {1: BatchCost(1000), 8: BatchCost(2000)}
    none, batched, bounded = (
        simulate(costs, "poisson:2000,seconds=4", ["none"]).rows[0],
        simulate(costs, "poisson:2000,seconds=4", ["batch=8"]).rows[0],
        simulate(costs, "poisson:2000,seconds=4", ["none"], queue=10).rows[0],
    )
    assert none.load == pytest.approx(2, rel=0.05) and none.saturated
    assert none.throughput == pytest.approx(1000, rel=0.01)
    assert not batched.saturated and batched.load == pytest.approx(0.5, rel=0.05)
    assert bounded.rejected / (bounded.served + bounded.rejected) == pytest.approx(0.5, rel=0.05)
    assert bounded.latency_ms.most <= 11 + 1e-6
    text = str(simulate(costs, "poisson:2000,seconds=4", ["none", "batch=8"], goal="p99=20ms"))
    assert "overloaded: 2.0" in text and text.endswith("best within p99=20ms: batch=8")


# -- by hand ---------------------------------------------------------------------------------------------------


def times(*milliseconds: float) -> Arrivals:
    return Arrivals.at(np.array(milliseconds) * MS)


@pytest.mark.parametrize(
    ("policy", "starts", "items"),
    [
        ("none", [0, 10, 20, 30, 50], [1, 1, 1, 1, 1]),
        ("batch=2", [0, 10, 10, 20, 50], [1, 2, 1, 1]),
        ("batch=2,wait=3ms", [1, 1, 11, 11, 53], [2, 2, 1]),
        ("batch=2,wait=20ms", [1, 1, 11, 11, 70], [2, 2, 1]),
        ("fixed=4", [3, 3, 3, 3, 50], [4, 1]),
        ("fixed=3", [2, 2, 2, 50, 50], [3, 2]),
    ],
)
def test_when_batches_begin(policy: str, starts: list[float], items: list[int]) -> None:
    found = served(times(0, 1, 2, 3, 50), policy, constant(10))
    np.testing.assert_allclose(found.starts, np.array(starts) * MS, atol=1e-12)
    np.testing.assert_allclose(found.ends - found.starts, 10 * MS)
    assert found.batch_items.tolist() == items


def test_a_full_queue_rejects() -> None:
    """Of those that arrive at once as many begin as there are devices, and as many wait as there is room for."""
    found = served(times(*[0] * 8, 5), "none", constant(10), devices=2, room=3)
    assert found.served.tolist() == [True] * 5 + [False] * 4
    found = served(times(*[0] * 8, 10), "batch=2", constant(10), room=3)
    assert found.served.tolist() == [True] * 5 + [False] * 3 + [True]
    assert served(times(0, 0, 0), "batch=2,wait=1ms", constant(10), room=1).served.tolist() == [True, False, False]
    with pytest.raises(ServingError, match="a queue of 3 never fills a batch of 4"):
        served(times(0), "fixed=4", constant(1), room=3)


def test_the_earliest_deadline_comes_first(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("seconds,deadline\n0,\n0.001,0.1\n0.002,\n0.003,0.005\n")
    arrivals = Arrivals.read(tmp_path / "t.csv")
    by_age, by_deadline = (served(arrivals, policy, constant(10)) for policy in ("none", "batch=1,deadline=50ms"))
    assert np.argsort(by_age.starts).tolist() == [0, 1, 2, 3]
    assert np.argsort(by_deadline.starts).tolist() == [0, 3, 2, 1]
    rows = simulate({1: BatchCost(10_000)}, arrivals, ["none", "batch=1,deadline=50ms"]).rows
    assert [row.late for row in rows] == [1, 1]


def test_deadlines_choose_among_entries(tmp_path: Path) -> None:
    """The entry with the most urgent request goes first; without deadlines that with the oldest one."""
    (tmp_path / "t.csv").write_text("seconds,entry,deadline\n0,a,\n0.001,a,\n0.002,b,0.02\n0.003,a,0.01\n")
    arrivals, costs = Arrivals.read(tmp_path / "t.csv"), {name: {1: BatchCost(10_000)} for name in "ab"}
    by_age, by_deadline = (row.replay for row in simulate(costs, arrivals, ["none", "batch=1,deadline=1s"]).rows)
    assert np.argsort(by_age.starts).tolist() == [0, 1, 2, 3]
    assert np.argsort(by_deadline.starts).tolist() == [0, 3, 2, 1]


def test_requests_of_several_items_and_entries(tmp_path: Path) -> None:
    """Batches are of one entry, are full of items, and keep the order."""
    (tmp_path / "t.csv").write_text("seconds,size,entry\n0,3,a\n0,3,a\n0,1,b\n0,2,a\n")
    arrivals = Arrivals.read(tmp_path / "t.csv")
    costs: Any = {"a": {4: BatchCost(1000), 6: BatchCost(2000)}, "b": {2: BatchCost(5000)}, "c": {1: BatchCost(1)}}
    with pytest.raises(ServingError, match="b is compiled for batches of 2"):
        simulate(costs, arrivals, ["batch=6"])
    costs["b"] = {8: BatchCost(5000)}
    found = simulate(costs, arrivals, ["batch=6"]).rows[0].replay
    np.testing.assert_allclose(found.starts, [0, 0, 2 * MS, 7 * MS])
    assert found.batch_items.tolist() == [6, 1, 2] and found.batch_entries.tolist() == [0, 1, 0]
    np.testing.assert_allclose(found.ends, [2 * MS, 2 * MS, 7 * MS, 8 * MS])
    with pytest.raises(ServingError, match=r"request 1 of .* has 3 items, more than a batch"):
        simulate(costs, arrivals, ["batch=2"])
    for wrong, said in (
        ({"a": costs["a"], "bb": costs["b"]}, "has the entry 'b'; did you mean bb"),
        (costs["a"], "names the entry 'a', and the program has no name"),
    ):
        with pytest.raises(ServingError, match=said):
            simulate(wrong, arrivals, ["batch=6"])
    with pytest.raises(ServingError, match="has no column entry, which says what a request calls"):
        simulate(costs, "poisson:9", ["none"])
    assert simulate({"a": {1: BatchCost(5)}}, "poisson:9", ["none"]).rows[0].served > 50


def slow(arrivals: Arrivals, policy: BatchPolicy, service: float, devices: int, room: int | None) -> list[float]:
    """When requests of one item begin, looking at each moment at which something may, and at all that waits."""
    pending, free, starts = list[int](), [0.0] * devices, [math.nan] * len(arrivals.seconds)
    left = [*range(len(arrivals.seconds))]
    now, wait = 0.0, policy.wait

    def due(i: int) -> float:
        return float(arrivals.seconds[i] + after)

    while left or pending:
        while left and arrivals.seconds[left[0]] <= now:
            if room is None or len(pending) < room:
                pending.append(left[0])
            left.pop(0)
        after = 0.0 if not left and wait == math.inf else wait
        device = min(range(devices), key=free.__getitem__)
        if pending and free[device] <= now and (len(pending) >= policy.batch or due(min(pending)) <= now):
            if policy.deadline is not None:
                pending.sort(key=lambda i: (arrivals.seconds[i] + min(arrivals.deadlines[i], policy.deadline), i))
            for i in pending[: policy.batch]:
                starts[i] = now
            pending = sorted(pending[policy.batch :])
            free[device] = now + service
            continue
        moments = [*map(float, arrivals.seconds[left[:1]]), *free, *([due(min(pending))] if pending else [])]
        later = [moment for moment in moments if moment > now]
        if not later:
            break
        now = min(later)
    return starts


def test_it_is_as_a_slow_simulation() -> None:
    draw = random.Random(0)
    for seed in range(60):
        count, devices = draw.randint(1, 40), draw.randint(1, 3)
        seconds = np.sort(np.random.default_rng(seed).uniform(0, 0.02, count))
        one = Arrivals.at(seconds)
        limits = np.where(np.random.default_rng(seed + 99).random(count) < 0.5, 2e-3, math.inf)
        arrivals = Arrivals(one.seconds, one.sizes, one.entries, one.names, limits, "drawn")
        batch = draw.randint(1, 5)
        policy = BatchPolicy(batch, draw.choice([0, 1e-3, math.inf]), (), draw.choice([None, 4e-3]))
        room = draw.choice([None, batch, batch + 3])
        found = replay(arrivals, policy, [constant(1.7)], devices, room)
        wanted = slow(arrivals, policy, 1.7 * MS, devices, room)
        np.testing.assert_allclose(found.starts, wanted, atol=1e-12, err_msg=f"{seed}: {policy}, {devices}, {room}")


# -- programs --------------------------------------------------------------------------------------------------


def test_costs_are_those_of_reports() -> None:
    b, s = jax.export.symbolic_shape("b, s")
    program = tw.compile(lambda x: x * 2 + 1, jax.ShapeDtypeStruct((b, s), "float32"))
    found = simulate(program, times(0, 0, 0, 900), ["batch=2", "batch=2,sizes=2+4"], batch="b", at={"s": 64})
    one, two = (program.report(at={"b": n, "s": 64}) for n in (1, 2))
    exact, padded = found.rows
    assert exact.replay.busy == pytest.approx((2 * one.microseconds + two.microseconds) * 1e-6)
    assert padded.replay.busy == pytest.approx(3 * two.microseconds * 1e-6)
    idle = program.machine.energy.idle_watts
    joules = 2 * one.energy_joules + two.energy_joules + idle * (exact.replay.span - exact.replay.busy)
    assert exact.joules == pytest.approx(joules / 4) and exact.watts == pytest.approx(joules / exact.replay.span)
    assert idle < exact.watts < 2 * idle
    same = simulate(program, times(0, 0, 0, 900), ["batch=2"], at={"s": 64})
    assert same.rows[0] == exact
    fixed = {n: program.at(b=n, s=64) for n in (1, 2)}
    assert simulate(fixed, times(0, 0, 0, 900), ["batch=2"]).rows[0] == exact
    for how, said in (
        ({"batch": "c", "at": {"s": 64}}, "the batch 'c' is not one of them"),
        ({"batch": "s", "at": {"s": 64}}, "the batch 's' is given in at="),
        ({}, "has the open sizes b, s: say which is the batch"),
    ):
        with pytest.raises(ServingError, match=said):
            simulate(program, times(0), ["none"], **how)
    with pytest.raises(ServingError, match="has no open sizes, which batch= and at= are for"):
        simulate(fixed, times(0), ["none"], batch="b")
    with pytest.raises(ServingError, match="compiled for batches of 1, 2, not of 4"):
        simulate(fixed, times(0), ["batch=2,sizes=1+4"])
    with pytest.raises(ServingError, match="batch=3: the program is compiled for batches of 1, 2: give it an"):
        simulate(fixed, times(0), ["batch=3"])
    with pytest.raises(tw.CompileError):
        simulate(program, times(0), ["none"], batch="b", at={"s": -1})


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ({}, "there is no program"),
        ({0: BatchCost(1)}, "0 is no size of a batch"),
        ({1: BatchCost(0)}, "finite microseconds above 0"),
        ({1: BatchCost(math.nan)}, "finite microseconds above 0"),
        ({1: 3}, "for 1 items there is no program"),
    ],
)
def test_what_is_no_cost(programs: Any, said: str) -> None:
    with pytest.raises(ServingError, match=said):
        simulate(programs, "poisson:9", ["none"])


# -- what is asked for -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["none", "batch=8", "batch=8,wait=2ms", "fixed=8", "batch=4,wait=50us,sizes=1+4,deadline=1s"]
)
def test_policies_are_read_as_they_are_written(text: str) -> None:
    assert str(BatchPolicy.of(text)) == text
    assert BatchPolicy.of(str(BatchPolicy.of(text))) == BatchPolicy.of(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is not known"),
        ("bath=8", "'bath' is not known; did you mean batch"),
        ("batch=8,batch=9", "'batch' is said twice"),
        ("batch=eight", "'eight' is no whole number"),
        ("batch=0", "a batch has 1 to 1,048,576 items"),
        ("batch=99999999999999", "a batch has 1 to 1,048,576 items"),
        ("batch=8,wait=-1ms", "'-1ms' is no time"),
        ("batch=8,wait=nan", "'nan' is no time"),
        ("batch=8,deadline=0", "a deadline is finite and above 0"),
        ("batch=8,sizes=4+8+2", "sizes= ascend, and the last one has room"),
        ("batch=8,sizes=1+4", "sizes= ascend, and the last one has room"),
        ("fixed=4,wait=2ms", "fixed= says batch= and wait= already"),
        ("none,batch=2", "'none' is not known"),
    ],
)
def test_policies_that_are_none(text: str, said: str) -> None:
    with pytest.raises(ServingError, match=said):
        BatchPolicy.of(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("poisson:", "'' is no number"),
        ("poisson:nan", "'nan' is no number"),
        ("poisson:-3", "'-3' is no number"),
        ("poisson:0", "rates and times are finite and above 0"),
        ("poisson:999999999999999999", "are asked for, and 10,000,000 are the most"),
        ("poisson:5,seed=x", "'x' is no whole number"),
        ("poisson:5,every=1s", "'every' is not known"),
        ("poisson:5,seconds=1,seconds=2", "'seconds' is said twice"),
        ("poisson:5,seconds=soon", "'soon' is no time"),
        ("poisson:0.001,seconds=1ms", "no request arrives"),
        ("burst:3.5", "'3.5' is no whole number"),
        ("burst:0", "at least one arrival"),
        ("burst:3,every=1ms,within=2ms", "within no more than every=0.001s"),
        ("burst:3,every=0", "rates and times are finite and above 0"),
        ("uniform:3", "arrivals are a .csv file, poisson:RATE or burst:COUNT"),
    ],
)
def test_arrivals_that_are_none(text: str, said: str) -> None:
    with pytest.raises(ServingError, match=said):
        Arrivals.of(text)


def test_arrivals_that_are_drawn() -> None:
    one, again, other = (Arrivals.of(f"poisson:300,seconds=20,seed={seed}") for seed in (1, 1, 2))
    assert np.array_equal(one.seconds, again.seconds) and not np.array_equal(one.seconds[:9], other.seconds[:9])
    assert one.rate == pytest.approx(300, rel=0.05) and (np.diff(one.seconds) >= 0).all()
    burst = Arrivals.of("burst:4,every=1s,within=100ms,seconds=3")
    assert np.floor(burst.seconds).tolist() == [0] * 4 + [1] * 4 + [2] * 4 and (burst.seconds % 1 <= 0.1).all()
    assert Arrivals.of("burst:2,seconds=2").seconds.tolist() == [0, 0, 1, 1]
    with pytest.raises(ServingError, match="each at least the one before"):
        Arrivals.at(np.array([1.0, 0.5]))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r":1: the header has no column seconds"),
        (b"seconds\n", "no request arrives"),
        (b"time\n1\n", r":1: the header has no column seconds"),
        (b"seconds,seconds\n1,1\n", r":1: the header has seconds twice"),
        (b"seconds\n1\nlate\n", r":3: seconds is 'late', and has to be a finite number of at least 0"),
        (b"seconds\n-1\n", r":2: seconds is '-1'"),
        (b"seconds\nnan\n", r":2: seconds is 'nan'"),
        (b"seconds\n1e999\n", r":2: seconds is '1e999'"),
        (b"seconds\n2\n\n1\n", r":4: 1 seconds is before the line above, 2"),
        (b"seconds,size\n1,0\n", r":2: size is '0', and has to be 1 to"),
        (b"seconds,size\n1,-2\n", r":2: size is '-2'"),
        (b"seconds,size\n1,99999999999\n", r":2: size is '99999999999'"),
        (b"seconds,deadline\n1,-5\n", r":2: deadline is '-5'"),
        (b"seconds,entry\n1,a\n2,\n", "some lines have no entry"),
        (b"seconds,entry\n1\n", r":2: 1 values, and the header has 2"),
        (b"seconds\n\xff\n", r":2: it is not UTF-8"),
        (b'seconds\n"1\n', r":2: unexpected end of data"),
        (b"seconds\n" + b"1" * 70_000, r":2: the line is longer than any of a table"),
        (b"seconds\n" + b"1" * 6_000 + b"\n", r":2: seconds is '1{100,} ..."),
        (b"seconds,entry\n" + b"".join(b"1,e%d\n" % i for i in range(1002)), r":1002: no more than 1,000 entries"),
    ],
)
def test_tables_that_are_none(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ServingError, match=said) as caught:
        Arrivals.of(str(tmp_path / "t.csv"))
    assert len(str(caught.value)) < 1500 and "\n" not in str(caught.value)


def test_a_table(tmp_path: Path) -> None:
    text = "\ufefflevel, seconds ,size,entry,deadline\nx,1.5,,f,\ny,2,3,g,0.25\n\n"
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    found = Arrivals.of(str(tmp_path / "t.csv"))
    assert found.seconds.tolist() == [1.5, 2] and found.sizes.tolist() == [1, 3] and found.names == ("f", "g")
    assert found.deadlines.tolist() == [math.inf, 0.25] and found.rate == 2
    with pytest.raises(OSError, match="No such file"):
        Arrivals.of(str(tmp_path / "none.csv"))


def test_a_trace_begins_when_it_likes() -> None:
    """Times since 1970 in f64 are whole quarters of a microsecond; a batch takes less."""
    late = Arrivals.at(1.8e9 + np.arange(4))
    (row,) = simulate({1: BatchCost(0.6, 1e-6)}, late, ["none"]).rows
    assert row.latency_ms.mean == pytest.approx(0.6e-3, rel=1e-9)


@pytest.mark.parametrize("goal", ["p98=1ms", "p99", "p99=fast"])
def test_goals_that_are_none(goal: str) -> None:
    with pytest.raises(ServingError, match=f"goal {goal}"):
        LatencyGoal.of(goal)


@pytest.mark.parametrize("how", [{"devices": 0}, {"devices": 1 << 20}, {"queue": 0}])
def test_services_that_are_none(how: dict[str, int]) -> None:
    with pytest.raises(ServingError, match="a service has 1 to 65,536 devices, and room for a request"):
        simulate({1: BatchCost(1)}, "poisson:9", ["none"], **how)
    with pytest.raises(ServingError, match="no policy"):
        simulate({1: BatchCost(1)}, "poisson:9", [])


# -- reports ---------------------------------------------------------------------------------------------------


def report(goal: str | None = None) -> ServiceReport:
    costs: Any = {1: BatchCost(1000, 0.1), 8: BatchCost(2000, 0.2)}
    return simulate(costs, "poisson:600,seconds=2", ["none", "batch=8", "batch=8,wait=5ms"], goal=goal)


def test_the_best_policy_keeps_the_goal_and_takes_the_fewest_joules() -> None:
    rows = report().rows
    assert report().best is None and rows[2].joules < rows[1].joules < rows[0].joules + 1e-9
    loose, tight, none = (report(f"p99={ms}ms") for ms in (20, 5, 0.5))
    assert loose.best == loose.rows[2] and tight.best in tight.rows[:2] and none.best is None
    assert none.verdict == "no policy keeps p99=500us" and str(loose).endswith(loose.verdict)
    said = json.loads(json.dumps(loose.to_json()))
    assert said["best"] == 2 and said["rows"][2]["latency_ms"]["p99"] == rows[2].latency_ms.p99
    assert report().rows == rows
    order = rows[0].latency_ms
    assert order.p50 <= order.p90 <= order.p99 <= order.p999 <= order.most


def test_the_best_policy_rejects_the_fewest() -> None:
    """Also where another one takes fewer joules for those that it serves."""
    costs: Any = {1: BatchCost(1000, 0.1), 2: BatchCost(1100, 0.3)}
    found = simulate(costs, "poisson:1500,seconds=2", ["none", "batch=2"], queue=2, goal="p99=1s")
    first, second = found.rows
    assert first.rejected > second.rejected and first.joules < second.joules and found.best == second


def test_plots(tmp_path: Path) -> None:
    """The same report makes the same bytes."""
    pytest.importorskip("matplotlib")
    found = report("p99=5ms")
    for name in ("a.svg", "b.svg", "a.html"):
        found.plot(tmp_path / name)
    drawn, page = (tmp_path / "a.svg").read_bytes(), (tmp_path / "a.html").read_text()
    assert drawn == (tmp_path / "b.svg").read_bytes() and len(drawn) > 5000
    assert "<svg" in page and "batch=8,wait=5ms" in page and "<?xml" not in page
    with pytest.raises(ServingError, match=r"a plot is a file of \.svg, \.png, \.pdf, \.html"):
        found.plot(tmp_path / "a.txt")
    simulate({1: BatchCost(1000)}, "poisson:1500,seconds=1", ["none"]).plot(tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
