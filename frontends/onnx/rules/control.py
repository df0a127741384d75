"""If, Loop and Scan: graphs within a node that run on a condition, or again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..node import Node
from ..table import rule
from ..values import as_traced, is_known, whole
from .iteration import TRUE, Changed, Iteration, Step, library, plain, truth, types_of

FAR = 1 << 31
"""A trip count from which on it stands for none: exporters write the largest number."""


# -- If ----------------------------------------------------------------------------------------------------


@rule("If", folds=True)
def _if(node: Node, condition: Any) -> Any:
    import jax

    branches = [node.get("then_branch"), node.get("else_branch")]
    given = node.inputs[0]
    if is_known(given):
        return tuple(node.body(branches[0 if truth(given) else 1], []))
    if node.from_sizes(0):
        node.refuse(0)  # the branch that is not taken may fit no size that the other is for
    types: dict[int, Any] = {}

    def branch(i: int) -> list[Any]:
        results = plain(node.body(branches[i], []))
        types[i] = types_of(results)
        if types.get(1 - i, types[i]) != types[i]:
            raise Changed
        return results

    try:
        return tuple(jax.lax.cond(condition.reshape(()), lambda: branch(0), lambda: branch(1)))
    except Changed:
        node.refuse(0)  # what its branches give differs in shape, which the condition decides
        raise


# -- Loop and Scan -----------------------------------------------------------------------------------------


@rule("Loop", folds=True)
def _loop(node: Node, *_: Any) -> Any:
    graph = node.get("body")
    trips, condition, carried = node.input(0), node.input(1), list(node.inputs[2:])
    count = len(carried)

    def step(i: Any, values: Sequence[Any], _: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
        go, *results = node.body(graph, [i, TRUE, *values])
        return (TRUE if condition is None else go), results[:count], results[count:]

    most = None if trips is None else _number(trips)
    if isinstance(most, int) and most >= FAR:
        most = None
    if most is None and condition is None:
        raise node.unsupported("it has neither a trip count nor a condition that ends it")
    return Iteration(node, step, carried, most, TRUE if condition is None else condition).run()


@rule("Scan", folds=True)
def _scan(node: Node, *_: Any) -> Any:
    if node.version < 9:
        return _batched_scan(node)
    count = node.get("num_scan_inputs")
    carried, rows = list(node.inputs[:-count]), list(node.inputs[-count:])
    axes, backward = node.get("scan_input_axes"), node.get("scan_input_directions")
    for k, x in enumerate(rows):
        xp = library(x)
        x = xp.moveaxis(x, axes[k], 0) if axes else x
        rows[k] = xp.flip(x, 0) if backward and backward[k] else x
    results = Iteration(node, _of_body(node, len(carried)), carried, rows[0].shape[0], rows=rows).run()
    axes, backward = node.get("scan_output_axes"), node.get("scan_output_directions")
    collected = list(results[len(carried) :])
    for k, x in enumerate(collected):
        xp = library(x)
        x = xp.flip(x, 0) if backward and backward[k] else x
        collected[k] = xp.moveaxis(x, 0, axes[k]) if axes else x
    return (*results[: len(carried)], *collected)


def _of_body(node: Node, count: int) -> Step:
    graph = node.get("body")

    def step(_: Any, carried: Sequence[Any], row: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
        results = node.body(graph, [*carried, *row])
        return TRUE, results[:count], results[count:]

    return step


def _batched_scan(node: Node) -> Any:
    """A scan for each example of a batch, over as many rows as the example has."""
    import jax
    import jax.numpy as jnp

    count = node.get("num_scan_inputs")
    lengths, *given = map(as_traced, node.inputs)
    carried, rows = given[:-count], given[-count:]
    backward = node.get("directions", [0] * count)
    own, size = _of_body(node, len(carried)), rows[0].shape[1]

    def example(length: Any, carried: list[Any], rows: list[Any]) -> Any:
        places = jnp.arange(size)
        last = size if length is None else length
        behind = jnp.clip(last - 1 - places, 0)
        rows = [jnp.take(r, behind, axis=0) if b else r for r, b in zip(rows, backward, strict=True)]

        def step(i: Any, carried: Sequence[Any], row: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
            go, after, collected = own(i, carried, row)
            if length is None:
                return go, after, collected
            after = [jnp.where(i < length, a, b) for a, b in zip(after, carried, strict=True)]
            return go, after, [jnp.where(i < length, c, jnp.zeros_like(c)) for c in map(as_traced, collected)]

        return Iteration(node, step, carried, size, rows=rows).scanned(size)

    try:
        return tuple(jax.vmap(example)(lengths, carried, rows))
    except Changed:
        raise node.unsupported("its states change shape or type") from None


def _number(value: Any) -> Any:
    """A known number or symbolic size, or else a scalar of JAX."""
    if is_known(value):
        return whole(np.asarray(value).reshape(-1)[0])
    import jax.numpy as jnp

    return value.reshape(()).astype(jnp.int64)
