"""The .tw examples and their JAX twins: the same graph after graph-simplify, and the same values."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from graph_equal import same
from tiering import sampled
from xdsl.context import Context

import tilewright as tw
from tilewright.frontends import lower_function
from tilewright.frontends.text.format import format_text
from tilewright.frontends.text.frontend import lower_tw
from tilewright.frontends.text.printer import print_tw
from tilewright.passes.simplify.simplify import GraphSimplifyPass

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "tw"
sys.path.insert(0, str(FOLDER))

import twins  # noqa: E402  # found on the path above

NAMES = list(twins.PROGRAMS)


def lowered(name: str):
    path = FOLDER / f"{name}.tw"
    args = twins.inputs(name)
    specs = [(a.shape, {"f": "f32", "b": "i1"}[a.dtype.kind]) for a in args]
    return lower_tw(str(path), path.read_text(), None, specs).module


def simplified(module):
    GraphSimplifyPass().apply(Context(), module)
    module.verify()
    return module


@sampled(2)
@pytest.mark.parametrize("name", NAMES)
def test_same_graph(name: str) -> None:
    theirs = lower_function(twins.PROGRAMS[name], twins.inputs(name)).module
    assert same(simplified(lowered(name)), simplified(theirs))


@pytest.mark.parametrize("name", NAMES)
def test_same_values(name: str) -> None:
    args = twins.inputs(name)
    program = tw.compile(FOLDER / f"{name}.tw", *args)
    found = jax.tree.leaves(program(*args))
    expected = jax.tree.leaves(jax.jit(twins.PROGRAMS[name])(*args))
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=2e-5, atol=2e-5)


def test_digits_are_told_apart() -> None:
    (images,) = twins.mlp_inputs()
    logits = np.asarray(tw.compile(FOLDER / "mlp.tw", images)(images))
    assert (logits.argmax(-1) == twins.mlp_labels()).mean() > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(name: str) -> None:
    module = lowered(name)
    text = print_tw(module, "again")
    assert format_text("again.tw", text) == text
    assert same(lower_tw("again.tw", text).module, module)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.tw")), ids=lambda p: p.name)
def test_canonical(path: Path) -> None:
    assert format_text(str(path), path.read_text()) == path.read_text()
