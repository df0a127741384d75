"""How far single products are off in the modes that are chosen for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..backends.interpreter.graph import Env
from ..passes.quantized.recipes import QuantConfig
from .modes import product_in_mode
from .traced import TracedSource, WatchingRunner


class NoiseRunner(WatchingRunner):
    """Gathers the sum of squares of each product's results, and that of its errors on the same operands."""

    def __init__(self, traced: TracedSource, config: QuantConfig, names: Sequence[str]):
        zero = jnp.zeros((), jnp.float32)
        super().__init__(traced.products, dict.fromkeys(names, (zero, zero)), self._keep)
        self.config = config

    def _keep(self, name: str, state: Any, x: Array) -> Any:
        return state

    def op(self, op: Any, env: Env) -> None:
        super().op(op, env)
        product = self.products.get(op)
        if product is None:
            return
        exact = env[op.results[0]].astype(jnp.float32)
        choice = self.config.choice(product.name)
        made = product_in_mode(product, choice, env[product.input], env[product.weights]).astype(jnp.float32)
        signal, noise = self.states[product.name]
        self.states[product.name] = (signal + jnp.sum(exact**2), noise + jnp.sum((exact - made) ** 2))


def product_noise(
    traced: TracedSource, config: QuantConfig, leaves: Sequence[Any]
) -> dict[str, tuple[float, float]]:
    """For each product that is quantized, the sum of squares of its results and of its errors."""
    names = [n for n in traced.names if config.mode_of(n) != "origin"]

    @jax.jit
    def run(leaves: Sequence[Array]) -> dict[str, Any]:
        runner = NoiseRunner(traced, config, names)
        traced.run(runner, leaves)
        return runner.states

    return {n: (float(a), float(b)) for n, (a, b) in jax.device_get(run(leaves)).items()}
