"""Steps of optimisers: each takes the rate, the number of the update, and for all tensors together their values, their
gradients, and what the optimiser keeps of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..node import Node
from ..table import add_rules, rule

DOMAIN = "ai.onnx.preview.training"


def _momentum(node: Node, rate: Any, count: Any, x: Any, gradient: Any, v: Any) -> tuple[Any, ...]:
    import jax.numpy as jnp

    alpha, mode = node.get("alpha"), node.get("mode")
    gradient = node.get("norm_coefficient") * x + gradient
    v = alpha * v + jnp.where(count > 0, node.get("beta"), 1.0).astype(x.dtype) * gradient
    return x - rate * (gradient + alpha * v if mode == "nesterov" else v), v


def _adagrad(node: Node, rate: Any, count: Any, x: Any, gradient: Any, h: Any) -> tuple[Any, ...]:
    import jax.numpy as jnp

    rate = rate / (1 + count.astype(rate.dtype) * node.get("decay_factor", 0.0))
    gradient = node.get("norm_coefficient", 0.0) * x + gradient
    h = h + gradient * gradient
    return x - rate * gradient / (jnp.sqrt(h) + node.get("epsilon", 0.0)), h


def _adam(node: Node, rate: Any, count: Any, x: Any, gradient: Any, v: Any, h: Any) -> tuple[Any, ...]:
    import jax.numpy as jnp

    alpha, beta = node.get("alpha", 0.9), node.get("beta", 0.999)
    gradient = node.get("norm_coefficient", 0.0) * x + gradient
    v = alpha * v + (1 - alpha) * gradient
    h = beta * h + (1 - beta) * gradient * gradient
    past = count.astype(jnp.float64)  # powers near one: what is left of one would have few digits
    left, right = 1 - jnp.power(alpha, past), 1 - jnp.power(beta, past)
    factor = jnp.where(count > 0, jnp.sqrt(right) / jnp.where(count > 0, left, 1), 1).astype(rate.dtype)
    x = x - rate * factor * v / (jnp.sqrt(h) + node.get("epsilon", 0.0))
    return (1 - node.get("norm_coefficient_post", 0.0)) * x, v, h


def _of_all(step: Callable[..., tuple[Any, ...]], kinds: int) -> Callable[..., Any]:
    """The rule of an optimiser. kinds: how many arrays it takes for a tensor."""

    def build(node: Node, rate: Any, count: Any, *arrays: Any) -> Any:
        n = len(arrays) // kinds
        made = [step(node, rate, count, *arrays[i::n]) for i in range(n)]
        results = [value for kind in zip(*made, strict=True) for value in kind]
        kept = [*arrays[:n], *arrays[2 * n :]]
        return tuple(value.astype(like.dtype) for value, like in zip(results, kept, strict=True))

    return build


add_rules(["Momentum"], _of_all(_momentum, 3), DOMAIN)
add_rules(["Adagrad"], _of_all(_adagrad, 3), DOMAIN)
add_rules(["Adam"], _of_all(_adam, 4), DOMAIN)


@rule("Gradient", domain=DOMAIN)
def _gradient(node: Node, *inputs: Any) -> Any:
    raise node.unsupported("it is the derivative of nodes before it; take that of the whole function instead")
