"""What programs with open dimensions are lowered from, for all sizes of a range at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from ...dialects.affine import Expr, Symbol
from ...dialects.dtypes import numpy_dtype
from ...dialects.sizes import Constraint, Size, Sizes, parse_constraint, parse_size, size_text
from ...machine import Machine
from ...passes.templates import NoTemplate
from .shapes import OpenShapes

if TYPE_CHECKING:
    from jaxlib.mlir import ir

    from ...frontends.open_module import OpenModule

Number = Callable[[Size], int]
"""What a size of a program is in a version: a number, or an `OpenSize`."""


class OpenCode(Protocol):
    """A program with open dimensions in the form that one frontend takes."""

    @property
    def donated(self) -> tuple[bool, ...]:
        """Which of its inputs it donates itself; none where it is empty."""
        ...

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """What it was made for: sizes that break one of these have a program of their own."""
        ...

    def graph(self, shapes: OpenShapes, number: Number, machine: Machine | None) -> OpenModule:
        """Its graph level for inputs of these shapes, within `assuming`. machine: the device; None for any.

        Raises FrontendError, PassError and SizeError where it cannot be lowered for all sizes.
        """
        ...

    def at(self, shapes: OpenShapes, sizes: Sizes, machine: Machine | None) -> ModuleOp:
        """Its graph level for inputs of these shapes at given sizes. Raises FrontendError."""
        ...

    def identity(self) -> Sequence[str]:
        """All that decides its graph level besides shapes, as text: it finds what is kept across processes."""
        ...


    def stored(self) -> tuple[dict[str, Any], bytes] | None:
        """What it is as JSON and the content of a file, for `code_in`; None where it needs other files, too."""
        ...


@dataclass(frozen=True)
class StableHloCode:
    """StableHLO with open dimensions.

    content: text or bytecode. entry: the function that is the program. leading: the sizes that are its first arguments,
    which are no inputs. filename: for messages.
    """

    content: bytes
    entry: str
    leading: tuple[Size, ...] = ()
    filename: str | None = None
    donated: tuple[bool, ...] = ()
    constraints: tuple[Constraint, ...] = ()

    def graph(self, shapes: OpenShapes, number: Number, machine: Machine | None) -> OpenModule:
        from ...frontends.open_walk import lower_open

        inputs = [tuple(map(number, shape)) for shape, _ in shapes.inputs]
        decided = {
            i: [number(Expr.of(shapes.symbols[name])) for name in names]
            for i, names in shapes.deciding.items()
        }
        leading = list(map(number, self.leading))
        return lower_open(self.content, self.entry, leading, inputs, decided, self.filename, machine)

    def at(self, shapes: OpenShapes, sizes: Sizes, machine: Machine | None) -> ModuleOp:
        from ...frontends.stablehlo import convert_module

        return convert_module(self._refined(shapes, sizes), machine)

    def artifact_at(self, shapes: OpenShapes, sizes: Sizes) -> bytes:
        """What it is at given sizes as a portable artifact of StableHLO. Raises FrontendError."""
        from ...frontends.bindings import portable

        return portable(self._refined(shapes, sizes))

    def _refined(self, shapes: OpenShapes, sizes: Sizes) -> ir.Module:
        from ...frontends.bindings import parse
        from ...frontends.refining import refine

        types = shapes.types(sizes)
        values = {
            i: np.array([sizes[n] for n in names], numpy_dtype(types[i][1])) for i, names in shapes.deciding.items()
        }
        name = Path(self.filename).name if self.filename else "program"
        return refine(parse(self.content, self.filename), [shape for shape, _ in types], values, name)

    def identity(self) -> Sequence[str]:
        from ...frontends.bindings import contents, parse

        text = contents(parse(self.content, self.filename))
        said = [*map(size_text, self.leading), *map(str, self.constraints)]
        return [text, self.entry, self.filename or "", *said]

    def artifact(self) -> bytes:
        """What it is as a portable artifact of StableHLO. Raises FrontendError."""
        from ...frontends.stablehlo import stablehlo_artifact

        return stablehlo_artifact(self.content, self.filename)

    def stored(self) -> tuple[dict[str, Any], bytes] | None:
        leading = [size_text(size) for size in self.leading]
        facts = {"kind": STABLEHLO, "entry": self.entry, "leading": leading}
        return {**facts, **_common(self)}, self.artifact()


@dataclass(frozen=True)
class TwCode:
    """A function of a `.tw` file. text: that of the file; function: which one, None for the only public one."""

    path: str
    text: str
    function: str | None
    donated: tuple[bool, ...] = ()
    constraints: tuple[Constraint, ...] = ()

    def graph(self, shapes: OpenShapes, number: Number, machine: Machine | None) -> OpenModule:
        """Raises NoTemplate for what is an error in the program for some sizes, which each of them says for itself."""
        from ...frontends.open_module import OpenModule
        from ...frontends.text import TwError
        from ...frontends.text.frontend import lower_tw

        inputs = [(tuple(map(number, shape)), dtype) for shape, dtype in shapes.inputs]
        try:
            made = lower_tw(self.path, self.text, self.function, inputs)
        except TwError as error:
            first = error.diagnostics[0]
            line, column = first.file.place(first.span[0])
            raise NoTemplate(f"{first.file.path}:{line}:{column}: {first.message}") from None
        return OpenModule(made.module, made.extras)

    def at(self, shapes: OpenShapes, sizes: Sizes, machine: Machine | None) -> ModuleOp:
        from ...frontends.text.frontend import lower_tw

        return lower_tw(self.path, self.text, self.function, shapes.types(sizes)).module

    def identity(self) -> Sequence[str]:
        from ...frontends.text.frontend import tw_identity

        return ["tw", self.function or "", *tw_identity(self.path, self.text)]

    def stored(self) -> tuple[dict[str, Any], bytes] | None:
        from ...frontends.text.frontend import tw_identity

        if len(tw_identity(self.path, self.text)) > 2:  # it imports files, or has weights in some
            return None
        return {"kind": TW, "function": self.function, **_common(self)}, self.text.encode()


STABLEHLO, TW = "stablehlo", "tw"


def _common(code: OpenCode) -> dict[str, Any]:
    return {"constraints": list(map(str, code.constraints)), "donated": list(code.donated)}


def code_in(facts: Mapping[str, Any], content: bytes, symbols: Mapping[str, Symbol], filename: str) -> OpenCode:
    """What `stored` has said. Raises KeyError, TypeError, ValueError or SizeError for what it has not."""
    constraints = tuple(parse_constraint(said, symbols) for said in facts["constraints"])
    donated = tuple(flag is True for flag in facts["donated"])
    if facts["kind"] == TW:
        function = facts["function"]
        return TwCode(filename, content.decode(), None if function is None else str(function), donated, constraints)
    if facts["kind"] != STABLEHLO:
        raise ValueError(f"{str(facts['kind'])[:40]!r} is no kind of program")
    leading = tuple(parse_size(said, symbols) for said in facts["leading"])
    return StableHloCode(content, str(facts["entry"]), leading, filename, donated, constraints)
