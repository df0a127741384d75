"""What arguments of programs are in model files: odd structures, names and values, and what no file can hold."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import tilewright as tw
from tilewright.cli.main import main

X = np.arange(16, dtype=np.float32)


class State(NamedTuple):
    mean: Any
    rest: Any = None


class Other(NamedTuple):
    mean: Any
    rest: Any = None


def test_named_tuples_of_the_caller(tmp_path: Path) -> None:
    """Those with the name and the fields are taken, whoever has made them: the caller, or another function."""
    path = tmp_path / "m.twm"
    program = tw.compile(lambda w, s: State(s.mean + w.mean, s.rest), State(X), State(X, [X]))
    tw.save({"f": program, "g": program}, path, weights={"w": State(X)})
    one, two = (tw.load(path, entry=name) for name in "fg")
    found = two(s=one(State(X), State(X, [X])))
    assert np.array_equal(found.mean, 3 * X) and np.array_equal(found.rest[0], X)
    assert np.array_equal(program(State(X), found).mean, 4 * X)
    assert jax.tree.structure(found) == jax.tree.structure(one(s=found))
    for wrong in (Other(X, [X]), State(X, X), State(X), (X, [X])):
        with pytest.raises(tw.CompileError, match="argument s of f was compiled for inputs"):
            one(s=wrong)


def test_renamed_fields(tmp_path: Path) -> None:
    renamed = namedtuple("renamed", ["class", "a", "a"], rename=True)
    tw.compile(lambda d: d[0] + d[2], renamed(X, X, X)).save(tmp_path / "m.twm")
    assert np.array_equal(tw.load(tmp_path / "m.twm")(renamed(X, X, X)), 2 * X)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"licence": None}, "save: the licence is a text, not None"),
        ({"metadata": {"a": 1}}, "save: metadata are texts by their names"),
        ({"metadata": "abc"}, "save: metadata are texts by their names"),
        ({"sequence": True}, "save: the sequence of a release is a whole number from 0 to .*, not True"),
        ({"sequence": 1.5}, "not 1.5"),
        ({"sequence": 10**5000}, "not this one"),
        ({"metadata": {"a": "x" * (65 << 20)}}, "save: what the file says of itself has .* bytes: 67108864 at most"),
        ({"weights": {"w": X[:4]}}, r"save: weights: argument w of main must be f32\[16\], got f32\[4\]"),
        ({"weights": {"w": [X]}}, "save: weights: argument w of main was compiled for inputs"),
        ({"weights": {"n": 3}}, "save: weights: n is compiled in: leave it out"),
        ({"weights": {"z": X, 5: X}}, "save: weights: no program has an argument '5'"),
        ({"encrypt": "model.key"}, "encrypt: give a tw.Secret, as tw.Secret.of_key_file"),
    ],
)
def test_what_a_file_cannot_say(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    """It is refused when it is saved, not when it is loaded."""
    program = tw.compile(lambda w, x, n=2: w * x * n, X, X)
    with pytest.raises((tw.CompileError, tw.ModelFileError), match=said):
        tw.save(program, tmp_path / "m.twm", **given)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", ["", "..", "a/../b", "ü", "a b", "main:x", "x" * 70_000, 5, ("a",), None])
def test_names_of_functions(tmp_path: Path, name: Any) -> None:
    program = tw.compile(lambda x: x + 1, X)
    with pytest.raises(tw.CompileError, match="cannot be the name of a function"):
        tw.save({"good": program, name: program}, tmp_path / "m.twm")
    for none in (None, [program], {"f": lambda x: x}, {"f": tw.jit(lambda x: x)}):
        with pytest.raises(tw.CompileError, match="save: give a program, as"):
            tw.save(none, tmp_path / "m.twm")  # pyright: ignore[reportArgumentType]
    tw.save(dict.fromkeys(("CON", "con", "a/b", "a.mlir", "-x", "+"), program), tmp_path / "m.twm")
    assert np.array_equal(tw.load(tmp_path / "m.twm", entry="a/b")(X), X + 1)


def test_structures_of_any_depth_and_keys(tmp_path: Path) -> None:
    def nested(depth: int) -> Any:
        return X if depth == 0 else [nested(depth - 1)]

    path, keys = tmp_path / "m.twm", ("ü", "a'b\"", "..", "", "\n\0", "\ud800", "*", "none", "stored " + "0" * 64)
    odd = {key: X * i for i, key in enumerate(keys)}
    tw.compile(lambda d, e: (d, e[1], e[-3]), odd, {1: X, -3: X}).save(path, weights={"d": odd})
    assert np.array_equal(tw.load(path)(e={1: X, -3: X})[0]["\ud800"], odd["\ud800"])
    tw.compile(lambda d: jax.tree.leaves(d)[0] + 1, nested(200)).save(path)
    assert np.array_equal(tw.load(path)(nested(200)), X + 1)
    with pytest.raises(tw.CompileError, match="the arguments of main are more than 256 structures in one another"):
        tw.compile(lambda d: jax.tree.leaves(d)[0] + 1, nested(300)).save(tmp_path / "n.twm")
    with pytest.raises(tw.CompileError, match="a dict with other keys than texts and numbers"):
        tw.compile(lambda d: d[1 << 64] + 1, {1 << 64: X}).save(tmp_path / "n.twm")
    assert not (tmp_path / "n.twm").exists()


def test_values_of_random_keys_and_of_several_positions(tmp_path: Path) -> None:
    path, key = tmp_path / "m.twm", jax.random.key(0)

    def draw(k: Any, *more: Any) -> Any:
        return jax.random.normal(k, (16,)) + more[1]

    program = tw.compile(draw, key, X, X)
    program.save(path, weights={"k": key, "more[0]": X, "more[1]": X})
    assert np.array_equal(tw.load(path)(), program(key, X, X))
    tw.update(path, path, {"k": jax.random.key(1)})
    assert np.array_equal(tw.load(path)(), program(jax.random.key(1), X, X))
    gone = jax.numpy.asarray(X)
    gone.delete()
    for refused in (lambda: program.save(path, weights={"more[0]": gone}),
                    lambda: tw.update(path, path, {"k": [[1], []]})):  # fmt: skip
        with pytest.raises(tw.CompileError, match="has a value that cannot be read"):
            refused()


def test_new_values_of_a_narrow_type(tmp_path: Path) -> None:
    """Files of numpy have bf16 as bytes of no type, which `update` takes as `run` does."""
    path, old = tmp_path / "m.twm", jax.numpy.arange(64, dtype="bfloat16")
    tw.compile(lambda w, x: w + x, old, old).save(path, weights={"w": old})
    np.savez(tmp_path / "new.npz", w=np.asarray(old * 2))
    tw.update(path, path, dict(np.load(tmp_path / "new.npz")))
    assert np.array_equal(tw.load(path)(x=old), old * 2 + old)


def test_random_keys_and_float0_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no array of numbers is described as it lies in memory."""
    program = tw.compile(lambda k, n: (jax.random.split(k), jax.grad(lambda n: 1.0, allow_int=True)(n)),
                         jax.random.key(0), np.int32(3))  # fmt: skip
    program.save(tmp_path / "m.twm", weights={"k": jax.random.key(0), "n": np.int32(3)})
    assert main(["run", str(tmp_path / "m.twm")]) == 0
    said = capsys.readouterr().out
    assert "ui32[2,2]" in said and "i1[]" in said
