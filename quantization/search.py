"""Mixed precision by search: how sensitive each product is, and the front of quality against modelled cost.

One function computes the program with each product in any of some modes, which are chosen at run time: XLA compiles it
once, however many configurations are tried. The cost of those on the front is that of whole programs, compiled and
simulated.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..api.arguments.signature import CompileError
from ..api.compiling import compile
from ..api.options import Options
from ..api.sources import as_compile_error
from ..compression.front import ParetoPoint, SearchResult, cheapest
from ..compression.measures import COMPARED, Metric, metric_name, scorer
from ..compression.walk import FLOPS_PER_BYTE, Levels, walk_down
from ..dialects.graph import GraphOp
from ..machine import DEFAULT_TARGET, Machine, Target
from ..passes.quantized.products_named import NamedProduct
from ..passes.quantized.recipes import ProductChoice, QuantConfig, fits, full_mode, recipe_of
from ..support.progress import Say, watched
from .calibrate import batches_of, gather, with_scales
from .modes import product_in_mode
from .pins import kernels_of, resolved_pins
from .quantize import packed_patterns, weight_bytes
from .traced import ChangedRunner, TracedSource, trace_source

MODES = ("f16", "w8a16", "w8a8")
"""What is searched where nothing else is said, from the most precise to the cheapest."""

POINTS = 9
"""At most so many configurations are compiled for their cost."""


@dataclass(frozen=True)
class QuantPoint(ParetoPoint):
    """A configuration and its cost. counts: how many products are in each mode; weight_bytes: of quantized products;
    packed: the patterns of the weights that are packed."""

    config: QuantConfig
    counts: dict[str, int]
    packed: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """How many products are in each mode."""
        return ", ".join(f"{n} {mode}" for mode, n in self.counts.items() if n)


class QuantSearch(SearchResult[QuantPoint]):
    """The search of a quantized program: parts are products, which change to modes."""

    CHANGED = "products"


class SwitchedModes:
    """A traced source in which each product's mode is chosen at run time."""

    def __init__(self, traced: TracedSource, choices: Mapping[str, Sequence[ProductChoice]]):
        self.traced, self.names = traced, list(choices)
        self.choices = choices
        self.run = jax.jit(self._run)

    def _run(self, numbers: Array, leaves: Sequence[Array]) -> list[Array]:
        changes = {
            name: self._switch(p, numbers[i])
            for i, name in enumerate(self.names)
            for p in self.traced.products
            if p.name == name
        }
        return self.traced.run(ChangedRunner(self.traced.products, changes), leaves)

    def _switch(self, product: NamedProduct, number: Array) -> Callable[[Array, Array], Array]:
        choices = self.choices[product.name]

        def compute(x: Array, w: Array) -> Array:
            branches = [lambda x, w, c=c: product_in_mode(product, c, x, w) for c in choices]
            return lax.switch(number, branches, x, w)

        return compute


class TriedModes:
    """The configurations of a search, by the level of each product: what they compute of the batches, and what they
    save. choices: for each product from level 0 on; base: what products without one are."""

    def __init__(
        self,
        traced: TracedSource,
        base: QuantConfig,
        choices: Mapping[str, Sequence[ProductChoice]],
        batches: Sequence[Sequence[Array]],
    ):
        self.traced, self.base, self.choices, self.batches = traced, base, choices, batches
        self.ladders = {name: [c.mode for c in ladder] for name, ladder in choices.items()}
        self.products = {p.name: p for p in traced.products}
        self.switched = SwitchedModes(traced, choices)

    def originals(self) -> list[list[Any]]:
        """The flat results of the original for each batch."""
        plain = SwitchedModes(self.traced, {})
        return [jax.device_get(plain.run(jnp.zeros(0, jnp.int32), b)) for b in self.batches]

    def outputs(self, levels: Levels) -> list[list[Any]]:
        """The flat results of a configuration for each batch."""
        chosen = jnp.asarray([levels[n] for n in self.switched.names], jnp.int32)
        return [jax.device_get(self.switched.run(chosen, b)) for b in self.batches]

    def config(self, levels: Levels) -> QuantConfig:
        """The configuration itself."""
        return replace(self.base, products={n: self.choices[n][i] for n, i in levels.items()})

    def counts(self, levels: Levels) -> dict[str, int]:
        """How many products are in each mode."""
        chosen = [self.ladders[n][i] for n, i in levels.items()]
        return {m: chosen.count(m) for m in dict.fromkeys(itertools.chain(*self.ladders.values()))}

    def kept(self, name: str, level: int) -> int:
        """The bytes that stay of the weights of a product at a level."""
        return weight_bytes(self.products[name], self.choices[name][level].recipe)

    def weight_bytes(self, levels: Levels) -> int:
        """The bytes that stay of the weights of all products."""
        return sum(self.kept(n, i) for n, i in levels.items())

    def saved(self, name: str, level: int) -> float:
        """What the step to a level of one product saves, as bytes."""
        return _saving(self.products[name], *self.choices[name][level - 1 : level + 1])


