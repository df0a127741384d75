"""tilewright-opt: what it accepts, and how it complains."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.cli import opt
from tilewright.passes.errors import PassError
from tilewright.passes.pipeline import PIPELINE

RELU = """func.func @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %z = graph.constant {value = #graph.data<f32, [], (0.0)>} : () -> tensor<f32>
  %b = graph.broadcast %z {dims = []} : (tensor<f32>) -> tensor<8x16xf32>
  %y = graph.max %x, %b : tensor<8x16xf32>
  func.return %y : tensor<8x16xf32>
}
"""
BAD = RELU.replace("graph.max %x, %b :", "graph.reshape %z : (tensor<f32>) ->")


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    path = tmp_path / "relu.mlir"
    path.write_text(RELU)
    return path


def complaint(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """What a failing call writes to stderr."""
    assert opt.main(list(args)) == 1
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return said.err


def test_loads_only_what_the_passes_asked_for_need(relu: Path) -> None:
    """What makes it start fast (`benchmarks/startup.py` has the times): neither JAX nor other large packages, and
    nothing of ours below the level that the pass works on. What Python itself loads as it starts (Debian's has a
    `sitecustomize`) is not ours."""
    script = (
        "import sys; started = {*sys.modules}; from tilewright.cli.opt import main; code = main(sys.argv[1:]); "
        "print(*sys.modules.keys() - started, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(relu), "-p", "graph-fuse"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.split())
    assert "tilewright.passes.fusion.fuse" in loaded
    packages = {name.split(".")[0] for name in loaded} - sys.stdlib_module_names
    libraries = {"numpy", "xdsl", "ml_dtypes", "typing_extensions", "ordered_set", "immutabledict"}
    assert {name for name in packages if not name.startswith("_")} <= libraries | {"tilewright"}
    other = (
        "tilewright.passes.npu",
        "tilewright.backends.interpreter",
        "tilewright.backends.simulator",
        "tilewright.verification",
        "tilewright.api.program",
    )
    assert not [name for name in loaded if name.startswith(other)]


def test_a_format_of_a_package_that_is_not_there(
    relu: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    assert complaint(capsys, str(relu), "-t", "llvm") == (
        "tilewright-opt: error: this needs the Python package llvmlite, which is not installed\n"
    )


def test_the_table_of_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert opt.main(["--list-passes"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1 : len(PIPELINE) + 1]]
    assert [row[:2] for row in rows] == [[stage.name, stage.level] for stage in PIPELINE]
    assert rows[-1][2:] == ["addressed,", "planned", "checked"]


def test_passes_with_options(relu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert opt.main([str(relu), "-p", "graph-fuse{target=ascend-310},graph-schedule,graph-to-tile"]) == 0
    assert "tile.kernel @max_0" in capsys.readouterr().out


def test_a_pass_needs_nothing_where_there_is_nothing(tmp_path: Path) -> None:
    """A program without kernels is tiled as it is, and a kernel without a program needs no plan."""
    path = tmp_path / "same.mlir"
    path.write_text(
        "func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {\n  func.return %x : tensor<8xf32>\n}\n"
    )
    assert opt.main([str(path), "-p", "graph-to-tile", "-o", str(tmp_path / "tile.mlir")]) == 0
    assert opt.main([str(tmp_path / "tile.mlir"), "-p", "tile-to-npu,npu-plan-memory,npu-schedule-host"]) == 0


def test_what_a_pass_establishes_is_read_from_a_file(relu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every pass in a run of its own, as in one run."""
    assert opt.main([str(relu), "-p", ",".join(stage.name for stage in PIPELINE)]) == 0
    whole = capsys.readouterr().out
    for i, stage in enumerate(PIPELINE):
        after = relu.with_name(f"{i}.mlir")
        assert opt.main([str(relu), "-p", stage.name, "-o", str(after)]) == 0
        relu = after
    assert relu.read_text() == whole


