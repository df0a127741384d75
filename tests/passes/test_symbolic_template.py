"""A module with numbers put in by its symbolic template is the one that `Instantiation` makes op by op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tilewright.api.sizes.templates import Version
from tilewright.dialects.text import verify
from tilewright.passes.instantiation import Instantiation
from tilewright.passes.symbolic_template import SymbolicTemplate
from tilewright.passes.templates import Template


def looped(x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, c: jnp.tanh(c @ c.T @ c), x)


def normed(x: Any) -> Any:
    return jax.nn.softmax(x - x.mean(0)) * jnp.float32(3)


MODELS: dict[str, Callable[[Any], Any]] = {"loop": looped, "norm": normed}


def template_of(name: str) -> Template:
    program = tw.compile(MODELS[name], jax.ShapeDtypeStruct(export.symbolic_shape("b, 24"), "float32"))
    assert isinstance(program, tw.DynamicProgram)
    program.at(b=32)
    (version,) = program.ranges.values()
    assert isinstance(version, Version)
    return version.template


def text(module: ModuleOp) -> str:
    """Its text with the places of ops in the source."""
    return "\n".join([str(module), *(str(op.location) for op in module.walk())])


@pytest.mark.parametrize("name", MODELS)
def test_a_symbolic_template_makes_the_same_module(name: str) -> None:
    template = template_of(name)
    before = text(template.module)
    symbolic = SymbolicTemplate(template.module, template.example)
    for b in (32, 17, 25):
        made = symbolic.at({"b": b})
        verify(made)
        assert text(made) == text(Instantiation({"b": b}).of(template.module))
        uses = [[(u.operation.name, u.index) for u in r.uses] for op in made.walk() for r in op.results]
        other = Instantiation({"b": b}).of(template.module)
        assert uses == [[(u.operation.name, u.index) for u in r.uses] for op in other.walk() for r in op.results]
    assert text(template.module) == before


def test_copies_are_apart_from_each_other_and_share_what_is_closed() -> None:
    template = template_of("norm")
    one, other = template.instance({"b": 20}), template.instance({"b": 20})
    again = {id(op) for op in one.walk()}
    assert not [op for op in other.walk() if id(op) in again]
    first, second = (next(op for op in m.walk() if op.name == "npu.alloc") for m in (one, other))
    first.properties["address"] = template.module.attributes["tilewright.target"]
    assert second.properties["address"] != first.properties["address"]
    original = next(op for op in template.module.walk() if op.name == "npu.alloc")
    assert original.properties["address"] == second.properties["address"]


def test_what_is_closed_is_known() -> None:
    program = tw.compile(
        lambda x, y: (jnp.tanh(x), jax.nn.softmax(y)),
        jax.ShapeDtypeStruct(export.symbolic_shape("b, 24"), "float32"),
        jax.ShapeDtypeStruct((16, 40), "float32"),
    )
    assert isinstance(program, tw.DynamicProgram)
    program.at(b=32)
    (version,) = program.ranges.values()
    assert isinstance(version, Version)
    symbolic = SymbolicTemplate(version.template.module, version.template.example)
    kernels = [op for op in version.template.module.ops if op.name == "npu.kernel"]
    assert len(kernels) == 2 and [op in symbolic.closed for op in kernels] == ["?" not in str(op) for op in kernels]
    assert sum(op in symbolic.closed for op in kernels) == 1
