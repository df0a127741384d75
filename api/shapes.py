"""The shapes that a program with open dimensions takes: the sizes of a call, and what must hold of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ..dialects.affine import Symbol
from ..dialects.sizes import (
    Constraint,
    Derived,
    Size,
    SizeError,
    Sizes,
    bounded,
    evaluate,
    fixed,
    floordiv,
    names_in,
    parse_constraint,
    parse_size,
    size_text,
    symbols_of,
    times,
)
from ..passes.errors import CompileError

Shape = tuple[Size, ...]

LARGEST = 1 << 40
"""The largest size of a dimension, and of an input in elements, far beyond any memory: what follows from it is still
computed exactly."""


@dataclass(frozen=True)
class OpenShapes:
    """The inputs of a program with open dimensions.

    inputs: the dimensions and the element type of each flat input. deciding: for a flat input whose values are sizes,
    their symbols. symbols: by name, with their bounds. constraints: what else holds of them.
    """

    inputs: tuple[tuple[Shape, str], ...]
    symbols: Mapping[str, Symbol]
    constraints: tuple[Constraint, ...] = ()
    deciding: Mapping[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])

    def types(self, sizes: Sizes) -> tuple[tuple[tuple[int, ...], str], ...]:
        """Shape and element type of each flat input for these sizes. Raises SizeError for a negative dimension."""
        return tuple((self._shape(i, sizes), dtype) for i, (_, dtype) in enumerate(self.inputs))

    def _shape(self, i: int, sizes: Sizes) -> tuple[int, ...]:
        shape = tuple(evaluate(n, sizes) for n in self.inputs[i][0])
        negative = next((d for d, n in enumerate(shape) if n < 0), None)
        if negative is not None:
            raise SizeError(f"{size_text(self.inputs[i][0][negative])} is {shape[negative]}")
        return shape

    def checked(
        self, name: str, sizes: Mapping[str, Any], places: Sequence[str] | None = None
    ) -> dict[str, int]:
        """Sizes that were given by name, one for each symbol. Raises CompileError, which calls the program `name` and
        its inputs `places`, for missing and unknown ones, and for what the program does not take."""
        known = ", ".join(self.symbols)
        for symbol in sizes:
            if symbol not in self.symbols:
                raise CompileError(f"{name} has no size {symbol!r}: its sizes are {known}")
        missing = [symbol for symbol in self.symbols if symbol not in sizes]
        if missing:
            raise CompileError(f"{name}: give the sizes {', '.join(missing)} (it has {known})")
        found: dict[str, int] = {}
        for symbol in self.symbols:
            value = sizes[symbol]
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise CompileError(f"{name}: the size {symbol} must be a whole number, not {value!r}")
            found[symbol] = int(value.__index__())
        self._check(name, found, {}, places)
        return found

    def solve(
        self, name: str, places: Sequence[str], shapes: Sequence[tuple[int, ...]], values: Any
    ) -> Sizes:
        """The sizes that follow from the shapes of a call's flat inputs, and from the values of those that decide.

        Raises CompileError, which calls the program `name` and its inputs `places`, where they do not fit.
        """
        known: dict[str, int] = {}
        where: dict[str, str] = {}
        for i, names in self.deciding.items():
            for k, symbol in enumerate(names):
                known[symbol] = int(values[i].reshape(-1)[k])
                where[symbol] = places[i] if len(names) == 1 else f"element {k} of {places[i]}"
        open_: list[tuple[Size, int, str]] = []
        for i, ((wanted, _), shape) in enumerate(zip(self.inputs, shapes, strict=True)):
            if len(wanted) != len(shape):
                raise CompileError(f"{places[i]} of {name} must be {self.shown(i)}, got shape {list(shape)}")
            open_ += [(w, n, f"dimension {d} of {places[i]}") for d, (w, n) in enumerate(zip(wanted, shape))]
        self._bind(name, open_, known, where)
        for size, number, place in open_:
            value = evaluate(size, known)
            if value != number:
                said = size_text(size)
                sources = ", ".join(
                    f"{s.name} = {known[s.name]} from {where[s.name]}" for s in symbols_of(size)
                )
                must = f"{said} = {value} ({sources})" if sources and said != str(value) else said
                raise CompileError(f"{name}: {place} is {number}, and must be {must}")
        self._check(name, known, where, places)
        return known

    def _bind(
        self, name: str, open_: Sequence[tuple[Size, int, str]], known: dict[str, int], where: dict[str, str]
    ) -> None:
        """Finds the value of each symbol, from dimensions that are linear in one that is not known yet."""
        left = True
        while left:
            left = False
            for size, number, place in open_:
                unknown = [s for s in symbols_of(size) if s.name not in known]
                if len(unknown) != 1:
                    continue
                symbol = unknown[0]
                factor = size.coefficient(symbol)
                rest = size.without((symbol,))
                if not factor or symbol in symbols_of(rest):
                    continue
                value, remainder = divmod(number - evaluate(rest, known), factor)
                if remainder:
                    raise CompileError(
                        f"{name}: {place} is {number}, which {size_text(size)} is for no whole {symbol.name}"
                    )
                known[symbol.name], where[symbol.name], left = value, place, True
        missing = [s for s in self.symbols if s not in known]
        if missing:
            raise CompileError(f"{name}: the size {missing[0]} does not follow from the shapes of the inputs")

    def _check(
        self, name: str, sizes: Sizes, where: Mapping[str, str], places: Sequence[str] | None = None
    ) -> None:
        for symbol in self.symbols.values():
            value = sizes[symbol.name]
            top = LARGEST if symbol.upper is None else symbol.upper
            if symbol.lower <= value <= top:
                continue
            bound = f"at least {symbol.lower}" if value < symbol.lower else f"at most {top}"
            place = f" ({where[symbol.name]})" if symbol.name in where else ""
            raise CompileError(f"{name}: {symbol.name} is {value}{place}, and must be {bound}")
        for constraint in self.constraints:
            if not self._holds(constraint, sizes):
                said = ", ".join(
                    f"{s.name} = {sizes[s.name]}{f' ({where[s.name]})' if s.name in where else ''}"
                    for s in constraint.symbols
                )
                raise CompileError(f"{name}: {constraint} does not hold for {said}")
        for i, (dimensions, _) in enumerate(self.inputs):
            shape, place = (
                [evaluate(n, sizes) for n in dimensions],
                f"input {i}" if places is None else places[i],
            )
            for d, value in enumerate(shape):
                if value < 0:
                    said = size_text(dimensions[d])
                    raise CompileError(
                        f"{name}: dimension {d} of {place} is {said} = {value}, and cannot be negative"
                    )
            if prod(shape) > LARGEST:
                raise CompileError(
                    f"{name}: {place} is {self.shown(i)} = {shape}, which is more than {LARGEST} elements"
                )

    def allows(self, sizes: Sizes) -> bool:
        """Whether the program takes these sizes."""
        try:
            self._check("", sizes, {})
        except CompileError:
            return False
        return True

    def _holds(self, constraint: Constraint, sizes: Sizes) -> bool:
        try:
            return constraint.holds(sizes)
        except SizeError:
            return False

    def shown(self, i: int) -> str:
        """A flat input as text: `f32[b, 8*s]`."""
        shape, dtype = self.inputs[i]
        return f"{dtype}[{', '.join(map(size_text, shape))}]"


def exported_shapes(avals: Sequence[Any], dtypes: Sequence[str]) -> OpenShapes:
    """The inputs of a function that JAX has traced with symbolic shapes. Raises CompileError for what JAX's language
    of sizes has and ours has not."""
    dims = [d for a in avals for d in a.shape if is_symbolic(d)]
    # JAX shows a scope's constraints to nobody; their text is what they were written as
    said = [str(c) for d in dims[:1] for c in getattr(d.scope, "_explicit_constraints", ())]
    try:
        symbols = {name: Symbol(name, 1) for name in sorted({n for d in dims for n in names_in(str(d))})}
        told = [text.removeprefix("Constraint(").removesuffix(")") for text in said]
        # a scope may be shared: what is said of sizes that this program does not have is nothing to it
        constraints = [parse_constraint(text, symbols) for text in told if names_in(text) <= set(symbols)]
        constraints = _as_written(constraints)
        within = bounded(symbols, constraints)
        inputs = tuple(
            (tuple(_size(d, within) for d in a.shape), dtype) for a, dtype in zip(avals, dtypes, strict=True)
        )
    except SizeError as error:
        raise CompileError(str(error)) from None
    return OpenShapes(inputs, within, tuple(constraints))


def _as_written(constraints: Sequence[Constraint]) -> list[Constraint]:
    """Constraints without those that JAX adds: of `mod(b, 8) == 0` it also makes `8*floordiv(b, 8) == b`."""
    added: list[Constraint] = []
    for c in constraints:
        (variable, *more) = c.left.variables or (None,)
        if isinstance(variable, Derived) and variable.kind == "mod" and not more and c.compare == "==":
            whole, divisor = variable.args
            added.append(Constraint(times(divisor, floordiv(whole, divisor)), "==", whole))
    return [c for c in constraints if c not in added]


def is_symbolic(dim: Any) -> bool:
    """Whether a dimension is one of `jax.export.symbolic_shape`."""
    import jax.export

    return jax.export.is_symbolic_dim(dim)


def _size(dim: Any, symbols: Mapping[str, Symbol]) -> Size:
    return parse_size(str(dim), symbols) if is_symbolic(dim) else fixed(int(dim))
