"""Training in mixed precision: small JAX functions that jax.jit and tw.compile take whole.

scaling.py    a loss scale that follows overflows, gradients of scaled losses, steps that an overflow skips
precision.py  functions that compute in a smaller type than their parameters have
batches.py    gradients of a batch from those of its parts

A step of training in f16:

    forward = training.mixed(model, jnp.float16)
    gradient = training.scaled_grad(lambda params, x, y: cross_entropy(forward(params, x), y))

    @tw.jit
    def step(scale, state, x, y):
        grads = gradient(scale, state.params, x, y)
        return training.step_if_finite(update)(scale, state, grads)

    scale = training.loss_scale()
    scale, state, finite = step(scale, state, x, y)
"""

from .batches import accumulate, micro_batches
from .precision import cast_floats, mixed
from .scaling import (
    LossScale,
    all_finite,
    loss_scale,
    scaled_grad,
    scaled_value_and_grad,
    select_tree,
    step_if_finite,
)

__all__ = [
    "LossScale",
    "accumulate",
    "all_finite",
    "cast_floats",
    "loss_scale",
    "micro_batches",
    "mixed",
    "scaled_grad",
    "scaled_value_and_grad",
    "select_tree",
    "step_if_finite",
]
