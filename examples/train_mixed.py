"""Training in f16 with dynamic loss scaling: the digits CNN and an MLP, as steps that compile whole.

Run the file to train the CNN compiled: it prints the loss and the scale as they come, steps that an overflow skips,
and how far the weights are from those of the same steps in JAX.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import tilewright as tw
from tilewright import training
from tilewright.training import LossScale

sys.path.insert(0, str(Path(__file__).parent))
import digits_cnn
from trained import Adam, Params, Rows, adam, adam_step, cross_entropy

RATE = 2e-3
PARTS = 4
"""Micro-batches of a step that accumulates."""


class Training(NamedTuple):
    """All that a step changes: the loss scale, and the weights with their moments, all in f32."""

    scale: LossScale
    adam: Adam


def mlp(params: Params, images: jax.Array) -> jax.Array:
    """Two layers; images [n, 8, 8, 1], logits [n, 10] in the type of the weights."""
    x = images.reshape(images.shape[0], -1)
    return jax.nn.relu(x @ params["up"] + params["up_b"]) @ params["down"] + params["down_b"]


def gradients(net: Any, state: Training, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, Params]:
    """The loss f32 [] and its gradient in f32; all between them is in f16."""
    forward = training.mixed(net, jnp.float16)

    def loss(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
        return cross_entropy(forward(params, images), labels)

    return training.scaled_value_and_grad(loss)(state.scale, state.adam.params, images, labels)


def applied(state: Training, loss: jax.Array, grads: Params) -> tuple[Training, jax.Array, jax.Array]:
    """The state after a step of Adam, the loss before it, and whether it was made, bool []."""
    step = training.step_if_finite(partial(adam_step, rate=RATE))
    scale, adam_state, finite = step(state.scale, state.adam, grads)
    return Training(scale, adam_state), loss, finite


def cnn(state: Training, images: jax.Array, labels: jax.Array) -> tuple[Training, jax.Array, jax.Array]:
    """A step of the digits CNN; images f32 [64, 8, 8, 1], labels int32 [64]."""
    return applied(state, *gradients(digits_cnn.forward, state, images, labels))


def accumulated(
    state: Training, images: jax.Array, labels: jax.Array
) -> tuple[Training, jax.Array, jax.Array]:
    """The same step from four micro-batches of 16, one after the other."""
    parts = training.micro_batches(PARTS, images, labels)
    return applied(state, *training.accumulate(partial(gradients, digits_cnn.forward, state), *parts))


def dense(state: Training, images: jax.Array, labels: jax.Array) -> tuple[Training, jax.Array, jax.Array]:
    """A step of the MLP; images f32 [64, 8, 8, 1], labels int32 [64]."""
    return applied(state, *gradients(mlp, state, images, labels))


def dense_accumulated(
    state: Training, images: jax.Array, labels: jax.Array
) -> tuple[Training, jax.Array, jax.Array]:
    """The same step from four micro-batches of 16."""
    parts = training.micro_batches(PARTS, images, labels)
    return applied(state, *training.accumulate(partial(gradients, mlp, state), *parts))


def start(params: Params, **scale: float) -> Training:
    """The state before the first step. scale: arguments of `tw.training.loss_scale`."""
    return Training(training.loss_scale(**scale), adam(params))


def mlp_init(width: int = 48, seed: int = 0) -> Params:
    """Random f32 weights of `mlp`."""
    rng = np.random.default_rng(seed)
    up, down = rng.standard_normal((64, width)) / 6, rng.standard_normal((width, 10)) / np.sqrt(width)
    return {
        "up": jnp.asarray(up, jnp.float32),
        "up_b": jnp.zeros(width),
        "down": jnp.asarray(down, jnp.float32),
        "down_b": jnp.zeros(10),
    }


def batches(steps: int, seed: int = 0, size: int = 64) -> list[Rows]:
    """Random batches of the digits for training: images f32 [size, 8, 8, 1] and labels int32 [size] each."""
    digits, _ = digits_cnn.data()
    picked = np.random.default_rng(seed).integers(0, len(digits.labels), (steps, size))
    return [Rows(digits.inputs[rows], digits.labels[rows]) for rows in picked]


def cnn_inputs() -> tuple[Training, np.ndarray, np.ndarray]:
    """The first state and a batch."""
    images, labels = batches(1)[0]
    return start(digits_cnn.init()), images, labels


def accumulated_inputs() -> tuple[Training, np.ndarray, np.ndarray]:
    """The first state and a batch."""
    return cnn_inputs()


def dense_inputs() -> tuple[Training, np.ndarray, np.ndarray]:
    """The first state and a batch."""
    images, labels = batches(1)[0]
    return start(mlp_init()), images, labels


def dense_accumulated_inputs() -> tuple[Training, np.ndarray, np.ndarray]:
    """The first state and a batch."""
    return dense_inputs()


def main(steps: int = 60) -> None:
    # So large a scale overflows at once, and so short a period makes it try again: each halving and doubling is seen.
    first = start(digits_cnn.init(), initial=2.0**24, period=20)
    rows = batches(steps)
    program = tw.compile(cnn, first, *rows[0])
    report = program.report()
    print(
        f"{program!r}: {report.microseconds:.0f} us a step (modelled), {len(report.host_ops)} ops on the host"
    )
    reference = jax.jit(cnn)
    mine, theirs = first, first
    for i, (images, labels) in enumerate(rows):
        scale = float(mine.scale.scale)
        mine, loss, finite = program(mine, images, labels)
        theirs, want, expected = reference(theirs, images, labels)
        if not bool(finite) or i % 10 == 9:
            said = f"loss {float(loss):.4f} (JAX {float(want):.4f})" if bool(finite) else "skipped"
            print(f"step {i + 1:3}: scale 2^{int(np.log2(scale)):<2} {said}")
        if bool(finite) != bool(expected):
            print(f"step {i + 1:3} is skipped by one of the two only: a rounding decides it")
    far = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), mine.adam.params, theirs.adam.params)
    print(f"largest difference of a weight from JAX: {max(jax.tree.leaves(far)):.1e}")
    _, test = digits_cnn.data()
    for name, state in (("compiled", mine), ("JAX", theirs)):
        right = digits_cnn.accuracy(state.adam.params, jnp.asarray(test.inputs))
        print(f"test accuracy after {steps} steps, {name}: {right:.4f}")


if __name__ == "__main__":
    main()