def test_xdsl_passes_and_plugins(
    relu: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed as an entry point, our universe comes twice: that is no clash."""
    from xdsl.universe import XDSL_UNIVERSE, Universe

    from tilewright.cli.universe import TILEWRIGHT_UNIVERSE

    both = Universe(
        all_dialects=XDSL_UNIVERSE.all_dialects | TILEWRIGHT_UNIVERSE.all_dialects,
        all_passes=XDSL_UNIVERSE.all_passes | TILEWRIGHT_UNIVERSE.all_passes,
        all_targets=XDSL_UNIVERSE.all_targets,
    )
    monkeypatch.setattr(Universe, "get_multiverse", staticmethod(lambda: both))
    assert opt.main([str(relu), "-p", "graph-simplify,cse,canonicalize,dce"]) == 0
    assert "graph.max" in capsys.readouterr().out


def test_stablehlo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.mlir"
    path.write_text(
        "func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %0 = stablehlo.tanh %a : tensor<4xf32>\n  return %0 : tensor<4xf32>\n}\n"
    )
    assert opt.main([str(path)]) == 0
    assert "graph.tanh" in capsys.readouterr().out
    path.write_text(path.read_text().replace("tanh", "tanhh"))
    assert "f.mlir:2" in complaint(capsys, str(path))


def test_parse_error_has_place_and_caret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.mlir"
    path.write_text("\n  %x = graph.nothing : f32\n")
    first, line, caret = complaint(capsys, str(path)).splitlines()
    assert first.startswith(f"{path}:2:8: error: Operation graph.nothing is not registered")
    assert line == "  %x = graph.nothing : f32"
    assert caret == "       ^^^^^^^^^^^^^"


def test_verify_error_has_place_and_caret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.mlir"
    path.write_text(BAD)
    first, line, caret = complaint(capsys, str(path)).splitlines()
    assert first.startswith(f"{path}:4:8: error: 'graph.reshape' cannot reshape")
    assert line == BAD.splitlines()[3]
    assert caret == "       ^^^^^^^^^^^^^"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["-p", "graph-fus"], "unknown pass 'graph-fus'; did you mean graph-fuse"),
        (["-p", "zzz"], "unknown pass 'zzz'; ours are graph-precision, "),
        (["-p", "graph-fuse{chip=1}"], "pass graph-fuse has no option 'chip'; its options are target"),
        (["-p", "graph-fuse{target=1}"], "option 'target' of pass graph-fuse must be str, not '1'"),
        (["-p", "graph-fuse{target=ascend-9}"], "unknown target 'ascend-9'"),
        (["-p", "graph-fuse{"], "cannot read the passes 'graph-fuse{'"),
        (
            ["-p", "graph-to-tile"],
            "graph-to-tile needs a module that is scheduled: run graph-schedule before it",
        ),
        (["-p", "tile-to-npu"], "tile-to-npu needs a module that is tiled: run graph-to-tile before it"),
        (
            ["-p", "graph-fuse,tile-to-npu"],
            "tile-to-npu needs a module that is tiled: run graph-to-tile before it",
        ),
        (["-p", "npu-allocate"], "npu-allocate needs a module that is bufferized: run tile-to-npu before it"),
        (
            ["-p", "npu-synchronize"],
            "npu-synchronize needs a module that is bufferized: run tile-to-npu before it",
        ),
        (
            ["-p", "npu-plan-memory"],
            "npu-plan-memory needs a module that is bufferized: run tile-to-npu before it",
        ),
        (
            ["-p", "npu-schedule-host"],
            "npu-schedule-host needs a module that is planned: run npu-plan-memory before",
        ),
        (
            ["-p", "graph-fuse,graph-schedule,graph-to-tile,tile-to-npu,npu-check"],
            "npu-check needs a module that is addressed and planned: run npu-allocate, npu-plan-memory before it",
        ),
        (["-t", "ascend-310"], "-t is the output format"),
        (["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (["-o", "no/such/folder.mlir"], "no/such/folder.mlir: No such file or directory"),
    ],
)
def test_errors_in_one_line(
    relu: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    expected: str,
) -> None:
    monkeypatch.chdir(relu.parent)
    said = complaint(capsys, relu.name, *args)
    assert said.startswith("tilewright-opt: error: ")
    assert expected in said
    assert said.count("\n") == 1


def test_unreadable_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such file or directory" in complaint(capsys, str(tmp_path / "none.mlir"))
    assert "Is a directory" in complaint(capsys, str(tmp_path))
    binary = tmp_path / "b.mlir"
    binary.write_bytes(bytes(range(128, 255)))
    assert "neither text nor MLIR bytecode" in complaint(capsys, str(binary))
    empty = tmp_path / "empty.mlir"
    empty.write_text("")
    assert "empty.mlir:1:1: error: expected an operation, found none" in complaint(capsys, str(empty))
    (tmp_path / "x.onnx").write_text("")
    assert "x.onnx: unknown file type; known are .mlir" in complaint(capsys, str(tmp_path / "x.onnx"))


def test_failure_leaves_the_output_as_it_was(relu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = relu.parent / "out.mlir"
    out.write_text("before")
    complaint(capsys, str(relu), "-p", "tile-to-npu", "-o", str(out))
    assert out.read_text() == "before"
    assert opt.main([str(relu), "-o", str(out)]) == 0
    assert "graph.max" in out.read_text()
    assert sorted(p.name for p in relu.parent.iterdir()) == ["out.mlir", "relu.mlir"]


def test_debug_raises(relu: Path) -> None:
    with pytest.raises(PassError):
        opt.main([str(relu), "-p", "tile-to-npu", "--debug"])


def test_split_input_counts_lines_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.mlir"
    path.write_text(RELU + "// -----\n" + BAD)
    assert opt.main([str(path), "--split-input-file", "--verify-diagnostics"]) == 0
    assert "two.mlir:11: 'graph.reshape'" in capsys.readouterr().out


# -- what shows how it runs ----------------------------------------------------------------------------------


PASSES = ("graph-fuse", "graph-schedule", "graph-to-tile")


def test_the_program_after_each_pass(relu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = [str(relu), "-p", "graph-fuse,graph-schedule,graph-to-tile,npu-allocate", "--print-ir-after-all"]
    assert opt.main(args) == 1
    said = capsys.readouterr().err
    heads = [line for line in said.splitlines() if line.startswith("// -----//")]
    assert heads == [f"// -----// IR Dump After {what} //----- //" for what in PASSES]
    _, fused, _, tiled = said.split("// -----//")
    assert "graph.fusion" in fused
    assert "tile.kernel" in tiled
    assert said.endswith(
        "npu-allocate needs a module that is bufferized: run tile-to-npu before it\n"
    ), "a pass that does not start leaves nothing to show"


def test_the_program_after_a_pass_that_fails(relu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passes = "graph-fuse,graph-schedule{schedule=\"base_q=1\"}"
    assert opt.main([str(relu), "-p", passes, "--mlir-print-ir-after-all"]) == 1
    assert "// -----// IR Dump After graph-schedule Failed //----- //\nbuiltin.module" in capsys.readouterr().err


def test_timing(relu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table of mlir-opt, whose parts add up."""
    assert opt.main([str(relu), "-p", "graph-fuse,graph-schedule,graph-to-tile", "--mlir-timing"]) == 0
    said = capsys.readouterr()
    assert "tile.kernel" in said.out
    lines = said.err.splitlines()
    assert lines[1].strip() == "... Execution time report ..."
    assert lines[5] == "  ----Wall Time----  ----Name----"
    rows = [re.fullmatch(r" +(\d+\.\d{4}) \( *(\d+\.\d)%\)  (.+)", line) for line in lines[6:]]
    found = {row[3]: (float(row[1]), float(row[2])) for row in rows if row is not None}
    assert list(found) == ["Parser", "Verifier", *PASSES, "Output", "Rest", "Total"]
    total, whole = found.pop("Total")
    assert whole == 100
    assert sum(seconds for seconds, _ in found.values()) == pytest.approx(total, abs=0.001)
    assert found["graph-to-tile"][0] > 0


def test_a_call_that_fails_is_timed_too(relu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    relu.write_text(BAD)
    assert opt.main([str(relu), "--mlir-timing"]) == 1
    assert "Parser" in capsys.readouterr().err
