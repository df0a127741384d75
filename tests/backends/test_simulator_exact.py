"""The simulator against a plain event simulation, to the cycle: the examples, pinned products, random programs."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from event_simulation import run
from hypothesis import given, reject
from hypothesis import strategies as st
from loading import load
from tiering import examples, sampled

import tilewright as tw
from tilewright.backends.simulator import TimedKernel
from tilewright.backends.simulator.core import BarrierWait
from tilewright.dialects.npu.structure import KernelOp

LIMIT = 150_000
"""Instructions of one core up to which it is walked one by one."""


def kernels(program: tw.Program) -> list[TimedKernel]:
    return [TimedKernel(op, program.machine) for op in program.module().ops if isinstance(op, KernelOp)]


def check(kernel: TimedKernel, missing: float) -> int:
    """Compares every kind of grid point of a kernel; how many were compared."""
    shares = tuple(missing for _ in range(kernel.operands))
    prices = kernel._prices(shares)
    compared = 0
    for alike in kernel._classes.values():
        environments = kernel._environments(alike.point)
        if sum(kernel.sections[i].issued(env)[0] for i, env in environments) > LIMIT:
            continue
        ends = [core.end for core in kernel._block(alike.point, prices)]
        assert ends == run(kernel, alike.point, prices), kernel.name
        held = BarrierWait(max(ends) // 3 + 100, frozenset([kernel.operands // 3]))
        late = [core.end for core in kernel._block(alike.point, prices, held=held)]
        assert late == run(kernel, alike.point, prices, held), kernel.name
        assert all(b <= a + held.cycles for a, b in zip(ends, late, strict=True)), kernel.name
        begins = tuple((section.core, 70 * i) for i, section in enumerate(kernel.sections))
        held = held._replace(begins=begins)
        late = [core.end for core in kernel._block(alike.point, prices, held=held)]
        assert late == run(kernel, alike.point, prices, held), kernel.name
        compared += 1
    return compared


@sampled(7)
@pytest.mark.parametrize(
    "model",
    [
        "gpt2:forward_f16",
        "resnet50:forward",
        "lstm:forward",
        "digits_cnn:forward",
        "bert:tiny",
        "flash_attention:tiny_gradient",
        "generate:tiny_beam",
        "gru:tiny",
        "llama:tiny_decode",
        "llama:tiny_prefill",
        "mobilenet_v2:tiny",
        "moe:tiny",
        "nms:tiny",
    ],
)
def test_examples(model: str) -> None:
    fn, args = load(model)
    program = tw.compile(fn, *args)
    found = kernels(program)
    compared = [check(kernel, 0.5) for kernel in found]
    assert found
    assert all(compared), [k.name for k, n in zip(found, compared, strict=True) if not n]


@examples(15)
@given(
    st.tuples(*[st.integers(1, 700)] * 3),
    st.builds(
        tw.Schedule,
        base_m=st.sampled_from([16, 32, 64]),
        base_n=st.sampled_from([16, 32, 64]),
        base_k=st.sampled_from([16, 32]),
        step_k_a=st.sampled_from([1, 2, 4]),
        step_k_b=st.sampled_from([1, 2, 4]),
        l1=st.integers(1, 2),
        l0a=st.integers(1, 2),
        l0c=st.integers(1, 2),
        deal=st.none() | st.just(1),
    ),
    st.booleans(),
    st.sampled_from([0.0, 0.4, 1.0]),
)
def test_pinned_products(
    extents: tuple[int, int, int], pins: tw.Schedule, epilogue: bool, missing: float
) -> None:
    m, n, k = extents

    def function(a: jax.Array, b: jax.Array) -> jax.Array:
        return jax.nn.relu(a @ b) * 2 if epilogue else a @ b

    shapes = [jax.ShapeDtypeStruct(s, "float16") for s in ((m, k), (k, n))]
    try:
        program = tw.compile(function, *shapes, options=tw.Options(schedule=pins))
    except tw.CompileError as refused:
        if "cannot obey" not in str(refused):
            raise
        reject()
    assert all(check(kernel, missing) for kernel in kernels(program))


def _called(x: jax.Array) -> jax.Array:
    """Functions that call others, a loop and a branch: kernels of their own in functions of their own."""
    inner = jax.jit(lambda y: jnp.tanh(y) + jnp.sum(y, axis=-1, keepdims=True))
    outer = jax.jit(lambda y: inner(inner(y)) * 0.5)
    y = jax.lax.fori_loop(0, 3, lambda _, y: outer(y), x)
    return jax.lax.cond(jnp.sum(y) > 0, outer, inner, y)


STEPS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "sort": lambda x: jnp.sort(x, axis=-1),
    "sort of rows": lambda x: jnp.sort(x, axis=0),
    "argsort": lambda x: jnp.argsort(x, axis=-1).astype(x.dtype) + x,
    "top_k": lambda x: jax.lax.top_k(x, min(5, x.shape[-1]))[0],
    "scatter": lambda x: x.at[jnp.arange(x.shape[0])[::2]].add(1),
    "scatter of elements": lambda x: x.at[jnp.arange(x.shape[0]), jnp.arange(x.shape[0]) % x.shape[1]].max(
        0.5
    ),
    "gather": lambda x: x[(jnp.arange(x.shape[0]) * 7) % x.shape[0]],
    "cumsum": lambda x: jnp.cumsum(x, axis=-1),
    "cumulative maximum": lambda x: jax.lax.cummax(x, axis=0),
    "call": _called,
    "softmax": lambda x: jax.nn.softmax(x, axis=-1),
    "product": lambda x: x @ x.T,
    "transpose": lambda x: jnp.exp(x.T),
    "window": lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (3, 3), (1, 1), "SAME"),
}
"""One step of a random program; matrices in, matrices out."""


@examples(25)
@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=3),
    st.tuples(st.integers(1, 700), st.integers(1, 200)),
    st.sampled_from(["float32", "float16"]),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_random_programs(names: list[str], shape: tuple[int, int], dtype: str, missing: float) -> None:
    def function(x: jax.Array) -> jax.Array:
        for name in names:
            x = STEPS[name](x)
        return x

    for kernel in kernels(tw.compile(function, jax.ShapeDtypeStruct(shape, dtype))):
        check(kernel, missing)


@pytest.mark.parametrize("name", STEPS)
def test_each_step(name: str) -> None:
    """Every class of instruction, with loops long enough to be taken in one step."""
    program = tw.compile(STEPS[name], jax.ShapeDtypeStruct((613, 127), "float32"))
    assert sum(check(kernel, 0.3) for kernel in kernels(program))


@pytest.mark.parametrize("parts", [1, 2])
def test_products_back_to_back(parts: int) -> None:
    """Drains into l1 and out of the core, each beside the products of its sums."""
    shapes = [jax.ShapeDtypeStruct(s, "float16") for s in ((613, 64), (64, 1024), (1024, 48))]
    pins = tw.Schedule(rows=64, keys=32 * parts, scored=32, cores=5)
    found = tw.compile(lambda x, a, b: jax.nn.relu(x @ a) @ b, *shapes, options=tw.Options(schedule=pins))
    (kernel,) = kernels(found)
    assert check(kernel, 0.3)
