"""Loaded programs that are called from threads and inside of functions that JAX traces, and where files can lie."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tilewright as tw
from tilewright.cli.main import main

X, W = np.ones((4, 32), np.float32), np.arange(2048, dtype=np.float32).reshape(32, 64)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    donating = jax.jit(lambda w, x: (w + 1, x @ w), donate_argnums=0)
    tw.compile(donating, W, X).save(tmp_path / "m.twm", weights={"w": W})
    return tmp_path / "m.twm"


def test_donated_weights_in_threads(saved: Path) -> None:
    """A call deletes what is donated to it, and not what other calls have of the file."""
    program = tw.load(saved)

    def call(_: int) -> bool:
        return all(np.array_equal(program(x=X)[1], X @ W) for _ in range(3))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(16)))


@pytest.mark.parametrize("traced", [jax.jit, jax.vmap, jax.grad, tw.jit])
def test_inside_of_traced_functions(saved: Path, traced: Any) -> None:
    """What a file has values of is refused there in the words of other compiled programs, and is there afterwards."""
    program = tw.load(saved)
    with pytest.raises(tw.CompileError, match="main is compiled already and cannot be inside"):
        traced(lambda x: program(x=x)[1].sum())(X)
    assert np.array_equal(program(x=X)[1], X @ W)


def test_what_is_no_file(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = saved.with_name("pipe.twm")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(tw.ModelFileError, match=r"pipe\.twm: a model file is written to a file, not to a pipe"):
        tw.load(saved).save(pipe)
    assert os.read(reader, 100) == b""
    os.close(reader)
    np.savez(saved.with_name("w.npz"), w=W)
    assert main(["update", str(saved), "-o", "/dev/full", "--values", str(saved.with_name("w.npz"))]) == 1
    assert capsys.readouterr().err == "tilewright: error: /dev/full: No space left on device\n"
    assert sorted(each.name for each in saved.parent.iterdir()) == ["m.twm", "pipe.twm", "w.npz"]
