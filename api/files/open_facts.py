"""Open sizes of programs as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...dialects.affine import Symbol
from ...dialects.sizes import fixed, parse_constraint, parse_size, size_text
from ..sizes.shapes import OpenShapes

if TYPE_CHECKING:
    from ..sizes.templates import Key


def range_symbols(symbols: Mapping[str, Symbol], key: Key) -> dict[str, Symbol]:
    """The sizes of which a range has several, with their bounds there."""
    ranges = zip(symbols, key, strict=True)
    return {name: Symbol(name, low, high) for name, (low, high) in ranges if low < high}


def shapes_facts(shapes: OpenShapes) -> dict[str, Any]:
    """Shapes as JSON, without the inputs, which a signature has."""
    return {
        "symbols": [[s.name, s.lower, s.upper] for s in shapes.symbols.values()],
        "constraints": list(map(str, shapes.constraints)),
        "deciding": [[i, list(names)] for i, names in shapes.deciding.items()],
    }


def inputs_facts(shapes: OpenShapes) -> list[Any]:
    """Inputs as a signature has them: `[["b", "8*s"], "f32"]`."""
    return [[[size_text(n) if n.terms else n.constant for n in row], dtype] for row, dtype in shapes.inputs]


def shapes_in(facts: Mapping[str, Any], inputs: list[Any]) -> OpenShapes:
    """The shapes that `shapes_facts` and `inputs_facts` have said. Raises ValueError, TypeError, KeyError or SizeError
    for what is none."""
    symbols = {name: Symbol(name, lower, upper) for name, lower, upper in facts["symbols"]}
    for name, symbol in symbols.items():
        ends = symbol.lower, symbol.lower if symbol.upper is None else symbol.upper
        if not (name.isidentifier() and all(type(n) is int and n >= 0 for n in ends)):
            raise ValueError(f"{name[:40]!r} is no open size")
    rows = tuple(
        (tuple(fixed(n) if type(n) is int else parse_size(n, symbols) for n in row), str(dtype))
        for row, dtype in inputs
    )
    constraints = tuple(parse_constraint(said, symbols) for said in facts["constraints"])
    deciding = {int(i): tuple(map(str, names)) for i, names in facts["deciding"]}
    if not all(0 <= i < len(rows) and {*names} <= symbols.keys() for i, names in deciding.items()):
        raise ValueError("an input that it has not decides sizes")
    return OpenShapes(rows, symbols, constraints, deciding)
