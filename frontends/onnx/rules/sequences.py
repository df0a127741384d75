"""Sequences, which are lists where the model is traced, and optionals, which are their element or None."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..node import Node
from ..table import rule
from ..values import as_traced, is_known


@rule("SequenceEmpty", folds=True)
def _empty(node: Node) -> Any:
    return []


@rule("SequenceConstruct", folds=True)
def _construct(node: Node, *elements: Any) -> Any:
    return list(node.inputs)


@rule("SequenceInsert", folds=True)
def _insert(node: Node, sequence: Any, element: Any, position: Any = None) -> Any:
    made = list(sequence)
    made.insert(_place(node, 2, len(made), len(made) + 1), node.inputs[1])
    return made


@rule("SequenceErase", folds=True)
def _erase(node: Node, sequence: Any, position: Any = None) -> Any:
    made = list(sequence)
    del made[_place(node, 1, -1, len(made))]
    return made


@rule("SequenceAt", folds=True)
def _at(node: Node, sequence: Any, position: Any) -> Any:
    return sequence[_place(node, 1, 0, len(sequence))]


def _place(node: Node, i: int, default: int, end: int) -> int:
    """A position in a sequence. end: the first that is none; negative ones count from the sequence's own end."""
    position, size = node.number(i, default), len(node.inputs[0])
    if not isinstance(position, int):
        raise node.unsupported(f"position {position} in a sequence is open, and it must be known")
    if not -size <= position < end:
        raise node.unsupported(f"position {position} is none in a sequence of {size}")
    return position


@rule("SequenceLength", folds=True)
def _length(node: Node, sequence: Any) -> Any:
    return np.asarray(len(sequence), np.int64)


@rule("SplitToSequence", folds=True)
def _split_to_sequence(node: Node, x: Any, split: Any = None) -> Any:
    x = node.inputs[0]
    axis = node.place(node.get("axis", 0), x.ndim)
    size, given = x.shape[axis], node.known(1)
    if given is not None and given.ndim:
        parts = node.integers(1) or []
        if all(isinstance(n, int) for n in (size, *parts)) and sum(parts) != size:
            raise node.unsupported(f"its parts are {sum(parts)} elements of {size} in dimension {axis}")
    elif isinstance(size, int):
        each = node.number(1, 1)
        if each < 1:
            raise node.unsupported(f"each of its parts would have {each} elements")
        parts = [min(each, size - k) for k in range(0, size, each)]
    else:
        raise node.unsupported(
            f"dimension {axis} is open, {size}, and its size decides how many tensors there are"
        )
    made, begin = [], 0
    for n in parts:
        made.append(x[(slice(None),) * axis + (slice(begin, begin + n),)])
        begin = begin + n
    if given is None and not node.get("keepdims", 1):
        return [part.reshape(*part.shape[:axis], *part.shape[axis + 1 :]) for part in made]
    return made


@rule("ConcatFromSequence", folds=True)
def _concat_from_sequence(node: Node, sequence: Any) -> Any:
    if not sequence:
        raise node.unsupported("the sequence is empty")
    parts = sequence if all(map(is_known, sequence)) else list(map(as_traced, sequence))
    join = node.xp.stack if node.get("new_axis", 0) else node.xp.concatenate
    return join(parts, axis=node.get("axis"))


@rule("SequenceMap", folds=True)
def _sequence_map(node: Node, *inputs: Any) -> Any:
    first, *others = node.inputs
    wrong = next((len(v) for v in others if isinstance(v, list) and len(v) != len(first)), None)
    if wrong is not None:
        raise node.unsupported(f"it has a sequence of {len(first)} beside one of {wrong}")
    made: list[list[Any]] = [[] for _ in node.outputs]
    for i in range(len(first)):
        given = [v[i] if isinstance(v, list) else v for v in node.inputs]
        for column, value in zip(made, node.body(node.get("body"), given), strict=True):
            column.append(value)
    return tuple(made)


@rule("Optional", folds=True)
def _optional(node: Node, element: Any = None) -> Any:
    return node.input(0)


@rule("OptionalGetElement", folds=True)
def _optional_get(node: Node, optional: Any) -> Any:
    if optional is None:
        raise node.unsupported("the optional has no element")
    return node.inputs[0]


@rule("OptionalHasElement", folds=True)
def _optional_has(node: Node, optional: Any = None) -> Any:
    return np.asarray(optional is not None)
