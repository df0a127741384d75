"""Manifests that fit the file and are signed by whoever has made them, but say what no program has: refused in one
sentence by each command, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tilewright as tw
from tilewright.cli.main import main
from tilewright.modelfile.archive import Archive, Member, write_archive
from tilewright.modelfile.manifest import MANIFEST, canonical, digest_of

X, W = np.ones((4, 32), np.float32), np.arange(2048, dtype=np.float32).reshape(32, 64)

Change = Callable[[dict[str, Any]], None]


def rewritten(path: Path, change: Change, texts: dict[str, bytes] | None = None, spaces: bytes = b"") -> Path:
    """A file with another manifest, and other texts that this has the hashes of."""
    archive = Archive(path)
    members = {name: archive.read(name, 1 << 30) for name in archive.places} | (texts or {})
    manifest = json.loads(members[MANIFEST])
    for name, content in (texts or {}).items():
        manifest["members"][name] = {"size": len(content), "sha256": digest_of(content)}
    change(manifest["entries"]["main"])
    members[MANIFEST] = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode() + spaces
    made = path.with_name("hostile.twm")
    write_archive(made, [Member.of(name, content) for name, content in members.items()])
    return made


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "m.twm"
    program = tw.compile(lambda params, x: (x @ params["w"], x), {"w": W}, X)
    tw.save(program, path, weights={"params": {"w": W}}, targets=["ascend-310"])
    np.savez(path.with_name("in.npz"), w=W, x=X)
    np.savez(path.with_name("w.npz"), **{"params['w']": W})
    return path


def says(path: Path, good: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What commands say of a file that they refuse; those that do not look at what is wrong say nothing."""
    found: list[str] = []
    inputs, values, out = good.with_name("in.npz"), good.with_name("w.npz"), good.with_name("out.twm")
    for args in (
        ["inspect", path], ["verify-file", path], ["report", path], ["report", path, "--target", "ascend-910a"],
        ["run", path, "--inputs", inputs], ["diff", good, path], ["update", path, "-o", out, "--values", values],
    ):  # fmt: skip
        code = main([str(each) for each in args])
        said = capsys.readouterr().err
        if code in (0, 1) and not said:
            continue
        assert code == (2 if args[0] == "diff" else 1) and "internal error" not in said, (args, said)
        assert said.count("\n") == 1
        found.append(said)
    out.unlink(missing_ok=True)
    return found


def of_signature(name: str, value: Any) -> Change:
    return lambda entry: entry["signature"].__setitem__(name, value)


def weight(shape: Any, dtype: str = "f32") -> Change:
    def change(entry: dict[str, Any]) -> None:
        entry["signature"]["defaults"]["params"]["leaves"][0][:2] = [shape, dtype]

    return change


