"""How a program is called whose weights are packed before it is saved: they are values that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..arguments.parameters import Parameters
from ..arguments.signature import CompileError, Signature

PACKED = "packed"
"""What the arguments are called that take what the packing gives."""


def packed_signature(
    form: Signature, left: Sequence[int], inputs: Sequence[Any], arrays: Sequence[Any], leaves: Mapping[int, Any]
) -> Signature:
    """The signature of the part of a program that runs on each call: the arguments of the whole one, without the inputs
    that packing takes, then one for each array that packing gives. Arrays are values of its arguments, and so are the
    inputs of `leaves`, by number, that weights have besides.

    form: of the whole program; left: the inputs of it that the part takes; inputs: what the part takes, with these in
    front. Raises CompileError for arguments by keyword alone, which nothing comes behind.
    """
    import jax

    count, keywords = form.form
    if keywords:
        raise CompileError(f"save: {keywords[0]} is given by keyword, and what is packed comes behind arguments by "
                           "position: compile the program with all of them by position")  # fmt: skip
    own = form.parameters
    values: dict[str, Any] = {f"{PACKED}[{i}]": array for i, array in enumerate(arrays)}
    if form.in_tree is None:
        labels = [own.label(i) for i in left]
        values |= {own.label(i): leaf for i, leaf in leaves.items()}
        tree = None
    else:
        labels = [own.label(i) for i in range(count)]
        flat = [leaves.get(i, i) if i in left else None for i in range(len(form.inputs))]
        given = jax.tree.unflatten(form.in_tree, flat)[0]
        places = jax.tree.unflatten(form.in_tree, [i if i in left else None for i in range(len(form.inputs))])[0]
        for label, place, value in zip(labels, places, given, strict=True):
            if all(i in leaves for i in jax.tree.leaves(place)):
                values[label] = value
        tree = jax.tree.structure(((*places, *range(len(arrays))), {}))
    named = Parameters((*labels, *(f"{PACKED}[{i}]" for i in range(len(arrays)))), noun=own.noun, defaults=values)
    return replace(form, inputs=tuple(inputs), in_tree=tree, parameters=named)
