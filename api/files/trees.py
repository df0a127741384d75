"""Pytrees of JAX as plain data: dicts, lists, tuples, named tuples and None."""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from typing import Any

from ...passes.errors import CompileError

LEAF = "*"
"""What stands for an array."""

MOST_NESTED = 256
"""Structures in one another, at most."""


def structure_facts(tree: Any, what: str) -> Any:
    """A structure as JSON; None where there is none. Raises CompileError, which calls it `what`, for a node of another
    type."""
    return None if tree is None else _facts(tree, what)


def _facts(tree: Any, what: str, depth: int = 0) -> Any:
    if depth > MOST_NESTED:
        raise CompileError(f"save: {what} are more than {MOST_NESTED} structures in one another")
    data = tree.node_data()
    if data is None:
        return LEAF if tree.num_leaves else {"none": []}
    kind, keys = data
    inside = [_facts(child, what, depth + 1) for child in tree.children()]
    if kind is dict and all(isinstance(key, str) or _is_number(key) for key in keys):
        return {"dict": [[*keys], inside]}
    if kind in (list, tuple):
        return {kind.__name__: inside}
    if kind is type(None):
        return {"none": []}
    fields = getattr(kind, "_fields", None)
    if isinstance(kind, type) and issubclass(kind, tuple) and fields is not None and len(fields) == len(inside):
        return {"named": [kind.__name__, list(fields), inside]}
    given = "dict with other keys than texts and numbers" if kind is dict else getattr(kind, "__name__", kind)
    raise CompileError(f"save: {what} have a {given}, which a file cannot hold: give dicts, lists and tuples")


def _is_number(key: Any) -> bool:
    """Whether a key of a dict is a whole number that a file takes."""
    return isinstance(key, int) and not isinstance(key, bool) and key.bit_length() < 64


def structure_of(facts: Any) -> Any:
    """The structure that `structure_facts` has said. Raises ValueError for what is none."""
    import jax

    return None if facts is None else jax.tree.structure(_example(facts))


@lru_cache(256)
def _named(name: str, fields: tuple[str, ...]) -> Any:
    """The class of named tuples with these fields: the same one each time, so that what one program of a file gives is
    what another one takes."""
    return namedtuple(name, fields, rename=True)  # what its author has renamed so begins with an underscore


def _example(facts: Any, depth: int = 0) -> Any:
    """A value of a structure, with a number in the place of each array."""
    if facts == LEAF:
        return 0
    if not isinstance(facts, dict) or len(facts) != 1 or depth > MOST_NESTED:
        raise ValueError("it has no structure of arguments")
    ((kind, inside),) = facts.items()
    if kind == "none":
        return None
    *more, children = (inside,) if kind in ("list", "tuple") else inside
    made = [_example(child, depth + 1) for child in children]
    if kind == "dict" and all(isinstance(key, str) or _is_number(key) for key in more[0]):
        return dict(zip(*more, made, strict=True))
    if kind == "named" and all(isinstance(word, str) and word.isidentifier() for word in (more[0], *more[1])):
        name, fields = more
        return _named(name, tuple(fields))(*made)
    if kind in ("list", "tuple"):
        return made if kind == "list" else tuple(made)
    raise ValueError("it has no structure of arguments")
