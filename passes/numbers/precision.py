"""graph-precision: f32 products become products of a narrow type, and what is safe around them follows.

Before:  %y = graph.contract %x, %w : (f32, f32) -> f32 ; %r = graph.max %y, %0 : f32 ; %z = graph.contract %r, %v
After:   %a = graph.convert %x ; %b = graph.convert %w ; %y = graph.contract %a, %b : (f16, f16) -> f16
         %r = graph.max %y, %0 : f16 ; %c = graph.convert %v ; %z = graph.contract %r, %c : (f16, f16) -> f32

Each op says what mixed precision makes of it (`GraphOp.casting`): products are cast, what loses digits keeps f32, the
rest follows its operands. passes/numbers/narrowing.py decides, this module rewrites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from ...dialects.base import describe, source_of
from ...dialects.dtypes import dtype_name, element_type, numpy_dtype, tensor
from ...dialects.graph import ELEMENTWISE, ConstantOp, DataAttr, FusionOp, GraphOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.precision import KeptOps, PrecisionRecord, record_precision
from ...machine import Machine
from ...support.precisions import NARROW, ORIGIN, PRECISIONS
from ..base import TargetPass
from ..errors import PassError
from .narrowing import Narrowing, is_f32

CONVERT = ELEMENTWISE["convert"]


@dataclass(frozen=True)
class GraphPrecisionPass(TargetPass):
    """Mixed precision by rule. precision: `origin`, `mixed_float16`, `mixed_bfloat16` or `float16`."""

    name = "graph-precision"
    precision: str = ORIGIN

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        """Rewrites a module. Raises PassError for an unknown mode, one that the machine has no products of, and a
        module that is fused already."""
        if self.precision not in PRECISIONS:
            raise PassError(f"precision must be {' or '.join(map(repr, PRECISIONS))}, not {self.precision!r}")
        if self.precision == ORIGIN:
            return
        check_machine(self.precision, machine)
        fused = next((op for op in module.walk() if isinstance(op, FusionOp)), None)
        if fused is not None:
            raise PassError(f"{describe(fused)} is fused already: cast before graph-fuse")
        cast(module, self.precision)


def check_machine(precision: str, machine: Machine) -> None:
    """Raises PassError where a machine has no products of the type that a mode casts to."""
    narrow = NARROW[precision]
    if narrow not in machine.cube or not machine.vector.runs("copy", narrow):
        fitting = [p for p, dtype in NARROW.items() if dtype in machine.cube]
        said = f"take precision {' or '.join(fitting)}" if fitting else "leave precision as it is"
        raise PassError(f"precision {precision}: {machine.name} does not multiply {narrow}; {said}")


def cast(module: ModuleOp, precision: str) -> None:
    """Casts a module as a mode says, and records on it what was cast and what not."""
    narrow = element_type(NARROW[precision])
    chosen = Narrowing(module, dtype_name(narrow), everything=precision == "float16")
    record_precision(module, _record(module, precision, chosen))
    caster = _Caster(narrow)
    for op in chosen.narrow:
        if op not in chosen.drained:
            for result in op.results:
                if is_f32(result):
                    Rewriter.replace_value_with_new_type(result, _of(result, narrow))
    for op in chosen.ops:
        wanted = chosen.wanted(op)
        if wanted is not None:
            for i, value in enumerate(op.operands):
                if element_of(value) in (f32, narrow) and chosen.takes(op, i):
                    op.operands[i] = caster.cast(value, narrow if wanted else f32, op)
    _drop_identities(chosen.ops)
    _drop_unused(chosen.ops, caster)


def _of(value: SSAValue, element: Attribute) -> TensorType:
    return tensor(shape_of(value), element)


class _Caster:
    """Converts values, each once in a block."""

    def __init__(self, narrow: Attribute) -> None:
        self.narrow = narrow
        self.made: dict[tuple[SSAValue, Attribute, Block], SSAValue] = {}
        self.sources: list[Operation] = []
        """Ops that may have lost their last use."""

    def cast(self, value: SSAValue, element: Attribute, user: Operation) -> SSAValue:
        """`value` in a type, for a user; a conversion of a conversion is none where nothing was lost."""
        if element_of(value) == element:
            return value
        block = user.parent
        assert block is not None
        key = (value, element, block)
        if key not in self.made:
            self.made[key] = self._new(value, element, block)
        return self.made[key]

    def _new(self, value: SSAValue, element: Attribute, block: Block) -> SSAValue:
        owner = value.owner
        if isinstance(owner, CONVERT):
            before = owner.operands[0]
            if element_of(before) == element:  # there and back: exact where the way there was to a wider type
                self.sources.append(owner)
                return before
        if isinstance(owner, ConstantOp):
            self.sources.append(owner)
            data = owner.value.data.array().astype(numpy_dtype(element))
            made: Operation = ConstantOp.create(
                result_types=[_of(value, element)],
                properties={"value": DataAttr.of(data)},
                location=owner.location,
            )
        else:
            location = owner.location if isinstance(owner, Operation) else None
            made = CONVERT.create(operands=[value], result_types=[_of(value, element)], location=location)
        if isinstance(owner, Operation) and owner.parent is block:
            block.insert_op_after(made, owner)
        else:
            first = block.first_op
            assert first is not None
            block.insert_op_before(made, first)
        return made.results[0]


def _drop_identities(ops: Sequence[Operation]) -> None:
    """Conversions whose operand has become what they made of it."""
    for op in ops:
        if isinstance(op, CONVERT) and op.operands[0].type == op.results[0].type:
            op.operands[0].name_hint = op.operands[0].name_hint or op.results[0].name_hint
            op.results[0].replace_all_uses_with(op.operands[0])
            op.detach()
            op.erase()


def _drop_unused(ops: Sequence[Operation], caster: _Caster) -> None:
    """Conversions and constants that nobody takes any more."""
    for op in caster.sources:
        if op.parent is not None and not any(r.uses for r in op.results):
            op.detach()
            op.erase()


def _record(module: ModuleOp, precision: str, chosen: Narrowing) -> PrecisionRecord:
    kept: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str | None] = {}
    narrow = products = 0
    for op in chosen.ops:
        if not isinstance(op, GraphOp) or op.casting() == "move" or op.regions:
            continue
        why = chosen.reason(op)
        if why:
            kept[op.name, why] += 1
            first.setdefault((op.name, why), source_of(op))
        elif op in chosen.narrow:
            narrow += 1
            products += op.casting() == "product"
    rows = [KeptOps(name, why, count, first[name, why]) for (name, why), count in kept.most_common()]
    return PrecisionRecord(precision, products, narrow, tuple(rows))
