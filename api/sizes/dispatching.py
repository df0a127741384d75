"""The host program of a program with open dimensions: `npu.dispatch`, which finds sizes and chooses a version.

It is made of the program's inputs, and gets a case for each range that is lowered. What a call does is read from it:
where sizes are, what is required of them, which case is taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region

from ...dialects.base import integer_attr, text
from ...dialects.dtypes import element_type, names, tensor
from ...dialects.module import set_example, set_target
from ...dialects.npu import AloneOp, DispatchOp, RequireOp, SymbolOp, VersionOp
from ...dialects.npu.dispatch import CaseOp
from ...dialects.open_sizes import OpenSize
from ...dialects.size_numbers import SizeNumber, number_text
from ...dialects.sizes import Constraint, Sizes
from ...passes.templates import Template
from .shapes import OpenShapes, SizePlace

KEY_WORDS = "ui32"
"""What stands for a random key, which is words in memory."""


class Dispatch:
    """An `npu.dispatch` in a function, and the shapes that it says. whole: the module around it, where it was read with
    its versions."""

    def __init__(self, op: DispatchOp, main: FuncOp, shapes: OpenShapes, whole: ModuleOp | None = None) -> None:
        self.op, self.main, self.whole = op, main, whole
        self.shapes = shapes_of(op, shapes)

    @staticmethod
    def of(shapes: OpenShapes, called: Sequence[str], hints: Sequence[str]) -> Dispatch:
        """The op for a program without versions. shapes: of the flat inputs; called: what messages call these; hints:
        their names."""
        known = names()
        kinds = [
            tensor([OpenSize.of(n) for n in row], element_type(dtype if dtype in known else KEY_WORDS))
            for row, dtype in shapes.inputs
        ]
        block = Block(arg_types=kinds)
        for value, hint in zip(block.args, hints, strict=True):
            name = re.sub(r"\W+", "_", hint, flags=re.ASCII).strip("_")
            value.name_hint = f"arg{name}" if name.isdecimal() else name or None
        parts = [*_symbols(shapes, called), *(_requires(c, said) for c, said in shapes.requirements)]
        op = DispatchOp.create(operands=block.args, regions=[Region(Block(parts))])
        block.add_ops([op, ReturnOp()])
        return Dispatch(op, FuncOp("main", (kinds, []), Region(block)), shapes)

    def chosen(self, sizes: Sizes) -> CaseOp | None:
        """The case that is taken for sizes; None where there is none yet."""
        return self.op.chosen(sizes)

    def add_version(self, guard: str, module: str, extras: Sequence[SizeNumber]) -> None:
        """A version for the sizes for which a guard holds: the module of that name, which takes `extras`, too."""
        properties: dict[str, Attribute] = {"guard": StringAttr(guard), "callee": SymbolRefAttr(module)}
        if extras:
            properties["extras"] = ArrayAttr([StringAttr(number_text(number)) for number in extras])
        self._add(VersionOp.create(properties=properties))

    def add_alone(self, guard: str, reason: str, variant: str | None = None) -> None:
        """Sizes for which the program is compiled alone, and why; variant: as which implementation."""
        properties: dict[str, Attribute] = {"guard": StringAttr(guard), "reason": StringAttr(reason)}
        if variant is not None:
            properties["variant"] = StringAttr(variant)
        self._add(AloneOp.create(properties=properties))

    def _add(self, case: CaseOp) -> None:
        self.op.body.block.add_op(case)

    def module(self, versions: Mapping[str, Template], target: str) -> ModuleOp:
        """The module with the dispatch and copies of its versions, by their names."""
        if self.whole is not None:
            return self.whole.clone()
        inner: list[Operation] = []
        for name, version in versions.items():
            made = version.module.clone()
            made.sym_name = StringAttr(name)
            set_example(made, version.example)
            inner.append(made)
        module = ModuleOp([self.main.clone(), *inner])
        set_target(module, target)
        return module


def guard_text(ranges: Mapping[str, tuple[int, int]], constraints: Sequence[Constraint] = ()) -> str:
    """A guard for ranges of sizes, ends included, and constraints."""
    said = [
        f"{name} == {low}" if low == high else f"{name} >= {low} and {name} <= {high}"
        for name, (low, high) in ranges.items()
    ]
    return " and ".join([*said, *map(str, constraints)])


def shapes_of(op: DispatchOp, shapes: OpenShapes) -> OpenShapes:
    """Shapes with the symbols, places and requirements that an `npu.dispatch` says. Their inputs are its operands."""
    places: dict[str, SizePlace] = {}
    for part in op.parts:
        source = part.source
        if source is not None:
            what = "element" if source[2] else "dimension"
            said = f"{what} {source[1]} of input {source[0]}" if part.place is None else text(part.place)
            places[text(part.symbol)] = SizePlace(*source, said)
    return replace(shapes, symbols=op.symbols, places=places, required=op.requirements)


def _symbols(shapes: OpenShapes, called: Sequence[str]) -> list[SymbolOp]:
    found = shapes.places_in(called)
    out: list[SymbolOp] = []
    for symbol in shapes.symbols:
        properties: dict[str, Attribute] = {"symbol": StringAttr(symbol)}
        if symbol in found:
            place = found[symbol]
            properties |= {
                "operand": integer_attr(place.input),
                "element" if place.is_element else "dimension": integer_attr(place.index),
                "place": StringAttr(place.said),
            }
        out.append(SymbolOp.create(properties=properties))
    return out


def _requires(constraint: Constraint, said: str) -> RequireOp:
    return RequireOp.create(
        properties={"condition": StringAttr(str(constraint)), "message": StringAttr(said)}
    )
