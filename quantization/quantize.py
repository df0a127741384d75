"""`tw.quantize`: from example data to a quantized program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax

from ..api.arguments.signature import CompileError
from ..api.compiling import compile
from ..api.options import Options
from ..api.program import Program
from ..compression.measures import COMPARED, Metric, decibels, metric_name, scorer
from ..dialects.dtypes import itemsize, size
from ..dialects.graph import GraphOp
from ..dialects.graph.interface import element_of, shape_of
from ..dialects.sparsity import INDEXED, KEPT_OF
from ..machine import DEFAULT_TARGET, Machine, Target
from ..passes.quantized.pair_products import is_paired
from ..passes.quantized.products_named import weight_patterns
from ..passes.quantized.recipes import QuantConfig, Recipe
from ..passes.quantized.stored_weights import is_sparse, weight_blocks
from ..support.progress import Say
from .calibrate import batches_of, gather, with_scales
from .fake import fake_quant, read
from .pins import kernels_of, resolved_pins
from .recovery import BALANCES, recovered
from .traced import TracedSource, trace_source
from .watching import product_noise


@dataclass(frozen=True)
class ProductRow:
    """One product of the table. shape: of its weights; macs: multiply-adds; weight_bytes: what is kept of its weights;
    scale, zero: of a static input; sqnr: of this product alone, in dB, on the first batch."""

    name: str
    kind: str
    shape: tuple[int, ...]
    mode: str
    macs: int
    weight_bytes: int
    scale: float | None
    zero: int
    sqnr: float


@dataclass(frozen=True)
class QuantTable:
    """What was quantized to what, and how good it is. before, after: the metric of the original and of the quantized
    program; sqnr in dB, cosine: of all outputs against the original's."""

    rows: tuple[ProductRow, ...]
    metric: str
    before: float
    after: float
    sqnr: float
    cosine: float

    def __str__(self) -> str:
        head = ["product", "kind", "weights", "mode", "MMAC", "kB", "input scale", "zero", "SQNR dB"]
        body = [
            [r.name, r.kind, "x".join(map(str, r.shape)), r.mode, f"{r.macs / 1e6:.2f}", f"{r.weight_bytes / 1e3:.1f}",
             "" if r.scale is None else f"{r.scale:.4g}", "" if r.scale is None else str(r.zero), f"{r.sqnr:.1f}"]
            for r in self.rows
        ]  # fmt: skip
        widths = [max(len(row[i]) for row in (head, *body)) for i in range(len(head))]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in (head, *body)
        ]
        return "\n".join([*lines, self.summary])

    @property
    def summary(self) -> str:
        """One line: the metric and the distance from the original."""
        metric = "" if self.metric in COMPARED else f"{self.metric} {self.before:.4g} -> {self.after:.4g}, "
        return f"{metric}SQNR {self.sqnr:.1f} dB, cosine {self.cosine:.6f}"


@dataclass(frozen=True)
class Quantized:
    """A quantized program. function: its differentiable twin in JAX; config: what was chosen, which `save` writes;
    measure: makes the table; packed: the patterns of the weights that the program packs."""

    program: Program
    function: Callable[..., Any]
    config: QuantConfig
    measure: Callable[[], QuantTable]
    packed: tuple[str, ...] = ()

    @cached_property
    def table(self) -> QuantTable:
        """Product by product, what it is quantized to and what that loses. It is measured when it is first asked for,
        by running the original and the quantized program on all batches in JAX."""
        return self.measure()

    def __repr__(self) -> str:
        known = f": {self.table.summary}" if "table" in self.__dict__ else ""
        return f"<tilewright.Quantized {self.program!r}{known}>"


