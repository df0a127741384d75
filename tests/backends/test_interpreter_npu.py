"""Kernels of the npu level in both memory modes."""

import jax
import numpy as np
import pytest
from memories import outputs
from npu_programs import SOFTMAX, matmul, random, run
from tiering import MEMORIES
from xdsl.utils.exceptions import VerifyException

import tilewright as tw


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (100, 70, 45), (33, 1, 7)])
def test_matmul(m: int, n: int, k: int) -> None:
    x, w = random(m, k), random(k, n)
    (typed,), (addressed,) = run(matmul(m, n, k), x, w), run(matmul(m, n, k), x, w, memory="bytes")
    np.testing.assert_allclose(typed, x @ w, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(typed, addressed)


def test_vector_kernel() -> None:
    x, text = random(50, 37), SOFTMAX.replace("OVERLAP", "1536")
    (typed,), (addressed,) = run(text, x), run(text, x, memory="bytes")
    np.testing.assert_allclose(typed, np.asarray(jax.nn.softmax(x, axis=-1)), atol=1e-3)
    np.testing.assert_array_equal(typed, addressed)


def test_what_is_reduced_is_read_before_it_is_written_over() -> None:
    """XLA wrote exponentials over what the maxima of later elements were still to be found in."""
    x = np.round(64 * random(16, 8)) / 64

    def attention(x: jax.Array) -> jax.Array:
        return jax.nn.softmax(x @ x.T * 0.2) @ x

    program = tw.compile(attention, x)
    (got,) = outputs(program, [x], MEMORIES)
    np.testing.assert_allclose(got, attention(x), rtol=1e-5, atol=1e-6)


def test_an_overlap_changes_numbers_in_bytes_mode_only() -> None:
    x = random(50, 37)
    right, wrong = (SOFTMAX.replace("OVERLAP", at) for at in ("1536", "1312"))
    np.testing.assert_array_equal(run(right, x)[0], run(wrong, x)[0])
    assert not np.array_equal(run(right, x, memory="bytes")[0], run(wrong, x, memory="bytes")[0])


def test_a_buffer_beyond_its_space_is_refused() -> None:
    with pytest.raises(VerifyException, match="ends at byte 69632 of l0a, which has 65536"):
        run(matmul(64, 64, 32, l0a_address=65536), random(64, 32), random(32, 64), memory="bytes")


@pytest.mark.parametrize("memory", ["typed", "bytes"])
def test_what_is_summed_up_by_one_loop_in_another(memory: str) -> None:
    """The inner loop of a nest carries what the outer one does: its trips are no batch."""
    x = random(6, 40).reshape(6, 1, 40) + np.zeros((1, 5, 1), np.float32)
    pins = tw.Options(schedule=tw.Schedule(tile=(4, 2, 16)))
    program = tw.compile(lambda x: x.sum((0, 2)), x, options=pins)
    got = program.executable(memory)(*program.flatten((x,)))[0]
    np.testing.assert_allclose(np.asarray(got), x.sum((0, 2)), rtol=1e-4, atol=1e-4)
