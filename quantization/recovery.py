"""Recovery: what makes up for the loss of quantization, step by step, from example data.

equalize   input channels get equal ranges, where the product before it, or a norm, can take the factors
smooth     ranges of inputs move into the weights (SmoothQuant)
awq        weights that meet large inputs are stored more finely (AWQ)
gptq       weights are rounded so that errors cancel on the data (GPTQ)
round      which way each weight is rounded is learned (AdaRound)
bias       the mean error of each feature is taken off
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from xdsl.ir import SSAValue

from ..api.arguments.signature import CompileError
from ..backends.interpreter.graph import Env
from ..dialects.base import integer, to_ints
from ..dialects.dtypes import element_type, is_float
from ..dialects.graph import ContractOp, ConvOp
from ..dialects.graph.interface import shape_of
from ..passes.quantized.products_named import NamedProduct, feature_dims, summed_dims
from ..passes.quantized.recipes import ProductChoice, QuantConfig, Recipe, largest_stored
from ..passes.quantized.stored_weights import is_sparse
from ..support.progress import Say
from . import balancing, learned, weights
from .calibrate import collect, gather
from .matrices import Matrices
from .modes import product_in_mode
from .traced import TracedSource, WatchingRunner

ROWS = 4096
"""Learned rounding looks at no more rows of a product's input."""

Step = Callable[[TracedSource, QuantConfig, Sequence[Sequence[Any]], bool | Say], QuantConfig]


def recovered(
    traced: TracedSource,
    config: QuantConfig,
    batches: Sequence[Sequence[Any]],
    steps: Sequence[str],
    progress: bool | Say,
) -> QuantConfig:
    """The configuration with what some steps add to it. Raises CompileError for a step that there is not."""
    for step in steps:
        if step not in STEPS:
            raise CompileError(f"there is no recovery {step!r}; there are {', '.join(STEPS)}")
    for step in steps:
        config = STEPS[step](traced, config, batches, progress)
    return config


def _with(config: QuantConfig, found: Mapping[str, Mapping[str, Any]]) -> QuantConfig:
    """A configuration with more arrays."""
    products = dict(config.products)
    for name, arrays in found.items():
        products[name] = replace(config.choice(name), **{k: np.asarray(v) for k, v in arrays.items()})
    return QuantConfig(config.default, config.pins, products)


def _quantized(traced: TracedSource, config: QuantConfig, weights_only: bool = False) -> list[NamedProduct]:
    """The products whose weights are stored, as integers."""
    found = []
    for p in traced.products:
        recipe = config.choice(p.name).recipe
        stored = recipe.weights is not None and not is_float(element_type(recipe.weights))
        if stored and (recipe.inputs is None or not weights_only):
            found.append(p)
    return found


def _rounded(traced: TracedSource, config: QuantConfig) -> list[NamedProduct]:
    """The products whose weights may be rounded either way: not sparse ones, where that would fill zeros."""
    return [p for p in _quantized(traced, config) if not is_sparse(p, config.choice(p.name).recipe)]


# -- balances --------------------------------------------------------------------------------------------------


def _by_input(products: Sequence[NamedProduct]) -> list[list[NamedProduct]]:
    """Products with one dimension of input channels, those together that read the same values."""
    groups: dict[SSAValue, list[NamedProduct]] = defaultdict(list)
    for p in products:
        if len(summed_dims(p)[0]) == 1:
            groups[p.input].append(p)
    return list(groups.values())


def _largest_weights(traced: TracedSource, product: NamedProduct, w: Array) -> Array:
    """The largest weight that each input channel meets."""
    op, d = product.op, summed_dims(product)[1][0]
    rest = tuple(i for i in range(w.ndim) if i != d)
    top = jnp.max(jnp.abs(w.astype(jnp.float32)), rest)
    if isinstance(op, ConvOp) and (groups := integer(op.groups)) > 1:
        features = to_ints(op.rhs_layout)[1]
        split = jnp.moveaxis(w, (d, features), (0, 1)).reshape(w.shape[d], groups, -1)
        return jnp.max(jnp.abs(split.astype(jnp.float32)), -1).T.reshape(-1)
    return top


def _balanced(
    traced: TracedSource,
    config: QuantConfig,
    batches: Sequence[Sequence[Any]],
    progress: bool | Say,
    alpha: Callable[[NamedProduct], float],
    chosen: Callable[[NamedProduct], bool],
) -> QuantConfig:
    products = [p for p in _quantized(traced, config) if chosen(p) and len(summed_dims(p)[0]) == 1]
    ranges = gather(traced, batches, [p.name for p in products], progress, channels=True)
    found_weights = weights_of(traced, batches[0], [p.name for p in products])
    found: dict[str, dict[str, Any]] = {}
    for group in _by_input(products):
        tops = [_largest_weights(traced, p, found_weights[p.name]) for p in group]
        top = jnp.max(jnp.stack(tops), 0)
        scale = balancing.smooth_scale(ranges[group[0].name].largest, top, alpha(group[0]))
        scale = scale / jnp.exp(jnp.mean(jnp.log(scale)))  # the range of the tensor stays about what it was
        found |= {p.name: {"balance": scale} for p in group}
    return _with(config, found)