def quantize(
    source: Any,
    /,
    *args: Any,
    data: Iterable[Any] | None = None,
    config: QuantConfig | str | Path = "w8a8",
    labels: Sequence[Any] | None = None,
    metric: str | Metric = "sqnr",
    method: str = "auto",
    recover: str | Sequence[str] = (),
    weights: str | Sequence[str] | None = None,
    target: Target | None = None,
    options: Options | None = None,
    progress: bool | Say = True,
    **kwargs: Any,
) -> Quantized:
    """Quantizes the products of a program that have weights, with scales from example data.

    Args:
        source: As for `tw.compile`.
        *args: Arguments; weights with their values, the others too where there is no `data`.
        data: Batches: for each the arguments that are no weights, as a tuple, or the only one of them. Shapes as in
            `args`.
        config: A mode for all products (`w8a8`, `w8a8-dynamic`, `w8a16`, `w4a16`, `w4a16-g32`, `w4a4`, `w4a8`, `f8`,
            `f16`, `bf16`, `origin`; `w8a8-sparse`, `w8a8-dynamic-sparse`, `w8a16-sparse`), a `tw.QuantConfig`, or the
            path of its file. Scales that it has are kept. A pin that fits no product is one of kernels, by the names
            that the report of the program has that is not quantized.
        labels: What is right for each batch, for metrics that need it.
        metric: `sqnr`, `cosine`, `accuracy`, `perplexity`, or a function of a batch's result and its labels of which
            more is better.
        method: How limits of static inputs are found: `minmax`, `ema`, `percentile`, `mse`, `kl`, `aciq`, or `auto`.
        recover: What makes up for the loss: `equalize`, `smooth`, `awq`, `gptq`, `round`, `bias`.
        weights: The arguments that are weights, by names, paths or patterns of these; None: found by themselves.
        target: As for `tw.compile`.
        options: As for `tw.compile`; those of quantization and weights are set here.
        progress: Whether it shows a bar where it takes some seconds; or a function, which is called at each step with
            its name, the steps done, and all steps (0: unknown).
        **kwargs: Keyword arguments of the function.

    Raises:
        CompileError: Data is empty, not finite or of other shapes, a configuration names what is not there or what the
            target cannot do, or the source cannot be compiled.
    """
    target = None if target is None else Machine.named(target)
    asked = {"data": data, "config": config, "labels": labels, "metric": metric, "method": method}
    found = calibrated(
        source, args, kwargs, recover=recover, weights=weights, target=target, progress=progress, **asked
    )
    own = replace(options or Options(), quantization=found.config, weights=found.packed)
    program = compile(source, *args, target=target, options=own, **kwargs)
    function = fake_quant(source, found.config, target=target, weights=found.patterns)
    machine = Machine.load(target or DEFAULT_TARGET)
    measure = partial(table_of, found.traced, found.config, found.batches, labels, metric, machine)
    made = Quantized(program, function, found.config, measure, found.packed)
    if labels is not None or metric not in COMPARED:
        _ = made.table  # a metric of the caller's is asked for, and what it refuses is said at once
    return made


@dataclass(frozen=True)
class Calibrated:
    """A configuration with its scales, before anything is compiled. traced: the source; batches: the flat inputs of
    each; patterns: of the arguments that are weights, as they were given; packed: of those that programs pack."""

    traced: TracedSource
    config: QuantConfig
    batches: list[list[Any]]
    patterns: tuple[str, ...] | None
    packed: tuple[str, ...]


