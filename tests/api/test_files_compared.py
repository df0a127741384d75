"""What differs between two model files: each part alone, and nothing where nothing does."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.api.files.comparing import CHUNK, FileDifference, compare_files, distance_of
from tilewright.cli.main import main
from tilewright.modelfile.archive import Archive, Member, write_archive
from tilewright.modelfile.manifest import MANIFEST, canonical

TABLE = np.random.default_rng(0).standard_normal((48, 80)).astype(np.float32)
PARAMS = {"b": np.ones(80, np.float32), "w": np.ones((48, 80), np.float32)}
X = np.ones((24, 48), np.float32)


def model(table: np.ndarray) -> Callable[..., Any]:
    def forward(params: dict[str, Any], x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ params["w"] + params["b"]) @ table.T

    return forward


@pytest.fixture(scope="module")
def program() -> tw.Program:
    return tw.compile(model(TABLE), PARAMS, X)


@pytest.fixture(scope="module")
def base(program: tw.Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "a.twm"
    tw.save(program, path, weights={"params": PARAMS}, metadata={"by": "me"})
    return path


def parts(rows: tuple[FileDifference, ...]) -> set[tuple[str, str, str]]:
    return {(row.part, row.name, row.state) for row in rows}


def test_nothing_differs(base: Path, program: tw.Program, tmp_path: Path) -> None:
    tw.save(program, tmp_path / "b.twm", weights={"params": PARAMS}, metadata={"by": "me"})
    found = compare_files(base, tmp_path / "b.twm")
    assert found.same and not found.rows
    whole = compare_files(base, tmp_path / "b.twm", every=True)
    assert whole.same and {row.state for row in whole.rows} == {"same"}
    assert {"weights", "kernel", "microseconds", "joules", "input"} <= {row.part for row in whole.rows}
    assert whole.kernels == {"main on ascend-910b1": {"same": 2, "changed": 0, "added": 0, "removed": 0}}


def test_weights(base: Path, program: tw.Program, tmp_path: Path) -> None:
    """An argument's value and a constant, by how many elements and how far."""
    other, table = {"b": PARAMS["b"].copy(), "w": PARAMS["w"]}, TABLE.copy()
    other["b"][3] = 3.0
    table[1, 2] += 0.5
    tw.save(tw.compile(model(table), PARAMS, X), tmp_path / "b.twm", weights={"params": other}, metadata={"by": "me"})
    found = compare_files(base, tmp_path / "b.twm")
    rows = {row.name: row for row in found.rows}
    assert rows.keys() == {"main: params['b']", "main: constant 1 of f32[80, 48]"}  # no code is other
    one, two = (rows[name].distance for name in ("main: params['b']", "main: constant 1 of f32[80, 48]"))
    assert one is not None and two is not None
    assert (one.elements, one.changed, one.largest) == (80, 1, 2.0)
    assert one.relative_l2 == pytest.approx(2 / np.sqrt(80))
    assert (two.changed, two.largest) == (1, pytest.approx(0.5, rel=1e-6))
    tw.save(program, tmp_path / "c.twm", metadata={"by": "me"})
    gone = parts(compare_files(base, tmp_path / "c.twm").rows)
    assert gone == {("weights", f"main: params['{key}']", "removed") for key in "bw"}


def test_functions_options_and_chips(base: Path, program: tw.Program, tmp_path: Path) -> None:
    cast = tw.compile(model(TABLE), PARAMS, X, options=tw.Options(precision="mixed_float16"))
    path = tmp_path / "b.twm"
    tw.save({"main": cast, "more": program}, path, targets=["ascend-310"], weights={"params": PARAMS},
            licence="MIT", metadata={"by": "you"}, sequence=2)  # fmt: skip
    found = compare_files(base, path)
    said = parts(found.rows)
    assert said >= {
        ("licence", "", "added"),
        ("metadata", "by", "changed"),
        ("sequence", "", "changed"),
        ("option", "main: precision", "added"),
        ("function", "more", "added"),
        ("chip", "main: ascend-310", "added"),
        ("microseconds", "main on ascend-910b1", "changed"),
        ("kernel", "main on ascend-910b1: contract_0", "changed"),
    }
    assert "graph level" not in {row.part for row in found.rows}
    rows = {row.part: row for row in found.rows}
    assert (rows["microseconds"].before, rows["microseconds"].after) == (
        program.report().microseconds, cast.report().microseconds,
    )  # fmt: skip
    back = parts(compare_files(path, base).rows)
    turned = {"added": "removed", "removed": "added"}
    assert back == {(part, name, turned.get(state, state)) for part, name, state in said}


def test_signatures(base: Path, tmp_path: Path) -> None:
    wide = tw.compile(model(TABLE), PARAMS, np.ones((32, 48), np.float32))
    tw.save(wide, tmp_path / "b.twm", weights={"params": PARAMS}, metadata={"by": "me"})
    rows = [row for row in compare_files(base, tmp_path / "b.twm").rows if row.part == "input"]
    assert [(row.name, row.before, row.after) for row in rows] == [("main: x", "f32[24, 48]", "f32[32, 48]")]


