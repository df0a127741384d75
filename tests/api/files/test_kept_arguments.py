"""What arguments of programs are in model files: odd structures, names and values, and what no file can hold."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import tilewright as tw

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
