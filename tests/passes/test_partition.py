"""What the host does: numbers that steer the program, joined calls, and programs that may not call it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import data
from jax import lax
from tiering import sampled

import tilewright as tw


def counts(program: tw.Program) -> dict[str, int]:
    """How often each op of the host program stands in the npu level."""
    found: dict[str, int] = {}
    for op in program.module().walk():
        found[op.name] = found.get(op.name, 0) + 1
    return found


def switched(i: Any, x: Any) -> Any:
    return lax.switch(i + 1, [jnp.sin, jnp.cos, lambda x: x * 2], x)


def until_small(x: Any) -> Any:
    return lax.while_loop(
        lambda s: (s[0] < 50) & (jnp.abs(s[1]).max() > 0.1), lambda s: (s[0] + 1, s[1] * 0.5), (0, x)
    )


def branch_of_numbers(x: Any) -> Any:
    def body(i: Any, state: Any) -> Any:
        x, k = state
        k = lax.cond(i % 2 == 0, lambda k: k + 3, lambda k: k - 1, k)
        return lax.dynamic_update_slice(x, x[:1] + 1, (k,)), k

    return lax.fori_loop(0, 6, body, (x, 0))


def nested(x: Any, n: Any) -> Any:
    def row(i: Any, x: Any) -> Any:
        def one(j: Any, x: Any) -> Any:
            return lax.dynamic_update_slice(x, x[:1] * 0.5 + 1.0 * j, (i * 2 + j,))

        return lax.fori_loop(0, i + 1, one, x)

    return lax.fori_loop(0, n, row, x)


def with_host_ops(x: Any) -> Any:
    def body(i: Any, x: Any) -> Any:
        return jnp.linalg.cholesky(x @ x.T * (i + 1.0) + jnp.eye(x.shape[0])) + lax.dynamic_index_in_dim(x, i)

    return lax.fori_loop(0, 3, body, x)


def invariant(w: Any, b: Any, x: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.tanh(c @ jnp.exp(w) + (w @ w)[:1] + b * 2), c.sum()), x, None, length=4)


def swapped(x: Any, y: Any) -> Any:
    return lax.fori_loop(0, 5, lambda i, s: (s[1], jnp.sin(s[0])), (x, y))


PROGRAMS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "switch": (switched, [np.int32(1), data("f32", (7,))]),
    "switch out of range": (switched, [np.int32(9), data("f32", (7,))]),
    "a condition of the device": (until_small, [data("f32", (33,))]),
    "a branch of numbers": (branch_of_numbers, [data("f32", (16,))]),
    "nested": (nested, [data("f32", (23,)), np.int32(4)]),
    "no round at all": (nested, [data("f32", (23,)), np.int32(0)]),
    "host ops": (with_host_ops, [data("f32", (5, 5))]),
    "invariant": (invariant, [data("f32", (8, 8)), data("f32", (8,)), data("f32", (3, 8))]),
    "swapped": (swapped, [data("f32", (5,)), data("f32", (5,))]),
}


@sampled(5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_level_agrees(name: str) -> None:
    fn, args = PROGRAMS[name]
    result = tw.verify(fn, *args)
    assert result.ok, result


def test_counting_launches_nothing() -> None:
    """A loop that counts, tests and slices launches what it computes and nothing else."""

    def fn(x: Any) -> Any:
        return lax.fori_loop(0, 8, lambda i, s: s + lax.dynamic_index_in_dim(x, (i * 3) % 8), x[:1])

    program = tw.compile(fn, data("f32", (8, 64)))
    launches = {kernel.name: kernel.launches for kernel in program.report().kernels}
    assert {n: k for n, k in launches.items() if k >= 8 and n != "copy"} == {"slice_0": 8, "add_0": 8}
    assert program.report().host_scalars.operations >= 8 * 2
    assert not program.report().host_ops


def test_a_limit_is_read_once() -> None:
    program = tw.compile(nested, data("f32", (23,)), np.int32(4))
    (read,) = program.report().host_ops
    assert (read.name, read.calls) == ("to host", 1)


@pytest.mark.parametrize("memory", ["typed", "bytes"])
def test_scan_is_one_body(memory: Any) -> None:
    """The IR of a scan of 1000 steps is that of one of 37, up to the numbers of steps."""

    def compiled(steps: int) -> tuple[tw.Program, str]:
        def fn(w: Any, x: Any) -> Any:
            return lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, None, length=steps)[0]

        program = tw.compile(fn, *args, options=tw.Options(memory=memory))
        return program, re.sub(rf"\b{steps}\b", "STEPS", program.ir())

    args = data("f32", (8, 8)), data("f32", (4, 8))
    (long, long_text), (_, short_text) = compiled(1000), compiled(37)
    assert long_text == short_text
    want = args[1]
    for _ in range(1000):
        want = jnp.tanh(want @ args[0])
    np.testing.assert_allclose(long(*args), want, rtol=1e-3, atol=1e-3)


def test_state_is_updated_in_place() -> None:
    """No copy in a loop whose kernels make the next value once the old one is spent."""

    def fn(x: Any, w: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            h, k = c
            z = jnp.sin(h) @ w + k
            return (z, z.sum(0, keepdims=True) * jnp.ones_like(k)), None

        return lax.scan(step, (x, x * 2), None, length=9)[0]

    program = tw.compile(fn, data("f32", (4, 8)), data("f32", (8, 8)))
    copies = [kernel.launches for kernel in program.report().kernels if kernel.name == "copy"]
    assert sum(copies) < 9


def joinable(x: Any) -> Any:
    a, b = lax.real(jnp.fft.ifft(lax.complex(x, x))), lax.complex(x, x)
    return lax.real(jnp.fft.fft(b)) + 1, jnp.linalg.cholesky(a @ a.T + 4 * jnp.eye(5)), lax.imag(b)


def test_neighbouring_host_ops_are_one_call() -> None:
    x = data("f32", (5, 5))
    program = tw.compile(joinable, x)
    assert counts(program)["npu.host_call"] == 2
    for memory in ("typed", "bytes"):
        got = program.unflatten(program.executable(memory)(x))
        for a, b in zip(got, jax.jit(joinable)(x), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_forbidden_host_ops_are_listed() -> None:
    options = tw.Options(host="forbid")
    with pytest.raises(tw.CompileError) as error:
        tw.compile(joinable, data("f32", (5, 5)), options=options)
    message = str(error.value)
    assert "\n" not in message
    for op in ("stablehlo.fft", "stablehlo.custom_call"):
        assert re.search(rf"'{op}' \([^)]*test_partition\.py:\d+\)", message), message
    assert tw.compile(nested, data("f32", (23,)), np.int32(4), options=options)
