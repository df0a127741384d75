"""The pool of a program with open dimensions: what calls take of it, against the same requests made by hand."""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import tilewright as tw
from tilewright.api.sizes.memory_pool import Demand, ProgramPool
from tilewright.api.sizes.templates import SizedProgram
from tilewright.backends.pool import Pool, PoolStatistics
from tilewright.machine import Machine

MACHINE = Machine.load("ascend-910b1")
SIZES = (40, 3, 64, 1, 100, 33)


def mlp(x: Any, w: Any, v: Any) -> Any:
    return jax.nn.gelu(x @ w) @ v


def step(cache: Any, w: Any) -> Any:
    return jnp.tanh(cache) * w


def compiled(fn: Any, specs: Sequence[str], **options: Any) -> tw.DynamicProgram:
    scope = export.SymbolicScope()
    args = [jax.ShapeDtypeStruct(export.symbolic_shape(s, scope=scope), "float32") for s in specs]
    program = tw.compile(fn, *args, options=tw.Options(**options))
    assert isinstance(program, tw.DynamicProgram)
    return program


def the_mlp(**options: Any) -> tw.DynamicProgram:
    return compiled(mlp, ["b, 48", "48, 80", "80, 10"], **options)


WEIGHTS = (np.float32(np.linspace(-1, 1, 48 * 80)).reshape(48, 80), np.ones((80, 10), np.float32))


