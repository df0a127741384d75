"""What fuses a contraction with the vector fusion behind it, its epilogue, as a norm behind a layer.

Where both walk the same domain, and rows of the product are reduced along its columns, one kernel can do the work of
both on cores that have all columns of their rows. Where sums are split, the kernel that adds up the parts can do the
work of the other. A fusion that is made for nothing but that is never one kernel: its ops have no `axes`, and
split.py fuses them anew once the parts are apart.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Block, Operation, OpResult, SSAValue

from ...dialects.base import Expr, text, to_ints
from ...dialects.dtypes import itemsize, size
from ...dialects.graph import ArgReduceOp, ConcatOp, ElementwiseOp, FusionOp, ReduceOp
from ...dialects.graph.control import AXES, axes_of, besides_axes
from ...dialects.graph.interface import element_of, shape_of
from ...machine import Machine
from ..forms.access import Load, splat_of
from ..forms.nests import Product, nest_of
from ..fusion.groups import DOMAINS, GROUPED, OPENED
from ..fusion.merged import MergedBody
from ..fusion.places import ALONG
from ..lower.axes import FusionAxes, is_member, reduced_dims
from ..lower.cube.split import product_of


def is_for_split_sums(fusion: FusionOp) -> bool:
    """Whether a fusion is a contraction with what was behind it, and only good for split sums."""
    product = product_of(fusion)
    return product is not None and AXES not in product.attributes


def epilogue_of(fusion: FusionOp, position: Mapping[Operation, float]) -> FusionOp | None:
    """The first vector fusion without a schedule that uses a result of a fusion, and nothing that comes later; None
    where there is none. `position`: that of each op of the block."""
    place = position[fusion]
    users = {use.operation for result in fusion.results for use in result.uses}
    after = [op for op in users if isinstance(op, FusionOp) and op.parent is fusion.parent]
    for op in sorted(after, key=lambda op: position.get(op, place)):
        stacks = any(isinstance(inner, ConcatOp) for inner in op.body.block.ops)
        if text(op.kind) == "vector" and op.schedule is None and op in position and not stacks:
            others = (v.owner for v in op.inputs if v.owner is not fusion)
            if all(isinstance(o, Block) or position.get(o, -1) < place for o in others):
                return op
    return None


def _shared(fusion: FusionOp, epilogue: FusionOp) -> list[OpResult]:
    """The results of a fusion that others than `epilogue` use."""
    return [r for r in fusion.results if any(use.operation is not epilogue for use in r.uses)]


def why_no_rows(fusion: FusionOp, epilogue: FusionOp, machine: Machine) -> str | None:
    """Why cores with all columns of their rows cannot do the work of a contraction and of the fusion behind it in one
    kernel; None where they can, as far as there is room on chip."""
    product = product_of(fusion)
    reductions = [op for op in epilogue.body.block.ops if isinstance(op, ReduceOp | ArgReduceOp)]
    if product is None or not reductions:
        return "it reduces no rows of a product"
    nest = nest_of(product)
    if tuple(to_ints(fusion.domain)) != tuple(to_ints(epilogue.domain)):
        return DOMAINS
    if any(len(terms) > 1 for terms in nest.out):
        return GROUPED
    for op in reductions:
        if any(nest.roles[a] != "n" for a in reduced_along(op)):
            return "it sums over rows of a product, of which each core has some"
    members = (op for op in epilogue.body.block.ops if AXES in op.attributes)
    if not all(isinstance(op, ElementwiseOp | ReduceOp | ArgReduceOp) for op in members):
        return OPENED
    return None if _Reader(epilogue, machine).reads_alike(fusion) else ALONG


class _Reader(FusionAxes):
    """A vector fusion by the axes along which it reads what another one makes."""

    def reads_alike(self, maker: FusionOp) -> bool:
        """Whether each element of a result of `maker` is read where that makes it, in the domain that both walk."""
        inner = dict(zip(maker.results, maker.yielded(0).values, strict=True))
        made: dict[SSAValue, SSAValue] = {
            arg: inner[outer]
            for arg, outer in zip(self.block.args, self.fusion.inputs, strict=True)
            if isinstance(outer, OpResult) and outer in inner
        }
        for value, axes in self._uses():
            if splat_of(value) is not None:
                continue
            load = self._trace(value, axes)
            if load.base in made and not _is_at(load, made[load.base]):
                return False
        return True


def _is_at(load: Load, made: SSAValue) -> bool:
    """Whether a value of a fusion is read where it is made."""
    op = made.owner
    if load.fill is not None or not is_member(made) or not isinstance(op, ElementwiseOp | Product):
        return False
    wide = [d for d, n in enumerate(shape_of(made)) if n != 1]
    axes = axes_of(op) or ()
    return all(load.position[d] == Expr.of(axes[d]) for d in wide)


def reduced_along(op: Operation) -> list[int]:
    """The axes of its fusion's domain that a reduction is along."""
    axes = axes_of(op) or ()
    return [axes[d] for d in reduced_dims(op) if axes[d] >= 0]


def least_microseconds(fusion: FusionOp, epilogue: FusionOp, machine: Machine) -> float:
    """Less than one kernel takes that does the work of both, whose cores load all that the columns of their rows are
    made of."""
    product = product_of(fusion)
    assert product is not None
    nest = nest_of(product)
    reductions = (op for op in epilogue.body.block.ops if isinstance(op, ReduceOp | ArgReduceOp))
    columns = {a for op in reductions for a in reduced_along(op)}
    loaded = size([n for a, n in enumerate(nest.extents) if a in columns or nest.roles[a] == "k"])
    cycles = loaded * itemsize(element_of(product.rhs)) / machine.moves["gm", "l1"].bytes_per_cycle
    return machine.launch_microseconds(1, True) + machine.cycles_to_microseconds(cycles)


def wiring_of(fusion: FusionOp, epilogue: FusionOp) -> tuple[int, ...]:
    """How two fusions are connected: where each input of `epilogue` comes from, and which results others use."""
    known = {v: i for i, v in enumerate((*fusion.results, *fusion.inputs))}
    shared = _shared(fusion, epilogue)
    return (*(known.get(v, -1) for v in epilogue.inputs), *(r in shared for r in fusion.results))


def results_of(fusion: FusionOp, epilogue: FusionOp) -> list[OpResult]:
    """The results of what `fuse_epilogue` makes of two fusions: those of `fusion` that others use, and those of
    `epilogue`."""
    return [*_shared(fusion, epilogue), *epilogue.results]


def fuse_epilogue(fusion: FusionOp, epilogue: FusionOp, rows: bool = False) -> FusionOp:
    """A fusion that does what two do, in no block yet, with `results_of` them. rows: whether one kernel may be made of
    it."""
    body = MergedBody([*fusion.inputs, *(v for v in epilogue.inputs if v.owner is not fusion)])

    for one in (fusion, epilogue):
        body.add(one, (lambda op: op.attributes) if rows else besides_axes)
    return body.fusion(results_of(fusion, epilogue), fusion)