def test_kernels_with_other_names_are_the_same(base: Path, tmp_path: Path) -> None:
    archive = Archive(base)
    members = {name: archive.read(name, 1 << 30) for name in archive.places}
    (name,) = (n for n in members if n.startswith("npu/"))
    members[name] = members[name].replace(b"@contract_0", b"@other")
    manifest = json.loads(members.pop(MANIFEST))
    manifest["members"][name] = {"size": len(members[name]), "sha256": tw_digest(members[name])}
    first = Member.of(MANIFEST, canonical(manifest))
    write_archive(tmp_path / "b.twm", [first, *(Member.of(n, c) for n, c in members.items())])
    found = compare_files(base, tmp_path / "b.twm")
    assert found.kernels["main on ascend-910b1"] == {"same": 2, "changed": 0, "added": 0, "removed": 0}
    assert parts(found.rows) == {("host program", "main on ascend-910b1", "changed")}


def tw_digest(content: bytes) -> str:
    from tilewright.modelfile.manifest import digest_of

    return digest_of(content)


@pytest.mark.parametrize(
    ("dtype", "first", "second", "wanted"),
    [
        ("f32", [1.0, 2.0, 0.0], [1.0, 2.0, -0.0], (1, 0.0, 0.0)),
        ("f32", [3.0, np.nan], [3.0, 4.0], (1, np.inf, np.inf)),
        ("f32", [np.inf, 1.0], [np.inf, 1.0], (0, 0.0, 0.0)),
        ("f32", [0.0], [1.0], (1, 1.0, np.inf)),
        ("i8", [-128, 1], [127, 1], (1, 255.0, None)),
        ("i1", [True, False], [False, False], (1, 1.0, None)),
        ("c64", [1 + 1j, 0j], [1 + 1j, 1j], (1, 1.0, 1 / np.sqrt(2))),
    ],
)
def test_distances(dtype: str, first: list[Any], second: list[Any], wanted: tuple[Any, ...]) -> None:
    kinds = {"f32": np.float32, "i8": np.int8, "i1": np.bool_, "c64": np.complex64}
    one, two = (np.array(values, kinds[dtype]) for values in (first, second))
    found = distance_of(memoryview(one.tobytes()), memoryview(two.tobytes()), dtype, one.shape)
    assert found is not None
    assert (found.changed, found.largest) == wanted[:2]
    assert found.relative_l2 == (None if wanted[2] is None else pytest.approx(wanted[2]))


def test_weights_are_compared_in_chunks() -> None:
    one = np.zeros(8 * CHUNK // 4, np.float32)
    two = one.copy()
    two[-1] = 1
    tracemalloc.start()
    found = distance_of(memoryview(one).cast("B"), memoryview(two).cast("B"), "f32", one.shape)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found is not None and (found.changed, found.largest) == (1, 1.0)
    assert peak < one.nbytes + 8 * CHUNK


def test_damage(tmp_path: Path) -> None:
    """A byte flipped in a small file: it is refused, or something differs, or what flipped says nothing of it."""
    whole = np.linspace(-1, 1, 64, dtype=np.float32)
    path, broken, draw = tmp_path / "a.twm", tmp_path / "b.twm", random.Random(0)
    tw.compile(lambda x: jnp.tanh(x) * whole, whole).save(path, weights={})
    good = path.read_bytes()
    said: list[str] = []
    for _ in range(120):
        at = draw.randrange(len(good))
        broken.write_bytes(good[:at] + bytes([good[at] ^ (1 << draw.randrange(8))]) + good[at + 1 :])
        try:
            compare_files(path, broken)
        except tw.ModelFileError as error:
            said.append(str(error))
    assert len(said) > 30 and all(each.startswith(str(broken)) and "\n" not in each for each in said)


def test_the_command(
    base: Path, program: tw.Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "b.twm"
    tw.save(program, other, weights={"params": {**PARAMS, "b": 2 * PARAMS["b"]}}, metadata={"by": "me"})
    assert main(["diff", str(base), str(base)]) == 0
    assert capsys.readouterr().out == f"{base} and {base} have the same programs and weights\n"
    assert main(["diff", str(base), str(other)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 3 and "80 of 80 elements, by 1 at most, relative L2 1" in said[2]
    assert main(["diff", str(base), str(other), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["same"] and found["rows"][0]["distance"]["changed"] == 80
    assert main(["diff", str(base), str(base), "--all"]) == 0
    assert "params['w']" in capsys.readouterr().out
    for mistake in (["none.twm"], [], [__file__]):
        assert main(["diff", str(base), *mistake]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_files_with_open_sizes(tmp_path: Path) -> None:
    (b,) = jax.export.symbolic_shape("b")
    programs = [tw.compile(lambda x, k=k: jnp.tanh(x) * k, jax.ShapeDtypeStruct((b, 8), "float32")) for k in (2, 2, 3)]
    for number, program in enumerate(programs):
        program.at(b=40)
        program.save(tmp_path / f"{number}.twm")
    assert compare_files(tmp_path / "0.twm", tmp_path / "1.twm").same
    programs[1].at(b=100)
    programs[1].save(tmp_path / "more.twm")
    (row,) = compare_files(tmp_path / "0.twm", tmp_path / "more.twm").rows
    assert (row.part, row.state) == ("version", "added") and "97to128" in row.name
    parts = {row.part for row in compare_files(tmp_path / "0.twm", tmp_path / "2.twm").rows}
    assert parts == {"version", "graph level"}
    programs[0].at(b=40).save(tmp_path / "closed.twm")
    closed = compare_files(tmp_path / "0.twm", tmp_path / "closed.twm")
    assert not closed.same and {row.part for row in closed.rows} >= {"open sizes", "version", "input"}
