"""The on-chip buffers of a kernel before it has addresses: what has to be somewhere, where, and from when to when.

The rules are those by which the vendor's compiler needs memory when it has given up double buffers: a result is
written over an operand that ends there, a number that fills a tensor is a scalar operand, a tensor that a product reads
is in l1, and its sums are in l0c until something other than a store reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import DYNAMIC_INDEX, ContainerType, ShapedType, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.dialects.scf import ForOp, IfOp, WhileOp, YieldOp
from xdsl.ir import Attribute, Operation, SSAValue

from ..dialects.dtypes import itemsize
from .errors import FootprintError
from .extents import PRODUCTS, Dim, KernelAxes, extents_of, numbers_of

UB, L1, L0C = "ub", "l1", "l0c"

ALIASES = {
    "bufferization.to_tensor",
    "memref.cast",
    "memref.collapse_shape",
    "memref.expand_shape",
    "memref.subview",
    "tensor.cast",
    "tensor.collapse_shape",
    "tensor.expand_shape",
    "tensor.extract_slice",
    "tensor.reshape",
}
"""Ops whose result is their first operand, or a part of it."""

WRITES_OVER = {"tensor.insert": 1, "tensor.insert_slice": 1}
"""Ops that write over one of their operands, by its number."""

FILL, EMPTY = "linalg.fill", ("tensor.empty", "bufferization.alloc_tensor")
STORE, COPY = "bufferization.materialize_in_destination", "memref.copy"
FIXPIPE = ("arith.truncf", STORE)
"""What the drain of a product does on its way."""

BLOCK = 32
"""Buffers are whole blocks of so many bytes."""

UNROLLED = 64
"""Elements of a row that the vendor's reduction needs no scratch for."""


