"""The vendor's tools: what they say of stored kernels, and what is said of them where they are missing or fail."""

from __future__ import annotations

import re
import stat
from importlib import metadata
from pathlib import Path

import jax.numpy as jnp
import pytest
from hivm_texts import NAMES, exported, npu_module

import tilewright as tw
from tilewright.api.hivm import check_module, export_module
from tilewright.backends.hivm import checking, tools
from tilewright.backends.hivm.checking import Disagreement, stripped
from tilewright.backends.hivm.library import missing_functions
from tilewright.backends.hivm.tools import SPEC, ToolError, VendorTools
from tilewright.dialects.npu import VectorOp
from tilewright.dialects.npu.scratch import scratch_bytes


@pytest.fixture
def vendor() -> VendorTools:
    pytest.importorskip("ascendnpuir")
    return VendorTools.find()


@pytest.mark.parametrize("name", NAMES)
def test_flags_barriers_and_addresses_arrive(name: str, vendor: VendorTools) -> None:
    program = npu_module(name)
    (check,) = check_module(program, export_module(program), vendor)
    assert check.verified and check.reached
    assert check.problem == ""
    assert check.changed == []
    assert check.flags > 0


def test_change_is_reported(vendor: VendorTools, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that would move a buffer, or call what its library lacks."""
    given = VendorTools.hand_over

    def moved(self: VendorTools, text: str, target: str, folder: Path) -> str:
        found = given(self, text, target, folder)
        return found.replace("20224 : i64", "20256 : i64").replace("@vexp_1d_float", "@vexp_9d_float")

    monkeypatch.setattr(VendorTools, "hand_over", moved)
    program = npu_module("vector")
    (check,) = check_module(program, export_module(program), vendor)
    assert not check.ok
    assert "@reduce_0: address 20256 of ub is new" in check.changed
    if "@vexp_1d_float" in vendor.tail(exported("vector"), "Ascend910B1"):
        assert "calls vexp_9d_float, which the vendor's library does not have" in check.changed


def requests(text: str, vendor: VendorTools) -> list[int]:
    """The bytes of scratch that the vendor's compiler asks for, one for each instruction that needs some."""
    bare = re.sub(r" temp_buffer\([^)]*\)", "", text)
    pipeline = f"builtin.module({SPEC.format(target='Ascend910B1')},func.func(hivm-alloc-extra-buffer))"
    found = re.findall(r"temp_buffer\(%\S+ : memref<(\d+)x(\w+?)[,>]", vendor.passes(pipeline, bare))
    return [int(n) * {"f32": 4, "i32": 4, "f16": 2, "i16": 2}[kind] for n, kind in found]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("shape", [(8, 72), (8, 1000), (1, 40), (640,), (8, 16)])
def test_scratch_is_what_the_library_asks_for(shape: tuple[int, ...], dtype: str, vendor: VendorTools) -> None:
    x = jnp.ones(shape, dtype)
    program = tw.compile(lambda x: x.sum(-1), x, options=tw.Options(hivm=True))
    ops = [op for op in program.module().walk() if isinstance(op, VectorOp)]
    needed = [n for op in ops if (n := scratch_bytes(op))]
    asked = [n for k in program.to_hivm().values() for n in requests(k.text, vendor)]
    assert sorted(needed) == sorted(asked)


def test_missing_functions_are_named(tmp_path: Path) -> None:
    (tmp_path / "meta_op.aiv.bc").write_bytes(b"..._mlir_ciface_vadd_1d_float_mlir_ciface_vexp_1d_half")
    text = "func.func private @vadd_1d_float(x)\nfunc.func private @vtanh_1d_float(x)\n"
    assert missing_functions(text, ["AIV"], tmp_path) == ["vtanh_1d_float"]


def test_stripped_text_has_no_flags() -> None:
    bare = stripped(exported("mix"))
    assert not re.search(r"set_flag|wait_flag|pipe_barrier|sync_related_args", bare)
    assert "sync_block_set" in bare


def test_disagreement_is_a_sentence() -> None:
    found = Disagreement("flags V -> MTE3", 1, {"inject-sync": 2}, "ours suffice")
    assert str(found) == "flags V -> MTE3: 1 of ours, 2 of inject-sync: ours suffice"


@pytest.mark.parametrize(
    ("what", "ours", "theirs", "minimal", "said"),
    [
        ("flags M -> MTE1", 2, 0, True, "the macro of the product has its own"),
        ("flags MTE3 -> V", 0, 3, True, "ours suffice"),
        ("barriers of V", 3, 2, True, "what npu-check takes for dependent"),
        ("flags FIX -> M", 3, 2, True, "none of ours can go alone"),
        ("flags FIX -> M", 3, 2, False, "some of ours that can go"),
    ],
)
def test_verdicts(what: str, ours: int, theirs: int, minimal: bool, said: str) -> None:
    assert said in checking._verdict(what, ours, {"inject-sync": theirs}, minimal)


# -- tools that are missing or fail ------------------------------------------------------------------------------


def fake(folder: Path, script: str, seconds: float = 5.0) -> VendorTools:
    """Tools that are a shell script."""
    for name in ("bishengir-opt", "bishengir-compile"):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return VendorTools(folder, seconds)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("kill -SEGV $$", "bishengir-opt crashes with signal 11: it says nothing of an error"),
        ("echo 'x.mlir:1:2: error: no such op' >&2; exit 1", "bishengir-opt refuses the text: no such op"),
        ("exec sleep 5", "bishengir-opt hangs: it was stopped after 0.2 seconds"),
    ],
)
def test_tool_that_fails_is_one_sentence(script: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ToolError) as error:
        fake(tmp_path, script, 0.2 if "sleep" in script else 5.0).passes("builtin.module()", "")
    assert str(error.value) == said


def test_tool_that_fails_refuses_the_kernel(tmp_path: Path) -> None:
    program = npu_module("vector")
    (check,) = check_module(program, export_module(program), fake(tmp_path, "kill -ABRT $$"))
    assert not check.ok and not check.verified
    assert check.problem == "bishengir-opt crashes with signal 6: it says nothing of an error"


def test_last_step_that_is_not_reached(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="does not come to its last step: ub overflow"):
        fake(tmp_path, "echo 'error: ub overflow' >&2; exit 1").hand_over("", "Ascend910B1", tmp_path)


def test_tools_that_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="bishengir-opt cannot be run: No such file"):
        VendorTools(tmp_path).passes("builtin.module()", "")


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find_spec", lambda name: None)
    with pytest.raises(ToolError, match=r"not installed: pip install 'tilewright\[hivm\]'"):
        VendorTools.find()


@pytest.mark.parametrize("found", ["1.1.9", "1.20.0", "2.0"])
def test_other_version(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find_spec", lambda name: type("S", (), {"submodule_search_locations": ["/x"]}))
    monkeypatch.setattr(tools, "version", lambda name: found)
    with pytest.raises(ToolError, match=rf"is of version {re.escape(found)}; the export was tried on 1\.2"):
        VendorTools.find()


def test_unpacked_package_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(tools, "find_spec", lambda name: type("S", (), {"submodule_search_locations": ["/x"]}))
    monkeypatch.setattr(tools, "version", unknown)
    with pytest.raises(ToolError, match="of version unknown"):
        VendorTools.find()
