"""Mixed precision by search: how sensitive each product is, and the front of quality against modelled cost.

One function computes the program with each product in any of some modes, which are chosen at run time: XLA compiles it
once, however many configurations are tried. The cost of those on the front is that of whole programs, compiled and
simulated.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..api.compiling import compile
from ..api.program import Options
from ..api.signature import CompileError
from ..api.sources import as_compile_error
from ..dialects.graph import GraphOp
from ..machine import DEFAULT_TARGET, Machine
from ..passes.graph.products_named import NamedProduct
from ..passes.graph.recipes import ProductChoice, QuantConfig, fits, full_mode, recipe_of
from ..support.progress import Say, watched
from .calibrate import batches_of, gather, with_scales
from .measures import COMPARED, Metric, scorer
from .modes import product_in_mode
from .pins import kernels_of, resolved_pins
from .quantize import packed_patterns, weight_bytes
from .traced import ChangedRunner, TracedSource, trace_source

MODES = ("f16", "w8a16", "w8a8")
"""What is searched where nothing else is said, from the most precise to the cheapest."""

_FRONT, _CHOSEN, _OTHER = "#1f6fb2", "#d1495b", "#9aa5b8"

POINTS = 9
"""At most so many configurations are compiled for their cost."""


@dataclass(frozen=True)
class SensitivityRow:
    """What it does to the metric when one product alone is in a mode, the others in the most precise one."""

    product: str
    mode: str
    metric: float
    drop: float
    weight_bytes: int


@dataclass(frozen=True)
class ParetoPoint:
    """One configuration: the metric, what it drops by, and the whole program's modelled cost."""

    config: QuantConfig
    metric: float
    drop: float
    microseconds: float
    weight_bytes: int
    energy_joules: float
    counts: dict[str, int]

    @property
    def said(self) -> str:
        """How many products are in each mode."""
        return ", ".join(f"{n} {mode}" for mode, n in self.counts.items() if n)


