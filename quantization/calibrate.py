"""Calibration: one jitted pass over batches that gathers what the inputs of products look like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from ..api.arguments.signature import CompileError
from ..dialects.dtypes import limits as storage_limits
from ..dialects.graph import ContractOp
from ..passes.quantized.products_named import NamedProduct, summed_dims
from ..passes.quantized.recipes import ProductChoice, QuantConfig
from ..support.progress import Say, watched
from . import observers
from .traced import TracedSource, WatchingRunner, flat_inputs

ONE_SIDED = 0.1
"""Where numbers below zero reach less than this part of those above it, a zero point gains most of a bit."""

FIXPIPE_MANTISSA = 10
"""Bits of the mantissa of scales: so many has the factor by which results leave the cube, see machine files."""


def batches_of(
    traced: TracedSource,
    source: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    data: Iterable[Any] | None,
) -> list[list[Any]]:
    """The flat inputs of each batch. data: for each batch the arguments that are no weights, as a tuple, or the only
    one of them; None: the arguments themselves are the only batch. Raises CompileError for no data, for arguments of
    other shapes or dtypes, and for numbers that are not finite."""
    checked: dict[int, Any] = {}
    if data is None:
        return [_finite(traced, flat_inputs(traced, source, args, kwargs), checked, "the example inputs: ")]
    free = free_arguments(traced, len(args))
    if not isinstance(data, Iterable):
        raise CompileError(f"the data must be a list of batches, not a value of type {type(data).__name__}")
    out = []
    for n, batch in enumerate(data):
        given = batch if isinstance(batch, tuple) else (batch,)
        if len(given) == len(args):
            whole = list(given)
        elif len(given) == len(free):
            whole = list(args)
            for i, value in zip(free, given, strict=True):
                whole[i] = value
        else:
            said = ", ".join(traced.signature.parameters.label(i) for i in free)
            raise CompileError(
                f"batch {n} of the data has {len(given)} arguments: give those that are no weights ({said})"
            )
        try:
            out.append(_finite(traced, flat_inputs(traced, source, whole, kwargs), checked))
        except CompileError as error:
            raise CompileError(f"batch {n} of the data: {error}") from None
    if not out:
        raise CompileError("the data has no batches: calibration needs at least one")
    return out


def free_arguments(traced: TracedSource, count: int) -> list[int]:
    """The numbers of the arguments that hold no weights."""
    tree = traced.signature.in_tree
    if tree is None:
        return [i for i, flag in enumerate(traced.weights) if not flag]
    flags = jax.tree.unflatten(tree, traced.weights)[0]
    return [i for i in range(count) if not any(jax.tree.leaves(flags[i]))]


def _finite(traced: TracedSource, leaves: list[Any], checked: dict[int, Any], where: str = "") -> list[Any]:
    """The inputs of a batch, whose numbers are finite. checked: arrays that are known to be, by identity, such as the
    weights of batches before; where: what an error begins with."""
    for path, leaf in zip(traced.signature.names, leaves, strict=True):
        if id(leaf) in checked:
            continue
        checked[id(leaf)] = leaf
        floating = jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)
        if floating and not np.isfinite(np.asarray(leaf)).all():  # numpy: XLA would compile for each shape
            raise CompileError(f"{where}{path} has NaN or infinity")
        if not leaf.size:
            raise CompileError(f"{where}{path} has no elements")
    return leaves


def gather(
    traced: TracedSource,
    batches: Sequence[Sequence[Any]],
    names: Iterable[str],
    progress: bool | Say = True,
    channels: bool = False,
    balances: Mapping[str, np.ndarray] | None = None,
) -> dict[str, Any]:
    """What the inputs of some products look like, over all batches: `observers.Statistics` of each, or with `channels`
    the `ChannelStatistics` along the first dimension that is summed; of inputs over their `balances`."""
    chosen = [p for p in traced.products if p.name in set(names)]
    if not chosen:
        return {}
    axes = {p.name: summed_dims(p)[0][0] for p in chosen}
    states: dict[str, Any] = {
        p.name: observers.start_channels(_shape(p)[axes[p.name]]) if channels else observers.start()
        for p in chosen
    }

    def update(name: str, state: Any, x: Array) -> Any:
        x = balanced_input(by_name[name], (balances or {}).get(name), x)
        return observers.update_channels(state, x, axes[name]) if channels else observers.update(state, x)

    by_name = {p.name: p for p in chosen}
    return collect(traced, batches, states, update, progress)


def balanced_input(product: NamedProduct, balance: np.ndarray | None, x: Array) -> Array:
    """An input over its balance."""
    if balance is None:
        return x
    dims = summed_dims(product)[0]
    shape = [x.shape[d] if d in dims else 1 for d in range(x.ndim)]
    order = sorted(range(len(dims)), key=lambda i: dims[i])
    return x.astype(jax.numpy.float32) / jax.numpy.asarray(
        balance.transpose(order).reshape(shape), jax.numpy.float32
    )


def collect(
    traced: TracedSource,
    batches: Sequence[Sequence[Any]],
    states: Mapping[str, Any],
    update: Callable[[str, Any, Array], Any],
    progress: bool | Say = True,
) -> dict[str, Any]:
    """Runs a program on batches, by one jitted function, and gathers something of the inputs of products: `states` has
    what each begins with, and `update(name, state, input)` gives the next."""
    chosen = [p for p in traced.products if p.name in states]

    @jax.jit
    def step(states: dict[str, Any], leaves: Sequence[Array]) -> dict[str, Any]:
        runner = WatchingRunner(chosen, dict(states), update)
        traced.run(runner, leaves)
        return runner.states

    found = dict(states)
    with watched(progress, "calibrating") as say:
        for n, leaves in enumerate(batches):
            say(f"calibrating: batch {n + 1} of {len(batches)}", n, len(batches))
            found = step(found, leaves)
        return jax.device_get(found)


def _shape(product: NamedProduct) -> tuple[int, ...]:
    return product.input.type.get_shape()  # pyright: ignore[reportAttributeAccessIssue]  # a tensor


def with_scales(
    traced: TracedSource,
    config: QuantConfig,
    statistics: Mapping[str, observers.Statistics],
    method: str = "auto",
    methods: Mapping[str, str] | None = None,
    affine: bool | None = None,
) -> QuantConfig:
    """The configuration with the scales and zero points of static inputs. methods: those of single products; affine:
    whether there are zero points, None: where a product is no convolution and its inputs are all but positive."""
    products = dict(config.products)
    for product in traced.products:
        choice = config.choice(product.name)
        if choice.recipe.static and product.name in statistics and choice.scale is None:
            state = statistics[product.name]
            how = (methods or {}).get(product.name, method)
            scale, zero = static_scale(product, choice, state, how, affine)
            products[product.name] = ProductChoice(choice.mode, scale, zero, **choice.arrays())
    return QuantConfig(config.default, config.pins, products)


def static_scale(
    product: NamedProduct,
    choice: ProductChoice,
    state: observers.Statistics,
    method: str,
    affine: bool | None,
) -> tuple[float, int]:
    """The scale and the zero point of the input of a product. Raises CompileError for statistics without them."""
    storage = choice.recipe.inputs
    assert storage is not None
    low, high = storage_limits(storage)
    if storage.startswith("f8"):
        largest = max(abs(float(state.low)), abs(float(state.high)))
        scale, _ = observers.scale_and_zero(-largest, largest, (low, high), True, FIXPIPE_MANTISSA)
        return float(scale), 0
    if affine is None:
        one_sided = float(state.low) >= -ONE_SIDED * float(state.high)
        affine = one_sided and isinstance(product.op, ContractOp)
    try:
        bits = int(high - low).bit_length()
        least, most = observers.limits(state, method, bits, symmetric=not affine)
        scale, zero = observers.scale_and_zero(least, most, (low, high), not affine, FIXPIPE_MANTISSA)
    except ValueError as error:
        raise CompileError(f"calibrating {product.name}: {error}") from None
    return float(scale), int(np.asarray(zero))
