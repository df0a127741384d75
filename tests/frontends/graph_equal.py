"""Whether two graph-level modules are the same up to names, places, the order of independent ops, ops that nobody
uses, and values that a loop carries along unchanged."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from tilewright.dialects.graph import ConstantOp, WhileOp
from tilewright.dialects.graph.interface import shape_of


class Numbering:
    """Equal values get equal numbers, also across modules."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.keys: list[Any] = []

    def of(self, key: Any) -> int:
        if key not in self.numbers:
            self.numbers[key] = len(self.keys)
            self.keys.append(key)
        return self.numbers[key]

    def module(self, module: ModuleOp) -> int:
        (main,) = (f for f in module.ops if isinstance(f, FuncOp))
        block = main.body.block
        known: dict[SSAValue, int] = {a: self.of(("arg", i, str(a.type))) for i, a in enumerate(block.args)}
        return self.of(("module", self.block(block, known)))

    def block(self, block: Block, known: dict[SSAValue, int]) -> tuple[int, ...]:
        last = block.last_op
        assert last is not None
        return tuple(self.value(v, known) for v in last.operands)

    def value(self, value: SSAValue, known: dict[SSAValue, int]) -> int:
        # an explicit stack: graphs are deeper than Python's
        stack = [value]
        while stack:
            v = stack[-1]
            if v in known:
                stack.pop()
                continue
            op = v.owner
            assert isinstance(op, Operation), "a block argument that no region has"
            missing = [o for o in (*op.operands, *self.outer(op)) if o not in known]
            if missing:
                stack += missing
                continue
            self.op(op, known)
            stack.pop()
        return known[value]

    @staticmethod
    def outer(op: Operation) -> list[SSAValue]:
        """Values from around the op that its regions use."""
        inside = {a for b in _blocks(op) for a in b.args} | {
            r for b in _blocks(op) for o in b.ops for r in o.results
        }
        return [v for b in _blocks(op) for o in b.ops for v in o.operands if v not in inside]

    def op(self, op: Operation, known: dict[SSAValue, int]) -> None:
        if isinstance(op, WhileOp):
            self.loop(op, known)
            return
        properties: Any = tuple(sorted((k, str(v)) for k, v in op.properties.items()))
        if isinstance(op, ConstantOp):
            properties = (op.value.data.dtype, shape_of(op.result), op.value.data.array().tobytes())
        regions = tuple(self.block(r.block, dict(known)) for r in op.regions)
        key = (op.name, properties, tuple(known[o] for o in op.operands), regions)
        for i, r in enumerate(op.results):
            known[r] = self.of((key, i, str(r.type)))

    def loop(self, op: WhileOp, known: dict[SSAValue, int], kept: frozenset[int] = frozenset()) -> None:
        body, test = op.body.block, op.condition.block
        changed = [i for i in range(len(op.inits)) if i not in kept]
        inner = dict(known)
        inner |= {b.args[i]: known[op.inits[i]] for i in kept for b in (body, test)}
        depth = self.of(("depth", tuple(sorted(known[op.inits[i]] for i in changed))))
        for k, i in enumerate(changed):
            for b in (body, test):
                inner[b.args[i]] = self.of(("carried", depth, k, str(b.args[i].type)))
        step = self.block(body, dict(inner))
        still = frozenset(i for i in changed if step[i] == inner[body.args[i]])
        if still:  # what stays as it is becomes a value from around the loop
            self.loop(op, known, kept | still)
            return
        going = self.block(test, dict(inner))
        key = (
            "while",
            str(op.trip_count),
            tuple(known[op.inits[i]] for i in changed),
            going,
            tuple(step[i] for i in changed),
        )
        for i, r in enumerate(op.results):
            known[r] = known[op.inits[i]] if i in kept else self.of((key, changed.index(i)))


def _blocks(op: Operation) -> list[Block]:
    found = []
    for region in op.regions:
        for block in region.blocks:
            found.append(block)
            for inner in block.ops:
                found += _blocks(inner)
    return found


def same(a: ModuleOp, b: ModuleOp) -> bool:
    """Whether both modules compute the same by the same ops."""
    numbering = Numbering()
    return numbering.module(a) == numbering.module(b)
