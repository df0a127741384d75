"""`tw.variants`: several implementations of one function, of which the sizes of the arguments choose."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ...backends.html import table_html
from ...backends.report import Report
from ...dialects.dtypes import name_of_numpy
from ...dialects.sizes import (
    Constraint,
    Names,
    Size,
    SizeError,
    fixed,
    floordiv,
    parse_guard,
    parse_size,
    replaced,
)
from ...passes.errors import CompileError
from ...support.sentences import quoted
from ..arguments.parameters import Parameters, title_of
from ..arguments.signature import is_key
from ..arguments.specs import ArgumentSpecs, Dims, Specs, symbols_in
from .shapes import OpenShapes, exported_shapes, is_symbolic


class Variants:
    """A function that is one of several by the sizes of its arguments; see `variants`."""

    def __init__(self, pairs: Sequence[tuple[str | None, Callable[..., Any]]], dims: Specs = None) -> None:
        """Raises CompileError for guards and specs that make no sense."""
        if not isinstance(pairs, Sequence):
            raise CompileError(f"tw.variants takes pairs (guard, function), not {quoted(pairs)}")
        if not pairs:
            raise CompileError("tw.variants needs at least one (guard, function)")
        for n, pair in enumerate(pairs):
            if not (isinstance(pair, tuple) and len(pair) == 2 and callable(pair[1])):
                raise CompileError(f"tw.variants takes pairs (guard, function); element {n} is none")
            if pair[0] is None and n + 1 < len(pairs):
                raise CompileError(
                    f"tw.variants: the guard of {title_of(pair[1])} is None, so that those after it are never chosen"
                )
            if not isinstance(pair[0], str | None):
                raise CompileError(
                    f"tw.variants: the guard of {title_of(pair[1])} is a text such as 's <= 512', or None"
                )
        self.guards = tuple(guard for guard, _ in pairs)
        self.functions = tuple(fn for _, fn in pairs)
        functools.update_wrapper(self, self.functions[-1])
        self.__name__ = title_of(self.functions[-1])
        self._dims: ArgumentSpecs | None = None
        if dims is not None:
            parameters = Parameters.of(self.functions[-1])
            self._dims = ArgumentSpecs(title_of(self), "tw.variants(dims=...)", parameters, dims)
        self._like: OpenShapes | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What the variants are called."""
        return tuple(map(title_of, self.functions))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the first variant gives whose guard holds for the sizes of the arguments. Where JAX traces with symbolic
        shapes, that is the first whose guard holds for all of them.

        Raises CompileError where no guard holds, and where the sizes do not follow from the arguments.
        """
        return self.functions[self.chosen(args, kwargs)](*args, **kwargs)

    def __repr__(self) -> str:
        said = (
            f"{name} if {guard}" if guard else name
            for guard, name in zip(self.guards, self.names, strict=True)
        )
        return f"<tilewright.variants: {', '.join(said)}>"

    def holding(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[bool | None], str]:
        """For each variant, whether its guard holds for arguments (None: for some sizes only, where these are
        symbolic); and the sizes as text. Raises CompileError."""
        import jax
        import numpy as np

        leaves = jax.tree.leaves((tuple(args), dict(kwargs)))
        shapes = [tuple(np.shape(leaf)) for leaf in leaves]
        if self._dims is None and self._like is None:
            raise CompileError(
                f"{title_of(self)} has variants, and does not know which sizes their guards mean: say it, as in "
                "tw.variants(..., dims='b, s, 64')"
            )
        if any(is_symbolic(n) for shape in shapes for n in shape):
            return self._symbolic(args, kwargs, leaves)
        if self._like is not None:
            open_ = self._like
        else:
            dims = self._dims_of(args, kwargs)
            symbols = symbols_in(dims, 0)
            rows = [
                tuple(
                    fixed(n) if d is None else parse_size(str(d), symbols)
                    for d, n in zip(row, shape, strict=True)
                )
                for row, shape in zip(dims, shapes, strict=True)
            ]
            open_ = OpenShapes(tuple((row, "") for row in rows), symbols)
        sizes = open_.solve(title_of(self), self._places(args, kwargs), shapes, {})
        guards = self._parsed(open_.symbols)
        said = ", ".join(f"{n} = {v}" for n, v in sizes.items())
        return [all(c.met_by(sizes) for c in guard) for guard in guards], said

    def chosen(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        """The number of the variant for arguments. Raises CompileError."""
        held, sizes = self.holding(args, kwargs)
        found = next((n for n, holds in enumerate(held) if holds), None)
        if _EXACT.get() and None in held[:found]:
            raise CompileError(f"{title_of(self)}: which of its variants is meant depends on the sizes")
        if found is None:
            which = f"for {sizes}" if sizes else "for all sizes"
            raise CompileError(f"{title_of(self)}: no guard of its variants holds {which}; None holds always")
        return found

    def bound(self, shapes: OpenShapes) -> Variants:
        """The same, where guards mean the sizes of these shapes unless the variants have their own."""
        if self._dims is not None:
            return self
        made = Variants(list(zip(self.guards, self.functions, strict=True)))
        made._like = shapes
        made._parsed(shapes.symbols)
        return made

    def _dims_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Dims]:
        assert self._dims is not None
        return self._dims.dims(args, kwargs, range(len(args)))

    def _places(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
        import jax

        parameters = Parameters.of(self)
        flat = jax.tree_util.tree_leaves_with_path((tuple(args), dict(kwargs)))
        return [f"argument {parameters.path(path)}" for path, _ in flat]

    def _parsed(self, names: Names) -> list[tuple[Constraint, ...]]:
        try:
            return [parse_guard(guard, names) if guard is not None else () for guard in self.guards]
        except SizeError as error:
            raise CompileError(f"{title_of(self)}: {error}") from None

    def _symbolic(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], leaves: Sequence[Any]
    ) -> tuple[list[bool | None], str]:
        """`holding` for symbolic shapes: what a guard says of sizes that are dimensions by themselves."""
        dtypes = [str(v.dtype) if is_key(v) else name_of_numpy(v.dtype) for v in leaves]
        return [_always(guard) for guard in self.guards_over(exported_shapes(leaves, dtypes), args, kwargs)], ""

    def guards_over(
        self, shapes: OpenShapes, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[tuple[Constraint, ...]]:
        """The guards in the symbols of arguments with symbolic shapes. Raises CompileError."""
        if self._dims is None:
            return self._parsed(shapes.symbols)
        dims = self._dims_of(args, kwargs)
        own = symbols_in(dims, 0)
        rows = [
            tuple(size if d is None else parse_size(str(d), own) for d, size in zip(row, shape, strict=True))
            for row, (shape, _) in zip(dims, shapes.inputs, strict=True)
        ]
        names: dict[str, Size] = {}
        meant = OpenShapes(tuple((row, "") for row in rows), own)
        for name, place in meant.places_in(self._places(args, kwargs)).items():
            size, given = rows[place.input][place.index], shapes.inputs[place.input][0][place.index]
            rest = replaced(size.without((own[name],)), names)  # size = factor * name + rest
            names[name] = floordiv(given - rest, fixed(size.coefficient(own[name])))
        return self._parsed({**own, **names})


def _always(guard: Sequence[Constraint]) -> bool | None:
    every = [constraint.always() for constraint in guard]
    return False if False in every else None if None in every else True


_EXACT: ContextVar[bool] = ContextVar("exact", default=False)


@contextmanager
def exact_choices() -> Iterator[None]:
    """Variants that are traced with symbols raise CompileError where another might be meant for some of the sizes."""
    token = _EXACT.set(True)
    try:
        yield
    finally:
        _EXACT.reset(token)


_HEADER = ("", "variant", "guard", "us", "bytes", "joules", "")


@dataclass(frozen=True)
class PricedVariant:
    """A variant at given sizes: its guard, whether that holds, whether it is the one that is chosen, and what it would
    cost; or the reason why it cannot be compiled for these sizes."""

    name: str
    guard: str | None
    holds: bool
    chosen: bool
    report: Report | None
    problem: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row of the table."""
        mark = "*" if self.chosen else "" if self.holds else "-"
        head = (mark, self.name, self.guard or "always")
        if self.report is None:
            return (*head, "", "", "", self.problem)
        memory, joules = self.report.memory.arena_bytes, self.report.energy_joules
        return (*head, f"{self.report.microseconds:,.1f}", f"{memory:,}", f"{joules:.3g}", "")


