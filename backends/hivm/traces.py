"""What orders a kernel and where its memory is, read back from HIVM text: to compare two states of one kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import IntegerAttr, MemRefType, ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from ...dialects import make_context
from ...dialects.hivm.structure import GetBlockIdxOp, GetSubBlockIdxOp, PointerCastOp
from ...dialects.hivm.synchronization import FlagOp, PipeBarrierOp, SyncBlockSetOp, SyncBlockWaitOp
from ...dialects.text import TextParser

ENVIRONMENTS = ((0, 0, 0), (1, 1, 1), (5, 1, 3))
"""Numbers of the block and the vector core, and what loops count to, for which addresses and events are compared."""


@dataclass
class OrderTrace:
    """What a function does for its order, in the order of the text, and the addresses that it uses.

    order: flags, barriers and flags between cores; addresses: (space, bytes from its start).
    """

    order: list[str] = field(default_factory=list)
    addresses: set[tuple[str, int]] = field(default_factory=set)

    @property
    def flags(self) -> int:
        """Flags that are set."""
        return sum(step.startswith("set_flag") for step in self.order)

    @property
    def barriers(self) -> int:
        return sum(step.startswith("pipe_barrier") for step in self.order)


def read_module(text: str) -> ModuleOp:
    """A module of HIVM text. Raises xDSL's ParseError."""
    context = make_context()
    context.allow_unregistered = True
    return TextParser(context, text).parse_module()


def traces_of(module: ModuleOp) -> dict[str, list[OrderTrace]]:
    """For each function of the device, its trace in each of `ENVIRONMENTS`."""
    found = {}
    for op in module.ops:
        if isinstance(op, func.FuncOp) and op.body.blocks and "hacc.entry" in op.attributes:
            found[op.sym_name.data] = [_Reader(op, *env).trace for env in ENVIRONMENTS]
    return found


class _Reader:
    """Walks a function with numbers for what its indices are."""

    def __init__(self, function: func.FuncOp, block: int, unit: int, count: int) -> None:
        self.trace = OrderTrace()
        self.numbers: dict[SSAValue, int] = {}
        self.given = {GetBlockIdxOp: block, GetSubBlockIdxOp: unit}
        self.count = count
        self.loops = 0
        for region in function.body.blocks:
            self.walk(region)

    def walk(self, block: Block) -> None:
        for op in block.ops:
            self.step(op)

    def step(self, op: Operation) -> None:
        trace = self.trace
        if isinstance(op, scf.ForOp):
            if any(isinstance(inner, FlagOp | PointerCastOp | PipeBarrierOp) for inner in op.body.walk()):
                self.loops += 1
                self.numbers[op.body.block.args[0]] = self.count + self.loops
            self.walk(op.body.block)
        elif isinstance(op, PointerCastOp):
            assert isinstance(op.result.type, MemRefType)
            space = str(getattr(op.result.type.memory_space, "data", ""))
            if 0 in op.result.type.get_shape():  # the vendor's stand-in for scratch that is not needed
                return
            trace.addresses.update((space, self.numbers.get(v, -1)) for v in op.addrs)
        elif isinstance(op, FlagOp):
            fixed, computed = op.static_event_id, op.dynamic_event_id
            number = "?" if computed is None else self.numbers.get(computed, "?")
            event = fixed.data[-1] if fixed is not None else number
            kind = op.name.rsplit(".", 1)[-1]
            trace.order.append(f"{kind} {op.set_pipe.data} {op.wait_pipe.data} {event}")
        elif isinstance(op, PipeBarrierOp):
            trace.order.append(f"pipe_barrier {op.pipe.data}")
        elif isinstance(op, SyncBlockSetOp | SyncBlockWaitOp):
            kind = op.name.rsplit(".", 1)[-1]
            flag = op.static_flag_id.value.data if op.static_flag_id is not None else "?"
            trace.order.append(f"{kind} {op.tcore_type.data} {op.tpipe.data} {op.pipe.data} {flag}")
        else:
            self.compute(op)
            for region in op.regions:
                for inner in region.blocks:
                    self.walk(inner)

    def compute(self, op: Operation) -> None:
        """Follows arithmetic on whole numbers."""
        if type(op) in self.given:
            self.numbers[op.results[0]] = self.given[type(op)]
        elif isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
            self.numbers[op.result] = op.value.value.data
        elif op.results and all(v in self.numbers for v in op.operands):
            how = _ARITHMETIC.get(op.name)
            if how is not None:
                self.numbers[op.results[0]] = how(*(self.numbers[v] for v in op.operands))


_ARITHMETIC: dict[str, Any] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divsi": lambda a, b: a // b,
    "arith.divui": lambda a, b: a // b,
    "arith.remsi": lambda a, b: a % b,
    "arith.remui": lambda a, b: a % b,
    "arith.maxsi": max,
    "arith.minsi": min,
    "arith.index_cast": lambda a: a,
    "arith.index_castui": lambda a: a,
    "arith.extsi": lambda a: a,
    "arith.shli": lambda a, b: a << b,
    "arith.andi": lambda a, b: a & b,
}


def differences(ours: ModuleOp, theirs: ModuleOp) -> list[str]:
    """What differs between two states of a kernel, a sentence each: its order, or the addresses that it uses."""
    found: list[str] = []
    first, second = traces_of(ours), traces_of(theirs)
    for name in first:
        if name not in second:
            found.append(f"@{name} is gone")
            continue
        for a, b in zip(first[name], second[name], strict=True):
            said = [*_order_differences(name, a, b), *_address_differences(name, a, b)]
            if said:
                found += said
                break
    return found


def _order_differences(name: str, a: OrderTrace, b: OrderTrace) -> Iterator[str]:
    if a.order == b.order:
        return
    lost, new = Counter(a.order) - Counter(b.order), Counter(b.order) - Counter(a.order)
    if not lost and not new:
        yield f"@{name}: flags and barriers are in another order"
    for what, steps in (("lost", lost), ("new", new)):
        for step, n in sorted(steps.items()):
            yield f"@{name}: {what} {step}{f', {n} times' if n > 1 else ''}"


def _address_differences(name: str, a: OrderTrace, b: OrderTrace) -> Iterator[str]:
    for what, some in (("gone", a.addresses - b.addresses), ("new", b.addresses - a.addresses)):
        for space, address in sorted(some):
            yield f"@{name}: address {address} of {space} is {what}"
