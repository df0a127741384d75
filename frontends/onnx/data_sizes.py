"""Sizes that data decides, as of `NonZero`, while a model is traced.

An array whose size data decides has the shape of its bound where JAX traces it, and an extent, which only the program
knows. Beside it stands the shape that it has in the model, in which such a size is a symbol: `found1 - 1` (JAX's
symbols are at least 1). A node that takes one is traced on that shape. What comes out says where the size is a shape,
which becomes the bound, and where it is a number, which becomes the extent: `evaluate` makes it so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dialects.affine import Expr, Symbol
from ...dialects.sizes import (
    Derived,
    Size,
    SizeError,
    bounds,
    fixed,
    names_in,
    parse_size,
    replaced,
    size_text,
)
from ..bounding import noting_firsts, size_of
from ..undecided import forget_equalities, taken_for_some
from .errors import Unsupported
from .reinterpret import Reinterpreter
from .values import is_sizes, larger, sized, smaller

_NAME = "found"


class DataSizes:
    """The arrays of one trace whose sizes data decides. like: a symbolic size of the model, whose scope is that of all
    symbols; None where it has none."""

    def __init__(self, like: Any = None) -> None:
        self._like = like
        self._known: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        """By identity: an array, and its shape in the model."""
        self._places: dict[str, _ArraySize | _Number] = {}
        """What symbols stand for."""

    # -- what is known of values ---------------------------------------------------------------------------

    def mark(self, value: Any, axes: Iterable[int]) -> None:
        """Data decides the sizes of an array along these axes."""
        shape = list(self.shape(value))
        for axis in axes:
            name = f"{_NAME}{len(self._places) + 1}"
            self._places[name] = _ArraySize(value, axis)
            shape[axis] = self._dim(Expr.of(Symbol(name, 1)) - 1)
        self._known[id(value)] = value, tuple(shape)

    def sizes_of(self, value: Any, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Whole numbers that the program computes as known sizes. low, high: the least and the most of each, which are
        finite."""
        flat = np.empty(value.size, object)
        for i, (least, most) in enumerate(
            zip(low.reshape(-1).astype(int), high.reshape(-1).astype(int), strict=True)
        ):
            if least == most:
                flat[i] = int(least)
                continue
            name = f"{_NAME}{len(self._places) + 1}"
            self._places[name] = _Number(value.reshape(-1)[i], int(least), int(most))
            flat[i] = self._dim(Expr.of(Symbol(name, 1)) + int(least) - 1)
        return sized(flat.reshape(value.shape), np.dtype(value.dtype))

    def shape(self, value: Any) -> tuple[Any, ...]:
        """The shape of an array in the model."""
        return self._known[id(value)][1] if id(value) in self._known else tuple(value.shape)

    def axes(self, value: Any) -> list[int]:
        """The dimensions whose sizes data decides."""
        return (
            [i for i, n in enumerate(self.shape(value)) if self.is_found(n)]
            if id(value) in self._known
            else []
        )

    def is_open(self, value: Any) -> bool:
        """Whether data decides a size of an array, one of known sizes, or one in a sequence."""
        if not self._places or value is None:
            return False
        if isinstance(value, list):
            return any(map(self.is_open, value))
        if is_sizes(value):
            return any(map(self.is_found, value.reshape(-1)))
        return id(value) in self._known

    def is_found(self, dim: Any) -> bool:
        """Whether data decides a size."""
        return _NAME in str(dim) and not self._places.keys().isdisjoint(_names(dim))

    # -- sizes ---------------------------------------------------------------------------------------------

    def number(self, dim: Any) -> Any:
        """A size as an i64 number that the program computes."""
        import jax.numpy as jnp

        def symbol(name: str) -> Any:
            if name in self._places:
                return self._places[name].number() + 1
            return jnp.asarray(self._dim(Expr.of(Symbol(name, 1))), jnp.int64)

        return jnp.asarray(_computed(_size(dim), symbol, jnp.maximum, jnp.minimum), jnp.int64)

    def bound(self, dim: Any) -> Any:
        """The most that a size can be. Raises Unsupported."""
        if not self.is_found(dim):
            return dim

        def symbol(name: str) -> Any:
            if name in self._places:
                return self._places[name].most + 1
            return self._dim(Expr.of(Symbol(name, 1)))

        size = _size(dim)
        if all(factor > 0 and self._grows(variable) for variable, factor in size.terms):
            return _computed(size, symbol, larger, smaller)
        top = {n: symbol(n) for n in _names(dim)}
        if all(isinstance(n, int) for n in top.values()):
            ranges = {n: Expr.of(Symbol(n, 1, max(most, 1))) for n, most in top.items()}
            most = bounds(replaced(size, ranges))[1]
            if most is not None:
                return max(most, 0)
        raise Unsupported(f"a size is {dim}, which data decides, and no bound of it is known")

    def _grows(self, variable: Symbol | Derived) -> bool:
        """Whether what stands for sizes does not get smaller where those that data decides get larger."""
        if isinstance(variable, Symbol):
            return True
        args = variable.args[:1] if variable.kind == "floordiv" else variable.args
        free = self._places.keys().isdisjoint(n for a in variable.args for n in _names(size_text(a)))
        grow = all(c > 0 and self._grows(v) for a in args for v, c in a.terms)
        return free or (
            variable.kind != "mod" and grow and all(not a.terms for a in variable.args[len(args) :])
        )

    def _dim(self, size: Size) -> Any:
        """A size as one of JAX."""
        from jax import export

        if not size.terms:
            return size.constant
        if self._like is None:
            self._like = export.symbolic_shape("n")[0]
        like: Any = self._like

        def symbol(name: str) -> Any:
            return export.symbolic_shape(name, scope=like.scope)[0]

        return _computed(size, symbol, larger, smaller)

    def traced(self, value: Any) -> Any:
        """Known sizes of which data decides some, as numbers that the program computes; other values as they are."""
        import jax.numpy as jnp

        if not is_sizes(value) or not self.is_open(value):
            return value
        numbers = [self.number(n) for n in value.reshape(-1)]
        return jnp.stack(numbers).reshape(value.shape).astype(getattr(value, "element", None) or jnp.int64)

    # -- nodes ---------------------------------------------------------------------------------------------

    def run(
        self, inputs: Sequence[Any], build: Callable[[list[Any]], Any], errors: tuple[type[Exception], ...]
    ) -> Any:
        """What a node gives for inputs of which data decides sizes. build: its results for inputs of the shapes that
        these have in the model.

        What is not decided of sizes that may be 0 is that of sizes that are not, if the shapes are right for 0, too;
        arrays that do not go together are said to have the same sizes where their bounds are equal, since a model that
        is valid has no others.

        Raises what `build` does, and Unsupported.
        """
        same = {str(place.most): n for n, place in reversed(self._places.items())}
        united = {n: Expr.of(Symbol(same[str(place.most)], 1)) for n, place in self._places.items()}
        least: Exception | None = None
        for known in ({}, united):
            for some in (False, True):
                try:
                    return self._run(inputs, build, known, some, errors)
                except (*errors, Unsupported) as error:
                    least = least or error
                finally:  # that data may make sizes equal is part of what it decides
                    forget_equalities(self.is_found)
        assert least is not None
        raise least

    def _run(
        self,
        inputs: Sequence[Any],
        build: Callable[[list[Any]], Any],
        known: Mapping[str, Size],
        some: bool,
        errors: tuple[type[Exception], ...],
    ) -> Any:
        """The same, with sizes in the place of symbols. some: a symbol stands for a size that is not 0."""
        import jax

        one = {n: Expr.of(Symbol(n, 1)) for n in self._places}
        back = {n: size - 1 for n, size in one.items()} if some else {}
        more = {n: known.get(n, size) + 1 for n, size in one.items()} if some else known
        leaves, _ = jax.tree.flatten(list(inputs), is_leaf=lambda v: v is None)
        arrays = [v for v in leaves if self._is_open_array(v)]
        with taken_for_some(self.is_found) if some else nullcontext():
            traced = self._trace(inputs, build, more)
        if some and not self._fits_none(inputs, build, traced, errors):
            raise Unsupported("data may decide that a size is 0, and its result has another shape then")

        def restored(dim: Any) -> Any:
            return self._replaced(dim, back)

        reader = Reinterpreter(
            self.is_found, lambda n: self.number(restored(n)), lambda n: self.bound(restored(n))
        )
        outs = reader.evaluate(traced.jaxpr.jaxpr, traced.jaxpr.consts, arrays)
        for out, aval, axes in zip(outs, traced.jaxpr.out_avals, traced.marked, strict=True):
            dims = tuple(self._at_least_0(restored(n)) for n in aval.shape)
            if any(map(self.is_found, dims)):
                self._known[id(out)] = out, dims
            if axes:
                self.mark(out, axes)
        left = iter(outs)
        results = [
            next(left) if isinstance(v, jax.Array) else self._sizes_replaced(v, back) for v in traced.flat
        ]
        return jax.tree.unflatten(traced.tree, results)

    def _fits_none(
        self,
        inputs: Sequence[Any],
        build: Callable[[list[Any]], Any],
        traced: _Traced,
        errors: tuple[type[Exception], ...],
    ) -> bool:
        """Whether results have the shapes that they have where all sizes that data decides are 0, if there are any."""
        try:
            empty = self._trace(inputs, build, {n: fixed(1) for n in self._places})
        except (*errors, Unsupported):
            return True
        none = {n: fixed(0) for n in self._places}
        for aval, other, axes in zip(
            traced.jaxpr.out_avals, empty.jaxpr.out_avals, traced.marked, strict=False
        ):
            dims = [self._at_least_0(self._replaced(n, none)) for n in aval.shape]
            if len(dims) != len(other.shape) or any(
                a != b for d, (a, b) in enumerate(zip(dims, other.shape, strict=True)) if d not in axes
            ):
                return False
        return True

    def _at_least_0(self, dim: Any) -> Any:
        """The size of an array: what was simplified for others may be less for none."""
        return larger(dim, 0) if isinstance(dim, int) or self.is_found(dim) else dim

    def _is_open_array(self, value: Any) -> bool:
        return value is not None and not is_sizes(value) and self.is_open(value)

    def _trace(
        self, inputs: Sequence[Any], build: Callable[[list[Any]], Any], known: Mapping[str, Size]
    ) -> _Traced:
        """Traces a node on the shapes of the model, with sizes in the place of symbols."""
        import jax

        leaves, tree = jax.tree.flatten(list(inputs), is_leaf=lambda v: v is None)
        types = [
            jax.ShapeDtypeStruct([self._replaced(n, known) for n in self.shape(v)], v.dtype)
            for v in leaves
            if self._is_open_array(v)
        ]
        made: list[Any] = []

        def trace(*given: Any) -> list[Any]:
            left = iter(given)
            own = [next(left) if self._is_open_array(v) else self._sizes_replaced(v, known) for v in leaves]
            with noting_firsts() as firsts:
                results = build(jax.tree.unflatten(tree, own))
            flat, shape = jax.tree.flatten(results, is_leaf=lambda v: v is None)
            arrays = [v for v in flat if isinstance(v, jax.Array)]
            made[:] = flat, shape, [sorted({axis for x, axis in firsts if x is v}) for v in arrays]
            return arrays

        return _Traced(jax.make_jaxpr(trace)(*types), *made)

    def _replaced(self, dim: Any, by: Mapping[str, Size]) -> Any:
        """A size with others in the place of symbols that data decides."""
        return self._dim(replaced(_size(dim), by)) if by and self.is_found(dim) else dim

    def _sizes_replaced(self, value: Any, by: Mapping[str, Size]) -> Any:
        """The same for known sizes; other values as they are."""
        if not is_sizes(value):
            return (
                self._replaced(value, by)
                if by and not hasattr(value, "dtype") and value is not None
                else value
            )
        flat = np.empty(value.size, object)
        flat[:] = [self._replaced(n, by) for n in value.reshape(-1)]
        element = getattr(value, "element", None)
        return flat.reshape(value.shape) if element is None else sized(flat.reshape(value.shape), element)


