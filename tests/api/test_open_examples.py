"""The examples with open batch and length: one program, equal to JAX at each size, by versions for ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest
from jax import export
from loading import load
from tiering import sampled

import tilewright as tw
from tilewright.passes.templates import NoTemplate

Shapes = Mapping[int, str]

EXAMPLES: dict[str, tuple[Shapes, tuple[str, ...]]] = {
    "bert:tiny": (dict.fromkeys((1, 2, 3), "b, s"), ("s <= 16",)),  # as many positions as it has
    "char_lm:forward": ({1: "b, s"}, ("s <= 64",)),
    "flash_attention:tiny": (dict.fromkeys((0, 1, 2), "b, 8*s, 8"), ()),  # it takes blocks of 8
    "gpt2:tiny": ({1: "s"}, ("s <= 32",)),
    "gru:tiny": ({1: "s, b, 7"}, ()),
    "lstm:forward": ({1: "s, b, 128"}, ()),
    "mobilenet_v2:tiny": ({1: "b, 32, 32, 3"}, ()),
    "moe:tiny": ({1: "b, 16"}, ()),
    "resnet50:tiny": ({1: "b, 32, 32, 3"}, ()),
    "unet:tiny": ({1: "b, 16, 16, 3"}, ()),
    "vit:tiny": ({1: "b, 16, 16, 3"}, ()),
}
"""The shapes of arguments with open sizes, and what holds of these."""

SIZES = [{"b": 3, "s": 4}, {"b": 1, "s": 7}, {"b": 4, "s": 5}]


def drawn(like: Any, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Random numbers of a type and a shape; integers are numbers of tokens."""
    kind = np.dtype(like.dtype).kind
    if kind == "i":
        return rng.integers(0, 40, shape).astype(like.dtype)
    return (rng.random(shape) < 0.8 if kind == "b" else rng.normal(size=shape)).astype(like.dtype)


@sampled(12)
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_open_sizes(name: str) -> None:
    shapes, constraints = EXAMPLES[name]
    fn, given = load(name)
    scope = export.SymbolicScope(constraints)
    symbolic = {i: export.symbolic_shape(text, scope=scope) for i, text in shapes.items()}
    types = [
        jax.ShapeDtypeStruct(symbolic[i], a.dtype)
        if i in shapes
        else jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), a)
        for i, a in enumerate(given)
    ]
    program = tw.compile(fn, *types)
    assert isinstance(program, tw.DynamicProgram)
    rng = np.random.default_rng(0)
    for sizes in SIZES:
        known = program.arguments({n: sizes[n] for n in program.symbols})[0]
        args = [drawn(a, known[i].shape, rng) if i in shapes else a for i, a in enumerate(given)]
        pairs = zip(jax.tree.leaves(program(*args)), jax.tree.leaves(jax.jit(fn)(*args)), strict=True)
        for got, want in pairs:
            largest = max(1.0, float(np.abs(np.asarray(want, np.float64)).max()))
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * largest)
    assert not [str(v) for v in program.ranges.values() if isinstance(v, NoTemplate)]
