"""Arguments of given sizes that keep the values of the example arguments."""

from __future__ import annotations

from ...dialects.sizes import Sizes
from ..arguments.parameters import Arguments
from .dynamic import OpenSource


def filled(source: OpenSource, given: Arguments, sizes: Sizes) -> Arguments:
    """Arguments of a call with these sizes: those of the example arguments that have values, such as weights, and else
    what `OpenSource.arguments` gives."""
    import jax

    sized = source.arguments(sizes)
    known, (wanted, tree) = jax.tree.leaves(given), jax.tree.flatten(sized)
    if len(known) != len(wanted):  # of a static argument, which is compiled in
        return sized
    leaves = [b if isinstance(a, jax.ShapeDtypeStruct) else a for a, b in zip(known, wanted, strict=True)]
    return jax.tree.unflatten(tree, leaves)