def calibrated(
    source: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    *,
    data: Iterable[Any] | None = None,
    config: QuantConfig | str | Path = "w8a8",
    labels: Sequence[Any] | None = None,
    metric: str | Metric = "sqnr",
    method: str = "auto",
    recover: str | Sequence[str] = (),
    weights: str | Sequence[str] | None = None,
    target: str | None = None,
    progress: bool | Say = True,
) -> Calibrated:
    """What `quantize` compiles: all but the program. Raises CompileError as `quantize` does."""
    patterns = (weights,) if isinstance(weights, str) else None if weights is None else tuple(weights)
    Machine.load(target or DEFAULT_TARGET)
    wanted = read(config)
    traced = trace_source(source, args, kwargs, patterns, target)
    _check_values(args)
    pins = resolved_pins(wanted.pins, traced.names, lambda: kernels_of(source, args, kwargs, target))
    wanted = replace(wanted, pins=pins)
    batches = batches_of(traced, source, args, kwargs, data)
    scorer(metric, batches, labels, traced.signature.unflatten)  # what cannot be measured is said at once
    statics = [n for n in traced.names if wanted.choice(n).recipe.static and wanted.choice(n).scale is None]
    steps = (recover,) if isinstance(recover, str) else tuple(recover)
    before = recovered(traced, wanted, batches, [s for s in steps if s in BALANCES], progress)
    balances = {n: b for n in statics if (b := before.choice(n).balance) is not None}
    statistics = gather(traced, batches, statics, progress, balances=balances)
    scaled = with_scales(traced, before, statistics, method)
    chosen = recovered(traced, scaled, batches, [s for s in steps if s not in BALANCES], progress)
    return Calibrated(traced, chosen, batches, patterns, packed_patterns(traced, patterns))


def packed_patterns(traced: TracedSource, patterns: Sequence[str] | None) -> tuple[str, ...]:
    """The patterns by which weights are packed: as they were given, or arguments that are weights as a whole and the
    paths of others that were found."""
    if patterns is not None:
        return tuple(patterns)
    return weight_patterns(traced.signature.names, traced.weights)


def _check_values(args: Sequence[Any]) -> None:
    for leaf in jax.tree.leaves(args):
        if isinstance(leaf, jax.ShapeDtypeStruct):
            raise CompileError("quantization looks at numbers: give arrays, not jax.ShapeDtypeStructs")


def table_of(
    traced: TracedSource,
    config: QuantConfig,
    batches: Sequence[Sequence[Any]],
    labels: Sequence[Any] | None,
    metric: str | Metric,
    machine: Machine,
) -> QuantTable:
    """Measures a configuration on batches: each product alone on the first one, and the outputs on all."""
    from .fake import integer_function

    original = jax.jit(lambda leaves: traced.run(_plain(), leaves))
    quantized = jax.jit(integer_function(traced, config, machine))
    references = [jax.device_get(original(leaves)) for leaves in batches]
    outputs = [jax.device_get(quantized(leaves)) for leaves in batches]
    score = scorer(metric, references, labels, traced.signature.unflatten)
    noise = product_noise(traced, config, batches[0])
    rows = []
    for product in traced.products:
        choice = config.choice(product.name)
        op, shape = product.op, shape_of(product.weights)
        assert isinstance(op, GraphOp)
        rows.append(
            ProductRow(
                product.name,
                "product" if op.name == "graph.contract" else "convolution",
                shape,
                choice.mode,
                op.flops() // 2,
                weight_bytes(product, choice.recipe),
                choice.scale if choice.recipe.static else None,
                choice.zero,
                decibels(*noise[product.name]) if product.name in noise else float("inf"),
            )
        )
    flat = [a for batch in references for a in batch], [a for batch in outputs for a in batch]
    name = metric_name(metric)
    return QuantTable(
        tuple(rows),
        name,
        score(references),
        score(outputs),
        COMPARED["sqnr"](*flat),
        COMPARED["cosine"](*flat),
    )


def weight_bytes(product: Any, recipe: Recipe) -> int:
    """Bytes of what is kept of a product's weights."""
    shape = shape_of(product.weights)
    count = size(shape)
    if recipe.weights is None:
        return count * itemsize(element_of(product.weights))
    blocks = weight_blocks(product, recipe)
    scales = size([shape[d] // n for d, n in blocks.items()])
    if is_sparse(product, recipe):
        return count // KEPT_OF + count // INDEXED + 4 * scales
    half = recipe.weights == "i4" and (recipe.inputs is None or is_paired(product, recipe))
    return (count + 1) // 2 + 4 * scales if half else count + 4 * scales


def _plain() -> Any:
    from ..backends.interpreter.graph import GraphRunner

    return GraphRunner()
