"""Calls from many threads: of one program, of programs that are compiled meanwhile, with arrays that are donated."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiering import later

import tilewright as tw
from tilewright.api.arguments.donation import DonatedError

THREADS = 8
X = jnp.ones((16, 16))


def step(s: Any, x: Any) -> Any:
    return s + x @ x.T, (s * 2).sum()


def together(job: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """What a job gives in as many threads as there are, which begin at one time."""
    barrier = Barrier(THREADS)

    def run(first: int) -> list[Any]:
        barrier.wait()
        return [job(n) for n in range(first, count, THREADS)]

    with ThreadPoolExecutor(THREADS) as pool:
        return [one for each in pool.map(run, range(THREADS)) for one in each]


def first(results: Any) -> float:
    return float(np.asarray(results[0])[0, 0])


# -- donation ------------------------------------------------------------------------------------------------


def test_one_of_many_calls_gets_an_array() -> None:
    program = tw.compile(step, X, X, options=tw.Options(donate=0))
    for _ in range(30):
        s = jnp.ones((16, 16))

        def call(_: int, s: jax.Array = s) -> str:
            try:
                return str(first(program(s, X)))
            except DonatedError as error:
                return str(error)

        found = Counter(together(call))
        gone = "argument s of step has been deleted: it was donated to an earlier call"
        assert found == {"17.0": 1, gone: THREADS - 1}
        assert s.is_deleted()


@pytest.mark.parametrize("viewed", [False, True])
def test_an_array_is_read_while_it_is_donated(viewed: bool) -> None:
    """By another program, by JAX and by numpy: each reads all of it, or says that it is gone."""
    program = tw.compile(step, X, X, options=tw.Options(donate=0))
    reader = tw.compile(lambda s: s * 2, X)
    compiled = jax.jit(lambda s: s * 2).lower(X).compile()
    readers = [reader, compiled, lambda s: s * 2, lambda s: np.array(s) * 2]
    found: Counter[float] = Counter()
    for _ in range(30):
        s = jnp.ones((16, 16))
        if viewed:
            np.asarray(s)

        def use(n: int, s: jax.Array = s) -> float:
            try:
                return first(program(s, X)) if n == 3 else first([readers[n % 4](s)])
            except (RuntimeError, ValueError) as error:
                return 0 if "deleted" in str(error) else -1

        given = together(use)
        assert given[3] == 17
        found.update(given)
        assert s.is_deleted()
    assert set(found) <= {17, 2, 0}
    assert found[2]


def test_two_arrays_are_taken_together_or_not_at_all() -> None:
    """Of two calls, one gets both; the other one takes none of its own with it."""
    program = tw.compile(lambda a, b: (a + 1, b + 1), X, X, options=tw.Options(donate=(0, 1)))
    for _ in range(10):
        shared, own = jnp.ones((16, 16)), [jnp.ones((16, 16)) for _ in range(THREADS)]

        def call(n: int, shared: jax.Array = shared, own: list[jax.Array] = own) -> bool:
            try:
                return first(program(own[n], shared)) == 2
            except DonatedError:
                assert not own[n].is_deleted()
                return False

        assert sum(together(call)) == 1
        assert sum(a.is_deleted() for a in own) == 1


def test_a_thousand_calls_on_shared_and_donated_arrays() -> None:
    program = tw.compile(step, X, X, options=tw.Options(donate=0))

    def call(n: int) -> bool:
        s = jnp.full((16, 16), float(n))
        a, total = program(s, X)
        return bool((np.asarray(a) == n + 16).all()) and float(total) == 2 * n * 256 and s.is_deleted()

    assert all(together(call, 1000))


# -- what is made once ---------------------------------------------------------------------------------------


def test_the_first_calls_of_a_function_compile_it_once() -> None:
    jitted = tw.jit(step)
    assert together(lambda n: first(jitted(X * n, X))) == [n + 16.0 for n in range(THREADS)]
    assert len(jitted.programs) == 1


@pytest.mark.parametrize("mode", ["typed", "bytes", "step"])
def test_the_first_calls_in_a_mode(mode: str) -> None:
    program = tw.compile(step, X, X)
    found = together(lambda n: first(program(X * n, X, mode=mode)), 3 * THREADS)
    assert sorted(found) == [n + 16.0 for n in range(3 * THREADS)]
    assert len(program._executables) == 1


def test_the_memory_of_a_call_belongs_to_it() -> None:
    """Large memory is left to the next call, one alone."""
    shape = jax.ShapeDtypeStruct((1024, 512), "float32")
    program = tw.compile(lambda x: (x + 1) * 2, shape)
    found = together(lambda n: program(jnp.full(shape.shape, float(n)), mode="bytes"), 2 * THREADS)
    values = [np.unique(np.asarray(x)).tolist() for x in found]
    assert sorted(values) == [[2.0 * (n + 1)] for n in range(2 * THREADS)]


def test_versions_for_many_sizes() -> None:
    """The sizes are in four ranges, of which each is lowered once."""
    jitted = tw.jit(lambda x: (x * 2).sum(-1), dynamic="b, 8")

    def call(n: int) -> bool:
        x = np.full((n % 40 + 2, 8), float(n), np.float32)
        return bool((np.asarray(jitted(x)) == 16 * n).all())

    assert all(together(call, 80))
    (program,) = jitted.programs
    assert isinstance(program, tw.DynamicProgram)
    assert len(program.ranges) <= 6


@later()
def test_processes_on_one_cache(tmp_path: Path) -> None:
    """All compile the same at the same time, and read what the others wrote."""
    code = (
        "import sys, warnings; warnings.simplefilter('error')\n"
        "import numpy as np, tilewright as tw\n"
        f"kept = tw.Options(cache={str(tmp_path)!r})\n"
        "f = tw.jit(lambda x: (x * 2).sum(-1), dynamic='b, 8', options=kept)\n"
        "g = tw.jit(lambda x: x @ x, options=kept)\n"
        "x = np.ones((8, 8), np.float32)\n"
        "assert all((np.asarray(f(x[:n])) == 16).all() for n in range(2, 8)) and (np.asarray(g(x)) == 8).all()"
    )
    assert set(at_once([sys.executable, "-c", code], THREADS)) == {("", "", 0)}
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("count", [2, pytest.param(THREADS, marks=later())])
def test_commands_on_one_cache(count: int, tmp_path: Path) -> None:
    """All print what one alone does, and nothing of a draft is left."""
    (tmp_path / "model.py").write_text(
        "import numpy as np\n\ndef f(x):\n    return x @ x + x.sum()\n\n"
        "def f_inputs():\n    return [np.ones((8, 8), np.float32)]\n"
    )
    cache = tmp_path / "kept"
    source = [str(tmp_path / "model.py:f"), "--cache", str(cache)]
    run = [sys.executable, "-m", "tilewright", "run", *source]
    (first,) = set(at_once(run, count))
    assert first[1:] == ("", 0) and "f32[8,8]  72   72   72" in first[0]
    assert at_once(run, 1) == [first]
    assert len(list((cache / "programs").glob("*.entry"))) == 1
    assert not list(cache.rglob(".*"))


def at_once(command: list[str], count: int) -> list[tuple[str, str, int]]:
    """What processes that run at the same time print, say and end with."""
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    return [(*process.communicate(), process.returncode) for process in running]