@dataclass(frozen=True)
class QuantSearch:
    """What was found. points: from the most precise configuration to the cheapest; front: those that no other beats in
    metric and microseconds; best: the cheapest one whose drop is allowed, None where there is none; original: the
    metric that drops are counted from; allowed: the least that is accepted, None where all is."""

    sensitivity: tuple[SensitivityRow, ...]
    points: tuple[ParetoPoint, ...]
    best: ParetoPoint | None
    metric: str
    original: float
    allowed: float | None = None

    @property
    def base(self) -> str:
        """What the metric's drop is counted from."""
        return "most precise" if self.metric in COMPARED else "original"

    @property
    def front(self) -> tuple[ParetoPoint, ...]:
        """The points that no other one beats in both the metric and microseconds."""
        return tuple(
            p
            for p in self.points
            if not any(
                (q.metric >= p.metric and q.microseconds < p.microseconds)
                or (q.metric > p.metric and q.microseconds <= p.microseconds)
                for q in self.points
            )
        )

    def __str__(self) -> str:
        head = ["", "#", self.metric, "drop", "us", "weights kB", "mJ", "products"]
        front = {id(p) for p in self.front}
        rows = [
            [
                "*" if p is self.best else "+" if id(p) in front else "", str(number),
                f"{p.metric:.4g}", f"{p.drop:.3g}", f"{p.microseconds:.1f}", f"{p.weight_bytes / 1e3:.1f}",
                f"{p.energy_joules * 1e3:.3g}", p.said,
            ]
            for number, p in enumerate(self.points, 1)
        ]  # fmt: skip
        widths = [max(len(r[i]) for r in (head, *rows)) for i in range(len(head))]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in (head, *rows)
        ]
        return "\n".join([*lines, f"{self.base}: {self.original:.4g}; + on the front, * chosen"])

    def plot(self, path: str | Path) -> None:
        """Draws the metric against microseconds; each configuration has its number in the table, and those on the front
        are named beside the plot. Raises CompileError where the file cannot be written."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
        ordered = sorted(self.front, key=lambda p: (p.microseconds, p.metric))
        front = [p.microseconds for p in ordered], [p.metric for p in ordered]
        axes.plot(*front, "-", color=_FRONT, zorder=1, label="front")
        axes.axhline(self.original, color=_OTHER, linewidth=1, linestyle="--", label=self.base)
        if self.allowed is not None:
            axes.axhline(self.allowed, color=_CHOSEN, linewidth=1, linestyle=":", label="allowed")
        number = {id(p): str(n) for n, p in enumerate(self.points, 1)}
        marked = {**dict.fromkeys(map(id, ordered), _FRONT), id(self.best): _CHOSEN}
        for group in self._together():
            place = group[0].microseconds, group[0].metric
            colors = {marked.get(id(p), _OTHER) for p in group}
            color = next(c for c in (_CHOSEN, _FRONT, _OTHER) if c in colors)
            axes.plot(*([x] for x in place), "o", markersize=7, color=color, zorder=2)
            said = ", ".join(number[id(p)] for p in group)
            axes.annotate(said, place, fontsize=9, xytext=(6, 5), textcoords="offset points")
        for p in (p for p in self.points if id(p) in marked):
            said = f"{number[id(p)]}: {p.said}" + (" (chosen)" if p is self.best else "")
            axes.plot([], [], "o", color=marked[id(p)], label=said)
        axes.margins(0.08, 0.12)
        axes.set_xlabel("modelled microseconds")
        axes.set_ylabel("SQNR, dB" if self.metric == "sqnr" else self.metric)
        axes.grid(color="#e3e7ee")
        axes.set_axisbelow(True)
        figure.legend(loc="outside right upper", frameon=False, fontsize=9)
        try:
            figure.savefig(path, dpi=120)
        except (OSError, ValueError) as error:
            raise CompileError(f"{path}: {error}") from None
        finally:
            pyplot.close(figure)

    def _together(self) -> list[list[ParetoPoint]]:
        """The points in groups that lie on one place of the plot."""
        places = [(p.microseconds, p.metric) for p in self.points]
        wide, high = (max(x) - min(x) or 1.0 for x in zip(*places, strict=True))
        groups: list[list[ParetoPoint]] = []
        for p in self.points:
            for group in groups:
                if (
                    abs(group[0].microseconds - p.microseconds) < 0.02 * wide
                    and abs(group[0].metric - p.metric) < 0.04 * high
                ):
                    group.append(p)
                    break
            else:
                groups.append([p])
        return groups


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
    target: str | None = None,
    progress: bool | Say = True,
    **kwargs: Any,
) -> QuantSearch:
    """Looks for the cheapest modes of a program's products that keep a metric.

    Products are moved one by one from the most precise of `modes` to the cheapest, those first that cost the metric
    least for the bytes of weights and multiplications that they save. pins: modes by patterns of products' names, which
    stay; max_drop: how far the metric may be below the original's, in its own units (in dB below the best for `sqnr`);
    the others as in `tw.quantize`. Raises CompileError as that does.
    """
    modes = [full_mode(m) for m in modes]
    if len(modes) < 2 or len(set(modes)) != len(modes):
        raise CompileError(
            "a search needs at least two different modes, from the most precise to the cheapest"
        )
    patterns = (weights,) if isinstance(weights, str) else weights
    machine = Machine.load(target or DEFAULT_TARGET)
    traced = trace_source(source, args, kwargs, patterns, target)
    if not traced.products:
        raise CompileError(f"{traced.name} has no products with weights: there is nothing to quantize")
    batches = batches_of(traced, source, args, kwargs, data)
    given = resolved_pins(pins or {}, traced.names, lambda: kernels_of(source, args, kwargs, target))
    with as_compile_error():
        base = QuantConfig("origin", given)
    ladders = {n: [base.mode_of(n)] if _is_pinned(base, n) else list(modes) for n in traced.names}
    needing = [n for n, ms in ladders.items() if any(recipe_of(m).static for m in ms)]
    statistics = gather(traced, batches, needing, progress)

    def choice(name: str, mode: str) -> ProductChoice:
        made = QuantConfig(products={name: ProductChoice(mode)})
        return with_scales(traced, made, statistics, method).choice(name)

    choices = {n: [choice(n, m) for m in ms] for n, ms in ladders.items()}
    switched = SwitchedModes(traced, choices)
    originals = SwitchedModes(traced, {})
    references = [jax.device_get(originals.run(jnp.zeros(0, jnp.int32), b)) for b in batches]
    score = scorer(metric, references, labels, traced.signature.unflatten)

    def measure(numbers: Mapping[str, int]) -> float:
        chosen = jnp.asarray([numbers[n] for n in switched.names], jnp.int32)
        return score([jax.device_get(switched.run(chosen, b)) for b in batches])

    def price(numbers: Mapping[str, int], value: float) -> ParetoPoint:
        config = replace(base, products={n: choices[n][k] for n, k in numbers.items()})
        options = Options(quantization=config, weights=packed_patterns(traced, patterns))
        report = compile(source, *args, target=machine.name, options=options, **kwargs).report()
        kept = sum(weight_bytes(p, config.choice(p.name).recipe) for p in traced.products)
        chosen = [ladders[n][k] for n, k in numbers.items()]
        counts = {m: chosen.count(m) for m in dict.fromkeys(itertools.chain(*ladders.values()))}
        return ParetoPoint(
            config, value, original - value, report.microseconds, kept, report.energy_joules, counts
        )

    with watched(progress, "searching") as say:
        walk, rows = _walked(traced, ladders, choices, measure, say)
        original = score(references) if metric not in COMPARED else walk[0][1]
        places = _places(walk, original, max_drop)
        points = []
        for n, i in enumerate(places):
            say(f"searching: the cost of configuration {n + 1} of {len(places)}", n, len(places))
            points.append(price(*walk[i]))
    allowed = [p for p in points if max_drop is None or p.drop <= max_drop]
    best = min(allowed, key=lambda p: (p.microseconds, p.drop), default=None)
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "metric")
    limit = None if max_drop is None else original - max_drop
    return QuantSearch(tuple(rows), tuple(points), best, name, original, limit)


def _walked(
    traced: TracedSource,
    ladders: Mapping[str, Sequence[str]],
    choices: Mapping[str, Sequence[ProductChoice]],
    measure: Callable[[Mapping[str, int]], float],
    say: Say,
) -> tuple[list[tuple[Mapping[str, int], float]], list[SensitivityRow]]:
    """The way from the most precise modes of all products to the cheapest, each step with its metric; and what each
    product costs the metric alone."""
    start = dict.fromkeys(ladders, 0)
    walk: list[tuple[Mapping[str, int], float]] = [(start, measure(start))]
    steps = [(n, i) for n, modes in ladders.items() for i in range(1, len(modes))]
    rows, alone = [], {}
    best = walk[0][1]
    for done, (name, i) in enumerate(steps):
        say(f"searching: {name} in {ladders[name][i]}", done, 2 * len(steps))
        alone[name, i] = value = measure({**start, name: i})
        product = next(p for p in traced.products if p.name == name)
        kept = weight_bytes(product, choices[name][i].recipe)
        rows.append(SensitivityRow(name, ladders[name][i], value, best - value, kept))
    for done, (name, i) in enumerate(_order(traced, ladders, choices, alone, best)):
        say(f"searching: {name} in {ladders[name][i]}, too", len(steps) + done, 2 * len(steps))
        numbers = {**walk[-1][0], name: i}
        walk.append((numbers, measure(numbers)))
    return walk, rows


def _is_pinned(config: QuantConfig, name: str) -> bool:
    return any(fits(name, pattern) for pattern in config.pins)


def _order(
    traced: TracedSource,
    ladders: Mapping[str, Sequence[str]],
    choices: Mapping[str, Sequence[ProductChoice]],
    alone: Mapping[tuple[str, int], float],
    best: float,
) -> list[tuple[str, int]]:
    """The steps from the most precise configuration to the cheapest: those first that lose least for what they save.
    A product's steps stay in their order."""
    saved: dict[tuple[str, int], float] = {}
    for p in traced.products:
        op = p.op
        assert isinstance(op, GraphOp)
        bits = [_bits(c) for c in choices[p.name]]
        for i in range(1, len(ladders[p.name])):
            fewer = weight_bytes(p, choices[p.name][i - 1].recipe) - weight_bytes(
                p, choices[p.name][i].recipe
            )
            # a multiply-add counts as much as the bytes that the cube takes for it: 16 of each side in one cycle
            saved[p.name, i] = max(fewer, 0) + op.flops() * max(bits[i - 1] - bits[i], 0) / 2**14 + 1
    loss = {key: max(best - value, 0.0) for key, value in alone.items()}
    rate = {key: loss[key] / saved[key] for key in alone}
    for name, i in sorted(alone):  # a step is not taken before the one that it follows
        if i > 1:
            rate[name, i] = max(rate[name, i], rate[name, i - 1])
    return sorted(alone, key=lambda key: (rate[key], key[1], key[0]))


def _bits(choice: ProductChoice) -> int:
    """Bits of the wider operand of a product on the cube."""
    recipe = choice.recipe
    if recipe.inputs is None:
        return {"f16": 16, "bf16": 16}.get(recipe.compute or "", 32)
    return 16 if recipe.inputs == "i16" else 8


def _places(walk: Sequence[tuple[Mapping[str, int], float]], original: float, max_drop: float | None) -> list[int]:
    """Which of the walk's configurations are compiled for their cost: the ends, the last one that is allowed, and some
    between."""
    last = max(
        (i for i, (_, v) in enumerate(walk) if max_drop is None or original - v <= max_drop), default=0
    )
    spread = np.linspace(0, len(walk) - 1, POINTS - 1).round().astype(int).tolist()
    return sorted({0, len(walk) - 1, last, *spread})
