"""Barriers inside a pipe: none is missing, none is superfluous; who drops one is told so, by proof and by running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.backends.stepper import StepProgram
from tilewright.backends.stepper.errors import Race
from tilewright.dialects.npu import PipeBarrierOp
from tilewright.machine import Machine
from tilewright.passes.npu.check import check


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.swapaxes(-1, -2)) @ v


def norm(x: Any, g: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * g


def cell(i: Any, f: Any, g: Any, o: Any, c: Any) -> Any:
    new = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(new), new


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "attention": (attention, [(1, 2, 48, 16)] * 3),
    "norm": (norm, [(9, 70), (70,)]),
    "softmax": (jax.nn.softmax, [(3, 5)]),
    "cell": (cell, [(7, 40)] * 5),
    "small product": (lambda x, y: jax.nn.gelu(x @ y), [(16, 1000), (1000, 32)]),
    "sum": (jnp.sum, [(300, 40)]),
    "prefix sums": (lambda x: jnp.cumsum(jnp.sort(x, -1), -1), [(5, 70)]),
    "rows of a table": (lambda x, y: x.at[jnp.array([0, 2, 2])].add(y), [(4, 9), (3, 9)]),
}


def arguments(name: str, dtype: str = "float16") -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(dtype) for shape in CASES[name][1]]


def barriers(module: Any) -> list[PipeBarrierOp]:
    return [op for op in module.walk() if isinstance(op, PipeBarrierOp)]


@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310"])
@pytest.mark.parametrize("name", CASES)
def test_each_barrier_is_needed(name: str, target: str) -> None:
    """Without any one of them npu-check finds a race, and so does a run."""
    args, machine = arguments(name), Machine.load(target)
    module = tw.compile(CASES[name][0], *args, target=target).module()
    assert not check(module, machine)
    count = len(barriers(module))
    assert count
    for i in range(count):
        mutant = module.clone()
        gone = barriers(mutant)[i]
        gone.detach()
        gone.erase()
        assert {f.kind for f in check(mutant, machine)} == {"race"}
        with pytest.raises(Race, match="may still"):
            StepProgram(mutant, machine)(*args)


def test_a_chip_whose_vector_unit_ends_each_instruction_has_no_barriers_on_it() -> None:
    args = arguments("norm")
    module = tw.compile(norm, *args, target="ascend-950pr").module()
    assert not barriers(module)
    assert barriers(tw.compile(norm, *args, target="ascend-910b1").module())
    # but what ends none of its own is told so
    assert any(f.kind == "race" for f in check(module, Machine.load("ascend-910b1")))


def test_sums_of_many_fractals_need_none() -> None:
    def on_the_cube(n: int) -> list[str]:
        x, y = np.zeros((n, 1024), np.float16), np.zeros((1024, n), np.float16)
        module = tw.compile(lambda x, y: x @ y, x, y, options=tw.Options(without={"stream-k"})).module()
        return [b.pipe.data for b in barriers(module)]

    assert "M" in on_the_cube(32)
    assert "M" not in on_the_cube(64)  # 16 fractals


def test_chains_that_know_nothing_of_each_other_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.passes.npu import synchronize

    args = arguments("cell", "float32")
    program = tw.compile(cell, *args)
    monkeypatch.setattr(synchronize, "interleave", lambda section: False)
    plain = tw.compile(cell, *args)
    assert len(barriers(program.module())) < len(barriers(plain.module()))
    for got, want in zip(program(*args, mode="step"), plain(*args, mode="step"), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
