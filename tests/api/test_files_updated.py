"""Other values of weights in a file: what stays is copied, and the file is as good as one that was saved anew."""

from __future__ import annotations

import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.api.files import updating
from tilewright.api.files.reading import ModelFile
from tilewright.modelfile.crc import changed_crc
from tilewright.modelfile.weights import CHUNK

DRAW = np.random.default_rng(0)
SHARED = DRAW.standard_normal((64, 32)).astype(np.float32)


def net(params: dict[str, Any], x: jax.Array) -> jax.Array:
    return (x @ params["a"] + params["b"]) @ params["c"] + x @ SHARED


def weights() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    shapes = {"a": (64, 700), "b": (700,), "c": (700, 32), "d": (64, 32)}
    found = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return found | {"d": SHARED, "e": found["b"].copy()}  # equal bytes are stored once


@given(
    st.binary(min_size=1, max_size=300),
    st.lists(st.tuples(st.integers(0, 299), st.binary(max_size=40)), max_size=4),
)
@settings(deadline=None)
def test_crc_of_changed_bytes(content: bytes, wanted: list[tuple[int, bytes]]) -> None:
    after, at, changes = bytearray(content), 0, []
    for begin, data in sorted(wanted):
        if begin >= at and begin + len(data) <= len(content):
            changes.append((begin, content[begin : begin + len(data)], data))
            after[begin : begin + len(data)] = data
            at = begin + len(data)
    assert changed_crc(zipfile.crc32(content), len(content), changes) == zipfile.crc32(after)


@pytest.mark.parametrize("names", [("a",), ("b",), ("e",), ("b", "e"), ("d",), ("a", "c", "b")])
def test_updated(tmp_path: Path, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    old, path, output = weights(), tmp_path / "m.twm", tmp_path / "n.twm"
    x = np.ones((3, 64), np.float32)
    program = tw.compile(net, old, x)
    tw.save({"one": program, "two": program}, path, weights={"params": old}, sequence=4)
    new = {name: DRAW.standard_normal(old[name].shape).astype(np.float32) for name in names}
    hashed: list[int] = []
    monkeypatch.setattr(updating, "leaf_of", lambda chunk: hashed.append(len(chunk)) or _leaf(chunk))
    tw.update(path, output, {f"params['{name}']": value for name, value in new.items()})
    changed = sum(value.nbytes for value in new.values())
    assert sum(hashed) <= changed + 3 * CHUNK
    file = ModelFile(output)
    file.check_whole()
    assert file.manifest.sequence == 5 and zipfile.ZipFile(output).testzip() is None
    wanted = program({**old, **new}, x)
    for entry in ("one", "two"):
        np.testing.assert_array_equal(tw.load(output, entry=entry)(x=x), wanted)
    stored = {k: v for name in file.archive.places if name.endswith(".safetensors")
              for k, v in safetensors.numpy.load(bytes(file.archive.view(name))).items() if len(k) == 64}  # fmt: skip
    assert all(sha256(stored[key].tobytes()).hexdigest() == key for key in file.manifest.weights)
    for name, value in {**old, **new}.items():
        np.testing.assert_array_equal(stored[sha256(value.tobytes()).hexdigest()], value, name)
    np.testing.assert_array_equal(tw.load(path, entry="one")(x=x), program(old, x))  # the old one is as it was


def _leaf(chunk: Any) -> bytes:
    return sha256(b"\0" + bytes(chunk)).digest()


def test_the_same_file(tmp_path: Path) -> None:
    path, old, x = tmp_path / "m.twm", weights(), np.ones((3, 64), np.float32)
    program = tw.compile(net, old, x)
    program.save(path, weights={"params": old})
    size = path.stat().st_size
    tw.update(path, path, {"params['a']": old["a"] * 2}, sequence=9)
    np.testing.assert_array_equal(tw.load(path, least_sequence=9)(x=x), program({**old, "a": old["a"] * 2}, x))
    tw.update(path, path, {"params['a']": old["a"]})
    tw.update(path, path, {})
    assert path.stat().st_size < size + 200  # nothing is left of what was replaced
    assert ModelFile(path).manifest.sequence == 11
    np.testing.assert_array_equal(tw.load(path)(x=x), program(old, x))


def test_what_is_refused(tmp_path: Path) -> None:
    path, old = tmp_path / "m.twm", weights()
    tw.compile(net, old, np.ones((3, 64), np.float32)).save(path, weights={"params": old})
    for given_, said in (
        ({"params['aa']": old["a"]},
         r"weight \"params\['aa'\]\"; did you mean params\['a'\] or params\['e'\] or params\['d'\]\?"),
        ({"params['a']": old["a"].T}, r"params\['a'\] is f32\[64,700\], and the new value float32\[700,64\]"),
        ({"params['a']": old["a"].astype(np.float64)}, "and the new value float64"),
    ):
        with pytest.raises(tw.CompileError, match=said):
            tw.update(path, tmp_path / "n.twm", given_)
    with pytest.raises(tw.CompileError, match="a whole number from 0 to 2\\*\\*63 - 1, not -1"):
        tw.update(path, tmp_path / "n.twm", {}, sequence=-1)
    with pytest.raises(OSError, match=r"none\.pem"):
        tw.update(path, tmp_path / "n.twm", {}, trusted=str(tmp_path / "none.pem"))
    assert not (tmp_path / "n.twm").exists()
