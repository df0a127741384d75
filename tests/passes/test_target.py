"""A module says which machine it is for and how far down it is; passes obey the one and record the other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from xdsl.context import Context

import tilewright as tw
from tilewright.cli import opt
from tilewright.cli.main import main
from tilewright.dialects import make_context
from tilewright.dialects.base import text
from tilewright.dialects.module import recorded_states, set_target, target_of
from tilewright.dialects.npu import legality
from tilewright.dialects.text import parse_module, verify
from tilewright.frontends import lower_function
from tilewright.machine import Machine
from tilewright.passes.errors import PassError
from tilewright.passes.npu import check as checker
from tilewright.passes.npu.check import check
from tilewright.passes.pipeline import PIPELINE, insert_stage, make_pass, run_pipeline, run_stage, stage_table
from tilewright.passes.stages import STATES, Stage, stage_of

X, W = jax.ShapeDtypeStruct((32, 48), "float16"), jax.ShapeDtypeStruct((48, 64), "float16")


def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w)


def module(target: str | None = None):
    found = lower_function(layer, [X, W]).module
    if target is not None:
        set_target(found, target)
    return found


def test_the_target_is_set_once_and_printed() -> None:
    program = tw.compile(layer, X, W, target="ascend-310")
    for level in ("graph", "tile", "npu"):
        assert 'tilewright.target = "ascend-310"' in program.ir(level)


def test_a_pass_reads_the_target_of_the_module() -> None:
    mine = module("ascend-310")
    for stage in PIPELINE:
        make_pass(stage).apply(Context(), mine)
    assert target_of(mine) == "ascend-310"
    assert 'core = "fused"' in str(mine)


def test_another_target_is_refused() -> None:
    mine = module()
    run_stage(PIPELINE[0], mine, "ascend-310")
    for stage in PIPELINE[1:5]:
        run_stage(stage, mine)
    lower = stage_of("graph-to-tile")
    assert lower is not None
    with pytest.raises(PassError, match="graph-to-tile: the module is for ascend-310, not for ascend-910b1"):
        run_stage(lower, mine, "ascend-910b1")
    with pytest.raises(PassError, match="the module is for ascend-310"):
        run_pipeline(mine, "ascend-910b1")


def test_passes_for_two_machines_in_one_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once the first passes were for one chip and the last ones for another, and npu-check let that pass."""
    path = tmp_path / "layer.mlir"
    path.write_text(str(module()))
    first = "graph-simplify,graph-fuse{target=ascend-310},graph-schedule,graph-to-tile{target=ascend-310}"
    assert opt.main([str(path), "-p", first.replace("{target=ascend-310}", "", 1)]) == 1
    assert "the module is for ascend-910b1, not for ascend-310" in capsys.readouterr().err
    rest = "tile-to-npu,npu-allocate,npu-synchronize,npu-plan-memory,npu-check"
    first = first.replace("graph-simplify", "graph-simplify{target=ascend-310}")
    assert opt.main([str(path), "-p", f"{first},{rest}"]) == 0
    assert 'tilewright.target = "ascend-310"' in capsys.readouterr().out


def test_a_file_that_says_its_target_needs_no_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "layer.mlir"
    path.write_text(tw.compile(layer, X, W, target="ascend-310").ir("tile"))
    assert main(["report", str(path)]) == 0
    assert "on ascend-310" in capsys.readouterr().out
    assert main(["report", str(path), "--target", "ascend-910b1"]) == 1
    assert "the module is for ascend-310, not for ascend-910b1" in capsys.readouterr().err
    assert tw.compile(path).target == "ascend-310"
    assert tw.compile(path, target="ascend-310").report().target == "ascend-310"


def test_a_target_by_path_is_the_same_target(tmp_path: Path) -> None:
    chip = tmp_path / "chip.toml"
    chip.write_text('extends = "ascend-910b1"\nname = "mine"\n')
    program = tw.compile(layer, X, W, target=str(chip))
    again = parse_module(make_context(), program.ir("tile"), "tile.mlir")
    run_pipeline(again, str(chip))
    assert target_of(again) == str(chip)


