"""A module with open dimensions, prepared so that numbers are put in quickly: of what a `Template` (templates.py)
stands for, the ops alone.

`Instantiation` (instantiation.py) looks at every op and every attribute of a module. A `SymbolicTemplate` looks once,
when it is made, and keeps what depends on sizes. A copy for given sizes is then made in one walk, in which what is
closed is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import IntegerAttr, LocationAttr, ModuleOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from ..dialects.base import INDEX
from ..dialects.open_index import OpenIndexOp
from ..dialects.open_sizes import value_at
from ..dialects.sizes import Sizes
from .instantiation import Instantiation


@dataclass(frozen=True, slots=True)
class _Slot:
    """A place for one of the attributes that depend on sizes, by its number."""

    name: str
    number: int


@dataclass(slots=True)
class _OpPlan:
    """An op to be made. operands: numbers of values, in the order in which the copy makes them. types, properties,
    attributes: with those that are open as they stand in the module, and where these are. size: what an op that gives
    an open size gives."""

    cls: type[Operation]
    operands: tuple[int, ...]
    types: list[Attribute]
    open_types: tuple[tuple[int, int], ...]
    properties: dict[str, Attribute]
    open_properties: tuple[_Slot, ...]
    attributes: dict[str, Attribute]
    open_attributes: tuple[_Slot, ...]
    location: LocationAttr
    hints: tuple[str | None, ...]
    regions: tuple[tuple[_BlockPlan, ...], ...]
    size: int | None


@dataclass(slots=True)
class _BlockPlan:
    """A block to be made, with the types of its arguments."""

    types: list[Attribute]
    open_types: tuple[tuple[int, int], ...]
    hints: tuple[str | None, ...]
    ops: list[_OpPlan]


class SymbolicTemplate:
    """A symbolic module, of which copies for given sizes are wanted, `example` being some that it may have. It must not
    change afterwards."""

    def __init__(self, module: ModuleOp, example: Sizes) -> None:
        self._example = Instantiation(example)
        self._open: list[Attribute] = []
        self._numbers: dict[Attribute, int | None] = {}
        self._values: dict[SSAValue, int] = {}
        self._found = 0
        self.closed: set[Operation] = set()
        """The ops with regions of which all copies are equal."""
        self._plan = self._op(module)
        del self._values

    def at(self, sizes: Sizes) -> ModuleOp:
        """The module at given sizes. Raises KeyError for a symbol without a size."""
        instantiation = Instantiation(sizes)
        made = [instantiation.attribute(attr) for attr in self._open]
        module = _Copy(sizes, made).op(self._plan)
        assert isinstance(module, ModuleOp)
        return module

    # -- looking at the module -----------------------------------------------------------------------------

    def _number(self, attr: Attribute) -> int | None:
        """The number of an attribute that depends on sizes; None for others."""
        if attr not in self._numbers:
            found = self._example.attribute(attr) != attr
            self._numbers[attr] = len(self._open) if found else None
            if found:
                self._open.append(attr)
        self._found += self._numbers[attr] is not None
        return self._numbers[attr]

    def _slots(self, attributes: dict[str, Attribute]) -> tuple[_Slot, ...]:
        numbers = ((name, self._number(attr)) for name, attr in attributes.items())
        return tuple(_Slot(name, number) for name, number in numbers if number is not None)

    def _types(self, values: Sequence[SSAValue]) -> tuple[tuple[int, int], ...]:
        for value in values:
            self._values[value] = len(self._values)
        numbers = (self._number(value.type) for value in values)
        return tuple((i, number) for i, number in enumerate(numbers) if number is not None)

    def _op(self, op: Operation) -> _OpPlan:
        size = op.number if isinstance(op, OpenIndexOp) else None
        before = self._found
        self._found += size is not None
        operands = tuple(self._values[v] for v in op.operands)
        assert not op.successors
        made = _OpPlan(
            type(op),
            operands,
            list(op.result_types),
            self._types(op.results),
            op.properties,
            self._slots(op.properties) if size is None else (),
            op.attributes,
            self._slots(op.attributes),
            op.location,
            tuple(r.name_hint for r in op.results),
            tuple(tuple(map(self._block, region.blocks)) for region in op.regions),
            size,
        )
        if op.regions and self._found == before:
            self.closed.add(op)
        return made

    def _block(self, block: Block) -> _BlockPlan:
        open_types = self._types(block.args)
        hints = tuple(a.name_hint for a in block.args)
        return _BlockPlan([a.type for a in block.args], open_types, hints, list(map(self._op, block.ops)))


class _Copy:
    """One copy in the making. values: those made so far; open_: the attributes that depend on sizes, settled."""

    def __init__(self, sizes: Sizes, open_: Sequence[Attribute]) -> None:
        self.sizes, self.open = sizes, open_
        self.values: list[SSAValue] = []

    def op(self, plan: _OpPlan) -> Operation:
        values, settled = self.values, self.open
        if plan.size is not None:
            number = IntegerAttr(value_at(plan.size, self.sizes), INDEX)
            constant = ConstantOp.create(
                result_types=plan.types, properties={"value": number}, location=plan.location
            )
            self._keep(constant.results, plan.hints)
            return constant
        types, properties, attributes = plan.types, plan.properties, plan.attributes
        if plan.open_types:
            types = list(types)
            for i, number in plan.open_types:
                types[i] = settled[number]
        if plan.open_properties:
            properties = {**properties, **{s.name: settled[s.number] for s in plan.open_properties}}
        if plan.open_attributes:
            attributes = {**attributes, **{s.name: settled[s.number] for s in plan.open_attributes}}
        regions = [Region() for _ in plan.regions]
        made = plan.cls.create(
            operands=[values[i] for i in plan.operands],
            result_types=types,
            properties=properties,
            attributes=attributes,
            location=plan.location,
            regions=regions,
        )
        self._keep(made.results, plan.hints)
        for region, blocks in zip(regions, plan.regions, strict=True):
            for block in blocks:
                region.add_block(self.block(block))
        return made

    def block(self, plan: _BlockPlan) -> Block:
        types = plan.types
        if plan.open_types:
            types = list(types)
            for i, number in plan.open_types:
                types[i] = self.open[number]
        made = Block(arg_types=types)
        self._keep(made.args, plan.hints)
        for op in plan.ops:
            made.add_op(self.op(op))
        return made

    def _keep(self, values: Sequence[SSAValue], hints: Sequence[str | None]) -> None:
        self.values += values
        for value, hint in zip(values, hints, strict=True):
            if hint is not None:
                value.name_hint = hint
