"""Products in both memory modes where XLA has threads of its own, as users have it and workers of this suite do not."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from npu_programs import matmul, random, run

import tilewright as tw
from tilewright.backends.functions.compiling import OPTIONS, SUMMING_OPTIONS
from tilewright.backends.functions.products import mma

SHAPES = [(1, 3, 2), (1, 129, 5), (2, 129, 1), (33, 7, 1), (1, 600, 300), (70, 40, 192)]
SIDES = [2, 15, 16, 31, 48, 63, 64, 65, 128, 192]


def differing() -> list[str]:
    """The products that are not the same bits in both memory modes."""
    found = []
    for m, k, n in SHAPES:
        x, w, b = random(m, k), random(n, k), random(n)
        for name, fn, rows in (
            ("rows", lambda x, w, b: x @ w, w.T.copy()),
            ("columns", lambda x, w, b: jnp.tanh(x) @ w.T, w),
            ("bias", lambda x, w, b: jax.nn.relu(x @ w.T + b), w),
        ):
            program = tw.compile(fn, x, rows, b)
            typed, in_bytes = (np.asarray(program.executable(mode)(x, rows, b)[0]) for mode in ("typed", "bytes"))
            found += [] if np.array_equal(typed, in_bytes) else [f"{name} of {m} x {k} x {n}"]
    x, w = random(33, 7), random(7, 1)
    (typed,), (in_bytes,) = (run(matmul(33, 1, 7), x, w, memory=mode) for mode in ("typed", "bytes"))
    return found + ([] if np.array_equal(typed, in_bytes) else ["tiles wider than the tensor"])


def transposed(every: int) -> list[str]:
    """The products whose bits change where an operand is the transpose of another array. every: of pairs of sides one
    in so many, in which each side is on the left and on the right."""

    def both(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return a.T.copy(), b.T.copy()

    ways = {
        "as it is": (lambda a, b, acc: mma(a, b, acc, 1), lambda a, b: (a, b)),
        "left side transposed": (lambda a, b, acc: mma(a.T, b, acc, 1), lambda a, b: (a.T.copy(), b)),
        "right side transposed": (lambda a, b, acc: mma(a, b.T, acc, 1), lambda a, b: (a, b.T.copy())),
        "right side taken transposed": (lambda a, b, acc: mma(a, b.T, acc, 1, True), lambda a, b: (a, b.T.copy())),
        "both sides transposed": (lambda a, b, acc: mma(a.T, b.T, acc, 1), both),
        "both sides taken transposed": (lambda a, b, acc: mma(a.T, b.T, acc, 1, True), both),
    }
    found = []
    for (i, m), (j, n) in itertools.product(enumerate(SIDES), enumerate(SIDES)):
        if (i + j) % every:
            continue
        a, b, acc = random(m, 33), random(33, n), random(m, n)
        straight = jax.jit(ways["as it is"][0]).lower(a, b, acc).compile(OPTIONS)(a, b, acc)
        for name, (function, given) in ways.items():
            operands = (*given(a, b), acc)
            got = jax.jit(function).lower(*operands).compile(SUMMING_OPTIONS)(*operands)
            found += [] if np.array_equal(got, straight) else [f"{m} x 33 x {n}, {name}"]
    return found


def test_xla_is_given_a_transposed_right_side_as_it_is() -> None:
    a, b, acc = random(64, 32), random(128, 32), random(64, 128)
    made = jax.jit(lambda a, b, acc: mma(a, b.T, acc, 1, True)).lower(a, b, acc).compile(SUMMING_OPTIONS)
    assert " transpose(" not in made.as_text()


def test_both_modes_add_up_alike() -> None:
    from tiering import ALL  # the script below runs without it

    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    here = Path(__file__)
    made = subprocess.run(
        [sys.executable, str(here), "1" if ALL else "6"],
        capture_output=True,
        text=True,
        env=env,
        cwd=here.parent,
        check=False,
    )
    assert (made.returncode, made.stdout) == (0, ""), made.stdout + made.stderr


if __name__ == "__main__":
    print("\n".join([*differing(), *transposed(int(sys.argv[1]))]), end="")
