"""Functions that the tables call."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Pair(NamedTuple):
    """A pytree of a class of its own."""

    left: Any
    right: Any


@jax.custom_vjp
def doubled(x: Any) -> Any:
    """2 x, with a gradient of its own."""
    return 2 * x


doubled.defvjp(lambda x: (doubled(x), x), lambda x, g: (jnp.cos(x) * g,))


@jax.custom_jvp
def tripled(x: Any) -> Any:
    """3 x, with a derivative of its own."""
    return 3 * x


tripled.defjvps(lambda t, out, x: t * out)


def scoped(x: Any) -> Any:
    """sin x in a named scope."""
    with jax.named_scope("scope"):
        return jnp.sin(x)
