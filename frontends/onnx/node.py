"""A node as its rule sees it: attributes, and which of its inputs have known values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import Unsupported
from .values import as_traced, is_known, whole

if TYPE_CHECKING:
    pass


MOST_MADE = 1 << 20
"""Elements of the largest array that is made where a model is traced, if the model itself does not have more."""


@dataclass
class Node:
    """What a rule is told of a node.

    op: what it is; version: the opset of its domain in the model. attributes: those that are given, as Python
    values (text, numbers, lists of them, numpy arrays, graphs). inputs: the values; None for one that is left out.
    outputs: the names of its results, empty for those that are left out. xp: numpy where the rule folds and all inputs
    are known, `jax.numpy` otherwise. body: runs a graph of an attribute on values for its inputs; a third argument has
    the dimensions of each whose sizes data decides, where they are not those of the node's inputs. refuse: raises that
    the value of an input has to be known. random: gives a key for numbers that are drawn. from_sizes: whether the
    value of an input is computed, and follows from open sizes alone. most: elements of the largest array that is made
    at once. open_results: the dimensions whose sizes data decides, of the results of its graphs. by_data: whether data
    decides sizes of its inputs, so that the program computes what these leave open. found_axes: the dimensions of an
    input whose sizes data decides. highest: the most that a number is that is an input; None where it has no bound.
    may_be_told: whether an input follows from single numbers alone that are inputs of the model.
    """

    op: str
    version: int
    attributes: Mapping[str, Any]
    inputs: Sequence[Any]
    outputs: Sequence[str]
    xp: Any
    body: Callable[..., list[Any]]
    refuse: Callable[[int], None]
    random: Callable[[], Any]
    from_sizes: Callable[[int], bool]
    most: int = MOST_MADE
    open_results: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    by_data: bool = False
    found_axes: Callable[[int], list[int]] = lambda i: []
    highest: Callable[[int], int | None] = lambda i: None
    may_be_told: Callable[[int], bool] = lambda i: False

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or what it is where it is not given."""
        return self.attributes.get(name, default)

    def input(self, i: int) -> Any:
        """Input `i`, as numbers where it is known; None where it is left out."""
        return self.inputs[i] if i < len(self.inputs) else None

    def known(self, i: int) -> np.ndarray | None:
        """The value of input `i`, which decides shapes; None where the input is left out. Symbolic sizes in it make it
        an array of objects. Raises ValueNeeded where it is computed by the program."""
        value = self.input(i)
        if value is None:
            return None
        if not is_known(value):
            self.refuse(i)
        return np.asarray(value)

    def integers(self, i: int) -> list[Any] | None:
        """Input `i` as a list of ints, or of symbolic sizes; None where it is left out. Raises ValueNeeded."""
        value = self.known(i)
        return None if value is None else [whole(n) for n in value.reshape(-1)]

    def dims(self, i: int, name: str = "") -> list[Any]:
        """Sizes that are input `i`, or in earlier opsets the attribute `name`; empty where there are none. Raises
        ValueNeeded."""
        given = self.integers(i)
        return list(self.get(name, ())) if given is None else given

    def numbers(self, i: int, name: str = "") -> list[Any]:
        """As `dims`; numbers of a list of known length that the program computes are scalars of JAX."""
        value = self.input(i)
        if value is None or is_known(value) or not all(isinstance(n, int) for n in value.shape):
            return self.dims(i, name)
        if self.highest(i) is None:  # a call may tell it
            self.refuse(i)
        return [value.reshape(-1)[k] for k in range(value.size)]

    def number(self, i: int, default: Any = None) -> Any:
        """Input `i`, of one element, as an int, a float or a symbolic size. Raises ValueNeeded."""
        value = self.known(i)
        if value is None or not value.size:
            return default
        return whole(value.reshape(-1)[0])

    def axes(self, i: int, name: str = "axes") -> list[int] | None:
        """Axes that are input `i` in later opsets and the attribute `name` in earlier ones; None where there are none.
        Raises ValueNeeded."""
        given = self.integers(i)
        return given if given is not None else self.get(name)

    def place(self, axis: int, rank: int) -> int:
        """An axis of an operand of a rank, counted from the front. Raises Unsupported where there is none."""
        if not -rank <= axis < rank:
            raise self.unsupported(f"axis {axis} has no place in {rank} dimensions")
        return axis % rank

    def places(self, axes: Sequence[int], rank: int) -> list[int]:
        """Axes of an operand of a rank, counted from the front, each once. Raises Unsupported."""
        found = [self.place(a, rank) for a in axes]
        if len({*found}) < len(found):
            raise self.unsupported(f"axes {list(axes)} name a dimension twice")
        return found

    def library(self, shape: Sequence[Any]) -> Any:
        """What to make an array of a shape by: `xp` where that has at most `most` elements, and otherwise JAX, which
        makes it where the program runs. Raises Unsupported for what is no shape."""
        import jax.numpy as jnp

        if any(isinstance(n, int) and n < 0 for n in shape):
            raise self.unsupported(f"its result would be of shape {[*shape]}")
        if not all(isinstance(n, int) for n in shape):
            return jnp
        return self.xp if prod(shape) <= self.most else jnp

    def traced(self, *values: Any) -> tuple[Any, ...]:
        """Values as arrays of JAX."""
        return tuple(map(as_traced, values))

    def unsupported(self, why: str) -> Unsupported:
        """The exception that says why a node is refused."""
        return Unsupported(why)