def search(
    source: Any,
    /,
    *args: Any,
    data: Any = None,
    labels: Sequence[Any] | None = None,
    metric: str | Metric = "sqnr",
    modes: Sequence[str] = MODES,
    max_drop: float | None = None,
    pins: Mapping[str, str] | None = None,
    method: str = "auto",
    weights: str | Sequence[str] | None = None,
    target: Target | None = None,
    progress: bool | Say = True,
    **kwargs: Any,
) -> QuantSearch:
    """Looks for the cheapest modes of a program's products that keep a metric.

    Products are moved one by one from the most precise of `modes` to the cheapest, those first that cost the metric
    least for the bytes of weights and multiplications that they save. pins: modes by patterns of products' names, which
    stay; max_drop: how far the metric may be below the original's, in its own units (in dB below the best for `sqnr`);
    the others as in `tw.quantize`. Raises CompileError as that does.
    """
    modes = _from_precise(modes)
    patterns = (weights,) if isinstance(weights, str) else weights
    target = None if target is None else Machine.named(target)
    traced = trace_source(source, args, kwargs, patterns, target)
    if not traced.products:
        raise CompileError(f"{traced.name} has no products with weights: there is nothing to quantize")
    batches = batches_of(traced, source, args, kwargs, data)
    given = resolved_pins(pins or {}, traced.names, lambda: kernels_of(source, args, kwargs, target))
    with as_compile_error():
        base = QuantConfig("origin", given)
    tried = TriedModes(traced, base, _choices(traced, base, modes, batches, method, progress), batches)
    references = tried.originals()
    score = scorer(metric, references, labels, traced.signature.unflatten)

    def price(levels: Levels, value: float) -> QuantPoint:
        config = tried.config(levels)
        packed = packed_patterns(traced, patterns)
        options = Options(quantization=config, weights=packed)
        report = compile(source, *args, target=target or DEFAULT_TARGET, options=options, **kwargs).report()
        cost = (report.microseconds, tried.weight_bytes(levels), report.energy_joules)
        return QuantPoint(value, original - value, *cost, config, tried.counts(levels), packed)

    with watched(progress, "searching") as say:
        walk = walk_down(
            tried.ladders, lambda levels: score(tried.outputs(levels)), tried.saved, tried.kept, say
        )
        original = score(references) if metric not in COMPARED else walk.start
        places, points = walk.places(original, max_drop, POINTS), []
        for n, i in enumerate(places):
            say(f"searching: the cost of configuration {n + 1} of {len(places)}", n, len(places))
            points.append(price(*walk.states[i]))
    limit = None if max_drop is None else original - max_drop
    best = cheapest(points, max_drop)
    return QuantSearch(walk.sensitivity, tuple(points), best, metric_name(metric), original, limit)


def _from_precise(modes: Sequence[str]) -> list[str]:
    """The full names of the modes that are searched. Raises CompileError unless there are two, all different."""
    modes = [full_mode(m) for m in modes]
    if len(modes) < 2 or len(set(modes)) != len(modes):
        raise CompileError(
            "a search needs at least two different modes, from the most precise to the cheapest"
        )
    return modes


def _choices(
    traced: TracedSource,
    base: QuantConfig,
    modes: Sequence[str],
    batches: Sequence[Sequence[Array]],
    method: str,
    progress: bool | Say,
) -> dict[str, list[ProductChoice]]:
    """What each product may be, with its scales, from the most precise to the cheapest; of a pinned one, its mode."""
    ladders = {n: [base.mode_of(n)] if _is_pinned(base, n) else list(modes) for n in traced.names}
    needing = [n for n, ms in ladders.items() if any(recipe_of(m).static for m in ms)]
    statistics = gather(traced, batches, needing, progress)

    def choice(name: str, mode: str) -> ProductChoice:
        made = QuantConfig(products={name: ProductChoice(mode)})
        return with_scales(traced, made, statistics, method).choice(name)

    return {n: [choice(n, m) for m in ms] for n, ms in ladders.items()}


def _is_pinned(config: QuantConfig, name: str) -> bool:
    return any(fits(name, pattern) for pattern in config.pins)


def _saving(product: NamedProduct, before: ProductChoice, after: ProductChoice) -> float:
    """What a step saves: bytes of weights, and flops as bytes, which count by the bits of what is multiplied."""
    assert isinstance(product.op, GraphOp)
    fewer = weight_bytes(product, before.recipe) - weight_bytes(product, after.recipe)
    less = max(_bits(before) - _bits(after), 0) / 16
    return max(fewer, 0) + product.op.flops() * less / FLOPS_PER_BYTE + 1


def _bits(choice: ProductChoice) -> int:
    """Bits of the wider operand of a product on the cube."""
    recipe = choice.recipe
    if recipe.inputs is None:
        return {"f16": 16, "bf16": 16}.get(recipe.compute or "", 32)
    return {"i16": 16, "i4": 4}.get(recipe.inputs, 8)
