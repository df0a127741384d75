"""Writes the dialect reference from the ops' own definitions: `python docs/reference/generate.py`.

A test (tests/docs/test_site.py) holds the pages to what this prints.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill

from xdsl.dialects.builtin import DenseArrayBase
from xdsl.ir import Attribute, Dialect, Operation
from xdsl.irdl import (
    AttributeDef,
    BaseAttr,
    OptionalDef,
    ParamAttrConstraint,
    VariadicDef,
)
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure

from tilewright.dialects.graph import Graph
from tilewright.dialects.npu import Npu, NpuOp
from tilewright.dialects.tile import Tile
from tilewright.passes.alternatives import table
from tilewright.support.files import write_part

WIDTH = 110
"""Characters of a line."""

HERE = Path(__file__).parent
ABOUT = {
    "graph": (
        "Whole tensors, value semantics, no machine. Ops infer their result types; the verifier compares them with\n"
        "what is written."
    ),
    "tile": (
        "Kernels: a grid over cores, loops over tiles, each tile in a named memory. Still value semantics; no\n"
        "addresses, no flags."
    ),
    "npu": (
        "Addressed buffers, one op per machine instruction, each on a pipe, ordered by flags; and the host program\n"
        "that launches kernels."
    ),
}


def page(dialect: Dialect) -> str:
    """The Markdown page of a dialect."""
    parts = [
        f"# The {dialect.name} dialect",
        "Generated from the definitions in "
        f"`dialects/{dialect.name}/` by `docs/reference/generate.py`; do not edit.",
        ABOUT[dialect.name],
    ]
    types = list(dialect.attributes)
    if types:
        parts.append("## Types and attributes")
        parts += [f"### `{a.name}`\n\n{_doc(a)}" for a in sorted(types, key=lambda a: a.name)]
    ops = sorted(dialect.operations, key=lambda op: op.name)
    scalar = [op for op in ops if hasattr(op, "FUNCTION")]
    parts.append("## Ops")
    parts += [entry(op) for op in ops if op not in scalar]
    parts.append("## Scalar functions")
    parts.append(
        "Element by element, on operands of one shape"
        + (", on the vector unit. `dest` is written." if dialect.name == "npu" else ".")
    )
    rows = [f"| `{op.name}` | {_operands(op)} | {_formula(op)} |" for op in scalar]
    parts.append("\n".join(["| op | operands | computes |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def entry(op: type[Operation]) -> str:
    """The section of an op."""
    definition = op.get_irdl_definition()
    lines = [f"### `{op.name}`", "", _doc(op), ""]
    rows = [
        ("operands", _operands(op)),
        ("results", ", ".join(_value(name, d) for name, d in definition.results)),
        ("properties", ", ".join(_property(name, d) for name, d in definition.properties.items())),
        ("regions", ", ".join(_value(name, d) for name, d in definition.regions)),
        ("pipe", str(op.PIPE) if issubclass(op, NpuOp) and hasattr(op, "PIPE") else ""),
        ("traits", ", ".join(_traits(op))),
    ]
    shown = [(name, said) for name, said in rows if said]
    if shown:
        lines += ["| | |", "|---|---|", *(f"| {name} | {said} |" for name, said in shown)]
    return "\n".join(lines).rstrip()


def _doc(thing: type) -> str:
    said = inspect.cleandoc(thing.__doc__ or "")
    assert said, f"{thing.name} has no docstring"
    said = said.replace("<", "&lt;") if "`" not in said else said
    return "\n\n".join(map(_wrapped, said.split("\n\n")))


def _wrapped(paragraph: str) -> str:
    """A paragraph in lines that fit a page; lists and code as they are."""
    lines = paragraph.splitlines()
    return paragraph if any(line.startswith((" ", "*")) for line in lines) else fill(" ".join(lines), WIDTH)


def _formula(op: type[Operation]) -> str:
    return _doc(op).replace("\n", " ").partition(": ")[2].removesuffix(".").replace("|", "\\|").replace("*", "\\*")


def _operands(op: type[Operation]) -> str:
    return ", ".join(_value(name, d) for name, d in op.get_irdl_definition().operands)


def _value(name: str, definition: object) -> str:
    if isinstance(definition, OptionalDef):
        return f"`{name}`?"
    return f"`{name}`..." if isinstance(definition, VariadicDef) else f"`{name}`"


def _property(name: str, definition: AttributeDef | object) -> str:
    kind = _kind(getattr(definition, "constr", None))
    optional = "?" if isinstance(definition, OptionalDef) else ""
    return f"`{name}`{optional}{f' ({kind})' if kind else ''}"


_KINDS = {
    "DenseArrayBase": "integers",
    "StringAttr": "string",
    "IntegerAttr": "integer",
    "SymbolRefAttr": "symbol",
}


def _kind(constraint: object) -> str:
    base: type[Attribute] | None = None
    if isinstance(constraint, BaseAttr):
        base = constraint.attr
    elif isinstance(constraint, ParamAttrConstraint):
        base = constraint.base_attr
    if base is None:
        return ""
    return _KINDS.get(base.__name__, "integers" if base is DenseArrayBase else base.name)


def _traits(op: type[Operation]) -> Iterator[str]:
    names = {Pure: "pure", IsTerminator: "terminator", IsolatedFromAbove: "isolated from above"}
    for trait, name in names.items():
        if op.has_trait(trait):
            yield name
    if getattr(op, "ADDRESSED", False):
        yield "addressed: `at [...]` gives a box or a counter"


def pages() -> Sequence[tuple[Path, str]]:
    """Each page and what it must hold."""
    return [(HERE / f"{dialect.name}.md", page(dialect)) for dialect in (Graph, Tile, Npu)]


ALTERNATIVES = HERE.parent / "passes" / "graph-schedule.md"
"""The page that lists the alternatives, between two comments."""


if __name__ == "__main__":
    for path, content in pages():
        path.write_text(content, encoding="utf-8")
    write_part(ALTERNATIVES, "<!-- alternatives: begin -->", "<!-- alternatives: end -->", table())
