"""Nothing of a program stays in the process when it is gone: who compiles all day needs no more memory each time."""

from __future__ import annotations

import gc
import weakref

import jax
import numpy as np

import tilewright as tw
from tilewright.passes.npu.check.model import CheckedKernel


def attend(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.nn.softmax(jax.numpy.tanh(x @ w), -1) @ w


def test_a_program_is_gone_when_it_is_dropped() -> None:
    """Its modules, and what npu-check and the simulator knew of them."""
    x = np.ones((48, 48), np.float32)
    before = {id(found) for found in _checked()}
    program = tw.compile(attend, x, x)
    program(x, x)
    module = program.module()
    kept = [weakref.ref(module), weakref.ref(program.report()), weakref.ref(program)]
    del program, module
    gc.collect()
    assert [ref() for ref in kept] == [None, None, None]
    assert {id(found) for found in _checked()} <= before


def _checked() -> list[CheckedKernel]:
    return [found for found in gc.get_objects() if isinstance(found, CheckedKernel)]