PARAMETERS = {"positional": ["params", "x"], "only": 0, "variadic": "", "keyword": [], "static": [], "noun": "argument"}
OPEN = {"symbols": [], "constraints": [], "codes": [], "versions": {"ascend-910b1": []}, "alone": {}}
CALL = {"tuple": [{"tuple": [{"dict": [["w"], ["*"]]}, "*"]}, {"dict": [[], []]}]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (of_signature("inputs", 5), "has no inputs"),
        (of_signature("inputs", [5]), "has an input without shape and type"),
        (of_signature("inputs", [[[True], "f32"]]), "has an input without shape and type"),
        (of_signature("inputs", [[[4, 32], "f32"]]), "1 inputs are said to be 2"),
        (of_signature("inputs", [[[32, 64], "f32"], [[4, 32], "zzz"]]), "zzz"),
        (of_signature("inputs", [[[32, 64], "f32"], [[4, -1], "f32"]]), "a size that there is not"),
        (of_signature("inputs", [[[32, 64], "f32"], [[4, 33], "f32"]]), "takes other inputs than the manifest says"),
        (of_signature("in_tree", {"tuple": ["*", "*"]}), "not arguments by position and by keyword"),
        (of_signature("in_tree", {"tuple": [CALL["tuple"][0], {"dict": [[5], ["*"]]}]}), "not arguments by position"),
        (of_signature("out_tree", {"tuple": ["*"] * 5}), "it gives 2 results, and 5 by the manifest"),
        (of_signature("out_tree", {"dict": [[["a"], "b"], ["*", "*"]]}), "it has no structure"),
        (of_signature("out_tree", {"named": ["a;b", ["c"], ["*"]]}), "it has no structure"),
        (of_signature("keys", [[0, "threefry2x32"]]), "invalid PRNG key data"),
        (of_signature("keys", [[9, "rbg"]]), "a result that it has not"),
        (of_signature("keys", [[0, "zzz"]]), "zzz"),
        (of_signature("weak", [-1]), "a result that it has not"),
        (of_signature("voids", ["a"]), "is no int"),
        (of_signature("parameters", {**PARAMETERS, "only": "a"}), "is no int"),
        (of_signature("parameters", {**PARAMETERS, "positional": [1, 2]}), "is no str"),
        (of_signature("defaults", 5), "what a function takes cannot be read"),
        (lambda entry: entry.update(open={**OPEN, "symbols": None}), "has no symbols"),
        (lambda entry: entry.update(open={**OPEN, "constraints": 5}), "has no constraints"),
        (weight([32, 65]), "has another size than"),
        (weight([-32, -64]), "has another size than"),
        (weight(["32", 64]), "'32' is no int"),
        (weight([32, 64], "q7"), "q7"),
        (lambda entry: entry.update(graph=entry["npu"]["ascend-310"]), "it is of the npu level, not"),
        (lambda entry: entry.update(npu=dict.fromkeys(entry["npu"], entry["graph"])), "it is of the graph level"),
    ],
)
def test_entries(good: Path, change: Change, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = rewritten(good, change)
    assert any(re.search(said, each) for each in says(path, good, capsys))
    with pytest.raises(tw.ModelFileError, match=re.escape(f"{path}: ")):
        [tw.load(path).module(level) for level in ("npu", "graph")]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_has_not(good: Path, value: float, capsys: pytest.CaptureFixture[str]) -> None:
    path = rewritten(good, lambda entry: entry["options"].update(memory_limit=value))
    assert all("its manifest is no JSON" in said for said in says(path, good, capsys))


def test_manifests_in_another_form(good: Path) -> None:
    """What a manifest says has one form, so that no two readers see other things in it."""
    with pytest.raises(tw.ModelFileError, match="its manifest is no canonical JSON"):
        tw.load(rewritten(good, lambda entry: None, spaces=b" "))
    assert jax.tree.leaves(tw.load(rewritten(good, lambda entry: None))(x=X))[0].shape == (4, 64)
    archive = Archive(good)
    members = {name: archive.read(name, 1 << 30) for name in archive.places}
    members[MANIFEST] = members[MANIFEST].replace(b'"sequence":0', b'"sequence":0,"sequence":0')
    write_archive(good.with_name("twice.twm"), [Member.of(name, content) for name, content in members.items()])
    with pytest.raises(tw.ModelFileError, match="its manifest is no canonical JSON"):
        tw.load(good.with_name("twice.twm"))
    assert canonical(json.loads(archive.read(MANIFEST, 1 << 20))) == archive.read(MANIFEST, 1 << 20)


@pytest.mark.parametrize("size", ["1" + "0" * 400, "-1" + "0" * 400, "9" * 5000])
def test_reports_with_large_numbers(good: Path, size: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, archive = "report/ascend-910b1/main.json", Archive(good)
    text = re.sub(rb'"arena_bytes":\d+', f'"arena_bytes":{size}'.encode(), archive.read(name, 1 << 20))
    path = rewritten(good, lambda entry: None, {name: text})
    assert any(f"{name} cannot be read" in said for said in says(path, good, capsys))
    assert main(["report", str(path), "--json"]) == 1
    assert f"{name} cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "said", ['zzz, [4], "stored {key}"', 'f32, [4 4], "stored {key}"', 'f32, [4], "stored {none}"']
)
def test_what_looks_like_a_constant(good: Path, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a comment of a text."""
    archive, name = Archive(good), "graph/main.mlir"
    key = next(iter(json.loads(archive.read(MANIFEST, 1 << 20))["weights"]))
    line = f"// #graph.data<{said.format(key=key, none='0' * 64)}>;\n".encode()
    path = rewritten(good, lambda entry: None, {name: line + archive.read(name, 1 << 20)})
    assert main(["diff", str(good), str(path)]) == 2
    assert f"{path}: {name} cannot be read" in capsys.readouterr().err


def test_weights_that_are_called_by_other_bytes(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who calls new bytes as the old ones are called is found out by those who read all, and by `diff`."""
    path, new = good.with_name("liar.twm"), good.with_name("new.twm")
    tw.update(good, new, {"params['w']": W * 2}, sequence=0)
    archive, (old,) = Archive(new), json.loads(Archive(good).read(MANIFEST, 1 << 20))["weights"]
    members = {name: archive.read(name, 1 << 30) for name in archive.places}
    (own,) = json.loads(members[MANIFEST])["weights"]
    members[MANIFEST] = members[MANIFEST].replace(own.encode(), old.encode())
    write_archive(path, [Member.of(name, content) for name, content in members.items()])
    for args in (["verify-file", str(path)], ["diff", str(good), str(path)]):
        assert main(args) == (2 if args[0] == "diff" else 1)
        assert f"{path}: the weight {old[:16]!r} is called by the SHA-256 of other bytes" in capsys.readouterr().err
    assert main(["verify-file", str(new)]) == 0 and main(["diff", str(good), str(new)]) == 1
