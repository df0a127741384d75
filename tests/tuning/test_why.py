"""Why a plan is better: what differs, and the bottleneck that went away, as the simulations of both say."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tilewright as tw
from tilewright.api.plans import forget
from tilewright.backends.simulator import simulate
from tilewright.cli.main import main
from tilewright.dialects.graph import CubeSchedule
from tilewright.dialects.schedule_text import schedule_text
from tilewright.machine import Machine
from tilewright.tuning.alone import LaunchQuestion, Measured, SimulatorJudge, lowered
from tilewright.tuning.kernel_search import Judged, Outcome, Side
from tilewright.tuning.recorder import RecordedKernel, Recorder
from tilewright.tuning.why import (
    LaunchParts,
    differences,
    explained,
    held_by,
    parts_of_launch,
    what_went_away,
)

CHIP = "ascend-910b1"


def half(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float16")


def kernel_of(fn: Callable[..., Any], *args: Any) -> RecordedKernel:
    """The only kernel of a function."""
    recorder = Recorder(CHIP)
    try:
        tw.compile(fn, *args, options=tw.Options(plans=recorder))
    finally:
        forget(recorder)
    (kernel,) = recorder.kernels.values()
    return kernel


def said(kernel: RecordedKernel, before: str, after: str, joined: bool = False) -> tuple[str, LaunchParts, LaunchParts]:
    """What is said of two schedules, and the parts of both."""
    parts = [parts_of_launch(LaunchQuestion(kernel.module, each, CHIP)) for each in (before, after)]
    times = [p.microseconds for p in parts]
    better = side_of(joined, before, times[0], after, times[1])
    same = side_of(not joined, before, times[0], before, times[0])
    outcome = Outcome(kernel.key, "k", (same, better) if joined else (better, same), 2, "by hand")
    return explained(kernel.module, before, CHIP, outcome), *parts


def side_of(joined: bool, before: str, us: float, after: str, less: float) -> Side:
    """A side where one plan took so many microseconds, and another one takes less."""
    first, second = (Judged(plan, Measured(t), t) for plan, t in ((before, us), (after, less)))
    return Side(joined, first, second, less)


@pytest.fixture(scope="module")
def product() -> RecordedKernel:
    return kernel_of(lambda x, w: jax.nn.relu(x @ w), half(1024, 512), half(512, 2048))


SMALL = (
    "#graph.cube_schedule<axes = [[0], [1], [2]], step = [128, 64, 64], lhs = [128, 64, 256], rhs = [128, 64, 256], "
    "grid = [8, 2, 1], inner = m, l1 = 2, l0a = 2, l0b = 2, l0c = 2, ub = 2, epilogue = [32, 64]>"
)


def test_parts_are_the_time_of_the_launch(product: RecordedKernel) -> None:
    question = LaunchQuestion(product.module, schedule_text(product.taken), CHIP)
    parts = parts_of_launch(question)
    (judged,) = SimulatorJudge().measure([question])
    assert parts.microseconds == pytest.approx(judged.microseconds) and min(parts.start, parts.work, parts.waiting) > 0
    assert parts.work == max(parts.report.pipes.values())
    (launch,) = (step for step, _ in simulate(lowered(question), Machine.load(CHIP)).flat())
    assert parts.start == launch.overhead  # pyright: ignore[reportAttributeAccessIssue]


def test_larger_tiles_load_less(product: RecordedKernel) -> None:
    large = schedule_text(product.taken)
    why, before, after = said(product, SMALL, large)
    assert before.busiest == "MTE2" and before.work - after.work > max(
        before.start - after.start, before.waiting - after.waiting
    )
    read = [p.report.bytes["read"] / 1e6 for p in (before, after)]
    assert why.startswith("columns 256 instead of 64")
    assert f"the kernel loads {read[1]:.2f} MB instead of {read[0]:.2f} MB" in why
    assert f"MTE2 was busy {before.work:.2f} us and is {after.report.pipes['MTE2']:.2f}" in why
    assert why.endswith(f"; now {held_by(after)}") and "start of its cores" not in why


def test_fewer_cores_start_sooner() -> None:
    kernel = kernel_of(lambda x: jnp.exp(x) + 1, jax.ShapeDtypeStruct((64, 64), "float32"))
    many, few = (
        f"#graph.vector_schedule<axes = [[0, 1]], tile = [{tile}], grid = [{grid}], ub = 2>"
        for tile, grid in ((128, 32), (2048, 2))
    )
    why, before, after = said(kernel, many, few)
    assert why.startswith("tile along axis 0 2048 instead of 128, cores 2 instead of 32: starts 2 cores instead of 32")
    assert f"{before.start - after.start:.2f} us less until they begin" in why
    assert after.start < before.start and after.waiting + after.work > before.waiting + before.work
    assert f"takes {after.work - before.work:.2f} us more" in why
    # as a stage of a launch of several the start does not count, and nothing is better
    why, _, _ = said(kernel, many, few, joined=True)
    assert why.startswith("As a stage of a launch of several: ") and "the simulator sees no gain" in why


def test_more_cores_share_the_work() -> None:
    kernel = kernel_of(lambda x: jnp.exp(jnp.sin(x)), jax.ShapeDtypeStruct((512, 512), "float32"))
    few, many = (
        f"#graph.vector_schedule<axes = [[0, 1]], tile = [4096], grid = [{grid}], ub = 2>" for grid in (2, 32)
    )
    why, before, after = said(kernel, few, many)
    assert before.busiest == "V"
    assert f"32 cores share the work instead of 2, V was busy {before.work:.2f} us and is {after.work:.2f}" in why
    assert f"the start of cores takes {after.start - before.start:.2f} us more" in why


def test_fields_where_the_space_has_no_names(product: RecordedKernel) -> None:
    """Of schedules that are the same in the choices of the space the fields say what differs."""
    taken = schedule_text(product.taken)
    single = taken.replace("l0a = 2", "l0a = 1")
    assert differences(product.module, taken, single, CHIP) == "l0a 1 instead of 2"
    assert differences(product.module, taken, taken, CHIP) == ""


def test_of_many_axes_those_that_changed() -> None:
    def conv(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.conv(x, w, (1, 1), "SAME")

    kernel = kernel_of(conv, half(4, 16, 8, 8), half(16, 16, 3, 3))
    grid, taken = kernel.taken.grid, kernel.taken
    assert isinstance(taken, CubeSchedule) and taken.lhs is not None and grid is not None and len(grid) > 3
    more = (grid[0] + 1, *grid[1:])

    def said(schedule: CubeSchedule) -> str:
        return differences(kernel.module, *(schedule_text(replace(schedule, grid=g)) for g in (grid, more)), CHIP)

    # the choices of the space have cores along the axes that can be cut, the fields along all
    assert re.fullmatch(rf"cores {more[0]} x [\dx ]+ instead of {grid[0]} x [\dx ]+", said(taken))
    none_of_it = replace(taken, lhs=(taken.lhs[0] + 1, *taken.lhs[1:]))
    assert said(none_of_it) == f"grid {more[0]} instead of {grid[0]} along axis 0"


def test_a_gain_that_is_too_small_to_print(product: RecordedKernel) -> None:
    """One and a half thousandths of the time of a launch are no bottleneck."""
    large = schedule_text(product.taken)
    before = parts_of_launch(LaunchQuestion(product.module, large, CHIP))
    after = replace(before, start=before.start - 0.002)
    side = side_of(False, "", before.microseconds, large, after.microseconds)
    assert what_went_away(before, after, side) == f"less than 0.01 us are gained; {held_by(after)}"
    same = replace(side, best=side.before)
    assert what_went_away(before, before, same) == f"the simulator sees no gain; {held_by(before)}"


def test_kernels_that_stay(product: RecordedKernel) -> None:
    taken = schedule_text(product.taken)
    parts = parts_of_launch(LaunchQuestion(product.module, taken, CHIP))
    same = (side_of(j, taken, 1.0, taken, 1.0) for j in (False, True))
    sides = [replace(side, certified=True, evaluations=70) for side in same]
    outcome = Outcome("", "k", (sides[0], sides[1]), 9, "exact, 6 judged")
    proven = explained(product.module, taken, CHIP, outcome)
    assert proven == f"proven: no plan is better; {held_by(parts)}" and "(MTE2 " in proven
    open_ = replace(outcome, sides=(replace(sides[0], certified=False), sides[1]))
    assert explained(product.module, taken, CHIP, open_).startswith("no better plan was found in 140 evaluations; ")
    found = replace(outcome, sides=(side_of(False, "", 2.0, taken, 1.0), sides[1]))
    assert explained(product.module, taken, CHIP, found).startswith("the plan that was found before is taken; ")
    bad = taken.replace("step = [128, ", "step = [4096, ")
    assert explained(product.module, bad, CHIP, outcome).startswith("cannot be simulated by itself: ")


def test_tune_says_it_where_it_is_asked(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    fn, args = (lambda x: jnp.exp(x) + 1), [jax.ShapeDtypeStruct((64, 64), "float32")]
    plain, asked = (tw.tune(fn, *args, evaluations=300, explain=e).report for e in (False, True))
    assert [k.why for k in plain.kernels] == [""]
    (kernel,) = asked.kernels
    assert kernel.after < kernel.before and asked.to_json()["kernels"][0]["why"] == kernel.why
    assert re.match(r"tile along axis 0 \d+ instead of \d+(, cores \d+ instead of \d+)?: ", kernel.why)
    assert replace(kernel, why="") == plain.kernels[0]
    path = tmp_path / "f.tw"
    path.write_text("fn f(x: f32[64, 64]) -> f32[64, 64] {\n    return exp(x) + 1.0\n}\n")
    assert main(["tune", str(path), "--evaluations", "300", "--explain"]) == 0
    assert f": {kernel.why}\n" in capsys.readouterr().out