def _is_depthwise(product: NamedProduct) -> bool:
    op = product.op
    return isinstance(op, ConvOp) and integer(op.groups) > 1


def equalize(
    traced: TracedSource, config: QuantConfig, batches: Sequence[Sequence[Any]], progress: bool | Say
) -> QuantConfig:
    """Gives the input channels of products equal ranges. Weights of a depthwise convolution, which have a scale for
    each channel, take all of it; others half, as in cross-layer equalisation (Nagel et al. 2019, eq. 11)."""
    return _balanced(
        traced,
        config,
        batches,
        progress,
        lambda p: 1.0 if _is_depthwise(p) else 0.5,
        lambda p: _has_integers(config, p),
    )


def _has_integers(config: QuantConfig, product: NamedProduct) -> bool:
    return config.choice(product.name).recipe.inputs is not None


def smooth(
    traced: TracedSource, config: QuantConfig, batches: Sequence[Sequence[Any]], progress: bool | Say
) -> QuantConfig:
    """SmoothQuant, with half of the range for each side, for matrix products (Xiao et al. 2022, eq. 4)."""
    return _balanced(
        traced,
        config,
        batches,
        progress,
        lambda p: 0.5,
        lambda p: isinstance(p.op, ContractOp) and _has_integers(config, p),
    )


def awq(
    traced: TracedSource, config: QuantConfig, batches: Sequence[Sequence[Any]], progress: bool | Say
) -> QuantConfig:
    """AWQ's factors of input channels, for matrix products (Lin et al. 2023)."""
    products = [p for p in _quantized(traced, config) if isinstance(p.op, ContractOp)]
    matrices = _matrices(products)
    hessians = _hessians(traced, batches, matrices, progress)
    ranges = gather(traced, batches, list(matrices), progress, channels=True)
    found_weights = weights_of(traced, batches[0], list(matrices))
    found: dict[str, dict[str, Any]] = {}
    for group in _by_input([m.product for m in matrices.values()]):
        first = matrices[group[0].name]
        recipe = config.choice(group[0].name).recipe
        matrix = jnp.concatenate([matrices[p.name].matrix(found_weights[p.name]) for p in group], axis=-1)
        magnitude, hessian = ranges[group[0].name].magnitude, hessians[group[0].name]
        size = first.group(recipe)
        scales = _scale_method(recipe, size or len(matrix))
        scaled = weights.awq(matrix, hessian, magnitude, recipe.weight_range, size, scales)
        assert scaled.input_scale is not None
        found |= {p.name: {"balance": scaled.input_scale} for p in group}
    return _with(config, found)


# -- weights ---------------------------------------------------------------------------------------------------


def weights_of(traced: TracedSource, leaves: Sequence[Any], names: Sequence[str]) -> dict[str, Array]:
    """The weights of products, as these take them."""
    runner = _WeightsRunner(traced, names)

    @jax.jit
    def run(leaves: Sequence[Array]) -> dict[str, Array]:
        traced.run(runner, leaves)
        return runner.found

    return run(list(leaves))


class _WeightsRunner(WatchingRunner):
    """Notes the weights of products outside of loops."""

    def __init__(self, traced: TracedSource, names: Sequence[str]):
        super().__init__(traced.products, dict.fromkeys(names), lambda name, state, x: None)
        self.found: dict[str, Array] = {}

    def op(self, op: Any, env: Env) -> None:
        product = self.products.get(op)
        if product is not None:
            self.found[product.name] = env[product.weights]
        super().op(op, env)


def _matrices(products: Sequence[NamedProduct]) -> dict[str, Matrices]:
    """Those products that are of matrices, as such."""
    return {p.name: m for p in products if (m := Matrices.of(p)) is not None}


def _hessians(
    traced: TracedSource, batches: Sequence[Sequence[Any]], matrices: Mapping[str, Matrices], progress: bool | Say
) -> dict[str, Array]:
    """The sums of x x^T over the rows of the inputs of products."""
    starts = {name: m.start() for name, m in matrices.items()}
    return collect(traced, batches, starts, lambda name, h, x: matrices[name].update(h, x), progress)


def _balance_of(choice: ProductChoice) -> Array | None:
    return None if choice.balance is None else jnp.asarray(choice.balance, jnp.float32)


def _scale_method(recipe: Recipe, count: int) -> str:
    """How the scale of so many weights is found where they are rounded to nearest."""
    _, high = recipe.weight_range
    return "extended" if largest_stored(high, count) > high else "absmax"


