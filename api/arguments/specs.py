"""Which dimensions of arguments are open, as text: `"b, 8*s, _, ..."`, and what JAX takes for it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...dialects.affine import Symbol
from ...dialects.sizes import (
    Constraint,
    Derived,
    Size,
    SizeError,
    bounded,
    names_in,
    parse_constraint,
    parse_size,
)
from ...passes.errors import CompileError
from .parameters import Parameters

Specs = Any
"""As `jax.export.symbolic_args_specs` takes them: one text for all arguments, or for each argument a text or a pytree
of texts, None for shapes that are fixed; or the same by the names of arguments."""

Dims = tuple[str | int | None, ...]
"""A size as text or as a number for each dimension of an array; None for one that is as the array has it."""


@dataclass(frozen=True)
class ArgumentSpecs:
    """Which dimensions of a function's arguments are open. title: what messages call the function; option: what they
    call the specs. Raises CompileError for specs of arguments that the function does not have."""

    title: str
    option: str
    parameters: Parameters
    specs: Specs

    def __post_init__(self) -> None:
        known = (*self.parameters.positional, *self.parameters.keyword)
        if isinstance(self.specs, Mapping):
            for name in self.specs:
                if known and name not in known:
                    raise CompileError(
                        f"{self.option}: {self.title} has no argument {name!r}; it has {', '.join(known)}"
                    )
        elif not isinstance(self.specs, str | tuple | list):
            raise CompileError(
                f"{self.option} is a text such as 'b, 128', or one for each argument, not {self.specs!r}"
            )
        elif not isinstance(self.specs, str) and known and not self.parameters.variadic:
            if len(self.specs) > len(self.parameters.positional):
                count = len(self.parameters.positional)
                raise CompileError(
                    f"{self.option} has {len(self.specs)} specs, and {self.title} has {count} "
                    f"argument{'s' * (count != 1)} by position"
                )

    def dims(self, args: Sequence[Any], kwargs: Mapping[str, Any], places: Sequence[int]) -> list[Dims]:
        """The dimensions of each flat argument of a call; places: the positions of `args` among the function's.

        Raises CompileError for specs that do not fit the arguments.
        """
        import jax
        import numpy as np

        named = [
            (self.parameters.label(i), self._at(i), value) for i, value in zip(places, args, strict=True)
        ]
        named += [(k, self._called(k), kwargs[k]) for k in sorted(kwargs)]
        found: list[Dims] = []
        for label, spec, value in named:
            place = f"argument {label} of {self.title}"

            def add(text: str | None, part: Any, place: str = place) -> None:
                found.extend(self._parsed(text, np.ndim(leaf), place) for leaf in jax.tree.leaves(part))

            try:
                jax.tree.map(add, spec, value, is_leaf=lambda x: x is None)
            except ValueError:
                raise CompileError(f"{self.option}: {spec!r} is not built as {place} is") from None
        return found

    def _at(self, i: int) -> Specs:
        if isinstance(self.specs, Mapping):
            return self._called(self.parameters.label(i))
        if isinstance(self.specs, str):
            return self.specs
        return self.specs[i] if i < len(self.specs) else None

    def _called(self, name: str) -> Specs:
        if isinstance(self.specs, Mapping):
            return self.specs.get(name)
        if isinstance(self.specs, str):
            return self.specs
        positional = self.parameters.positional
        return self._at(positional.index(name)) if name in positional else None

    def _parsed(self, text: Any, rank: int, place: str) -> Dims:
        if text is None:
            return (None,) * rank
        if not isinstance(text, str):
            raise CompileError(f"{self.option}: the spec of {place} is a text such as 'b, 128', not {text!r}")
        dims = parse_dims(text, self.option)
        more = bool(dims) and dims[-1] is Ellipsis
        known = [d for d in dims if d is not Ellipsis]
        if len(known) != len(dims) - more or len(known) > rank or (len(known) < rank and not more):
            raise CompileError(
                f"{self.option}: {text!r} has not as many dimensions as {place}, which has {rank}"
            )
        return (*known, *(None,) * (rank - len(known)))


def parse_dims(text: str, option: str) -> list[Any]:
    """The dimensions that a text lists: None for `_`, Ellipsis for `...`, numbers, and sizes as text. Raises
    CompileError."""
    if not text.strip():
        return []
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        nodes = tree.elts if isinstance(tree, ast.Tuple) else [tree]
        return [_dim(node) for node in nodes]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = str(error) if isinstance(error, SizeError) else f"{text!r} lists no dimensions"
        raise CompileError(f"{option}: {said}: write it as in 'b, 8*s, _, ...'") from None


def _dim(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and node.value is Ellipsis:
        return Ellipsis
    if isinstance(node, ast.Name) and node.id == "_":
        return None
    text = ast.unparse(node)
    size = parse_size(text, {name: Symbol(name) for name in names_in(text)})
    return text if size.terms else size.constant


def symbols_in(dims: Iterable[Dims], least: int) -> dict[str, Symbol]:
    """The symbols of dimensions, by name: each at least `least`."""
    names = {name for row in dims for d in row if isinstance(d, str) for name in names_in(d)}
    return {name: Symbol(name, least) for name in sorted(names)}


def symbolic_shapes(dims: Sequence[Dims], constraints: Sequence[str], option: str) -> list[tuple[Any, ...]]:
    """Shapes with JAX's symbolic dimensions, all of one scope with these constraints; no dimension is None.

    Raises CompileError, which calls where they come from `option`, for constraints of other symbols, or that leave no
    size.
    """
    import jax.export

    symbols = symbols_in(dims, 1)
    try:
        wanted = [parse_constraint(text, symbols) for text in constraints]
        bounded(symbols, wanted)
        scope = jax.export.SymbolicScope(tuple(map(_constraint_in_jax, wanted)))

        def made(d: str | int | None) -> Any:
            if not isinstance(d, str):
                return d
            size = parse_size(d, symbols)
            return jax.export.symbolic_shape(_in_jax(size), scope=scope)[0] if size.terms else size.constant

        return [tuple(map(made, row)) for row in dims]
    except SizeError as error:
        raise CompileError(f"{option}: {error}") from None
    except ValueError as error:  # JAX's, of several lines
        raise CompileError(f"{option}: {str(error).splitlines()[0]}") from None


def _constraint_in_jax(constraint: Constraint) -> str:
    """A constraint in the words of JAX, which has no `<` and no `>`."""
    right = constraint.right + {"<": -1, ">": 1}.get(constraint.compare, 0)
    compare = constraint.compare if constraint.compare == "==" else f"{constraint.compare[0]}="
    return f"{_in_jax(constraint.left)} {compare} {_in_jax(right)}"


def _in_jax(size: Size) -> str:
    """A size in the words of JAX, which has no `ceildiv`."""
    terms = [f"{coefficient}*{_variable_in_jax(v)}" for v, coefficient in size.terms]
    return " + ".join([*terms, str(size.constant)])


def _variable_in_jax(variable: Symbol | Derived) -> str:
    if isinstance(variable, Symbol):
        return str(variable)
    if variable.kind == "mul":  # of variables
        return "*".join(_variable_in_jax(arg.terms[0][0]) for arg in variable.args)
    return f"{variable.kind}({', '.join(map(_in_jax, variable.args))})"
