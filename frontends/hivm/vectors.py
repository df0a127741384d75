"""Vector functions of the 950: what the vendor's compiler has outlined as loops over registers.

Each op on registers becomes an instruction over memory behind the kernel's own, in the order of the function, which
the vector unit keeps. A loop whose iterations take one part of its arrays after the other becomes one pass over all of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    DenseIntOrFPElementsAttr,
    ModuleOp,
    UnitAttr,
    VectorType,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr

from ...dialects.base import integer, to_ints
from ...dialects.dtypes import dtype_name
from ...dialects.elementwise import REDUCTION_FUNCTION
from ...dialects.hivm import upstream
from ...dialects.hivm.counterparts import COMPARED
from .instructions import compute, copied, fill
from .numbers import SCALARS, Number
from .places import Memref, needs_deeper, row_major
from .steps import Value, refused
from .walk import HANDLERS, BlockWalk, operand

FUNCTIONS = {
    **{name: function for name, function in SCALARS.items() if name != "arith.fptosi"},
    "arith.andi": "and",
    "arith.ori": "or",
    "arith.xori": "xor",
    "arith.select": "select",
    "math.tanh": "tanh",
    "math.erf": "erf",
}
"""The function of each op on vectors."""

KINDS = {
    "add": "sum",
    "mul": "prod",
    "maximumf": "max",
    "minimumf": "min",
    "maxnumf": "max",
    "minnumf": "min",
}
KINDS |= {"maxsi": "max", "minsi": "min"}

IDENTITIES = {"arith.addf": 0.0, "arith.mulf": 1.0}


class Lane(int):
    """The index of a loop that is passed at once: 0, with the extent of all its iterations."""

    extent: int

    @staticmethod
    def of(first: int, extent: int) -> Lane:
        """A lane that begins at `first`."""
        made = Lane(first)
        made.extent = extent
        return made


@dataclass
class VectorWalk(BlockWalk):
    """The walk of one vector function."""

    stale: set[SSAValue] = field(default_factory=set)
    """Vectors whose memory is written after they are read."""

    def op(self, op: Operation) -> None:
        """Walks one op."""
        handler = VECTORS.get(op.name)
        if handler is not None:
            handler(self, op)
        elif op.results and isinstance(op.results[0].type, VectorType):
            self._elementwise(op)
        else:
            super().op(op)

    def give(self, value: SSAValue, found: Value) -> None:
        """Says what a vector is."""
        self.values[value] = found
        self.stale.discard(value)

    def vector(self, value: SSAValue, op: Operation) -> Memref | Number:
        """A vector: memory, or the number that all its elements are. Raises FrontendError."""
        found = self.value(value, op)
        if value in self.stale:
            raise refused(op, "uses a vector whose memory is written since it was read")
        if isinstance(found, Memref | int | float):
            return found
        raise refused(op, f"uses {value.type}, which is no vector")

    def array(self, value: SSAValue, op: Operation) -> Memref:
        """A vector as memory."""
        found = self.vector(value, op)
        if isinstance(found, Memref):
            return found
        return self.scratch.constant(found, dtype_name(element_of(value)))

    def _elementwise(self, op: Operation) -> None:
        if op.name == "arith.constant":
            found = op.properties.get("value")
            if not isinstance(found, DenseIntOrFPElementsAttr) or not found.is_splat():
                raise refused(op, "is a vector of several numbers")
            self.give(op.results[0], found.get_values()[0])
            return
        if op.name == "arith.bitcast":
            source = self.array(op.operands[0], op)
            element = dtype_name(element_of(op.results[0]))
            self.give(op.results[0], replace(source, element=element))
            return
        function = FUNCTIONS.get(op.name)
        if op.name == "arith.cmpi":
            number = integer(op.properties["predicate"])
            function = COMPARED[number] if number < len(COMPARED) else None
        if function is None:
            raise refused(op, "has no counterpart in the import of vector functions")
        if "reductionOp" in op.attributes:
            for one, other in zip(op.operands, reversed(op.operands), strict=True):
                if self.value(one, op) == IDENTITIES.get(op.name):
                    self.give(op.results[0], self.vector(other, op))
                    return
        sources = [self.array(v, op) for v in op.operands]
        shape = max((s.shape for s in sources), key=lambda s: (len(s), s))
        made = self._written_next(op) or self.scratch.vector(dtype_name(element_of(op.results[0])), shape)
        compute(self, op, f"npu.v{function}", sources, made)
        self.give(op.results[0], made)

    def _written_next(self, op: Operation) -> Memref | None:
        """Where a vector goes that the next op writes, and nothing else uses."""
        after = op.next_op
        if after is None or after.name != "vector.transfer_write" or len(list(op.results[0].uses)) != 1:
            return None
        if after.operands[0] is not op.results[0]:
            return None
        return self.memref(after.operands[1], op)


def element_of(value: SSAValue) -> Any:
    """The type of the elements of a vector, or of a number."""
    return value.type.element_type if isinstance(value.type, VectorType) else value.type


# -- loops ---------------------------------------------------------------------------------------------------------


def _for(walk: VectorWalk, op: Any) -> None:
    low, high, step = (walk.number(v, op) for v in (op.lb, op.ub, op.step))
    body = op.body.block
    carried: Sequence[Value] = [walk.value(v, op) for v in op.iter_args]
    if high <= low or (high - low) % step or not _passes(walk, op, step):
        HANDLERS["scf.for"](walk, op)
        return
    used = walk.scratch.used["vectors"]
    walk.values[body.args[0]] = Lane.of(low, high - low)
    walk.values |= dict(zip(body.args[1:], carried, strict=True))
    walk.values |= dict(zip(op.results, walk.walk(body), strict=True))
    if not op.results:
        walk.scratch.used["vectors"] = used


def _passes(walk: VectorWalk, op: Any, step: int) -> bool:
    """Whether all iterations can be one: each takes its own part of every array, and what they hand on is a sum."""
    index, *carried = op.body.block.args
    for use in index.uses:
        view = use.operation
        if view.name != "memref.subview" or not _own_part(view, index, step):
            return False
    return all(map(_accumulates, carried, (walk.value(v, op) for v in op.iter_args)))


def _own_part(view: Any, index: SSAValue, step: int) -> bool:
    given = iter(view.offsets)
    for offset, size, stride in zip(
        to_ints(view.static_offsets), to_ints(view.static_sizes), to_ints(view.static_strides), strict=True
    ):
        if offset == DYNAMIC_INDEX and next(given) is index and (size != step or stride != 1):
            return False
    return index not in (*view.sizes, *view.strides)


def _accumulates(value: SSAValue, first: Value) -> bool:
    users = [use.operation for use in value.uses]
    if len(users) != 1:
        return False
    user = users[0]
    if "reductionOp" in user.attributes:
        return user.name in IDENTITIES and first == IDENTITIES[user.name]
    if user.name != "vector.extractelement":
        return False
    users = [use.operation for use in user.results[0].uses]
    return (
        len(users) == 1
        and users[0].name == "vector.multi_reduction"
        and users[0].operands[1] is user.results[0]
    )


def _subview(walk: VectorWalk, op: Any) -> None:
    source = walk.memref(op.source, op)
    offsets, sizes = [], list(to_ints(op.static_sizes))
    given = iter(op.offsets)
    for d, n in enumerate(to_ints(op.static_offsets)):
        offset = walk.number(next(given), op) if n == DYNAMIC_INDEX else n
        if isinstance(offset, Lane):
            sizes[d] = offset.extent
        offsets.append(int(offset))
    if DYNAMIC_INDEX in sizes or DYNAMIC_INDEX in to_ints(op.static_strides):
        raise refused(op, "has open sizes in a vector function")
    part = source.part(offsets, sizes, to_ints(op.static_strides))
    if len(op.results[0].type.get_shape()) != len(sizes):
        raise refused(op, "drops dimensions in a vector function")
    walk.values[op.results[0]] = part


# -- registers and memory --------------------------------------------------------------------------------------------


def _whole(walk: VectorWalk, op: Any) -> Memref:
    """The array that is moved whole: a mask leaves out what it does not have."""
    mask = op.mask.owner if op.mask is not None else None
    if any(walk.number(v, op) for v in op.indices):
        raise refused(op, "moves a part of an array")
    if mask is not None and (
        not isinstance(mask, upstream.ConstantMaskOp)
        or tuple(map(integer, mask.mask_dim_sizes)) != tuple(op.source.type.get_shape())
    ):
        raise refused(op, "moves a part of an array, by a mask")
    return walk.memref(op.source, op)


def _order(op: Any, place: Memref) -> list[int]:
    """The dimensions of an array in the order in which a vector has them. Raises FrontendError for one that repeats
    elements along some."""
    results = op.permutation_map.data.results
    order = [e.position for e in results if isinstance(e, AffineDimExpr)]
    if len(order) < len(results) or sorted(order) != list(range(len(place.shape))):
        raise refused(op, "repeats elements of an array")
    return order


def _read(walk: VectorWalk, op: Any) -> None:
    place = _whole(walk, op)
    order = _order(op, place) if place.shape else []
    shape, strides = (tuple(of[d] for d in order) for of in (place.shape, place.strides))
    walk.give(op.result, replace(place, shape=shape, strides=strides))


def _write(walk: VectorWalk, op: Any) -> None:
    place, value = _whole(walk, op), walk.vector(op.vector, op)
    if place.shape and _order(op, place) != list(range(len(place.shape))):
        raise refused(op, "writes an array in another order of its dimensions")
    if not isinstance(value, Memref):
        fill(walk, op, value, place)
    elif len(value.shape) == 2 and value.strides[0] == 1 != value.strides[1] and 1 not in value.shape:
        source = replace(value, shape=value.shape[::-1], strides=value.strides[::-1])
        properties = "perm = [1, 0]"
        walk.emit(op, "npu.vtranspose", operand(source, op), operand(place, op), properties=properties)
    elif value != place:
        copied(walk, op, value, place)
    for other, found in walk.values.items():
        if not isinstance(other.type, VectorType) or not isinstance(found, Memref) or not _meet(found, place):
            continue
        read = other.owner
        together = isinstance(read, Operation) and read.name == "vector.transfer_read"
        if (
            together
            and read.parent is op.parent
            and (found.start, found.strides) != (place.start, place.strides)
        ):
            raise refused(op, "writes a part of an array of which it reads another part")
        walk.stale.add(other)


def _meet(one: Memref, other: Memref) -> bool:
    """Whether two arrays share a byte, at most."""
    return (
        one.space == other.space
        and one.start < other.start + other.reach * other.unit
        and other.start < one.start + one.reach * one.unit
    )


def _same(walk: VectorWalk, op: Operation) -> None:
    walk.give(op.results[0], walk.vector(op.operands[0], op))


def _reduction(walk: VectorWalk, op: upstream.MultiReductionOp) -> None:
    kind = KINDS.get(op.kind.data.value)
    if kind is None:
        raise refused(op, f"reduces by {op.kind.data.value}")
    source = walk.array(op.source, op)
    dims = [d.value.data for d in op.reduction_dims]
    element = dtype_name(element_of(op.dest))
    kept = tuple(1 if d in dims else n for d, n in enumerate(source.shape))
    made = walk.scratch.vector(element, kept)
    deeper = needs_deeper([source, made])
    walk.emit(
        op,
        "npu.vreduce",
        operand(source, op, deeper),
        operand(made, op, deeper),
        properties=f'dims = {dims}, kind = "{kind}"',
    )
    shape = tuple(n for d, n in enumerate(source.shape) if d not in dims)
    result = Memref(made.space, element, shape, row_major(shape), made.start)
    if "withoutInitMergeOp" not in op.attributes:
        compute(walk, op, f"npu.v{REDUCTION_FUNCTION[kind]}", [result, walk.array(op.acc, op)], result)
    walk.give(op.dest, result)


VECTORS: dict[str, Any] = {
    "scf.for": _for,
    "memref.subview": _subview,
    "vector.transfer_read": _read,
    "vector.transfer_write": _write,
    "vector.broadcast": _same,
    "vector.extractelement": _same,
    "vector.multi_reduction": _reduction,
    "vector.constant_mask": lambda walk, op: None,
}


def calls(op: Operation) -> bool:
    """Whether an op calls a vector function."""
    return op.name == "func.call" and "hivm.vector_function" in op.attributes


def _call(walk: BlockWalk, op: Any) -> None:
    name = op.callee.root_reference.data
    top: Any = op
    while not isinstance(top, ModuleOp):
        top = top.parent_op()
    functions = walk.functions.get(top)
    if functions is None:
        found = {f.sym_name.data: f for f in top.walk(reverse=True) if isinstance(f, FuncOp)}
        functions = walk.functions[top] = found
    callee = functions.get(name)
    if callee is None or not isinstance(callee.attributes.get("hivm.vector_function"), UnitAttr):
        raise refused(op, f"calls @{name}, which is no vector function")
    inner = VectorWalk(walk.block, walk.scratch, walk.steps, tiling=walk.tiling, functions=walk.functions)
    used = walk.scratch.used["vectors"]
    inner.run(callee, [walk.value(v, op) for v in op.operands])
    walk.scratch.used["vectors"] = used


HANDLERS["func.call"] = _call
