"""How far a net can be pruned: how sensitive it is to each kind of units, and the front of a metric against cost.

What a net loses without some units is estimated by zeros in their place: its shapes stay, so that XLA compiles it once,
however many nets are tried. Those whose cost is modelled are pruned, measured again, and compiled as whole programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..api.arguments.signature import CompileError
from ..api.compiling import compile
from ..api.options import Options
from ..api.quantized import named_module
from ..api.sources import as_compile_error, origin_of
from ..compression.front import ParetoPoint, SearchResult, cheapest
from ..compression.measures import COMPARED, Metric, metric_name, scorer
from ..compression.walk import FLOPS_PER_BYTE, Levels, walk_down
from ..dialects.graph import GraphOp
from ..passes.inlining import inline_calls
from ..passes.quantized.products_named import main_function
from ..support.progress import Say, watched
from .coupled import best
from .units import Units

RATIOS = (0.25, 0.5, 0.75)
"""Shares of units that are removed where nothing else is said."""

POINTS = 9
"""At most so many nets are pruned and compiled for their cost."""

Importance = Callable[[Any, Units], jax.Array]
"""How important each unit is, [units], by the parameters."""


@dataclass(frozen=True)
class PrunedPoint(ParetoPoint):
    """A pruned net and its cost. weight_bytes: of all parameters; units: for each kind how many are left, and of how
    many; params: the parameters that are left."""

    units: Mapping[str, tuple[int, int]]
    params: Any

    @property
    def said(self) -> str:
        """How many units are left of each kind."""
        return ", ".join(f"{name} {n}/{of}" for name, (n, of) in self.units.items())


class PruneSearch(SearchResult[PrunedPoint]):
    """The search of a pruned net: parts are kinds of units, of which some are left."""

    CHANGED = "units left"


def search(
    fn: Callable[..., Any],
    params: Any,
    /,
    *args: Any,
    units: Mapping[str, Units],
    data: Iterable[Any] | None = None,
    labels: Sequence[Any] | None = None,
    metric: str | Metric = "cosine",
    ratios: Sequence[float] = RATIOS,
    multiple: int = 16,
    importance: Importance | None = None,
    retrain: Callable[[Any], Any] | None = None,
    max_drop: float | None = None,
    target: str | None = None,
    options: Options | None = None,
    progress: bool | Say = True,
) -> PruneSearch:
    """Looks for the smallest net that keeps a metric.

    Each kind of units loses more and more of its least important ones, those kinds first that cost the metric least for
    the bytes of parameters and the flops that they save. Some of the nets on the way, from the whole one to the
    smallest, are compiled for their modelled cost.

    Args:
        fn: A JAX function of parameters and inputs, which takes parameters with fewer units.
        params: The tree of parameters, arrays.
        *args: The inputs, of which only shapes and dtypes count where there is `data`.
        units: What may be removed, by names for the table: `Coupled` or `Blocks`.
        data: Batches: for each the inputs as a tuple, or the only one. None: `args` are the only batch.
        labels: What is right for each batch, for metrics that need it.
        metric: `cosine`, `sqnr`, `accuracy`, `perplexity`, or a function of a batch's result and its labels of which
            more is better.
        ratios: The shares of units to remove, each above 0 and below 1.
        multiple: What is left of an axis is a whole number of so many elements, as the cube computes 16 at a time.
            A kind with fewer units than that stays whole. Blocks are counted one by one.
        importance: How important each unit is: a function of the parameters and the units. None: by magnitude.
        retrain: What trains pruned parameters further before they are measured, a function of them; shapes stay.
        max_drop: How far the metric of `best` may be below the whole net's, in the metric's units; for `sqnr`, whose
            value for the whole net is infinite, below the best net with one change.
        target, options: As for `tw.compile`.
        progress: Whether a search of some seconds shows a bar, or what is told of each step.

    Raises:
        CompileError: Data is empty, not finite or of other shapes, nothing can be removed in whole multiples, ratios
            make no sense, `fn` does not take pruned parameters, or it cannot be compiled.
        ValueError: Units are not in the parameters.
    """
    batches = _batches(args, data)
    nets = PrunedNets(fn, params, args, units, _ladders(params, units, ratios, multiple), importance)
    _check_ladders(nets.ladders, multiple)
    tried = TriedNets(fn, params, nets, batches)
    references = tried.outputs(params)
    score = scorer(metric, references, labels, tried.unflatten)

    def priced(levels: Levels) -> PrunedPoint:
        small = nets.pruned(levels)
        if retrain is not None and any(levels.values()):
            small = retrain(small)
        value = score(tried.outputs(small))
        report = compile(fn, small, *args, target=target, options=options).report()
        cost = (report.microseconds, tree_bytes(small), report.energy_joules)
        return PrunedPoint(value, original - value, *cost, nets.left(levels), small)

    with watched(progress, "searching") as say:
        walk = walk_down(
            nets.names(), lambda levels: score(tried.blanked(levels)), nets.saved, nets.weight_bytes, say
        )
        original = score(references) if metric not in COMPARED else walk.start
        places, points = walk.places(original, max_drop, POINTS), []
        for n, i in enumerate(places):
            say("searching: modelled cost", n, len(places))
            points.append(priced(walk.states[i][0]))
    chosen = cheapest(points, max_drop)
    limit = None if max_drop is None else original - max_drop
    return PruneSearch(walk.sensitivity, tuple(points), chosen, metric_name(metric), original, limit)


def without_share(
    params: Any, units: Mapping[str, Units], share: float, multiple: int = 16, importance: Importance | None = None
) -> tuple[Any, dict[str, tuple[int, int]]]:
    """The parameters without a share of the units of each kind, the least important ones, and how many of each kind are
    left, and of how many. share: above 0 and below 1; units, multiple, importance: as `search` has them. Raises
    CompileError where nothing can be removed in whole multiples, and ValueError for units that are not there."""
    ladders = _ladders(params, units, (share,), multiple)
    _check_ladders(ladders, multiple)
    nets = PrunedNets(lambda: None, params, (), units, ladders, importance)
    levels = {name: len(ladder) - 1 for name, ladder in ladders.items()}
    return nets.pruned(levels), nets.left(levels)


def _check_ladders(ladders: Mapping[str, Sequence[int]], multiple: int) -> None:
    """Raises CompileError where there is nothing to remove."""
    if max(map(len, ladders.values())) < 2:
        raise CompileError(
            f"no kind of units has a smaller multiple of {multiple} elements: say a smaller `multiple`"
        )


class TriedNets:
    """What nets compute of the batches: a function that XLA compiles once for the nets with zeros."""

    def __init__(
        self, fn: Callable[..., Any], params: Any, nets: PrunedNets, batches: Sequence[tuple[Any, ...]]
    ):
        self.nets, self.batches = nets, batches
        self._run = jax.jit(fn)
        self._tree = jax.tree.structure(self._run.eval_shape(params, *batches[0]))

    def outputs(self, params: Any) -> list[list[Any]]:
        """The flat results of each batch, on the host."""
        return [jax.device_get(jax.tree.leaves(self._run(params, *batch))) for batch in self.batches]

    def blanked(self, levels: Levels) -> list[list[Any]]:
        """The flat results with zeros for what is removed."""
        return self.outputs(self.nets.blanked(levels))

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """Flat results as the function gives them."""
        return jax.tree.unflatten(self._tree, leaves)


class PrunedNets:
    """A net with fewer units of some kinds, by levels. ladders: for each kind, how many units each level leaves."""

    def __init__(
        self,
        fn: Callable[..., Any],
        params: Any,
        args: Sequence[Any],
        units: Mapping[str, Units],
        ladders: Mapping[str, Sequence[int]],
        importance: Importance | None,
    ):
        self.fn, self.params, self.args, self.ladders = fn, params, args, ladders
        # what changes the paths of others is removed last
        self.units = dict(sorted(units.items(), key=lambda item: item[1].renames))
        self.importance = {
            name: kind.magnitudes(params) if importance is None else importance(params, kind)
            for name, kind in units.items()
        }
        self._costs: dict[tuple[str, int], tuple[int, int]] = {}

    def pruned(self, levels: Levels) -> Any:
        """The parameters that are left."""
        params = self.params
        for name, kept in self._kept(levels):
            params = self.units[name].cut(params, kept)
        return params

    def blanked(self, levels: Levels) -> Any:
        """The parameters with zeros for what is removed."""
        params = self.params
        for name, kept in self._kept(levels):
            params = self.units[name].blank(params, kept)
        return params

    def left(self, levels: Levels) -> dict[str, tuple[int, int]]:
        """For each kind of units how many are left, and of how many."""
        return {name: (ladder[levels[name]], ladder[0]) for name, ladder in self.ladders.items()}

    def names(self) -> dict[str, list[str]]:
        """What the levels of each kind are called."""
        return {name: [f"{n}/{ladder[0]}" for n in ladder] for name, ladder in self.ladders.items()}

    def _kept(self, levels: Levels) -> list[tuple[str, np.ndarray]]:
        chosen = [(n, best(self.importance[n], self.ladders[n][levels[n]])) for n in self.units if levels[n]]
        return [(name, np.asarray(kept)) for name, kept in chosen]

    def saved(self, name: str, level: int) -> float:
        """What the step to a level of one kind saves: bytes of parameters, and flops as bytes."""
        (fewer, less), (more, longer) = self._cost(name, level), self._cost(name, level - 1)
        return max(more - fewer, 0) + max(longer - less, 0) / FLOPS_PER_BYTE + 1

    def weight_bytes(self, name: str, level: int) -> int:
        """The bytes of all parameters, where one kind alone is at a level."""
        return self._cost(name, level)[0]

    def _cost(self, name: str, level: int) -> tuple[int, int]:
        """Bytes of parameters and flops of the function."""
        key = (name, level)
        if key not in self._costs:
            small = self.pruned(dict.fromkeys(self.ladders, 0) | {name: level})
            said = f"{self.ladders[name][level]} of {self.ladders[name][0]} units of {name}"
            self._costs[key] = (tree_bytes(small), _flops(self.fn, small, self.args, said))
        return self._costs[key]


def tree_bytes(params: Any) -> int:
    """The bytes of all arrays of a tree."""
    return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(params))


def _flops(fn: Callable[..., Any], params: Any, args: Sequence[Any], said: str) -> int:
    """Floating-point operations of a function, by its graph level."""
    try:
        with as_compile_error():
            module, _ = named_module(origin_of(fn, (params, *args), {}))
            inline_calls(module)
    except (TypeError, ValueError) as error:
        why = (str(error).splitlines() or [""])[0]
        raise CompileError(f"the function does not take parameters with {said}: {why}") from None
    return sum(op.flops() for op in main_function(module).body.block.ops if isinstance(op, GraphOp))


def _ladders(
    params: Any, units: Mapping[str, Units], ratios: Sequence[float], multiple: int
) -> dict[str, list[int]]:
    """For each kind the numbers of units that are left, from all to the fewest."""
    if not units:
        raise CompileError("nothing may be removed: name in `units` what can be")
    if not ratios or not all(0 < r < 1 for r in ratios) or multiple < 1:
        raise CompileError("give ratios above 0 and below 1, and a multiple of 1 or more")
    ladders = {}
    for name, kind in units.items():
        whole, step = kind.units(params), kind.step(params, multiple)
        left = {-(-round(whole * (1 - r), 6) // step) * step for r in ratios}
        ladders[name] = [whole, *sorted((int(n) for n in left if 0 < n < whole), reverse=True)]
    return ladders


def _batches(args: Sequence[Any], data: Iterable[Any] | None) -> list[tuple[Any, ...]]:
    """The inputs of each batch. Raises CompileError."""
    given = [args] if data is None else [b if isinstance(b, tuple) else (b,) for b in data]
    if not given:
        raise CompileError("the data has no batches: a search needs at least one")
    wanted = jax.tree.map(_type, tuple(args))
    for n, batch in enumerate(given):
        if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(batch)):
            raise CompileError("pruning looks at numbers: give arrays as data, not jax.ShapeDtypeStructs")
        found = jax.tree.map(_type, tuple(batch))
        if found != wanted:
            raise CompileError(f"batch {n} of the data is {found}, and the function is searched for {wanted}")
        for leaf in map(jnp.asarray, jax.tree.leaves(batch)):
            if not leaf.size:
                raise CompileError(f"batch {n} of the data has an array without elements")
            if jnp.issubdtype(leaf.dtype, jnp.floating) and not bool(jnp.isfinite(leaf).all()):
                raise CompileError(f"batch {n} of the data has NaN or infinity")
    return [tuple(batch) for batch in given]


def _type(x: Any) -> str:
    return f"{jnp.result_type(x)}{list(jnp.shape(x))}"
