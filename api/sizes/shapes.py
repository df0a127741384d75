"""The shapes that a program with open dimensions takes: the sizes of a call, and what must hold of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

from ...dialects.affine import Expr, Symbol
from ...dialects.sizes import (
    LARGEST,
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
from ...passes.errors import CompileError

Shape = tuple[Size, ...]


@dataclass(frozen=True)
class SizePlace:
    """Where a call has a size: a dimension of a flat input, or an element of its value. said: what messages call it."""

    input: int
    index: int
    is_element: bool
    said: str


_Step = tuple[str, SizePlace, int, Size]
"""A size, its place, and what the dimension there is of it: a factor and the rest."""

Requirement = tuple[Constraint, str]
"""What must hold of sizes, and the message where it does not, in which `{s}` stands for the value of `s`."""


@dataclass(frozen=True)
class OpenShapes:
    """The inputs of a program with open dimensions.

    inputs: the dimensions and the element type of each flat input. deciding: for a flat input whose values are sizes,
    their symbols. symbols: by name, with their bounds. constraints: what else holds of them. places, required: where a
    call has each size, and what is required of sizes, where that is said already (by `npu.dispatch`).
    """

    inputs: tuple[tuple[Shape, str], ...]
    symbols: Mapping[str, Symbol]
    constraints: tuple[Constraint, ...] = ()
    deciding: Mapping[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])
    places: Mapping[str, SizePlace] | None = None
    required: tuple[Requirement, ...] | None = None

    def places_in(self, called: Sequence[str]) -> Mapping[str, SizePlace]:
        """Where a call, whose flat inputs messages call so, has each size; those without a place do not follow from it:
        a dimension that is linear in a size, and has no other one that is not known before."""
        if self.places is not None:
            return self.places
        found: dict[str, SizePlace] = {}
        for i, names in self.deciding.items():
            for k, symbol in enumerate(names):
                said = called[i] if len(names) == 1 else f"element {k} of {called[i]}"
                found[symbol] = SizePlace(i, k, True, said)
        open_ = [(n, i, d) for i, (row, _) in enumerate(self.inputs) for d, n in enumerate(row) if n.terms]
        more = True
        while more:
            more = False
            for size, i, d in open_:
                symbol = solvable(size, found)
                if symbol is not None:
                    found[symbol] = SizePlace(i, d, False, f"dimension {d} of {called[i]}")
                    more = True
        return found

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """What must hold of the sizes, bounds first."""
        if self.required is not None:
            return self.required
        found: dict[str, Requirement] = {}
        for symbol in self.symbols.values():
            size, said = Expr.of(symbol), f"{symbol.name} is {{{symbol.name}}}, and must be at"
            least = Constraint(size, ">=", fixed(symbol.lower))
            found[str(least)] = least, f"{said} least {symbol.lower}"
            if symbol.upper is not None:
                most = Constraint(size, "<=", fixed(symbol.upper))
                found[str(most)] = most, f"{said} most {symbol.upper}"
        for constraint in self.constraints:
            values = ", ".join(f"{s.name} = {{{s.name}}}" for s in constraint.symbols)
            found.setdefault(str(constraint), (constraint, f"{constraint} does not hold for {values}"))
        return tuple(found.values())

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
        found = self.places_in(places)
        where = {symbol: place.said for symbol, place in found.items()}
        steps = self._own_steps if self.places is not None else self._steps(found)
        known = self._bound(name, steps, shapes, values)
        open_: list[tuple[Size, int, str]] = []
        for i, ((wanted, _), shape) in enumerate(zip(self.inputs, shapes, strict=True)):
            if len(wanted) != len(shape):
                raise CompileError(f"{places[i]} of {name} must be {self.shown(i)}, got shape {list(shape)}")
            open_ += [(w, n, f"dimension {d} of {places[i]}") for d, (w, n) in enumerate(zip(wanted, shape))]
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

    def _bound(
        self, name: str, steps: Sequence[_Step], shapes: Sequence[tuple[int, ...]], values: Any
    ) -> dict[str, int]:
        """The value of each symbol."""
        known: dict[str, int] = {}
        for symbol, place, factor, rest in steps:
            if place.is_element:
                known[symbol] = int(values[place.input].reshape(-1)[place.index])
                continue
            number = shapes[place.input][place.index]
            known[symbol], remainder = divmod(number - evaluate(rest, known), factor)
            if remainder:
                size = size_text(self._size_at(place))
                raise CompileError(f"{name}: {place.said} is {number}, which {size} is for no whole {symbol}")
        missing = [s for s in self.symbols if s not in known]
        if missing:
            raise CompileError(f"{name}: the size {missing[0]} does not follow from the shapes of the inputs")
        return known

    @cached_property
    def _own_steps(self) -> list[_Step]:
        return self._steps(self.places or {})

    def _steps(self, places: Mapping[str, SizePlace]) -> list[_Step]:
        """How sizes follow from their places, in an order in which each follows from those before."""
        out = [(s, place, 1, fixed(0)) for s, place in places.items() if place.is_element]
        known, more = {step[0] for step in out}, True
        while more:
            more = False
            for symbol, place in places.items():
                size = self._size_at(place) if symbol not in known else fixed(0)
                if solvable(size, known) == symbol:
                    (variable,) = (s for s in symbols_of(size) if s.name == symbol)
                    out.append((symbol, place, size.coefficient(variable), size.without((variable,))))
                    known.add(symbol)
                    more = True
        return out

    def _size_at(self, place: SizePlace) -> Size:
        return self.inputs[place.input][0][place.index]

    def _check(
        self, name: str, sizes: Sizes, where: Mapping[str, str], places: Sequence[str] | None = None
    ) -> None:
        for symbol in self.symbols.values():
            if symbol.upper is None and sizes[symbol.name] > LARGEST:
                said = f"{symbol.name} is {{{symbol.name}}}, and must be at most {LARGEST}"
                raise CompileError(f"{name}: {_filled(said, sizes, where)}")
        for constraint, message in self.requirements:
            if not constraint.met_by(sizes):
                raise CompileError(f"{name}: {_filled(message, sizes, where)}")
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

    def shown(self, i: int) -> str:
        """A flat input as text: `f32[b, 8*s]`."""
        shape, dtype = self.inputs[i]
        return f"{dtype}[{', '.join(map(size_text, shape))}]"


def _filled(message: str, sizes: Sizes, where: Mapping[str, str]) -> str:
    """A message with the value of `s`, and where it is, in the place of `{s}`."""
    for symbol, value in sizes.items():
        message = message.replace(f"{{{symbol}}}", f"{value} ({where[symbol]})" if symbol in where else str(value))
    return message


def solvable(size: Size, known: Collection[str]) -> str | None:
    """The one symbol of a size that is not known, where the size is linear in it; else None."""
    unknown = [s for s in symbols_of(size) if s.name not in known]
    if len(unknown) != 1 or not size.coefficient(unknown[0]):
        return None
    return None if unknown[0] in symbols_of(size.without(unknown)) else unknown[0].name


def exported_shapes(avals: Sequence[Any], dtypes: Sequence[str], least: int = 1) -> OpenShapes:
    """The inputs of a function that JAX has traced with symbolic shapes. least: what sizes of which no constraint says
    it are at least. Raises CompileError for what JAX's language of sizes has and ours has not."""
    dims = [d for a in avals for d in a.shape if is_symbolic(d)]
    # JAX shows a scope's constraints to nobody; their text is what they were written as
    said = [str(c) for d in dims[:1] for c in getattr(d.scope, "_explicit_constraints", ())]
    try:
        symbols = {name: Symbol(name) for name in sorted({n for d in dims for n in names_in(str(d))})}
        told = [text.removeprefix("Constraint(").removesuffix(")") for text in said]
        # a scope may be shared: what is said of sizes that this program does not have is nothing to it
        constraints = [parse_constraint(text, symbols) for text in told if names_in(text) <= set(symbols)]
        constraints = _as_written(constraints)
        within = bounded({n: Symbol(n, _least(n, constraints, least)) for n in symbols}, constraints)
        inputs = tuple(
            (tuple(_size(d, within) for d in a.shape), dtype) for a, dtype in zip(avals, dtypes, strict=True)
        )
    except SizeError as error:
        raise CompileError(str(error)) from None
    return OpenShapes(inputs, within, tuple(constraints))


def _least(name: str, constraints: Sequence[Constraint], least: int) -> int:
    """What a size is at least: as constraints say, which may be 0."""
    own = [c for c in constraints if [s.name for s in c.symbols] == [name]]
    lower = bounded({name: Symbol(name, -1)}, own)[name].lower
    return least if lower < 0 else lower


def structs_at(types: Sequence[Any], shapes: OpenShapes, sizes: Sizes) -> list[Any]:
    """The types of the flat inputs for given sizes."""
    import jax

    return [
        jax.ShapeDtypeStruct(shape, t.dtype, weak_type=bool(getattr(t, "weak_type", False)))
        for t, (shape, _) in zip(types, shapes.types(sizes), strict=True)
    ]


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
