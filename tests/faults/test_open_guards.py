"""Mutants of guards: a version that is taken for sizes that it was not made for is refused, or right all the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import tilewright as tw

Sizes = dict[str, int]


def layer(x: Any, w: Any) -> Any:
    return jax.nn.relu(x @ w)


def attention(x: Any) -> Any:
    return jax.nn.softmax(x @ x.T) @ x


PROGRAMS: dict[str, tuple[Callable[..., Any], Sequence[str], list[Sizes], list[Sizes]]] = {
    "attention": (attention, ["b, 16"], [{"b": 60}, {"b": 12}], [{"b": 5}, {"b": 20}, {"b": 65}, {"b": 100}]),
    "layer": (
        layer,
        ["b, 8*s", "8*s, 64"],
        [{"b": 3, "s": 2000}],
        [{"b": 2, "s": 2000}, {"b": 4, "s": 1999}, {"b": 4, "s": 2049}, {"b": 7, "s": 1600}, {"b": 3, "s": 1500}],
    ),
    "running sums": (lambda x: jnp.cumsum(x, 0), ["b, 24"], [{"b": 40}], [{"b": 20}, {"b": 65}, {"b": 90}]),
}
"""A function, its shapes, sizes whose ranges are compiled, and sizes that guards keep out."""


def wider(text: str) -> Iterator[str]:
    """The choice of a version with one bound of one guard moved outwards, or another part of it left out."""
    for guard in re.finditer(r'npu\.version @\w+ \{[^\n]*guard = "([^"]*)"', text):
        parts = guard[1].split(" and ")
        for i, part in enumerate(parts):
            found = re.fullmatch(r"(\w+) ([<>])= (\d+)", part)
            moved = []
            if found:
                end = int(found[3])
                moved = [f"{found[1]} {found[2]}= {2 * end if found[2] == '<' else end // 2}"]
            changed = " and ".join([*parts[:i], *moved, *parts[i + 1 :]])
            yield text[: guard.start(1)] + changed + text[guard.end(1) :]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_wider_guard_gives_no_wrong_values(name: str) -> None:
    fn, shapes, compiled, kept_out = PROGRAMS[name]
    scope = export.SymbolicScope()
    structs = [jax.ShapeDtypeStruct(export.symbolic_shape(s, scope=scope), "float32") for s in shapes]
    program: Any = tw.compile(fn, *structs)
    for sizes in compiled:
        program.at(sizes)
    outcomes: list[str] = []
    for mutant in wider(program.ir()):
        made: Any = tw.compile(mutant)
        for sizes in kept_out:
            if made.dispatch.chosen(sizes) is None:
                continue
            rng = np.random.default_rng(0)
            args = [rng.standard_normal(s).astype("f4") for s, _ in program.open_source.shapes.types(sizes)]
            try:
                got = jax.tree.leaves(made(*args))[0]
            except tw.CompileError as error:
                outcomes.append(str(error))
                continue
            np.testing.assert_allclose(got, fn(*args), rtol=1e-4, atol=1e-3, err_msg=f"{mutant} at {sizes}")
            outcomes.append("right")
    refused = [said for said in outcomes if said != "right"]
    assert len(outcomes) >= 2 and not any("\n" in said for said in refused)
    assert refused or name == "layer"  # whose tiles are right for any size