@dataclass(frozen=True)
class _ArraySize:
    """The size of an array along an axis."""

    array: Any
    axis: int

    @property
    def most(self) -> Any:
        return self.array.shape[self.axis]

    def number(self) -> Any:
        """The size as an i64 number that the program computes."""
        import jax.numpy as jnp

        return size_of(self.array, self.axis).astype(jnp.int64)


@dataclass(frozen=True)
class _Number:
    """How much a whole number is above the least that it can be. highest: the most that the number can be."""

    value: Any
    least: int
    highest: int

    @property
    def most(self) -> int:
        return self.highest - self.least

    def number(self) -> Any:
        """The same, computed by the program."""
        import jax.numpy as jnp

        return jnp.clip(self.value.astype(jnp.int64) - self.least, 0, self.most)


@dataclass(frozen=True)
class _Traced:
    """A node that was traced. jaxpr: gives the arrays among its results, flat and in tree; marked: the dimensions of
    each array whose sizes data decides in it."""

    jaxpr: Any
    flat: Sequence[Any]
    tree: Any
    marked: Sequence[list[int]]


def _names(dim: Any) -> set[str]:
    try:
        return names_in(str(dim))
    except SizeError:
        return set()


def _size(dim: Any) -> Size:
    text = str(dim)
    return parse_size(text, {n: Symbol(n, 1) for n in names_in(text)})


def _computed(size: Size, symbol: Callable[[str], Any], most: Any, least: Any) -> Any:
    """A size, computed from what its symbols are. most, least: the larger and the smaller one of two."""
    total: Any = size.constant
    for variable, factor in size.terms:
        if isinstance(variable, Symbol):
            value = symbol(variable.name)
        else:
            args = [_computed(a, symbol, most, least) for a in variable.args]
            value = args[0]
            for other in args[1:]:
                match variable.kind:
                    case "mul":
                        value = value * other
                    case "floordiv":
                        value = value // other
                    case "mod":
                        value = value % other
                    case "max":
                        value = most(value, other)
                    case _:
                        value = least(value, other)
        total = total + factor * value
    return total
