"""Differentiable twins of quantized programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
from jax import Array

from ..api.arguments.signature import CompileError
from ..api.quantized import integer_module
from ..api.sources import as_compile_error
from ..backends.interpreter.graph import GraphRunner
from ..machine import DEFAULT_TARGET, Machine, Target
from ..passes.pipeline import PIPELINE, Stage
from ..passes.quantized.products_named import main_function
from ..passes.quantized.quantize import read_config
from ..passes.quantized.recipes import QuantConfig
from ..support.sentences import quoted
from .modes import product_in_mode
from .traced import ChangedRunner, TracedSource, trace_source


def fake_quant(
    source: Any,
    config: QuantConfig | str | Path,
    *,
    target: Target | None = None,
    weights: str | Sequence[str] | None = None,
) -> Callable[..., Any]:
    """A JAX function that computes what a program computes when it is quantized, with a gradient.

    Its values are those of the quantized program's graph level, integers included. The gradient is that of the program
    in which each stored number is replaced by the one that it stands for, and rounding is passed through
    (straight-through estimator, Bengio et al. 2013); scales have none.

    source: as for `tw.compile`, a JAX function above all; config: as in `tw.Options`; target: the chip, whose cube
    decides what is multiplied as integers; weights: patterns of the arguments that are weights. Raises CompileError, at
    the first call for arguments of some types, for a source or a configuration that cannot be quantized.
    """
    chosen = Machine.named(target or DEFAULT_TARGET)
    Machine.load(chosen)
    patterns = (weights,) if isinstance(weights, str) else weights
    made: dict[Any, tuple[TracedSource, Callable[..., list[Array]]]] = {}

    def function(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        structs = [jax.ShapeDtypeStruct(jax.numpy.shape(x), jax.numpy.result_type(x)) for x in leaves]
        key = (tree, *((s.shape, s.dtype) for s in structs))
        if key not in made:
            shaped, keywords = jax.tree.unflatten(tree, structs)
            made[key] = twin(source, shaped, keywords, read(config), chosen, patterns)
        traced, run = made[key]
        return traced.signature.unflatten(run(*leaves))

    return function


def read(config: QuantConfig | str | Path) -> QuantConfig:
    """A configuration. Raises CompileError for one that cannot be read."""
    if not isinstance(config, QuantConfig | str | Path):
        raise CompileError(f"config must be a tw.QuantConfig, a .toml file or a mode, not {quoted(config)}")
    with as_compile_error():
        return read_config(config)


def twin(
    source: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    config: QuantConfig,
    target: str,
    weights: Sequence[str] | None,
) -> tuple[TracedSource, Callable[..., list[Array]]]:
    """A traced source, and what it computes on flat inputs when it is quantized."""
    traced = trace_source(source, args, kwargs, weights, target)
    integers = integer_function(traced, config, Machine.load(target))
    changes = {
        p.name: partial(product_in_mode, p, config.choice(p.name))
        for p in traced.products
        if config.mode_of(p.name) != "origin"
    }

    @jax.custom_vjp
    def run(*leaves: Array) -> list[Array]:
        return integers(leaves)

    def forward(*leaves: Array) -> tuple[list[Array], tuple[Array, ...]]:
        return run(*leaves), leaves

    def backward(leaves: tuple[Array, ...], cotangents: list[Array]) -> tuple[Array, ...]:
        runner = ChangedRunner(traced.products, changes)
        return jax.vjp(lambda *xs: traced.run(runner, xs), *leaves)[1](cotangents)

    run.defvjp(forward, backward)
    return traced, run


def integer_function(
    traced: TracedSource,
    config: QuantConfig | None,
    machine: Machine,
    stages: Sequence[Stage] = PIPELINE,
) -> Callable[[Sequence[Any]], list[Array]]:
    """What the quantized program gives for flat inputs, by its graph level. config, stages: as `integer_module` has
    them."""
    with as_compile_error():
        module = integer_module(traced.module.clone(), machine, config, stages=stages)
    block = main_function(module).body.block
    return lambda leaves: GraphRunner().block(block, dict(zip(block.args, leaves, strict=True)))
