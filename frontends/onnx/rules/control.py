"""If, Loop and Scan: graphs within a node that run on a condition, or again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import bounding
from ..node import Node
from ..table import rule
from ..values import as_traced, is_known, larger, whole
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
        made = None if node.may_be_told(0) else _of_larger(node, condition.reshape(()), branches)
        if made is None:
            node.refuse(0)  # what its branches give differs in rank or type, which the condition decides
        return made


def _of_larger(node: Node, condition: Any, branches: Sequence[Any]) -> Any:
    """Results of branches that differ in their sizes, of which data decides; None where they differ otherwise."""
    import jax
    import jax.numpy as jnp

    node.open_results.clear()
    types = [jax.eval_shape(lambda graph=graph: plain(node.body(graph, []))) for graph in branches]
    pairs = list(zip(*types, strict=True)) if len(types[0]) == len(types[1]) else []
    if not pairs or any(not hasattr(a, "shape") or not hasattr(b, "shape") for a, b in pairs):
        return None
    if any(a.dtype != b.dtype or len(a.shape) != len(b.shape) for a, b in pairs):
        return None
    shapes = [[larger(m, n) for m, n in zip(a.shape, b.shape, strict=True)] for a, b in pairs]
    places = [
        (k, d)
        for k, (a, b) in enumerate(pairs)
        for d in range(len(a.shape))
        if a.shape[d] != b.shape[d] or d in node.open_results.get(k, ())
    ]

    def branch(graph: Any) -> Any:
        results = plain(node.body(graph, []))
        counts = [bounding.size_of(results[k], d).astype(jnp.int32) for k, d in places]
        for k, v in enumerate(results):
            v = bounding.whole(v, [d for j, d in places if j == k])
            results[k] = jnp.pad(v, [(0, n - m) for m, n in zip(v.shape, shapes[k], strict=True)])
        return results, counts

    results, counts = jax.lax.cond(condition, *(lambda graph=graph: branch(graph) for graph in branches))
    for (k, d), count in zip(places, counts, strict=True):
        results[k] = bounding.first(results[k], count, d)
        node.open_results.setdefault(k, set()).add(d)
    return tuple(results)


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
    along = [node.place(axes[k] if axes else 0, node.input(len(carried) + k).ndim) for k in range(count)]
    found = [k for k in range(count) if along[k] in node.found_axes(len(carried) + k)]
    number = bounding.size_of(rows[found[0]], 0) if found else None
    step = _of_body(node, len(carried), along)
    results = Iteration(node, step, carried, rows[0].shape[0], rows=rows, count=number).run()
    axes, backward = node.get("scan_output_axes"), node.get("scan_output_directions")
    collected = list(results[len(carried) :])
    for k, x in enumerate(collected):
        xp = library(x)
        x = xp.flip(x, 0) if backward and backward[k] else x
        collected[k] = xp.moveaxis(x, 0, axes[k]) if axes else x
        if number is not None:
            collected[k] = bounding.first(collected[k], number, axes[k] if axes else 0)
    return (*results[: len(carried)], *collected)


def _of_body(node: Node, count: int, along: Sequence[int] = ()) -> Step:
    """A step of `count` states. along: the dimensions of the scanned inputs that it goes along."""
    graph = node.get("body")
    states = [node.found_axes(k) for k in range(count)]
    rows = [[d - (d > a) for d in node.found_axes(count + k) if d != a] for k, a in enumerate(along)]

    def step(_: Any, carried: Sequence[Any], row: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
        results = node.body(graph, [*carried, *row], [*states, *rows])
        return TRUE, results[:count], results[count:]

    return step


def _batched_scan(node: Node) -> Any:
    """A scan for each example of a batch, over as many rows as the example has."""
    import jax
    import jax.numpy as jnp

    if any(node.found_axes(k) for k in range(len(node.inputs))):
        raise node.unsupported("data decides a size of what it goes over")
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
