"""What else than time plans are judged by: energy, limits of power, memory, fronts, and what was measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.cli.main import main
from tilewright.knowledge.base import KnowledgeBase
from tilewright.knowledge.goals import Goal
from tilewright.machine import Machine
from tilewright.tuning.alone import LaunchQuestion, Measured, SimulatorJudge
from tilewright.tuning.profile import Profile, read_profile


def two(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.nn.softmax(jnp.maximum(x @ w, 0), -1)


ARGS = [jax.ShapeDtypeStruct(s, "float16") for s in ((256, 256), (256, 1024))]
IDLE = Machine.load("ascend-910b1").energy.idle_watts
QUICK: dict[str, Any] = {"search": "genetic", "evaluations": 120, "verify": 3, "budget": "1h"}


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("latency", Goal()),
        ("energy", Goal(1.0)),
        ("edp, 90 W", Goal(0.5, 90.0)),
        ("0.25", Goal(0.25)),
        ("latency, 150.5 W", Goal(0.0, 150.5)),
    ],
)
def test_goals_as_text(text: str, goal: Goal) -> None:
    assert Goal.parse(text) == goal and goal.text == text


@pytest.mark.parametrize(
    "text", ["", "fast", "2", "latency,150 W", "latency, W", "energy 5", "latency, 1.2.3 W", "..", "."]
)
def test_texts_that_are_no_goals(text: str) -> None:
    with pytest.raises(ValueError, match="is no goal of plans"):
        Goal.parse(text)


def test_values_of_goals() -> None:
    assert Goal().value(4.0, None) == Goal(0.0, 2e6).value(4.0, 4.0) == 4.0
    assert Goal(1.0).value(4.0, 9.0) == 9.0 and Goal(0.5).value(4.0, 9.0) == 6.0
    none = [Goal(1.0).value(4.0, None), Goal(0.0, 1e6).value(4.0, 9.0), Goal().value(float("inf"), 1.0)]
    assert none == [float("inf")] * 3


@pytest.fixture(scope="module")
def plain() -> Any:
    return tw.compile(two, *ARGS).report()


def test_a_cooler_plan_is_slower_and_keeps_the_limit(plain: Any, tmp_path: Path) -> None:
    hottest = max(k.watts for k in plain.kernels)
    limit = IDLE + (hottest - IDLE) * 0.6
    path = tmp_path / "plans.sqlite"
    tuned = tw.tune(two, *ARGS, power_limit=limit, store=path, **QUICK)
    report = tuned.program.report()
    assert all(k.watts <= limit * (1 + 1e-6) for k in report.kernels) and report.microseconds > plain.microseconds
    x, w = (np.random.default_rng(0).standard_normal(a.shape).astype(a.dtype) * 0.05 for a in ARGS)
    got, want = (np.asarray(y, np.float32) for y in (tuned.program(x, w), two(jnp.asarray(x), jnp.asarray(w))))
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-6)
    # the same program from the knowledge base; plans for time alone are others
    assert tuned.options.plans_for == f"latency, {limit:g} W"
    again = tw.compile(two, *ARGS, options=tuned.options).report()
    assert again.microseconds == report.microseconds and again.known_plans >= 1
    fast = tw.compile(two, *ARGS, options=tw.Options(plans=path)).report()
    assert fast.microseconds == plain.microseconds and fast.known_plans == 0


@pytest.mark.parametrize(
    ("objective", "amount"),
    [
        ("energy", lambda r: r.energy_joules),
        ("edp", lambda r: r.energy_joules * r.microseconds),
        ("throughput", lambda r: max(r.queues.values())),
        ("memory", lambda r: r.memory.arena_bytes),
    ],
)
def test_objectives(plain: Any, objective: str, amount: Callable[[Any], float]) -> None:
    report = tw.tune(two, *ARGS, objective=objective, **QUICK).program.report()
    assert amount(report) <= amount(plain)


def test_a_front(plain: Any) -> None:
    """The fastest first, each one with less energy or memory than those before; none of them is beaten."""
    report = tw.tune(two, *ARGS, front=3, **QUICK).report
    front = report.front
    assert front and front[0].microseconds <= plain.microseconds
    assert [c.microseconds for c in front] == sorted(c.microseconds for c in front)
    assert not any(a.beats(b) for a in front for b in front)
    for kernel in report.kernels:
        us, joules = [f[0] for f in kernel.front], [f[1] for f in kernel.front]
        assert us and us == sorted(us) and joules == sorted(joules, reverse=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"power_limit": IDLE}, "draws 66 W when idle: say more than that"),
        ({"power_limit": "-5W"}, "'-5W' is no power"),
        ({"power_limit": 0}, "0 is no power"),
        ({"power_limit": float("nan")}, "nan is no power"),
        ({"power_limit": IDLE + 0.01, **QUICK}, "66.01 W cannot be kept: contract_0 .*test_objectives.py:.* draws"),
        ({"objective": "speed"}, "no objective 'speed'; there are latency, throughput"),
        ({"profile": Profile({}), "oracle": SimulatorJudge()}, "give one of the two"),
        ({"profile": Profile({"other": 3.0})}, "no launch has the name of a kernel of the program: contract_0"),
    ],
)
def test_what_cannot_be_asked_for(given: dict[str, Any], said: str) -> None:
    with pytest.raises(tw.CompileError, match=said):
        tw.tune(two, *ARGS, **given)


def test_an_oracle_that_says_nothing_of_joules() -> None:
    class Silent:
        name = "silent"

        def measure(self, questions: list[LaunchQuestion]) -> list[Measured]:
            return [Measured(5.0)] * len(questions)

    oracle: Any = Silent()
    with pytest.raises(tw.CompileError, match="the oracle says nothing of joules, which 'energy' asks for"):
        tw.tune(two, *ARGS, objective="energy", oracle=oracle)


# -- profiles ------------------------------------------------------------------------------------------------------


def test_a_profile_of_ours_changes_nothing(plain: Any, tmp_path: Path) -> None:
    """What is measured as it is modelled is corrected by nothing."""
    tw.compile(two, *ARGS).trace(tmp_path / "trace.json")
    with_it = tw.tune(two, *ARGS, profile=tmp_path / "trace.json", **QUICK).report
    without = tw.tune(two, *ARGS, **QUICK).report
    measured = {n: k.measured for k in with_it.kernels for n in k.kernels}
    for kernel in plain.kernels:
        assert measured[kernel.name] == pytest.approx(kernel.microseconds / kernel.launches, rel=1e-3)
    assert with_it.after == pytest.approx(without.after, rel=1e-3)


def test_what_was_slow_is_first_and_more_cores_are_worth_it(tmp_path: Path) -> None:
    """A kernel that was measured to work ten times longer is the first, and starts as many cores as it did or more."""
    plain = tw.compile(two, *ARGS).report()
    product, sums = plain.kernels
    table = tmp_path / "op_summary_0.csv"
    rows = [(product.name, product.microseconds), (sums.name, sums.microseconds * 10), (sums.name, "N/A")]
    table.write_text("Op Name,Task Type,Task Duration(us)\n" + "".join(f"{n},AI_CORE,{us}\n" for n, us in rows))
    slow = tw.tune(two, *ARGS, profile=table, **QUICK).report.kernels
    assert sums.name in slow[0].kernels and slow[0].measured == pytest.approx(sums.microseconds * 10)
    fast = next(k for k in tw.tune(two, *ARGS, **QUICK).report.kernels if sums.name in k.kernels)
    assert _cores(slow[0].schedule) >= _cores(fast.schedule)


def _cores(schedule: str) -> int:
    numbers = schedule.partition("grid = [")[2].partition("]")[0]
    return int(np.prod([int(n) for n in numbers.split(",")]))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("p.json", "[", "neither JSON of trace events nor a .csv"),
        ("p.json", "{}", "no list of trace events"),
        ("p.json", "[1, {}]", "it has no durations"),
        ("p.json", '[{"ph": "X", "name": "a", "dur": "NaN"}]', "it has no durations"),
        ("p.csv", "Name,Time\nadd,3\n", "no columns 'Op Name'"),
        ("p.csv", "", "it has no durations"),
    ],
)
def test_files_that_are_no_profiles(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(tw.CompileError, match=said):
        read_profile(tmp_path / name)
    with pytest.raises(tw.CompileError, match="No such file"):
        read_profile(tmp_path / "none.json")


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.tw").write_text("fn f(x: f32[512, 512]) -> f32[512, 512] {\n    return exp(x) + 1.0\n}\n")
    quick = ["--search", "random", "--evaluations", "60", "--verify", "2"]
    assert main(["tune", "f.tw", *quick, "--objective", "energy", "--front", "2", "--plans", "p.sqlite", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["objective"] == "energy" and found["front"] and found["costs_after"]["watts"] > IDLE
    assert {e.goal for e in KnowledgeBase("p.sqlite").entries()} == {"energy"}
    use = ["report", "f.tw", "--plans", "p.sqlite", "--plans-for", "energy", "--json"]
    assert main(use) == 0 and json.loads(capsys.readouterr().out)["known_plans"] == 1
    for words in (
        ["tune", "f.tw", "--power-limit", "cold"],
        ["tune", "f.tw", "--power-limit", "10W"],
        ["tune", "f.tw", "--profile", "f.tw"],
        ["tune", "f.tw", "--profile", "none.json"],
        ["report", "f.tw", "--plans-for", "speed"],
    ):
        assert main(words) == 1
        assert capsys.readouterr().err.count("\n") == 1