def gptq(
    traced: TracedSource, config: QuantConfig, batches: Sequence[Sequence[Any]], progress: bool | Say
) -> QuantConfig:
    """Rounds weights so that errors cancel on the data, those that meet the strongest inputs first (Frantar et al.
    2022)."""
    matrices = _matrices(_rounded(traced, config))
    hessians = _hessians(traced, batches, matrices, progress)
    found_weights = weights_of(traced, batches[0], list(matrices))
    found: dict[str, dict[str, Any]] = {}
    for name, m in matrices.items():
        choice = config.choice(name)
        w, h = m.matrix(found_weights[name]), jnp.asarray(hessians[name])
        balance = _balance_of(choice)
        if balance is not None:
            factors = m.factors(balance)
            w, h = w * factors[..., None], h / (factors[..., None] * factors[..., None, :])
        size = m.group(choice.recipe)
        scales = _scale_method(choice.recipe, size or w.shape[-2])
        made = weights.gptq(w, h, choice.recipe.weight_range, size, scales, act_order=True)
        found[name] = {"stored": m.operand(made.q), "scales": m.scales(made.scale, choice.recipe)}
    return _with(config, found)


def learn(
    traced: TracedSource, config: QuantConfig, batches: Sequence[Sequence[Any]], progress: bool | Say
) -> QuantConfig:
    """Learns which way each weight is rounded, on rows of the first batches (Nagel et al. 2020); not of convolutions
    with several groups."""
    matrices = {n: m for n, m in _matrices(_rounded(traced, config)).items() if m.groups in (None, 1)}
    found_weights = weights_of(traced, batches[0], list(matrices))
    found: dict[str, dict[str, Any]] = {}
    for name, m in matrices.items():
        choice = config.choice(name)
        rows = [_rows_of(traced, batch, m) for batch in batches[:4]]
        x = jnp.concatenate([r[:: max(1, -(-len(r) * len(rows) // ROWS))] for r in rows])
        w = m.matrix(found_weights[name])
        w = w.reshape(w.shape[-2:])
        outputs = jnp.matmul(x, w, precision=lax.Precision.HIGHEST)
        if (balance := _balance_of(choice)) is not None:
            factors = m.factors(balance).reshape(-1)
            x, w = x / factors, w * factors[:, None]
        size = m.group(choice.recipe)
        scales = _scale_method(choice.recipe, size or len(w))
        near = weights.nearest(w, choice.recipe.weight_range, size, scales)
        made = learned.learn_rounding(w, near.scale, x, outputs, stored=choice.recipe.weight_range)
        q = made.q if made.error < made.nearest_error else near.q
        q, scale = (q, near.scale) if m.groups is None else (q[None], near.scale[None])
        found[name] = {"stored": m.operand(q), "scales": m.scales(scale, choice.recipe)}
    return _with(config, found)


def _rows_of(traced: TracedSource, leaves: Sequence[Any], matrices: Matrices) -> Array:
    """The input of a product on one batch, as rows of one matrix."""
    name = matrices.product.name
    start = {name: jnp.zeros((0, 0), jnp.float32)}
    rows = collect(traced, [leaves], start, lambda _, state, x: matrices.rows(x), False)[name]
    return jnp.asarray(rows).reshape(-1, rows.shape[-1])


# -- biases ----------------------------------------------------------------------------------------------------


def bias(
    traced: TracedSource, config: QuantConfig, batches: Sequence[Sequence[Any]], progress: bool | Say
) -> QuantConfig:
    """Takes the mean error of each feature off, as it is on the data (Nagel et al. 2019, section 4.2)."""
    products = [p for p in traced.products if config.choice(p.name).recipe.weights is not None]
    shapes = {p.name: [shape_of(p.op.result)[d] for d in feature_dims(p)] for p in products}
    runner = partial(_ErrorRunner, traced, config)
    zeros = {n: jnp.zeros(s, jnp.float32) for n, s in shapes.items()}

    @jax.jit
    def step(states: dict[str, Array], leaves: Sequence[Array]) -> dict[str, Array]:
        made = runner(states)
        traced.run(made, leaves)
        return made.states

    for leaves in batches:
        zeros = step(zeros, list(leaves))
    found = {}
    for name, total in zeros.items():
        before = config.choice(name).shift
        mean = np.asarray(total) / len(batches)
        found[name] = {"shift": mean if before is None else before + mean}
    return _with(config, found)


class _ErrorRunner(WatchingRunner):
    """Adds up the mean of what products lose, feature by feature."""

    def __init__(self, traced: TracedSource, config: QuantConfig, states: dict[str, Array]):
        super().__init__(traced.products, dict(states), lambda name, state, x: state)
        self.config = config

    def op(self, op: Any, env: Env) -> None:
        super().op(op, env)
        product = self.products.get(op)
        if product is None:
            return
        exact = env[op.results[0]].astype(jnp.float32)
        made = product_in_mode(
            product, self.config.choice(product.name), env[product.input], env[product.weights]
        )
        dims = feature_dims(product)
        rest = tuple(d for d in range(exact.ndim) if d not in dims)
        lost = jnp.mean(exact - made.astype(jnp.float32), rest)
        self.states[product.name] = self.states[product.name] + lost


STEPS: dict[str, Step] = {
    "equalize": equalize,
    "smooth": smooth,
    "awq": awq,
    "gptq": gptq,
    "round": learn,
    "bias": bias,
}
"""The steps by name."""

BALANCES = ("equalize", "smooth", "awq")
"""Those that change inputs, which are calibrated behind them."""
