"""Programs as files: the same values, reports and structures in another process; other chips; damage is refused."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import tilewright as tw
from tilewright.api.files.reading import ModelFile
from tilewright.cli.main import main
from tilewright.modelfile.archive import Archive, Member, write_archive
from tilewright.modelfile.manifest import MANIFEST, Manifest, ManifestError, canonical
from tilewright.modelfile.weights import CHUNK

TABLE = np.random.default_rng(0).standard_normal((48, 80)).astype(np.float32)


class State(NamedTuple):
    mean: Any
    rest: Any


def step(params: dict[str, Any], x: jax.Array, *, scale: jax.Array) -> tuple[Any, State, None]:
    y = jnp.tanh(x @ params["w"] + params["b"][0]) * scale + x @ TABLE
    return [y], State(y.mean(), {"n": x.sum()}), None


def arguments() -> tuple[dict[str, Any], np.ndarray]:
    draw = np.random.default_rng(1)
    params = {"w": draw.standard_normal((48, 80)).astype(np.float32), "b": [np.ones(80, np.float32)]}
    return params, draw.standard_normal((24, 48)).astype(np.float32)


@pytest.fixture(scope="module")
def program() -> tw.Program:
    return tw.compile(step, *arguments(), scale=np.float32(2))


def equal(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_there_and_back(program: tw.Program, tmp_path: Path) -> None:
    params, x = arguments()
    path = tmp_path / "m.twm"
    program.save(path, weights={"params": params}, targets=["ascend-310p3"], licence="MIT", metadata={"by": "me"})
    for mode in ("typed", "bytes"):
        wanted = program(params, x, scale=2.0, mode=mode)
        again = tw.load(path)
        assert equal(again(params, x, scale=2.0, mode=mode), wanted)
        found = again(x=x, scale=2.0, mode=mode)  # its own weights
        assert equal(found, wanted)
        assert isinstance(found[0], list) and found[1]._fields == State._fields and found[2] is None
    assert again.target == program.target and again.report().microseconds == program.report().microseconds
    with pytest.raises(tw.CompileError, match=r"x is missing"):
        again(scale=2.0)
    other = tw.load(path, "ascend-310p3")
    assert other.report().microseconds == tw.compile(
        step, params, x, scale=np.float32(2), target="ascend-310p3"
    ).report().microseconds
    compiled = tw.load(path, "ascend-310")  # not in the file
    assert compiled.target == "ascend-310" and equal(
        compiled(params, x, scale=2.0),
        tw.compile(step, params, x, scale=np.float32(2), target="ascend-310")(params, x, scale=2.0),
    )
    assert tw.compile(path).report().microseconds == program.report().microseconds
    assert tw.compile(f"{path}:main", options=tw.Options(without={"fusion"})).report().microseconds > 0
    assert tw.verify(str(path), params, x, scale=np.float32(2)).ok


def test_the_same_bytes(program: tw.Program, tmp_path: Path) -> None:
    """From run to run, and wherever the sources lie."""
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        code = "import jax.numpy as jnp, numpy as np\ndef f(x):\n    return jnp.exp(x) @ np.ones((16, 8), 'float32')\n"
        (tmp_path / folder / "model.py").write_text(code)
        run = (
            "import sys; sys.path.insert(0, '.'); import model, tilewright as tw, numpy as np\n"
            "tw.compile(model.f, np.ones((4, 16), 'float32')).save('m.twm')"
        )
        subprocess.run([sys.executable, "-c", run], cwd=tmp_path / folder, check=True)
    first, second = ((tmp_path / folder / "m.twm").read_bytes() for folder in ("here", "there"))
    assert first == second and b"/here/" not in first


def test_several_functions_on_one_set_of_weights(tmp_path: Path) -> None:
    table = np.random.default_rng(2).standard_normal((256, 256)).astype(np.float32)
    short, long = (tw.compile(lambda x: x @ table, np.ones((n, 256), np.float32)) for n in (1, 16))
    path = tmp_path / "m.twm"
    tw.save({"decode": short, "prefill": long}, path)
    assert path.stat().st_size < 1.5 * table.nbytes
    with pytest.raises(tw.ModelFileError, match=r"it has several functions, decode, prefill: say which"):
        tw.load(path)
    with pytest.raises(tw.ModelFileError, match=r"it has no function 'f'; it has decode, prefill"):
        tw.load(path, entry="f")
    x = np.ones((16, 256), np.float32)
    assert equal(tw.load(path, entry="prefill")(x), long(x))
    assert equal(tw.compile(f"{path}:decode")(x[:1]), short(x[:1]))
    archive = Archive(path)
    (name,) = (n for n in archive.places if n.endswith(".safetensors"))
    (stored,) = (v for k, v in safetensors.numpy.load(bytes(archive.view(name))).items() if len(k) == 64)
    np.testing.assert_array_equal(stored, table)


def test_only_what_is_used_is_read(tmp_path: Path) -> None:
    """A function is loaded though the weights of another one are damaged, and a weight is checked when it is used."""
    tables = [np.random.default_rng(n).standard_normal((512, 1024)).astype(np.float32) for n in range(2)]
    one, two = (tw.compile(lambda x, t=t: x @ t, np.ones((1, 512), np.float32)) for t in tables)
    path, x = tmp_path / "m.twm", np.ones((1, 512), np.float32)
    tw.save({"one": one, "two": two}, path)
    file = ModelFile(path)
    place = {key: file.archive.places[member].begin + at for key, (member, at, _) in file.manifest.weights.items()}
    last = max(place.values())
    broken = bytearray(path.read_bytes())
    broken[last + tables[0].nbytes - 1] ^= 1
    (tmp_path / "d.twm").write_bytes(broken)
    results = list[str]()
    for entry, whole in (("one", one), ("two", two)):
        damaged = tw.load(tmp_path / "d.twm", entry=entry)
        assert damaged.report().microseconds > 0  # no weight is needed for that
        try:
            results.append("" if equal(damaged(x), whole(x)) else "other values")
        except tw.CompileError as error:
            results.append(str(error))
    assert min(results) == "" and tables[0].nbytes > CHUNK
    assert "safetensors is damaged: a weight is not what the manifest says" in max(results)


def test_damage(tmp_path: Path) -> None:
    """Bytes flipped in a small file: it is refused, or what flipped is no part of a program."""
    whole = np.linspace(-1, 1, 64, dtype=np.float32)
    program = tw.compile(lambda x: jnp.tanh(x) * whole, whole)
    path, random_ = tmp_path / "m.twm", random.Random(0)
    program.save(path)
    good, wanted = path.read_bytes(), str(program.module())
    said: list[str] = []
    for _ in range(400):
        at = random_.randrange(len(good))
        path.write_bytes(good[:at] + bytes([good[at] ^ (1 << random_.randrange(8))]) + good[at + 1 :])
        try:
            made = tw.load(path)
            assert str(made.module()) == wanted
        except tw.ModelFileError as error:
            said.append(str(error))
        except tw.MachineError:
            said.append(str(path))  # the manifest names another chip
    assert len(said) > 100 and all(each.startswith(str(path)) and "\n" not in each for each in said)


FACTS = {"format": "tilewright-model", "version": 2, "members": {}, "entries": {}, "weights": {}, "plans": {},
         "made_by": {}, "licence": "", "metadata": {}, "sequence": 0}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "zip"}, "it is no model file of Tilewright"),
        ({"version": 9}, "its format is version 9, and this Tilewright reads version 1 and 2"),
        ({"version": True}, "its manifest has no version"),
        ({"members": []}, "its manifest has no members"),
        ({"members": {"a": 1}}, "its manifest's 'a' is no table"),
        ({"members": {"a": {"size": -1, "sha256": "0" * 64}}}, "its manifest does not say what 'a' is"),
        ({"weights": {"k": ["a", 0, 1]}}, "its manifest has no place for the weight 'k'"),
        ({"weights": {"k": 5}}, "its manifest has no place for the weight 'k'"),
        ({"members": {"a": {"size": 5, "root": "0" * 64}}, "weights": {"k": ["a", 0, 5], "l": ["a", 4, 1]}},
         "its manifest has more weights in 'a' than there is room for"),
        ({"sequence": -1}, "its sequence is not from 0 to"),
        ({"metadata": {"a": 1}}, "its manifest has no texts as its metadata"),
        (
            {"entries": {"f": {"signature": {"inputs": []}, "target": "t", "graph": "", "npu": {}, "reports": {},
                               "options": {}}}},
            "its entry 'f' has no npu level for its own chip",
        ),
    ],
)
def test_manifests(change: dict[str, Any], said: str) -> None:
    assert Manifest.of_bytes(canonical(FACTS)) == Manifest({}, {})
    with pytest.raises(ManifestError, match=said):
        Manifest.of_bytes(canonical(FACTS | change))
    for content in (b"", b"[]", b"{", b"[" * 100_000, b"\xff"):
        with pytest.raises(ManifestError, match="its manifest is no"):
            Manifest.of_bytes(content)


def test_other_members_than_the_manifest_says(program: tw.Program, tmp_path: Path) -> None:
    program.save(tmp_path / "m.twm")
    archive = Archive(tmp_path / "m.twm")
    members = {name: archive.read(name, 1 << 30) for name in archive.places}
    graph = members.pop("graph/main.mlir")
    for changed, said in (
        (members, "it has no graph/main.mlir"),
        (members | {"graph/main.mlir": graph, "more": b""}, "its manifest has no more"),
        (members | {"graph/main.mlir": graph + b" "}, "graph/main.mlir has .* bytes, and .* by the manifest"),
    ):
        write_archive(tmp_path / "n.twm", [Member.of(name, content) for name, content in changed.items()])
        with pytest.raises(tw.ModelFileError, match=said):
            tw.load(tmp_path / "n.twm")
    manifest = json.loads(members[MANIFEST])
    manifest["entries"]["main"]["options"] = {"speed": "all"}
    more = members | {MANIFEST: canonical(manifest), "graph/main.mlir": graph}
    write_archive(tmp_path / "n.twm", [Member.of(name, content) for name, content in more.items()])
    with pytest.raises(tw.ModelFileError, match="compiled with 'speed', which this Tilewright does not know"):
        tw.load(tmp_path / "n.twm")


def test_what_no_file_can_hold(tmp_path: Path) -> None:
    x = np.ones(4, np.float32)
    path = tmp_path / "m.twm"
    called = tw.compile(lambda x: jax.pure_callback(np.sin, x, x), x)
    with pytest.raises(tw.CompileError, match="main calls a Python function of this process"):
        called.save(path)
    (n,) = jax.export.symbolic_shape("n")
    open_ = tw.compile(lambda x: x + 1, jax.ShapeDtypeStruct((n,), "float32"))
    few = jax.ShapeDtypeStruct((n,), "float32")
    chosen = tw.compile(tw.variants([("n < 8", lambda x: x + 1), (None, lambda x: x + 1)]), few)
    with pytest.raises(tw.CompileError, match="is made of variants: save a program of each"):
        chosen.save(path)
    open_.at(n=4).save(path)
    assert equal(tw.load(path)(x), x + 1)
    path.unlink()
    plain = tw.compile(lambda x: x + 1, x)
    with pytest.raises(tw.CompileError, match="no program has an argument 'y'"):
        plain.save(path, weights={"y": x})
    with pytest.raises(tw.CompileError, match="there is no program to save"):
        tw.save({}, path)
    with pytest.raises(tw.MachineError):
        plain.save(path, targets=["ascend-1"])
    assert not [*tmp_path.iterdir()]


def test_pinned_programs_are_for_their_chip(tmp_path: Path) -> None:
    pinned = tw.compile(lambda x, y: x @ y, *[np.ones((64, 64), np.float32)] * 2,
                        options=tw.Options(schedule=tw.Schedule(base_m=32)))  # fmt: skip
    pinned.save(tmp_path / "m.twm")
    assert tw.load(tmp_path / "m.twm").report().microseconds == pinned.report().microseconds
    with pytest.raises(tw.ModelFileError, match="main is for ascend-910b1 alone: it has no graph level to compile for"):
        tw.load(tmp_path / "m.twm", "ascend-310p3")


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.tw").write_text("fn f(x: f32[8, 64]) -> f32[8, 64] {\n    return exp(x) + 1.0\n}\n")
    assert main(["compile", "f.tw", "-o", "m.twm"]) == 0
    assert main(["report", "f.tw", "--json"]) == 0
    wanted = json.loads(capsys.readouterr().out)
    for source in ("m.twm", "m.twm:main"):
        assert main(["report", source, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["microseconds"] == wanted["microseconds"]
    for line, said in (
        (["report", "m.twm:g"], "it has no function 'g'; it has main"),
        (["compile", "f.tw", "--emit", "graph", "-o", "n.twm"], "a .twm file has the levels that it needs"),
        (["report", "none.twm"], "No such file"),
    ):
        assert main(line) == 1
        assert said in capsys.readouterr().err
    assert not (tmp_path / "n.twm").exists()


def test_arguments_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Inputs of pytrees are made as the function takes them, and weights that are in the file stay."""
    monkeypatch.chdir(tmp_path)
    params, x = arguments()
    plain = tw.compile(lambda params, x: {"y": x @ params["w"]}, params, x)
    tw.save(plain, "m.twm", weights={"params": params})
    for command in ("report", "run", "verify"):
        assert main([command, "m.twm"]) == 0
    np.savez("x.npz", *jax.tree.leaves((params, 0 * x)))
    assert main(["run", "m.twm", "--inputs", "x.npz", "--json"]) == 0
    capsys.readouterr()
    with pytest.raises(tw.CompileError, match="save: the sequence of a release is a whole number"):
        plain.save("n.twm", sequence=-1)
    keyword = tw.compile(step, params, x, scale=np.float32(2))
    keyword.save("k.twm")
    assert main(["report", "k.twm"]) == 1
    assert "main takes scale by keyword, which only Python gives" in capsys.readouterr().err
    keyword.save("k.twm", weights={"scale": np.float32(2)})
    assert main(["report", "k.twm"]) == 0
