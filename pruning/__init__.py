"""Smaller nets: JAX functions on trees of parameters, and a search that compiles what it tries.

units.py         what can be removed of a net, one by one
coupled.py       channels and heads: which axes go together, how important each unit is, and nets without some of them
layers.py        whole blocks of a net: how important each is, and nets without some of them
searching.py    how far a net can be pruned: sensitivity, and the front of a metric against modelled cost
distillation.py  the loss of a student that follows a teacher

A net is pruned, then trained with its old self as a teacher:

    channels = pruning.Coupled([("['conv1']", 3), ("['conv2']", 2)])
    kept = pruning.best(pruning.magnitude(params, channels), 12)
    smaller = pruning.prune(params, channels, kept)
    loss = pruning.distillation_loss(forward(smaller, x), forward(params, x), labels)

Masks that keep n of m numbers are those of compression/masks.py.
"""

from ..compression.masks import masked, n_of_m, two_of_four
from .coupled import Coupled, best, magnitude, prune, taylor, zeroed
from .distillation import distillation_loss
from .layers import Blocks, block_influence, block_magnitude, block_taylor, without_blocks
from .searching import PrunedPoint, PruneSearch, search
from .units import Units

__all__ = [
    "Blocks",
    "Coupled",
    "PruneSearch",
    "PrunedPoint",
    "Units",
    "best",
    "block_influence",
    "block_magnitude",
    "block_taylor",
    "distillation_loss",
    "magnitude",
    "masked",
    "n_of_m",
    "prune",
    "search",
    "taylor",
    "two_of_four",
    "without_blocks",
    "zeroed",
]
