"""A net made small: pruned by channels, trained with its old self as a teacher, then quantized.

Run the file to see accuracy, bytes and modelled time after each step. `searched` shows how much of each layer could go
at once; `compressed` takes more, in turns of pruning and training; `quantized` stores what is left as integers.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import tilewright as tw
from tilewright import pruning

sys.path.insert(0, str(Path(__file__).parent))
import digits_cnn
from trained import Adam, Params, adam, adam_step, cached_params

CONV1 = pruning.Coupled([("['conv1_w']", 3), ("['conv1_b']", 0), ("['conv2_w']", 2)])
# The second convolution's 2 x 2 pixels are flattened before the dense layer: its channels come 4 times.
CONV2 = pruning.Coupled([("['conv2_w']", 3), ("['conv2_b']", 0), ("['dense1_w']", 0, 4)])
DENSE = pruning.Coupled([("['dense1_w']", 1), ("['dense1_b']", 0), ("['dense2_w']", 0)])
CHANNELS = (CONV1, CONV2, DENSE)

MODES = ("w8a8", "w4a16-g32")
"""What the small net is quantized to."""


class Hyper(NamedTuple):
    """Everything that decides the small net's weights; its hash names their cache file.

    kept: channels of both convolutions and of the dense layer. rounds: times that the net is pruned, in equal ratios,
    each followed by epochs / rounds of training. mixed: the share of images that are mixed with another one.
    """

    kept: tuple[int, int, int] = (12, 24, 56)
    rounds: int = 3
    epochs: int = 150
    batch: int = 64
    rate: float = 3e-3
    shift: float = 0.6
    mixed: float = 0.8
    temperature: float = 4.0
    seed: int = 0


HYPER = Hyper()


class Step(NamedTuple):
    """A net on the way: what was done to it, and its weights."""

    name: str
    params: Params


def importance(params: Params, channels: pruning.Coupled) -> jax.Array:
    """What the loss of the training digits would change without each channel, f32 [units]: the root of the mean
    square of its first-order term over batches of 64."""
    digits, _ = digits_cnn.data()
    count = len(digits.labels) // 64
    images = jnp.asarray(digits.inputs[: count * 64].reshape(count, 64, 8, 8, 1))
    labels = jnp.asarray(digits.labels[: count * 64].reshape(count, 64))

    def term(images: jax.Array, labels: jax.Array) -> jax.Array:
        return pruning.taylor(params, jax.grad(digits_cnn.loss)(params, images, labels), channels)

    return jnp.sqrt(jnp.mean(jnp.square(jax.lax.map(lambda batch: term(*batch), (images, labels))), axis=0))


def pruned(params: Params, kept: tuple[int, int, int]) -> Params:
    """The most important channels of each layer."""
    chosen = [pruning.best(importance(params, c), n) for c, n in zip(CHANNELS, kept, strict=True)]
    for channels, units in zip(CHANNELS, chosen, strict=True):
        params = pruning.prune(params, channels, units)
    return params


def mixtures(images: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """images f32 [n, 8, 8, 1], of which a share has up to 0.7 of another one mixed in: the teacher says what they are,
    so that a few digits are many examples (Beyer et al. 2022, "Knowledge distillation: a good teacher is patient and
    consistent")."""
    own = np.where(rng.random(len(images)) < share, rng.uniform(0.3, 1, len(images)), 1)
    own = own.astype(np.float32)[:, None, None, None]
    return own * images + (1 - own) * images[rng.permutation(len(images))]


def distilled(params: Params, teacher: Params, hyper: Hyper, epochs: int, seed: int) -> Params:
    """`params` after training to say of the digits, moved by up to a pixel each and mixed, what the teacher says."""
    rng = np.random.default_rng(seed)
    digits, _ = digits_cnn.data()
    each = len(digits.labels) // hyper.batch

    def loss(params: Params, images: jax.Array) -> jax.Array:
        student, wise = digits_cnn.forward(params, images), digits_cnn.forward(teacher, images)
        return pruning.distillation_loss(student, wise, temperature=hyper.temperature)

    @jax.jit
    def epoch(state: Adam, images: jax.Array) -> Adam:
        def step(state: Adam, batch: jax.Array) -> tuple[Adam, None]:
            rate = hyper.rate * (1 - state.step / (epochs * each))
            return adam_step(state, jax.grad(loss)(state.params, batch), rate), None

        return jax.lax.scan(step, state, images)[0]

    state = adam(params)
    for _ in range(epochs):
        order = rng.permutation(len(digits.labels))[: each * hyper.batch]
        images = mixtures(digits_cnn.shifted(digits.inputs[order], hyper.shift, rng), hyper.mixed, rng)
        state = epoch(state, jnp.asarray(images.reshape(each, hyper.batch, 8, 8, 1)))
    return state.params


def compress(teacher: Params, hyper: Hyper = HYPER) -> Params:
    """The teacher, pruned and trained in turns down to the channels of `hyper`."""
    params, rounds = teacher, hyper.rounds
    full = [channels.units(teacher) for channels in CHANNELS]
    for i in range(rounds):
        kept = [round(n * (k / n) ** ((i + 1) / rounds)) for n, k in zip(full, hyper.kept, strict=True)]
        params = pruned(params, (kept[0], kept[1], kept[2]))
        params = distilled(params, teacher, hyper, hyper.epochs // rounds, hyper.seed + i)
    return params


def compressed(seed: int = 0) -> Params:
    """The small net of a seed, all f32, trained when it is first asked for."""
    hyper = HYPER._replace(seed=seed)
    teacher = digits_cnn.params(seed)
    widths = digits_cnn.HYPER._replace(conv1=hyper.kept[0], conv2=hyper.kept[1], dense=hyper.kept[2])
    decides = (hyper, digits_cnn.HYPER)
    return cached_params(
        "compressed", decides, lambda: digits_cnn.init(widths), lambda: compress(teacher, hyper)
    )


def batches() -> tuple[list[jax.Array], list[np.ndarray]]:
    """The training digits as batches of images f32 [360, 8, 8, 1], and their labels."""
    digits, test = digits_cnn.data()
    count = len(test.labels)
    starts = range(0, len(digits.labels) - count + 1, count)
    images = [jnp.asarray(digits.inputs[i : i + count]) for i in starts]
    return images, [digits.labels[i : i + count] for i in starts]


def searched(seed: int = 0, max_drop: float = 1.0) -> pruning.PruneSearch:
    """What pruning alone does to the accuracy on the training digits, and to the modelled cost."""
    images, labels = batches()
    return pruning.search(
        digits_cnn.forward,
        digits_cnn.params(seed),
        images[0],
        units=dict(zip(("conv1", "conv2", "dense"), CHANNELS, strict=True)),
        data=images,
        labels=labels,
        metric="accuracy",
        multiple=8,
        importance=importance,
        max_drop=max_drop,
    )


def quantized(params: Params, mode: str) -> tw.Quantized:
    """The net in integers, with scales from the training digits; int4 weights are rounded with GPTQ."""
    images, _ = batches()
    recover = "gptq" if mode.startswith("w4") else ()
    return tw.quantize(
        digits_cnn.forward, params, images[0], data=images, config=mode, recover=recover, progress=False
    )


def steps(seed: int = 0) -> Iterator[Step]:
    """The net in floats after each step."""
    teacher = digits_cnn.params(seed)
    yield Step("trained", teacher)
    yield Step("pruned", pruned(teacher, HYPER.kept))
    yield Step("pruned and distilled", compressed(seed))


class Row(NamedTuple):
    """A line of the table. accuracy: of the test images, in percent; size: bytes of all parameters."""

    name: str
    size: int
    accuracy: float
    microseconds: float


def rows(seed: int = 0) -> Iterator[Row]:
    """The net after each step, in floats and then in integers."""
    images, labels = (jnp.asarray(x) for x in digits_cnn.data()[1])
    params: Params = None
    for name, params in steps(seed):
        microseconds = tw.compile(forward, params, images).report().microseconds
        size = sum(p.nbytes for p in jax.tree.leaves(params))
        yield Row(name, size, 100 * float(digits_cnn.accuracy(params, images)), microseconds)
    for mode in MODES:
        made = quantized(params, mode)
        # biases stay as they are
        size = sum(row.weight_bytes for row in made.table.rows)
        size += sum(p.nbytes for name, p in params.items() if name.endswith("_b"))
        right = 100 * float(jnp.mean(jnp.argmax(made.program(params, images), axis=-1) == labels))
        yield Row(f"and in {mode}", size, right, made.program.report().microseconds)


def forward_inputs() -> tuple[Params, jax.Array]:
    """The small net and the test images f32 [360, 8, 8, 1]."""
    return compressed(), jnp.asarray(digits_cnn.data()[1].inputs)


forward = digits_cnn.forward


def main() -> None:
    print(f"How much can go at once:\n{searched()}\n")
    print(f"{'net':22} {'kB':>7} {'smaller':>8} {'accuracy, %':>12} {'us (modelled)':>14}")
    first = 0
    for row in rows():
        first = first or row.size
        print(
            f"{row.name:22} {row.size / 1e3:7.1f} {first / row.size:7.1f}x {row.accuracy:12.2f} "
            f"{row.microseconds:14.1f}"
        )


if __name__ == "__main__":
    main()