def test_npu_check_proves_for_a_machine() -> None:
    """A program for one generation is none for the other, whatever the module says."""
    split, fused = (tw.compile(layer, X, W, target=t).module() for t in ("ascend-910b1", "ascend-310"))
    for program, right, wrong in (
        (split, "ascend-910b1", "ascend-310"),
        (fused, "ascend-310", "ascend-910b1"),
    ):
        assert not check(program, Machine.load(right))
        found = check(program, Machine.load(wrong))
        assert {f.kind for f in found} >= {"wrong-machine"}


def test_integer_products_leave_the_cube_as_i32() -> None:
    """The way out of the cube rounds f32; i8 results are converted on the vector cores."""
    x, w = (jax.ShapeDtypeStruct(s.shape, "int8") for s in (X, W))
    text = tw.compile(lambda x, w: x @ w, x, w).ir("npu")
    assert "npu.vconvert" in text and "!npu.buffer<32x64xi32, l0c>" in text


# -- states --------------------------------------------------------------------------------------------------


def test_passes_record_states() -> None:
    mine = module()
    for stage in PIPELINE:
        make_pass(stage).apply(Context(), mine)
        assert set(stage.establishes) <= set(recorded_states(mine))
        again = parse_module(make_context(), str(mine), "again.mlir")
        assert recorded_states(again) == recorded_states(mine)
    assert recorded_states(mine) == STATES


def test_a_pass_that_comes_too_early_says_what_is_missing() -> None:
    with pytest.raises(PassError, match="graph-schedule needs a module that is fused: run graph-fuse before it"):
        make_pass(next(s for s in PIPELINE if s.name == "graph-schedule")).apply(Context(), module())


def test_every_state_is_established_by_one_stage() -> None:
    makers = [state for stage in PIPELINE for state in stage.establishes]
    assert tuple(makers) == STATES


def test_a_stage_can_be_inserted() -> None:
    extra = Stage("mine", ".graph.hoist:GraphHoistPass", "graph")
    names = [s.name for s in insert_stage(extra, "graph-fuse")]
    assert names[names.index("graph-fuse") + 1] == "mine"
    assert len(names) == len(PIPELINE) + 1
    with pytest.raises(ValueError, match="there is no stage 'other'"):
        insert_stage(extra, "other")


def test_the_table_of_stages_names_them_all() -> None:
    assert [row[0] for row in stage_table()] == [s.name for s in PIPELINE]


def test_what_a_person_took_away_is_made_again() -> None:
    """The record of states goes with the text; the ops contradict it."""
    text = tw.compile(layer, X, W).ir("npu")
    bare = re.sub(r"address = \d+", "", re.sub(r" \{address = \d+\}", "", text))
    again = parse_module(make_context(), bare, "bare.mlir")
    assert "addressed" in recorded_states(again)
    run_pipeline(again)
    assert str(again).count("address = ") == text.count("address = ")


@pytest.mark.parametrize("check", [True, False])
def test_a_compilation_asks_once_what_the_machine_can_run(
    check: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """npu-check where it runs, else the verifier."""
    asked: list[str] = []

    def counted(kernel: legality.Kernel, machine: Machine) -> Iterator[legality.MachineViolation]:
        asked.append(text(kernel.sym_name))
        yield from violations(kernel, machine)

    violations = legality.violations
    for module in (legality, checker):
        monkeypatch.setattr(module, "violations", counted)
    program = tw.compile(layer, X, W, options=tw.Options(check=check))
    kernels = [op for op in program.module("npu").ops if isinstance(op, legality.Kernel)]
    assert sorted(asked) == sorted(text(k.sym_name) for k in kernels)
    verify(program.module("npu"))
    assert len(asked) == 2 * len(kernels)
