"""Ensembles of decision trees as tables of nodes, which all trees of all examples go down at once by gathers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..node import Node
from ..table import rule
from ..values import is_float
from .ml import ML, as_floats, labelled, labels_of, transformed

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
"""Comparisons of nodes, by the numbers that the op TreeEnsemble has for them."""

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")

SHALLOW = 4
"""Levels that are gone down one by one: they cost less so than a loop does."""


@dataclass(frozen=True)
class Trees:
    """An ensemble. Nodes and leaves have numbers; a leaf leads to itself.

    children: where each node leads to if its comparison holds, and if not. modes: numbers of `MODES`; -1 for leaves.
    missing: which lead NaN to their first child. members: what nodes of the mode BRANCH_MEMBER compare with. votes: the
    node, the target and the weight of each vote.
    """

    features: np.ndarray
    splits: np.ndarray
    modes: np.ndarray
    children: np.ndarray
    missing: np.ndarray
    members: np.ndarray
    roots: np.ndarray
    votes: tuple[np.ndarray, np.ndarray, np.ndarray]

    def depth(self) -> int:
        """Comparisons to the deepest leaf."""
        level, depth = set(self.roots.tolist()), 0
        while True:
            inner = [i for i in level if self.modes[i] >= 0]
            if not inner:
                return depth
            if depth > len(self.modes):
                raise ValueError("its trees have a cycle")
            level, depth = set(self.children[inner].reshape(-1).tolist()), depth + 1

    def leaves(self, x: Any) -> Any:
        """For each example and tree the number of the leaf."""
        import jax
        import jax.numpy as jnp

        features, splits = jnp.asarray(self.features), jnp.asarray(self.splits.astype(x.dtype))
        children, missing = jnp.asarray(self.children.reshape(-1)), jnp.asarray(self.missing)
        used = sorted({int(m) for m in self.modes if m >= 0})
        asks_missing = bool(self.missing.any()) or MODES.index("BRANCH_NEQ") in used

        def down(_: Any, at: Any) -> Any:
            value = jnp.take_along_axis(x, features[at], axis=1)
            holds = self._holds(used, at, value, splits[at])
            if asks_missing:
                holds = jnp.where(jnp.isnan(value), missing[at], holds)
            return children[at * 2 + jnp.where(holds, 0, 1).astype(at.dtype)]

        at = jnp.broadcast_to(jnp.asarray(self.roots), (x.shape[0], len(self.roots)))
        depth = self.depth()
        if depth > SHALLOW:
            return jax.lax.fori_loop(0, depth, down, at)
        for k in range(depth):
            at = down(k, at)
        return at

    def _holds(self, used: Sequence[int], at: Any, value: Any, split: Any) -> Any:
        """Whether the comparisons of nodes hold."""
        import jax.numpy as jnp

        def one(mode: int) -> Any:
            if mode == len(MODES) - 1:
                members = jnp.asarray(self.members.astype(value.dtype))
                return (value[..., None] == members[at]).any(axis=-1)
            compare = (jnp.less_equal, jnp.less, jnp.greater_equal, jnp.greater, jnp.equal, jnp.not_equal)
            return compare[mode](value, split)

        if len(used) == 1:
            return one(used[0])
        modes, holds = jnp.asarray(self.modes)[at], jnp.zeros(value.shape, bool)
        for mode in used:
            holds = jnp.where(modes == mode, one(mode), holds)
        return holds

    def scores(self, x: Any, targets: int, how: str) -> Any:
        """What the leaves of an example vote for each target, in f64 for examples of that and in f32 for all others."""
        import jax.numpy as jnp

        limits = jnp.finfo(x.dtype if is_float(x) else np.float32)
        x = as_floats(x[None] if x.ndim == 1 else x)
        at, target, weight = self.votes
        first, join = {"MIN": (limits.max, np.minimum), "MAX": (limits.min, np.maximum)}.get(how, (0, np.add))
        table = np.full((len(self.modes), targets), first, x.dtype)
        join.at(table, (at, target), weight.astype(x.dtype))
        found = jnp.asarray(table)[self.leaves(x)]
        if how in ("MIN", "MAX"):
            return found.min(axis=1) if how == "MIN" else found.max(axis=1)
        total = found.sum(axis=1)
        return total / len(self.roots) if how == "AVERAGE" else total


def old_trees(node: Node, kind: str) -> Trees:
    """The ensemble of a TreeEnsembleRegressor or TreeEnsembleClassifier, whose nodes have numbers within their trees.
    kind: what the attributes of its votes begin with."""
    get = node.attributes
    names = list(zip(get["nodes_treeids"], get["nodes_nodeids"], strict=True))
    number: Mapping[tuple[int, int], int] = {name: i for i, name in enumerate(names)}
    modes = np.array([-1 if m == "LEAF" else MODES.index(m) for m in get["nodes_modes"]], np.int32)
    inner = zip(get["nodes_truenodeids"], get["nodes_falsenodeids"], strict=True)
    children = [
        [i, i] if modes[i] < 0 else [number[tree, yes], number[tree, no]]
        for i, ((tree, _), (yes, no)) in enumerate(zip(names, inner, strict=True))
    ]
    roots: dict[int, int] = {}
    for i, (tree, _) in enumerate(names):
        roots.setdefault(tree, i)
    voters = zip(get[f"{kind}_treeids"], get[f"{kind}_nodeids"], strict=True)
    missing = node.get("nodes_missing_value_tracks_true") or [0] * len(names)
    return Trees(
        np.where(modes < 0, 0, np.array(get["nodes_featureids"])).astype(np.int32),
        numbers(node, "nodes_values"),
        modes,
        np.array(children, np.int32),
        np.array(missing) != 0,
        np.zeros((len(names), 0)),
        np.array(list(roots.values()), np.int32),
        (
            np.array([number[v] for v in voters]),
            np.array(get[f"{kind}_ids"]),
            numbers(node, f"{kind}_weights"),
        ),
    )


def numbers(node: Node, name: str) -> np.ndarray:
    """Floats that are one attribute if they are f32, and another if they are f64; none where there is neither."""
    exact = node.get(f"{name}_as_tensor")
    return np.asarray(node.get(name, ()), np.float32) if exact is None else np.asarray(exact).reshape(-1)


def new_trees(node: Node) -> Trees:
    """The ensemble of a TreeEnsemble, whose leaves are beside its nodes."""
    get = node.attributes
    modes = np.asarray(get["nodes_modes"]).astype(np.int32).reshape(-1)
    weights = np.asarray(get["leaf_weights"]).reshape(-1)
    inner, leaves = len(modes), len(weights)
    sides = [
        np.array(get[f"nodes_{side}nodeids"]) + inner * (np.array(get[f"nodes_{side}leafs"]) != 0)
        for side in ("true", "false")
    ]
    own = np.arange(inner, inner + leaves)
    missing = node.get("nodes_missing_value_tracks_true") or [0] * inner
    return Trees(
        np.append(get["nodes_featureids"], np.zeros(leaves)).astype(np.int32),
        np.append(np.asarray(get["nodes_splits"]).reshape(-1), np.zeros(leaves)),
        np.append(modes, np.full(leaves, -1, np.int32)),
        np.concatenate([np.stack(sides, 1), np.stack([own, own], 1)]).astype(np.int32),
        np.append(missing, np.zeros(leaves)) != 0,
        _members(modes, node.get("membership_values"), inner + leaves),
        np.array(get["tree_roots"], np.int32),
        (own, np.array(get["leaf_targetids"]), weights),
    )


def _members(modes: np.ndarray, values: np.ndarray | None, count: int) -> np.ndarray:
    """For each node what it compares with, filled up with NaN, which equals nothing. Each set ends with a NaN."""
    sets: list[list[float]] = [[]]
    for value in [] if values is None else values.reshape(-1).tolist():
        if np.isnan(value):
            sets.append([])
        else:
            sets[-1].append(value)
    made = np.full((count, max(map(len, sets))), np.nan)
    for i, own in zip(np.flatnonzero(modes == len(MODES) - 1), sets, strict=False):
        made[i, : len(own)] = own
    return made


@rule("TreeEnsemble", domain=ML)
def _tree_ensemble(node: Node, x: Any) -> Any:
    how, kind = AGGREGATES[node.get("aggregate_function", 1)], TRANSFORMS[node.get("post_transform", 0)]
    trees = new_trees(node)
    targets = node.get("n_targets") or int(trees.votes[1].max()) + 1
    return transformed(node, trees.scores(x, targets, how), kind).astype(x.dtype)


@rule("TreeEnsembleRegressor", domain=ML)
def _tree_regressor(node: Node, x: Any) -> Any:
    trees = old_trees(node, "target")
    targets = node.get("n_targets") or int(trees.votes[1].max()) + 1
    scores = trees.scores(x, targets, node.get("aggregate_function", "SUM"))
    base = numbers(node, "base_values")
    scores = scores + base.astype(scores.dtype) if base.size else scores
    return transformed(node, scores, node.get("post_transform", "NONE")).astype(np.float32)


@rule("TreeEnsembleClassifier", domain=ML)
def _tree_classifier(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    labels = labels_of(node, "classlabels_int64s", "classlabels_strings")
    trees, kind = old_trees(node, "class"), node.get("post_transform", "NONE")
    scores, base = trees.scores(x, len(labels), "SUM"), numbers(node, "base_values")
    scores = scores + base.astype(scores.dtype) if base.size else scores
    voted = {int(c) for c in trees.votes[1]}
    if len(voted) == 1 and len(labels) <= 2:  # the votes are for one class, and what is left is the other's
        score = scores[:, voted.pop()][:, None]
        scores = jnp.concatenate([1 - score if kind in ("NONE", "PROBIT") else -score, score], axis=1)
        labels = labels if len(labels) == 2 else np.append(0, labels)
    scores = transformed(node, scores.astype(np.float32), kind)
    return labelled(labels, jnp.argmax(scores, axis=1)), scores
