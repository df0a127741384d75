"""Settings of every test: JAX on the CPU, how XLA compiles, which tests run, and hypothesis with the same examples.

`make test` runs the first tier, `TESTS=every pytest ...` every case; `HYPOTHESIS_PROFILE=search pytest ...` looks for
new examples (docs/testing.md). What XLA compiles is kept in `build/xla`, by the program, the compiler's version and the
processor: most of a test's time is the compiler's.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import itertools
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from durations import RECORDING, Recorder, long_ones_first
from hypothesis import HealthCheck, settings
from tiering import ALL, EVERY, PART, begin, first_tier, second_tier, steps

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["TILEWRIGHT_PLANS"] = ""  # neither a user's plans nor those that Tilewright comes with change a test
FLAGS = {"xla_cpu_multi_thread_eigen": "false"}
"""XLA's options: another core belongs to another worker."""

if "PYTEST_XDIST_WORKER" not in os.environ:
    FLAGS.pop("xla_cpu_multi_thread_eigen")
_given = os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = " ".join([_given, *(f"--{k}={v}" for k, v in FLAGS.items() if k not in _given)]).strip()

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "xla"
MOST_KEPT = {KEPT: 1 << 30, ROOT / "build" / "references": 1 << 28}
"""Bytes of compiled programs, and of JAX's results, above which a session starts anew."""


def processor() -> str:
    """A name for what this processor can do: compiled programs are for one kind."""
    info = Path("/proc/cpuinfo")
    flags = [x for x in info.read_text().splitlines() if x.startswith("flags")] if info.exists() else []
    said = " ".join([platform.machine(), platform.processor(), *flags[:1]])
    return hashlib.sha256(said.encode()).hexdigest()[:12]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sampled(every): of these cases one in so many runs in the first tier")
    config.addinivalue_line("markers", "xla_code: it is about what XLA compiles")
    config.addinivalue_line("markers", "whole: its cases are in the first tier however long they take together")
    config.addinivalue_line("markers", "later: only the second tier has it")
    config.addinivalue_line("markers", "covering(most): the first tier has each value of each parameter in one case")
    if RECORDING:
        config.pluginmanager.register(Recorder(ROOT / "build" / "durations"))
    for folder, most in MOST_KEPT.items() if not hasattr(config, "workerinput") else ():
        if sum(path.stat().st_size for path in folder.rglob("*")) > most:
            shutil.rmtree(folder)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not EVERY and not any("::" in x for x in config.invocation_params.args):  # a case that is asked for by name runs
        kept = second_tier(items, PART) if ALL else first_tier(items)
        config.hook.pytest_deselected(items=[*{*items}.difference(kept)])
        items[:] = kept
    if hasattr(config, "workerinput"):
        items[:] = long_ones_first(items, int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(KEPT / processor()))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

_HEALTH = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile(
    "fixed", max_examples=6, derandomize=True, deadline=None, database=None, suppress_health_check=_HEALTH
)
settings.register_profile(
    "search", max_examples=100, deadline=None, database=None, suppress_health_check=_HEALTH
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


MOST_MAPS = 30_000
"""Memory maps of a process from which on compiled functions are dropped. Linux allows 65,530 of them; XLA makes seven
for each function, and dies where it gets no more."""

MOST_BYTES = 1_200_000_000
"""Resident bytes of a process from which on they are dropped, too: two workers and what they start have 3 GB."""

_since = itertools.count(1)


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """Drops what JAX keeps of earlier tests where that has become much; looks after every 20th test."""
    yield
    if next(_since) % 20 == 0 and _keeps_much():
        import jax

        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)


def _keeps_much() -> bool:
    maps, pages = Path("/proc/self/maps"), Path("/proc/self/statm")
    if not maps.exists():
        return False
    resident = int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resident > MOST_BYTES or maps.read_bytes().count(b"\n") > MOST_MAPS


@pytest.fixture(autouse=True, scope="module")
def nothing_kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drops the programs that a file of tests keeps (`functools.cache`) when others follow: compiled functions of all
    files together are more than there may be maps of memory."""
    yield
    for kept in vars(request.module).values():
        if getattr(kept, "__module__", None) == request.module.__name__ and hasattr(kept, "cache_clear"):
            kept.cache_clear()


@pytest.fixture(autouse=True)
def own_memories(request: pytest.FixtureRequest) -> None:
    """Each test counts its programs anew: one in a few runs in addressed memory in the first tier."""
    begin(request.node)


_numbers: dict[str, Any] = {}
"""The state of each file's generator of numbers before its first test."""


@pytest.fixture(autouse=True)
def small_programs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Small programs run one instruction at a time, but in one case of four, and where the subject is XLA's code, or a
    campaign, which has levels of its own."""
    if not steps(request.node):
        yield
        return
    from stepping import stepping

    with stepping():
        yield


@pytest.fixture(autouse=True)
def own_numbers(request: pytest.FixtureRequest) -> None:
    """Each test draws the numbers that it draws alone: which tests of its file run before it in this process varies."""
    if isinstance(rng := getattr(request.module, "RNG", None), np.random.Generator):
        rng.bit_generator.state = _numbers.setdefault(request.module.__name__, rng.bit_generator.state)


@pytest.fixture(autouse=True)
def own_precision() -> Iterator[None]:
    """Each test starts with JAX's usual types: the golden model of the conformance suite turns 64 bits on."""
    import jax

    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)
