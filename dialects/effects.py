"""What ops do besides giving results, in xDSL's terms: its `cse`, `dce`, `licm` and `canonicalize` ask for it.

xDSL's passes look at the kinds of effects only. The resources say which memory it is, for passes that look closer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import traits_def
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind, Resource

READ, WRITE, ALLOC = MemoryEffectKind.READ, MemoryEffectKind.WRITE, MemoryEffectKind.ALLOC


@dataclass(frozen=True)
class DeviceMemory(Resource):
    """Tensors in device memory."""

    def name(self) -> str:
        return "<DeviceMemory>"


@dataclass(frozen=True)
class ChipMemory(Resource):
    """Buffers and tiles on chip."""

    def name(self) -> str:
        return "<ChipMemory>"


@dataclass(frozen=True)
class HostMemory(Resource):
    """Tensors and numbers in the host's memory."""

    def name(self) -> str:
        return "<HostMemory>"


@dataclass(frozen=True)
class Order(Resource):
    """Flags, barriers and events: what orders pipes, cores and streams."""

    def name(self) -> str:
        return "<Order>"


DEVICE, CHIP, HOST, ORDER = DeviceMemory(), ChipMemory(), HostMemory(), Order()

ORDERS = frozenset([EffectInstance(WRITE, None, ORDER)])
"""The effect of an op that orders others: nothing moves across it, and it stays."""


class _AsksTheOp(MemoryEffect):
    @classmethod
    def get_effects(cls, op: Operation) -> AbstractSet[EffectInstance] | None:
        assert isinstance(op, MemoryEffectInterface)
        return op.effects()


class MemoryEffectInterface(Operation, ABC):
    """An op that says itself which effects it has: `MemoryEffect` as one of xDSL's interfaces."""

    traits = traits_def(_AsksTheOp())

    @abstractmethod
    def effects(self) -> AbstractSet[EffectInstance] | None:
        """The effects besides those that its traits name; None where they are not known."""


def resource_of(value: SSAValue) -> Resource:
    """The memory that a value is in."""
    if isinstance(value.type, TensorType):
        return HOST
    return DEVICE if value.type.name == "npu.gm" else CHIP


def effects_on(reads: Iterable[SSAValue], writes: Iterable[SSAValue]) -> set[EffectInstance]:
    """Reads and writes of these values."""
    found = {EffectInstance(READ, v, resource_of(v)) for v in reads}
    return found | {EffectInstance(WRITE, v, resource_of(v)) for v in writes}


def allocates(values: Iterable[SSAValue]) -> set[EffectInstance]:
    """Memory of its own for each of these results: two such ops are not one, and none leaves its loop."""
    return {EffectInstance(ALLOC, v, resource_of(v)) for v in values}
