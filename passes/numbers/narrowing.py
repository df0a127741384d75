"""Which ops of a module compute with a narrow type, for graph-precision.

A value is *narrow* from the start where a product makes it. What follows its operands may be narrow where all those of
full size are: an f32 argument or the result of an f32 op of full size keeps it f32, but constants, and arguments that
are repeated for it such as a bias, take the type of the others. Of what may be narrow, that is narrow which a narrow op
takes: on the way to an f32 op or to a result of the program nothing is rounded. An op that only moves elements is
narrow, too, where only narrow ops take its result, so that values are cast before they are repeated or moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from ...dialects.dtypes import dtype_name, element_type, is_float, limits, numpy_dtype, size
from ...dialects.graph import ELEMENTWISE, ConstantOp, GraphOp, IotaOp, WhileOp
from ...dialects.graph.interface import element_of, shape_of

CONVERT = ELEMENTWISE["convert"]


def is_f32(value: SSAValue) -> bool:
    """Whether a value is a tensor of f32."""
    return isinstance(value.type, TensorType) and value.type.element_type == f32


@dataclass(frozen=True)
class _Origin:
    """What an f32 value is made of. narrow: of products, so that it may be narrow; free: of arguments and constants
    alone; weight: how many of their elements there are, at most, 0 where rounding them costs nothing; outside: of a
    constant that the narrow type cannot hold."""

    narrow: bool = False
    free: bool = False
    weight: int = 0
    outside: bool = False


class Narrowing:
    """The decision for a module.

    narrow: the narrow type's name; everything: cast all that can be, and not only what is as good (`float16`).
    Afterwards `narrow` has the ops that compute with the narrow type, in the order of `ops`, which are all of the
    module, and `drained` those products among them whose results stay f32.
    """

    def __init__(self, module: ModuleOp, narrow: str, everything: bool = False) -> None:
        self.type, self.everything = narrow, everything
        self.ops: list[Operation] = [
            op for func in module.ops if isinstance(func, FuncOp) for op in func.walk() if op is not func
        ]
        self._positions = {op: tuple(i for i, v in enumerate(op.operands) if is_f32(v)) for op in self.ops}
        self._origins: dict[SSAValue, _Origin] = {}
        self._may: set[Operation] = set()
        for op in self.ops:
            for result, origin in zip(op.results, self._results(op), strict=True):
                self._origins[result] = origin
        chosen: set[Operation] = set()
        self.drained: set[Operation] = set()
        for op in reversed(self.ops):
            if isinstance(op, GraphOp):
                self._decide(op, chosen)
        self._decide_neutral(chosen)
        for op in reversed(self.ops):
            if (
                isinstance(op, GraphOp)
                and op not in chosen
                and op.casting() == "move"
                and self._moves_one(op)
            ):
                if self._taken(op, chosen, settled=True)[1] and not self._outside(op) and self._gives_f32(op):
                    chosen.add(op)
        self.narrow: dict[Operation, None] = {op: None for op in self.ops if op in chosen}

    # -- what passes ask -------------------------------------------------------------------------------------

    def wanted(self, op: Operation) -> bool | None:
        """Whether an op takes its f32 operands in the narrow type; None where it takes them in any."""
        if (
            isinstance(op, CONVERT)
            and op not in self.narrow
            and dtype_name(element_of(op.results[0])) == self.type
        ):
            return None
        return op in self.narrow

    def takes(self, op: Operation, position: int) -> bool:
        """Whether an operand of an op was f32."""
        return position in self._positions[op]

    def reason(self, op: GraphOp) -> str:
        """Why an op that computes with f32 does, as a clause; empty for other ops."""
        if op in self.narrow or not (self._positions[op] or (isinstance(op, IotaOp) and is_f32(op.result))):
            return ""
        if any(self._origin(op.operands[i]).outside for i in self._positions[op]):
            return f"a constant is outside {self.type}'s range"
        match op.casting():
            case "product":
                return f"its operands and result are not all f32 or {self.type}"
            case "keep" | "fixed":
                return op.keeps()
            case _ if op in self._may:
                return "its result is only taken in f32"
            case _:
                return "an operand is f32"

    # -- what values are made of -----------------------------------------------------------------------------

    def _origin(self, value: SSAValue) -> _Origin:
        if isinstance(value, BlockArgument):
            return self._argument(value)
        return self._origins.get(value, _Origin())

    def _argument(self, value: BlockArgument) -> _Origin:
        """Arguments of functions, and what a loop carries unchanged, are free."""
        parent = value.block.parent_op()
        if isinstance(parent, WhileOp):
            kept = parent.yielded(1).values[value.index] is parent.body.block.args[value.index]
            return _Origin(free=True, weight=size(shape_of(value))) if kept else _Origin()
        if isinstance(parent, FuncOp):
            return _Origin(free=True, weight=size(shape_of(value)))
        return _Origin()

    def _results(self, op: Operation) -> Iterator[_Origin]:
        for result in op.results:
            if not isinstance(op, GraphOp) or not is_f32(result):
                yield _Origin()
            elif isinstance(op, ConstantOp):
                yield _Origin(free=True, outside=not self._fits(op.value.data.elements()))
            else:
                yield self._made(op, result)

    def _fits(self, elements: np.ndarray) -> bool:
        """Whether the largest of some numbers is a normal one of the narrow type."""
        sizes = np.abs(elements)
        largest = float(sizes.max(initial=0.0, where=np.isfinite(sizes)))
        least = float(ml_dtypes.finfo(numpy_dtype(self.type)).smallest_normal)
        return largest == 0 or least <= largest <= limits(self.type)[1]

    def _made(self, op: GraphOp, result: SSAValue) -> _Origin:
        casting = op.casting()
        if casting == "product":
            return _Origin(narrow=self._multiplies(op))
        if casting == "fixed":
            return _Origin()
        if isinstance(op, CONVERT) and not self._positions[op]:
            before = dtype_name(element_of(op.operands[0]))
            if before == self.type:
                self._may.add(op)
            return _Origin(narrow=before == self.type, free=not is_float(before))
        given = [self._origin(op.operands[i]) for i in self._positions[op]]
        count = size(shape_of(result))
        free = bool(given) and all(o.free for o in given)
        weight = min(count, max((o.weight for o in given), default=count))
        if casting == "keep":
            return _Origin(free=free, weight=max(weight, 1))
        heavy = [o for o in given if not o.free or o.outside or o.weight >= max(count, 1)]
        narrow = bool(heavy) and all(o.narrow for o in heavy)
        if narrow:
            self._may.add(op)
        return _Origin(
            narrow=narrow,
            free=free,
            weight=weight,
            outside=casting == "move" and any(o.outside for o in given),
        )

    def _multiplies(self, op: GraphOp) -> bool:
        """Whether a product may be one of the narrow type."""
        types = {dtype_name(element_of(v)) for v in (*op.operands, *op.results) if not _is_other(v)}
        same = len(types) > 0 and not any(_is_other(v) for v in (*op.operands, *op.results))
        return same and types <= {"f32", self.type} and not self._outside(op)

    def _outside(self, op: GraphOp) -> bool:
        return any(self._origin(op.operands[i]).outside for i in self._positions[op])

    # -- what is narrow --------------------------------------------------------------------------------------

    def _decide(self, op: GraphOp, chosen: set[Operation]) -> None:
        """Decides on an op whose users are decided on."""
        results = [r for r in op.results if is_f32(r)]
        casting = op.casting()
        if casting == "product":
            if (self._positions[op] or results) and self._multiplies(op):
                chosen.add(op)
                if results and not self.everything and not self._taken(op, chosen)[0]:
                    self.drained.add(op)
            return
        if casting == "fixed" or not results or self._outside(op):
            return
        if self.everything:
            if self._castable(op):
                chosen.add(op)
            return
        some, every = self._taken(op, chosen)
        if (op in self._may and some) or (casting == "move" and every and self._moves_one(op)):
            chosen.add(op)

    def _castable(self, op: GraphOp) -> bool:
        """Whether an op may be narrow where everything is to be: it counts no further than the narrow type, converts no
        whole numbers, and does not take a part of a large f32 tensor, which would have to be cast as a whole."""
        if isinstance(op, IotaOp):
            return size(shape_of(op.result)) <= 2 ** (ml_dtypes.finfo(numpy_dtype(self.type)).nmant + 1)
        if isinstance(op, CONVERT) and op.casting() != "move":
            return False
        return (
            op.casting() != "move"
            or not self._positions[op]
            or self._moves_one(op)
            or not self._takes_part(op)
        )

    def _takes_part(self, op: GraphOp) -> bool:
        given = sum(
            size(shape_of(op.operands[i])) for i in self._positions[op] if self._origin(op.operands[i]).free
        )
        return given > size(shape_of(op.results[0]))

    def _moves_one(self, op: GraphOp) -> bool:
        """Whether a move reads one tensor that is no larger than its result, besides constants."""
        if isinstance(op, CONVERT):
            return True
        read = [op.operands[i] for i in self._positions[op]]
        read = [v for v in read if self._origin(v).weight or not self._origin(v).free]
        return len(read) <= 1 and all(size(shape_of(v)) <= size(shape_of(op.results[0])) for v in read)

    def _taken(self, op: GraphOp, chosen: set[Operation], settled: bool = False) -> tuple[bool, bool]:
        """Whether some, and whether all of the ops that take the f32 results of an op are narrow. Ops that give no
        floats, such as comparisons, take them in any type, so they only count once they are settled."""
        taking: list[bool] = []
        for user in (use.operation for r in op.results if is_f32(r) for use in r.uses):
            rounds = self._rounds(user)
            takers = [use.operation for use in user.results[0].uses] if rounds else [user]
            if settled or not takers or not all(map(self._is_neutral, takers)):
                taking.append(rounds or user in chosen)
        return any(taking), bool(taking) and all(taking)

    def _rounds(self, op: Operation) -> bool:
        return isinstance(op, CONVERT) and element_of(op.results[0]) == element_type(self.type)

    def _is_neutral(self, op: Operation) -> bool:
        return (
            isinstance(op, GraphOp)
            and op.casting() == "follow"
            and not any(_is_other(r) or is_float(dtype_name(element_of(r))) for r in op.results)
        )

    def _decide_neutral(self, chosen: set[Operation]) -> None:
        """Ops that give no floats are narrow where what they take is, or all of it may be."""
        for op in self.ops:
            if not self._positions[op] or not isinstance(op, GraphOp) or self._outside(op):
                continue
            if self._is_neutral(op) or (
                self.everything and op.casting() == "keep" and not self._gives_f32(op)
            ):
                given = [op.operands[i] for i in self._positions[op]]
                made = [v.owner in chosen and v.owner not in self.drained for v in given]
                light = [self._origin(v).free and not self._origin(v).weight for v in given]
                if any(made) and all(m or n for m, n in zip(made, light, strict=True)):
                    chosen.add(op)

    def _gives_f32(self, op: Operation) -> bool:
        return any(is_f32(r) for r in op.results)


def _is_other(value: SSAValue) -> bool:
    """Whether a value is of no plain element type, such as a quantized one."""
    try:
        dtype_name(element_of(value))
    except ValueError:
        return True
    return False
