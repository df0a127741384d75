"""How a program is run: `mode=` of a call, `Options(memory=...)`, and what comes of an argument of that name."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiering import xla_code

import tilewright as tw
from tilewright.api.modes import MODES
from tilewright.backends.stepper import StepProgram

X = np.linspace(-1, 1, 120, dtype=np.float32).reshape(8, 15)


def double(x: Any) -> Any:
    return {"y": x * 2 + 1}


@xla_code()
def test_modes_of_a_call() -> None:
    program = tw.compile(double, X)
    for mode in set(MODES) - {"debug"}:  # which asks for commands
        np.testing.assert_array_equal(np.asarray(program(X, mode=mode)["y"]), X * 2 + 1)
    assert isinstance(program.executable("step"), StepProgram)
    assert program.executable("step") is program.executable("step")
    with pytest.raises(tw.CompileError, match="mode must be 'typed' or 'bytes' or 'step' or 'debug', not 'steps'"):
        program(X, mode="steps")


def test_the_mode_of_the_options() -> None:
    program = tw.compile(double, X, options=tw.Options(memory="step"))
    np.testing.assert_array_equal(np.asarray(program(X)["y"]), X * 2 + 1)
    assert list(program._executables) == ["step"]


@xla_code()
def test_a_mode_is_never_chosen_for_users() -> None:
    program = tw.compile(double, X)
    program(X)
    assert list(program._executables) == ["typed"]


def test_an_argument_called_mode() -> None:
    def scaled(x: Any, mode: Any) -> Any:
        return x * mode

    program = tw.compile(scaled, X, mode=np.float32(3))
    np.testing.assert_array_equal(np.asarray(program(X, mode=np.float32(2))), X * 2)
    (got,) = program.executable("step")(*program.flatten([X], {"mode": np.float32(2)}))
    np.testing.assert_array_equal(np.asarray(got), X * 2)


def test_open_sizes() -> None:
    b = jax.export.symbolic_shape("b")[0]
    program = tw.compile(lambda x: jnp.exp(x), jax.ShapeDtypeStruct((b, 15), np.float32))
    for n in (1, 8):
        np.testing.assert_array_equal(np.asarray(program(X[:n], mode="step")), np.asarray(program(X[:n])))


def test_donated_and_packed_arguments() -> None:
    program = tw.compile(lambda x: x + 1, X, options=tw.Options(donate=0))
    np.testing.assert_array_equal(np.asarray(program(jnp.asarray(X), mode="step")), X + 1)
    w = np.ones((15, 4), np.float32)
    packed = tw.compile(lambda w, x: x @ (w * 2), w, X, options=tw.Options(weights="w"))
    np.testing.assert_allclose(
        np.asarray(packed(packed.pack(w), X, mode="step")), X @ (w * 2), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(np.asarray(packed(w, X, mode="step")), X @ (w * 2), rtol=1e-5, atol=1e-5)
