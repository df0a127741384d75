"""How instructions share the chip (pricing.py), what a cold L2 costs, and the digest that names the judge."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import tilewright as tw
from tilewright.backends.simulator.judge import COSTS, judge, rules
from tilewright.backends.simulator.pricing import Sharing, price
from tilewright.cli.main import main
from tilewright.dialects.npu import Cost, interface
from tilewright.machine import Machine

CHIPS = ("ascend-910b1", "ascend-910b4", "ascend-950pr", "ascend-310")
B1 = Machine.load("ascend-910b1")
judge_module = importlib.import_module("tilewright.backends.simulator.judge")  # the package has a function of its name


def load(machine: Machine, target: str, run: int, runs: int) -> Cost:
    """A copy of so many runs of so many bytes from device memory."""
    move, moved = machine.moves["gm", target], run * runs
    cycles = move.cycles(moved, runs)
    return Cost(
        cycles,
        moved,
        moved,
        move.missed_cycles(moved, cycles),
        move.bypassed_cycles(moved, runs, cycles),
        move.shared_bytes_per_cycle,
        move.hbm_share,
        move.turn(moved, moved, runs),
    )


@pytest.mark.parametrize("chip", CHIPS)
def test_all_cores_get_no_more_than_the_bandwidth_of_hbm(chip: str) -> None:
    """Times are bytes over bandwidth at least, and one core alone is no slower than among others."""
    machine = Machine.load(chip)
    for target in ("ub", "l1"):
        cost = load(machine, target, 4096, 16)
        alone, _ = price(cost, Sharing(1, 1.0), machine)
        crowded, _ = price(cost, Sharing(machine.vector_cores, 1.0), machine)
        assert crowded >= max(alone, cost.bus_bytes * machine.vector_cores / machine.hbm_bytes_per_cycle)
        assert alone >= cost.cycles


def test_runs_are_asked_for_while_lines_are_on_their_way() -> None:
    """Short runs of one copy that miss take what they take in L2; where L2 keeps nothing, each waits."""
    short = load(B1, "ub", 128, 64)
    hit, missed, bypassed = (
        price(short, Sharing(1, share, bypassing=bypassing), B1)[0]
        for share, bypassing in ((0.0, False), (1.0, False), (1.0, True))
    )
    assert hit == missed
    assert bypassed == math.ceil(hit + 64 * B1.moves["gm", "ub"].bypass_run_cycles)
    assert price(load(B1, "ub", 8192, 1), Sharing(1, 1.0), B1)[0] == math.ceil(
        B1.moves["gm", "ub"].fixed_cycles + 8192 / B1.moves["gm", "ub"].miss_bytes_per_cycle
    )


@pytest.mark.parametrize("run", [128, 512, 1024])
def test_requests_for_one_line_take_turns(run: int) -> None:
    """Cores that ask for parts of one line do; those that ask for whole lines share a bandwidth instead."""
    cost, turn = load(B1, "l1", run, 64), B1.moves["gm", "l1"].turn_cycles
    times = [price(cost, Sharing(1, sharers=n), B1)[0] for n in (1, 24)]
    assert times[0] == cost.cycles
    assert times[1] == (math.ceil(max(cost.cycles, 24 * turn * 64)) if run < 512 else cost.cycles)
    assert load(B1, "ub", run, 64).turn == 0


def product(m: int, n: int, k: int) -> tw.Program:
    def f(a: jax.Array, b: jax.Array) -> jax.Array:
        return a @ b

    shapes = (jax.ShapeDtypeStruct(s, jnp.float16) for s in ((m, k), (k, n)))
    return tw.compile(f, *shapes, target="ascend-910b1")


def test_a_report_says_what_a_cold_l2_costs() -> None:
    """Bytes that only HBM has take longer than those of L2, and no longer than all of the time."""
    (kernel,) = product(256, 4096, 4096).report().kernels
    assert 0 < kernel.cold_microseconds < kernel.microseconds

    def g(x: jax.Array) -> jax.Array:
        return jnp.cumsum(jnp.sum(x.reshape(64, 64, 64), axis=2), axis=0)

    report = tw.compile(g, jax.ShapeDtypeStruct((4096, 64), jnp.float32), target="ascend-910b1").report()
    assert report.cold_microseconds == pytest.approx(sum(k.cold_microseconds for k in report.kernels))
    assert report.to_dict()["cold_microseconds"] == report.cold_microseconds
    assert all(k.cold_microseconds <= k.microseconds for k in report.kernels)


def test_the_note_on_a_cold_l2() -> None:
    report = product(256, 4096, 4096).report()
    assert "L2 does not have all" in report.table()
    assert "L2 does not have all" not in dataclasses.replace(report, kernels=[]).table()


# -- the digest ----------------------------------------------------------------------------------------------


def test_each_report_names_its_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = product(64, 64, 64)
    assert program.report().judge == judge(B1) == program.report().to_dict()["judge"]
    file = tmp_path / "product.mlir"
    file.write_text(str(program.module("graph")))
    assert main(["report", str(file)]) == 0
    assert f"judge: {judge(B1)}\n" in capsys.readouterr().out


@pytest.mark.parametrize("chip", CHIPS)
def test_another_number_is_another_judge(chip: str) -> None:
    machine = Machine.load(chip)
    assert judge(machine) == judge(Machine.load(chip))
    assert judge(machine) != judge(dataclasses.replace(machine, launch_us=machine.launch_us + 1))
    assert len({judge(Machine.load(name)) for name in CHIPS}) == len(CHIPS)


def test_another_rule_is_another_judge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changed = tmp_path / "pricing.py"
    changed.write_text("def price(): return 1\n")
    monkeypatch.setattr(judge_module, "rules", lambda: [changed])
    before = judge_module._rules.__wrapped__()
    changed.write_text("def price(): return 2\n")
    assert judge_module._rules.__wrapped__() != before


def test_every_module_that_has_costs_counts() -> None:
    """Modules of the npu level that make a Cost of their own, or define what an instruction costs."""
    found = set()
    for path in Path(interface.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text())
        makes = any(
            isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "Cost" for n in ast.walk(tree)
        )
        defines = any(isinstance(n, ast.FunctionDef) and n.name in ("cost", "cost_of_part") for n in ast.walk(tree))
        if makes or defines:
            found.add(path.stem)
    assert found <= set(COSTS), found - set(COSTS)
    assert {path.name for path in rules()} >= {"pricing.py", "core.py", "kernel.py", "transfers.py", "parts.py"}