@dataclass
class LiveBuffer:
    """Memory that is needed while the ops `first` to `last` run, which are numbered in their order. axes: the axis of
    each dimension, None for one that is none of the kernel's; op: what fills it first; what: words on what it is."""

    op: Operation
    axes: tuple[Dim | None, ...]
    shape: tuple[int, ...]
    element: Attribute
    space: str
    first: int
    last: int
    what: str = ""

    def bytes(self, extents: Mapping[Dim, int]) -> int:
        """With these extents for some of the axes, in whole blocks."""
        lengths = (n if a is None else extents.get(a, n) for a, n in zip(self.axes, self.shape, strict=True))
        return -(-prod(lengths) * itemsize(self.element) // BLOCK) * BLOCK


class Buffers:
    """The buffers of one kernel. on_the_fly: a tensor that is repeated along dimensions has none, where only
    elementwise ops read it."""

    def __init__(self, func: FuncOp, on_the_fly: bool = False) -> None:
        self.on_the_fly, self.extents = on_the_fly, KernelAxes(func)
        self.number: dict[Operation, int] = {}
        self.ends: dict[Operation, int] = {}
        """The last op of each loop."""
        self._count(func)
        self.found: list[LiveBuffer] = []
        self._of: dict[SSAValue, LiveBuffer] = {}
        for op in self.number:
            self._visit(op)

    def __iter__(self) -> Iterator[LiveBuffer]:
        return iter(self.found)

    def _count(self, around: Operation) -> None:
        for region in around.regions:
            for block in region.blocks:
                for op in block.ops:
                    self.number[op] = len(self.number)
                    if isinstance(op, ForOp | IfOp | WhileOp):
                        self._count(op)
                    self.ends[op] = len(self.number) - 1

    # -- values ------------------------------------------------------------------------------------------------

    def _names(self, value: SSAValue) -> Iterator[SSAValue]:
        """A value and what is it or a part of it, or repeats it where that is not made."""
        yield value
        for use in value.uses:
            op = use.operation
            part = (op.name in ALIASES and use.index == 0) or WRITES_OVER.get(op.name) == use.index
            if part or (use.index == 0 and self._is_read_on_the_fly(op)):
                yield from self._names(op.results[0])

    def _readers(self, value: SSAValue) -> list[Operation]:
        """What reads a value or a part of it."""
        users = [use.operation for name in self._names(value) for use in name.uses]
        return [op for op in users if op.name not in ALIASES]

    def _last(self, value: SSAValue, made: int) -> int:
        """The last op that needs a value which op number `made` makes: a loop that reads it reads it in each trip."""
        last = made
        for op in self._readers(value):
            around = op
            while around in self.number and self.number[around] > made:
                last = max(last, self.ends[around] if isinstance(around, ForOp | WhileOp) else self.number[around])
                parent = around.parent_op()
                if parent is None:
                    break
                around = parent
        return last

    def _root(self, value: SSAValue) -> SSAValue:
        """What a value is a part of."""
        while isinstance(value.owner, Operation):
            op = value.owner
            if op.name in ALIASES:
                value = op.operands[0]
            elif op.name in WRITES_OVER:
                value = op.operands[WRITES_OVER[op.name]]
            else:
                break
        return value

    def _needs_lanes(self, op: Operation) -> bool:
        """Whether a tensor that is one number everywhere has to be in memory."""
        for user in self._readers(op.results[0]):
            if not (_is_elementwise(user) or user.name in (*PRODUCTS, "linalg.reduce", "scf.for")):
                return True  # a loop that begins with it has a place for what it carries
            if user.name == "linalg.reduce" and self._root(user.operands[0]) is op.results[0]:
                return True
        return False

    # -- buffers -----------------------------------------------------------------------------------------------

    def _add(
        self, value: SSAValue, op: Operation, space: str, last: int, what: str, first: int | None = None
    ) -> LiveBuffer:
        shape = extents_of(value.type)
        if DYNAMIC_INDEX in shape:
            raise FootprintError(f"'{op.name}' makes a tensor with a dimension that is open: its bytes are not known")
        axes = tuple(self.extents.axis(value, d) for d in range(len(shape)))
        begin = self.number[op] if first is None else first
        found = LiveBuffer(op, axes, shape, _element(value), space, begin, last, what)
        self.found.append(found)
        return found

    def _visit(self, op: Operation) -> None:
        if isinstance(op, ForOp):
            self._carry(op)
        elif op.name == "memref.alloc":
            self._allocate(op)
        elif op.name in PRODUCTS:
            self._product(op)
        elif not self._makes_nothing(op):
            for result in op.results:
                if isinstance(result.type, TensorType) and extents_of(result.type):
                    self._compute(op, result)

    def _makes_nothing(self, op: Operation) -> bool:
        """Whether the results of an op need no memory of their own."""
        if op.name in ALIASES or op.name in WRITES_OVER or op.name in EMPTY or isinstance(op, IfOp):
            return True
        match op.name:
            case "arith.constant":
                return True
            case "linalg.fill":
                return not (op.results and self._needs_lanes(op))
            case "linalg.broadcast":
                return self._is_read_on_the_fly(op)
            case "linalg.transpose":
                return self._feeds_products(op.results[0])
            case _:
                return op.name in FIXPIPE and self._drains(op)

    def _is_read_on_the_fly(self, op: Operation) -> bool:
        """Whether what an op repeats is not made, as instructions repeat it themselves."""
        repeats = self.on_the_fly and op.name == "linalg.broadcast"
        return repeats and all(map(_is_elementwise, self._readers(op.results[0])))

    def _compute(self, op: Operation, result: SSAValue) -> None:
        """A buffer for what an op of the vector unit makes, or that of an operand."""
        now, last = self.number[op], self._last(result, self.number[op])
        if op.name == "linalg.reduce":
            self._scratch(op)
        size = prod(extents_of(result.type)) * itemsize(_element(result))
        for operand in _may_overwrite(op):
            held = self._of.get(self._root(operand))
            if held is not None and held.space == UB and held.last == now and size <= held.bytes({}):
                held.last = last
                self._of[result] = held
                return
        self._of[result] = self._add(result, op, UB, last, "")

    def _scratch(self, op: Operation) -> None:
        """What the vendor's reduction needs beside its operands: half of a source whose last dimension is reduced, all
        of one whose first one is."""
        source = op.operands[0]
        shape = extents_of(source.type)
        along = numbers_of(op, "dimensions")
        if not shape or not along or (len(shape) - 1 in along and shape[-1] <= UNROLLED):
            return
        now = self.number[op]
        made = self._add(source, op, UB, now, "scratch of the vendor's reduction")
        if len(shape) - 1 in along:
            made.shape = (*made.shape[:-1], -(-made.shape[-1] // 2))
            made.axes = (*made.axes[:-1], None)

    def _allocate(self, op: Operation) -> None:
        """Memory that a copy fills: in l1 where products read it, and nothing else does."""
        value = op.results[0]
        space = L1 if self._feeds_products(value) else UB
        users = (self.number[u] for u in self._readers(value) if u in self.number)
        first = min(users, default=self.number[op])
        self._of[value] = self._add(value, op, space, self._last(value, self.number[op]), "loaded", first)

    def _feeds_products(self, value: SSAValue) -> bool:
        """Whether only products read a value, through transposes too."""
        readers = [op for op in self._readers(value) if op.name not in (COPY, FILL)]
        return bool(readers) and all(
            (op.name in PRODUCTS and self._root(op.operands[2]) is not value)
            or (op.name == "linalg.transpose" and self._feeds_products(op.results[0]))
            for op in readers
        )

    def _product(self, op: Operation) -> None:
        now, result, acc = self.number[op], op.results[0], self._root(op.operands[2])
        for side in op.operands[:2]:
            root = self._root(side)
            held = self._of.get(root)
            if held is not None and held.space == UB:  # the vector cores hand it over through device memory
                self._add(side, op, L1, now, "handed over by the vector cores")
        carried = self._of.get(acc)
        if carried is not None and carried.space == L0C:
            self._of[result] = carried
            carried.last = max(carried.last, self._last(result, now))
            return
        last = self._last(result, now)
        drained = self._is_drained(result)
        self._of[result] = self._add(result, op, L0C, last if drained else now, "sums of a product")
        if not drained:
            self._of[result] = self._add(result, op, UB, last, "sums of a product, for the vector cores")

    def _sums_into(self, value: SSAValue) -> SSAValue | None:
        """What a product adds to that makes a value; None for what no product makes."""
        op = value.owner
        return self._root(op.operands[2]) if isinstance(op, Operation) and op.name in PRODUCTS else None

    def _is_drained(self, value: SSAValue) -> bool:
        """Whether what reads sums is the drain of l0c."""
        return all(
            user.name == STORE
            or (user.name in FIXPIPE and self._is_drained(user.results[0]))
            or (user.name in PRODUCTS and self._root(user.operands[2]) is value)
            or isinstance(user, YieldOp)
            for user in self._readers(value)
        )

    def _drains(self, op: Operation) -> bool:
        held = self._of.get(self._root(op.operands[0]))
        return held is not None and held.space == L0C

    def _carry(self, op: ForOp) -> None:
        """What a loop carries has its place before the first trip and until the result is used no more."""
        last_op = op.body.block.last_op
        assert isinstance(last_op, YieldOp)
        for init, arg, result, value in zip(
            op.iter_args, op.body.block.args[1:], op.results, last_op.operands, strict=True
        ):
            if not isinstance(arg.type, TensorType) or not extents_of(arg.type):
                continue
            sums = self._sums_into(value) is arg and self._is_drained(result)
            end = max(self.ends[op], self._last(result, self.ends[op]))
            held = self._of.get(self._root(init))
            if held is not None and not sums and held.last == self.ends[op]:
                held.last = end
            else:
                what = "sums of a product" if sums else "carried by a loop"
                held = self._add(arg, op, L0C if sums else UB, end, what)
            self._of[arg] = self._of[result] = held


def _element(value: SSAValue) -> Attribute:
    kind = value.type
    assert isinstance(kind, ShapedType) and isinstance(kind, ContainerType)
    return kind.get_element_type()


def _may_overwrite(op: Operation) -> Sequence[SSAValue]:
    """The operands whose place the result may take: any of an elementwise op, else the one that says where it goes."""
    if _is_elementwise(op):
        return op.operands
    return op.operands[-1:] if op.name in (FILL, "linalg.reduce") else ()


def _is_elementwise(op: Operation) -> bool:
    """Whether an op makes each element of its results of the same element of its operands."""
    if op.name.split(".")[0] in ("arith", "math"):
        return any(isinstance(r.type, TensorType) for r in op.results)
    return op.name.removeprefix("linalg.").removeprefix("hfusion.") in (
        "elemwise_binary",
        "elemwise_unary",
        "cast",
        "compare",
        "map",
        "select",
    )
