"""rng_bit_generator and bitcasts between types of different widths, bit for bit as XLA has them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from harness import JAX_DTYPE, check, data, host_ops, shapes
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from tiering import examples

import tilewright as tw
from tilewright.backends.functions.host import run_text


def generator(algorithm: str, words: int, shape: tuple[int, ...], dtype: str) -> str:
    state, out = f"tensor<{words}xui64>", f"tensor<{'x'.join([*map(str, shape), dtype])}>"
    return f"""func.func @main(%s: {state}) -> ({state}, {out}) {{
      %0, %1 = stablehlo.rng_bit_generator %s, algorithm = {algorithm} : ({state}) -> ({state}, {out})
      return %0, %1 : {state}, {out}
    }}"""


@examples(5)
@given(
    kind=st.sampled_from([("THREE_FRY", 2), ("PHILOX", 2), ("PHILOX", 3), ("DEFAULT", 2), ("DEFAULT", 3)]),
    shape=shapes(0, 3, empty=True, largest=600),
    dtype=st.sampled_from(["ui8", "ui16", "ui32", "ui64"]),
    state=st.lists(st.integers(0, 2**64 - 1), min_size=3, max_size=3),
    memories=st.sampled_from([("typed",), ("typed",), ("typed",), ("typed", "bytes")]),
)
def test_bits_and_state(
    kind: tuple[str, int], shape: tuple[int, ...], dtype: str, state: list[int], memories
) -> None:
    """Odd and even dimensions, counters that carry over, and what comes after a draw."""
    algorithm, words = kind
    text = generator(algorithm, words, shape, dtype)
    program, start = tw.compile(text), np.array(state[:words], np.uint64)
    assert not host_ops(program)
    want = [np.asarray(x) for x in run_text(text, [start])]
    for memory in memories:
        for got, expected in zip(program.executable(memory)(start), want, strict=True):
            np.testing.assert_array_equal(np.asarray(got), expected)


def test_the_counter_carries() -> None:
    """A low half just below its end moves on to the high one."""
    for algorithm in ("THREE_FRY", "PHILOX"):
        text = generator(algorithm, 2 if algorithm == "THREE_FRY" else 3, (5, 3), "ui32")
        start = np.array([7, 2**64 - 2, 9], np.uint64)[: 2 if algorithm == "THREE_FRY" else 3]
        want = [np.asarray(x) for x in run_text(text, [start])]
        for got, expected in zip(tw.compile(text)(start), want, strict=True):
            np.testing.assert_array_equal(np.asarray(got), expected)


def test_keys_of_jax() -> None:
    """Keys of XLA's own generator: 32-bit words in, 64-bit ones inside."""

    def draw(data: jax.Array) -> jax.Array:
        return jax.random.uniform(jax.random.wrap_key_data(data, impl="rbg"), (5, 7))

    check(draw, jax.random.key_data(jax.random.key(3, impl="rbg")))


@examples(8)
@given(
    draw=st.data(),
    source=st.sampled_from(["f32", "f16", "bf16", "i8", "i16", "ui32", "ui8"]),
    target=st.sampled_from(["f32", "f16", "bf16", "i8", "i16", "ui32", "ui8"]),
    shape=shapes(0, 2, largest=600),
)
def test_bitcasts(draw: st.DataObject, source: str, target: str, shape: tuple[int, ...]) -> None:
    """Elements that split, join or keep their width; as bits, since they may be NaN."""
    widths = [jnp.dtype(JAX_DTYPE[d]).itemsize for d in (source, target)]
    if widths[0] < widths[1]:
        shape = (*shape, widths[1] // widths[0])

    def cast(x: jax.Array) -> jax.Array:
        y = lax.bitcast_convert_type(x, JAX_DTYPE[target])
        return lax.bitcast_convert_type(y, f"uint{8 * widths[1]}")

    check(cast, data(source, shape))
