"""What loops of the host program carry: tensors that change places, and memory that stays where it is."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from tiering import examples

import tilewright as tw

ROUNDS = 3


@examples(12)
@given(
    source=st.integers(1, 5).flatmap(lambda n: st.lists(st.integers(0, n - 1), min_size=n, max_size=n)),
    changed=st.integers(0, 4),
    size=st.sampled_from([1, 7, 64]),
)
def test_tensors_change_places(source: list[int], changed: int, size: int) -> None:
    """Tensor i becomes what tensor `source[i]` was, as they are or plus 1: circles, chains, copies."""
    start = [np.arange(size, dtype=np.float32) + 100 * i for i in range(len(source))]

    def run(*state: jax.Array) -> list[jax.Array]:
        def body(_: jax.Array, state: list[jax.Array]) -> list[jax.Array]:
            return [state[j] + 1 if i == changed else state[j] for i, j in enumerate(source)]

        return lax.fori_loop(0, ROUNDS, body, list(state))

    program = tw.compile(run, *start)
    want = run(*map(jnp.asarray, start))
    for memory in ("typed", "bytes"):
        got = program.executable(memory)(*program.flatten(start))
        for x, y in zip(got, want, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("swapped", [False, True])
def test_loops_copy_no_memory(swapped: bool) -> None:
    """In bytes memory a loop reads and writes one array, which XLA copies where a write comes before a read."""

    def run(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        def body(_: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            a, b = state
            a, b = jnp.tanh(a + b), a * b
            return (b, a) if swapped else (a, b)

        return lax.fori_loop(0, ROUNDS, body, (a, b))

    a, b = (np.full((8, 256), x, np.float32) for x in (0.25, 0.5))
    program = tw.compile(run, a, b)
    executable = program.executable("bytes")
    for x, y in zip(executable(*program.flatten((a, b))), jax.jit(run)(a, b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)
    text = "\n".join(
        module.to_string()
        for compiled in executable.compiled.values()
        for one in compiled
        for module in one.code.runtime_executable().hlo_modules()
    )
    words = max(int(n) for n in re.findall(r"u32\[(\d+)\]", text))
    assert f" = u32[{words}]{{0}} copy(" not in text
