"""Plugins that cannot be read, or that add what is there already, are left out; all else goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiering import sampled

PLUGIN = "from tilewright import AddedPass, Plugin\nPLUGIN = Plugin({})\n"


def package(folder: Path, name: str, content: str) -> None:
    (folder / f"{name}.py").write_text(content)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tilewright.plugins]\n{name} = {name}:PLUGIN\n")


def tool(folder: Path, *args: str, module: str = "main") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", f"tilewright.cli.{module}", *args],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@sampled(2)
@pytest.mark.parametrize(
    ("content", "warning"),
    [
        ("import nowhere\n", "plugin bad of package bad 1.0 is left out: bad:PLUGIN: ModuleNotFoundError"),
        ("PLUGIN = 3\n", "expected a tilewright.Plugin, got int"),
        (PLUGIN.format("machines=['x']"), "its machines must be a mapping of names"),
        (PLUGIN.format("machines={'ascend-310': 'bad:x.toml'}"), "ascend-310 (machines) is left out"),
        ("import sys\nsys.exit(3)\n", "plugin bad of package bad 1.0 is left out: bad:PLUGIN: SystemExit: 3"),
        (PLUGIN.format("machines={5: 'x'}"), "its machines must be a mapping of names"),
        (PLUGIN.format("passes={'p': AddedPass(load='x', after=5)}"), "the pass p must have texts alone"),
        (PLUGIN.format("functions=['bad:PLUGIN']"), "is no Function, so it is left out"),
    ],
)
def test_a_bad_plugin_is_one_warning(tmp_path: Path, content: str, warning: str) -> None:
    package(tmp_path, "bad", content)
    made = tool(tmp_path, "machines", "ascend-310")
    assert made.returncode == 0 and "ascend-310" in made.stdout
    (line,) = made.stderr.splitlines()
    assert line.startswith("tilewright: warning: ") and warning in line


def test_unreadable_entry_points_of_another_package(tmp_path: Path) -> None:
    package(tmp_path, "other", "")
    (tmp_path / "other-1.0.dist-info" / "entry_points.txt").write_bytes(b"\xff\xfe[tilewright.plugins]")
    made = tool(tmp_path, "machines", "ascend-310")
    assert made.returncode == 0 and "ascend-310" in made.stdout
    (line,) = made.stderr.splitlines()
    assert "other-1.0.dist-info: its entry points cannot be read" in line


def test_a_frontend_that_is_none_or_fails(tmp_path: Path) -> None:
    content = "def leave(*_):\n    import sys\n    sys.exit(3)\n"
    content += PLUGIN.format("frontends={'one': 'bad:PLUGIN', 'two': 'bad:leave'}")
    package(tmp_path, "bad", content)
    for ending, said in (("one", "bad:PLUGIN is no function"), ("two", "failed on")):
        path = tmp_path / f"m.{ending}"
        path.write_text("x")
        for module, args in (("opt", [str(path)]), ("main", ["report", str(path)])):
            made = tool(tmp_path, *args, module=module)
            assert made.returncode == 1
            assert said in made.stderr and "internal error" not in made.stderr


def test_what_cannot_be_loaded_is_one_error_where_it_is_needed(tmp_path: Path) -> None:
    content = PLUGIN.format("dialects={'bad': 'nowhere:Bad'}, machines={'bad-1': 'bad:none.toml'}")
    package(tmp_path, "bad", content)
    good, bad = tmp_path / "good.mlir", tmp_path / "bad.mlir"
    good.write_text("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  func.return %x : tensor<4xf32>\n}\n")
    bad.write_text("bad.op\n")
    assert tool(tmp_path, str(good), module="opt").returncode == 0
    made = tool(tmp_path, str(bad), module="opt")
    assert made.returncode == 1
    assert "plugin bad of package bad 1.0: cannot load nowhere:Bad: ModuleNotFoundError" in made.stderr
    made = tool(tmp_path, "machines", "bad-1")
    assert made.returncode == 1
    assert "plugin bad of package bad 1.0: bad-1 is not at bad:none.toml" in made.stderr


def test_a_pass_that_has_no_place_is_left_out(tmp_path: Path) -> None:
    entries = "{'own': AddedPass(load='bad:Own', after='nothing'), 'own-2': AddedPass(load='bad:Own', after='own')}"
    package(tmp_path, "bad", PLUGIN.format(f"passes={entries}"))
    made = tool(tmp_path, "--help", module="opt")
    assert made.returncode == 0
    assert "pass own is left out: there is no pass nothing to follow" in made.stderr
    assert "pass own-2 is left out: there is no pass own to follow" in made.stderr
