"""The digits CNN with an open batch, as `tilewright tiers` takes it with digits_tiers.toml: for the data centre, the
edge and a device, where it is pruned, trained with its old self as a teacher, and computed in integers."""

import sys
from pathlib import Path

import jax
import numpy as np

from tilewright import pruning

sys.path.insert(0, str(Path(__file__).parent))
import compress
import digits_cnn
from trained import Params, cached_params

PATIENT = compress.HYPER._replace(epochs=60, rounds=1)
"""How a pruned net is trained."""

forward = digits_cnn.forward


def forward_inputs() -> tuple[Params, jax.ShapeDtypeStruct]:
    """The trained weights, all f32, and images f32 [batch, 8, 8, 1]."""
    (batch,) = jax.export.symbolic_shape("batch")
    return digits_cnn.params(), jax.ShapeDtypeStruct((batch, 8, 8, 1), np.float32)


def test() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The test images as one batch f32 [360, 8, 8, 1], and their digits int32 [360]."""
    digits = digits_cnn.data()[1]
    return [digits.inputs], [digits.labels]


def units() -> dict[str, pruning.Coupled]:
    """The channels of each layer that can be removed."""
    return dict(zip(("conv1", "conv2", "dense"), compress.CHANNELS, strict=True))


def retrain(small: Params) -> Params:
    """A pruned net after training to say what the whole one says; kept, since it takes half a minute."""
    teacher = digits_cnn.params()
    widths = [small[name].shape[-1] for name in ("conv1_b", "conv2_b", "dense1_b")]
    hyper = digits_cnn.HYPER._replace(conv1=widths[0], conv2=widths[1], dense=widths[2])
    return cached_params(
        "digits-tier",
        (PATIENT, hyper),
        lambda: digits_cnn.init(hyper),
        lambda: compress.distilled(small, teacher, PATIENT, PATIENT.epochs, PATIENT.seed),
    )