@dataclass(frozen=True)
class Choices:
    """What each variant costs at given sizes. Its text is a table: * is chosen, - has a guard that does not hold."""

    sizes: dict[str, int]
    rows: tuple[PricedVariant, ...]

    @property
    def chosen(self) -> PricedVariant:
        """The variant that the program uses at these sizes."""
        return next(row for row in self.rows if row.chosen)

    def _repr_html_(self) -> str:
        """The table, for notebooks."""
        return table_html(self._title, _HEADER, [row.cells for row in self.rows])

    @property
    def _title(self) -> str:
        return ", ".join(f"{n} = {v}" for n, v in self.sizes.items())

    def __str__(self) -> str:
        lines = [_HEADER, *(row.cells for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
        return "\n".join([self._title, *shown])


def variants(pairs: Sequence[tuple[str | None, Callable[..., Any]]], dims: Specs = None) -> Variants:
    """A function that is one of several implementations, by the sizes of its arguments.

    Called, also inside JAX's transformations, it is the first one whose guard holds. `tw.compile` of it with symbolic
    shapes gives a program whose version for sizes is compiled from that one; the program's `choices(at)` prices all.

    Args:
        pairs: (guard, function). A guard is what must hold of sizes: `"s <= 512"`, `"s > 512 and mod(s, 64) == 0"`.
            The last one may be None: it is used where no other guard holds. The functions take the same arguments.
        dims: What the names in guards mean: the dimensions of the arguments, as `tw.jit` has them in `dynamic`:
            `"b, s, 64"` for all, `("b, s, 64", None)` for each. Without it they are the symbols of the arguments that
            `tw.compile` is given, and the function can only be compiled.

    Returns:
        A callable with the arguments of the functions.

    Raises:
        CompileError: A guard or a spec makes no sense; in a call, no guard holds, or sizes do not fit together.
    """
    return Variants(pairs, dims)
