"""The simulator against a plain event simulation, to the cycle: the examples, pinned products, random programs."""

from __future__ import annotations

import jax
import pytest
from event_simulation import run
from hypothesis import given, settings
from hypothesis import strategies as st
from loading import load

import tilewright as tw
from tilewright.backends.simulator import Kernel
from tilewright.dialects.npu.structure import KernelOp

LIMIT = 150_000
"""Instructions of one core up to which it is walked one by one."""


def kernels(program: tw.Program) -> list[Kernel]:
    return [Kernel(op, program.machine) for op in program.module().ops if isinstance(op, KernelOp)]


def check(kernel: Kernel, missing: float) -> int:
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
        compared += 1
    return compared


@pytest.mark.parametrize(
    "model",
    ["gpt2:forward_f16", "resnet50:forward", "lstm:forward", "digits_cnn:forward"],
)
def test_examples(model: str) -> None:
    fn, args = load(model)
    program = tw.compile(fn, *args)
    found = kernels(program)
    compared = [check(kernel, 0.5) for kernel in found]
    assert all(compared), [k.name for k, n in zip(found, compared, strict=True) if not n]


@settings(max_examples=15)
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
    for kernel in kernels(tw.compile(function, *shapes, options=tw.Options(schedule=pins))):
        assert check(kernel, missing)