def by_hand(program: tw.DynamicProgram, sizes: Sequence[int], policy: str, capacity: int) -> PoolStatistics:
    """What calls with these sizes make of a pool: weights that stay, an input, the arena and a result for each call."""
    pool, weights = Pool(capacity, MACHINE.gm_align, policy), []
    for b in sizes:
        arena = program.at(b=b).report().memory.arena_bytes
        held = [-(-n // 512) * 512 for n in (b * 48 * 4, 48 * 80 * 4, 80 * 10 * 4)]
        x = pool.allocate(b * 48 * 4, pinned=True)
        if weights:
            for w in weights:
                pool.pin(w)
        else:
            weights = [pool.allocate(n, pinned=True) for n in (48 * 80 * 4, 80 * 10 * 4)]
        work = pool.allocate(arena - sum(held), pinned=True)
        y = pool.allocate(b * 10 * 4, pinned=True)
        for each in (x, work, y):
            pool.free(each)
        for w in weights:
            pool.unpin(w)
    return pool.statistics()


@pytest.mark.parametrize("policy", ["best-fit", "buddy"])
def test_a_sweep_takes_what_the_same_requests_take(policy: str) -> None:
    program = the_mlp(pool=policy, pool_bytes=1 << 20)
    pool = program.replay({"b": b} for b in SIZES)
    want = by_hand(program, SIZES, policy, 1 << 20)
    assert pool.statistics == want and pool.calls == len(SIZES)
    assert want.allocations == 2 + 3 * len(SIZES) and want.live_allocations == 2
    assert pool.overhead == want.watermark_bytes / want.peak_bytes >= 1
    assert program.pool.calls == 0  # nothing ran


def test_calls_with_arrays_take_the_same() -> None:
    program = the_mlp()
    weights = [jnp.asarray(w) for w in WEIGHTS]
    for b in SIZES:
        x = np.ones((b, 48), np.float32)
        np.testing.assert_allclose(program(x, *weights), mlp(x, *WEIGHTS), rtol=1e-3, atol=1e-3)
        gc.collect()  # the result is gone before the next call
    assert program.pool.statistics == by_hand(program, SIZES, "best-fit", MACHINE.spaces["gm"].bytes)
    assert program.pool.calls == len(SIZES)
    del weights
    gc.collect()
    assert program.pool.statistics.live_allocations == 0


def test_what_a_version_takes_is_its_plan() -> None:
    program = the_mlp()
    for b in SIZES:
        version = program.at(b=b)
        found = version.demand
        assert found.inputs[:3] == (b * 192, 48 * 320, 3200) and found.results == (b * 40,)
        held = sum(-(-n // 512) * 512 for n in found.inputs)
        assert found.arena + held + found.constants == version.report().memory.arena_bytes
    assert isinstance(program.at(b=40), SizedProgram) and type(program.at(b=1)) is tw.Program


def test_a_result_that_becomes_an_argument_is_there_already() -> None:
    program = compiled(step, ["b, 64", "64"])
    w, cache = jnp.ones(64, jnp.float32), jnp.ones((32, 64), jnp.float32)
    for _ in range(5):
        cache = program(cache, w)
        gc.collect()
    found = program.pool.statistics
    results_in_arena = 5  # each call's arena holds its result while it runs
    assert found.allocations == 2 + 5 + results_in_arena
    assert (found.live_allocations, found.live_bytes) == (2, 64 * 4 + 32 * 64 * 4)
    other = program(np.ones((32, 64), np.float32), w)
    assert program.pool.statistics.live_allocations == 3
    del other, cache
    gc.collect()
    assert program.pool.statistics.live_allocations == 1


def test_what_does_not_fit_goes_to_the_host_and_comes_back() -> None:
    capacity = 40 * 1024
    program = compiled(step, ["b, 64", "64"], pool_bytes=capacity)
    w, x = np.ones(64, np.float32), np.ones((32, 64), np.float32)
    kept = [program(x, w) for _ in range(4)]  # 8 KiB each, beside 16 KiB while one runs
    spilled = program.pool.statistics
    assert spilled.spills > 0 and spilled.restores == 0 and spilled.host_bytes == spilled.spills * 8192
    kept.append(program(kept[0], w))
    found = program.pool.statistics
    assert found.restores == 1 and found.restored_bytes == 8192
    assert program.pool.link_microseconds == found.link_bytes / MACHINE.host.pcie_bytes_per_us > 0
    assert found.watermark_bytes <= capacity
    assert json.loads(program.pool.to_json())["link_microseconds"] == program.pool.link_microseconds
    assert f"{program.pool.link_microseconds:,.1f} us over the link" in str(program.pool)


def test_a_call_that_needs_more_than_there_is_is_refused_and_leaves_nothing() -> None:
    program = the_mlp(pool_bytes=64 * 1024)
    small = np.ones((8, 48), np.float32)
    program(small, *WEIGHTS)
    with pytest.raises(tw.CompileError, match=r"^mlp at b = 100: a request of \d+ bytes does not fit into the pool"):
        program(np.ones((100, 48), np.float32), *WEIGHTS)
    gc.collect()  # the result of the first call
    assert program.pool.statistics.live_allocations == 0 and program.pool.calls == 1
    with pytest.raises(tw.CompileError, match="mlp at b = 4000: a request of 768000 bytes is larger than the pool"):
        program.replay([{"b": 4}, {"b": 4000}])
    program(small, *WEIGHTS)
    assert program.pool.calls == 2


def test_one_array_for_two_inputs_is_there_once() -> None:
    program = compiled(lambda x, y: x + y, ["b, 64", "b, 64"])
    x = jnp.ones((32, 64), jnp.float32)
    y = program(x, x)
    assert program.pool.statistics.live_allocations == 2  # it, and the result
    assert y.shape == (32, 64)


def test_what_is_donated_is_gone() -> None:
    program = compiled(step, ["b, 64", "64"], donate=(0,))
    cache, w = jnp.ones((32, 64), jnp.float32), jnp.ones(64, jnp.float32)
    again = program(cache, w)
    assert cache.is_deleted() and again.shape == (32, 64)
    assert program.pool.statistics.live_bytes == 64 * 4 + 32 * 64 * 4


def test_versions_of_a_range_share_their_constants() -> None:
    table = np.arange(64, dtype=np.float32)
    program = compiled(lambda x: x @ jnp.asarray(table).reshape(64, 1) + jnp.cumsum(x, 1), ["b, 64"])
    program.replay([{"b": 33}])
    first = program.at(b=33).demand.constants
    pool = program.replay({"b": b} for b in (33, 40, 64))
    assert first > 0 and pool.statistics.live_bytes == first and pool.statistics.live_allocations == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pool": "worst-fit"}, r"options: pool must be 'best-fit' or 'buddy', not 'worst-fit'"),
        ({"pool_bytes": 0}, "pool_bytes must be a positive number of bytes, not 0"),
        ({"pool_bytes": 100}, "a pool of 100 bytes has no block of its alignment, 512 bytes"),
    ],
)
def test_pools_that_cannot_be_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(tw.CompileError, match=said):
        the_mlp(**options)


def test_a_call_that_fails_gives_its_memory_back() -> None:
    pool = ProgramPool(MACHINE)

    def fails() -> None:
        with pool.call("f", Demand((1024,), (64,), 512, 2048), [None], "version"):
            assert pool.statistics.live_bytes == 1024 + 512 + 2048
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert pool.statistics.live_bytes == 512  # the constants of the version
