"""Pytrees of JAX as plain data: dicts, lists, tuples, named tuples and None."""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from typing import Any

from ...passes.errors import CompileError

LEAF = "*"
"""What stands for an array."""


def structure_facts(tree: Any, what: str) -> Any:
    """A structure as JSON; None where there is none. Raises CompileError, which calls it `what`, for a node of another
    type."""
    return None if tree is None else _facts(tree, what)


def _facts(tree: Any, what: str) -> Any:
    data = tree.node_data()
    if data is None:
        return LEAF if tree.num_leaves else {"none": []}
    kind, keys = data
    inside = [_facts(child, what) for child in tree.children()]
    if kind is dict and all(isinstance(key, str | int) and not isinstance(key, bool) for key in keys):
        return {"dict": [[*keys], inside]}
    if kind in (list, tuple):
        return {kind.__name__: inside}
    if kind is type(None):
        return {"none": []}
    fields = getattr(kind, "_fields", None)
    if isinstance(kind, type) and issubclass(kind, tuple) and fields is not None and len(fields) == len(inside):
        return {"named": [kind.__name__, list(fields), inside]}
    raise CompileError(f"save: {what} have a {getattr(kind, '__name__', kind)}, which a file cannot hold: give dicts, "
                       "lists and tuples")  # fmt: skip


def structure_of(facts: Any) -> Any:
    """The structure that `structure_facts` has said. Raises ValueError for what is none."""
    import jax

    return None if facts is None else jax.tree.structure(_example(facts))


@lru_cache(256)
def _named(name: str, fields: tuple[str, ...]) -> Any:
    """The class of named tuples with these fields: the same one each time, so that what one program of a file gives is
    what another one takes."""
    return namedtuple(name, fields, rename=True)  # what its author has renamed so begins with an underscore


def _example(facts: Any) -> Any:
    """A value of a structure, with a number in the place of each array."""
    if facts == LEAF:
        return 0
    if not isinstance(facts, dict) or len(facts) != 1:
        raise ValueError("it has no structure of arguments")
    ((kind, inside),) = facts.items()
    if kind == "dict":
        keys, children = inside
        return dict(zip(keys, map(_example, children), strict=True))
    if kind == "named":
        name, fields, children = inside
        if not all(isinstance(word, str) and word.isidentifier() for word in (name, *fields)):
            raise ValueError("it has no structure of arguments")
        return _named(name, tuple(fields))(*map(_example, children))
    if kind in ("list", "tuple"):
        children = [_example(child) for child in inside]
        return children if kind == "list" else tuple(children)
    if kind == "none":
        return None
    raise ValueError("it has no structure of arguments")
