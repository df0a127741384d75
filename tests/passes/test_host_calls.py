"""npu-check reads what host calls run: the sentence is there before the program runs."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.dialects import make_context
from tilewright.dialects.text import parse_module
from tilewright.machine import Machine
from tilewright.passes.npu.check import check

X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


def transformed(x: jax.Array) -> jax.Array:
    return jnp.fft.fft(x).real + 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", ""),
        ("fft %arg0,", "fft %arg7,", "is no StableHLO with a @main: .*undeclared SSA value"),
        ('module = "module {', 'module = "modul {', "is no StableHLO with a @main: .*custom op 'modul'"),
        ("public @main", "public @other", "is no StableHLO with a @main"),
        (
            "tensor<8x8xcomplex<f32>>",
            "tensor<4x8xcomplex<f32>>",
            r"takes complex<f32>\[4,8\], where the call has complex<f32>\[8,8\]",
        ),
    ],
)
def test_a_host_call_runs_a_module_of_its_own_types(old: str, new: str, said: str) -> None:
    text = str(tw.compile(transformed, X).module("npu"))
    start = text.index('module = "')
    end = text.index('", op =', start)
    body = text[start:end].replace(old, new) if old else text[start:end]
    module = parse_module(make_context(), text[:start] + body + text[end:], "program.mlir")
    found = check(module, Machine.load("ascend-910b1"))
    assert [f.kind for f in found] == (["bad-call"] if said else [])
    assert all(re.search(said, str(f)) for f in found)
