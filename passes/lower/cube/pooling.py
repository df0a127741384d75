"""Fuses a product with the reduction of windows behind it, so that one kernel stores only what is pooled.

`chain_behind` finds what may be fused and says why it may not, `pooled_fusion` makes one fusion of it, `pooled.py`
lowers that. A sum over all positions of an image is a window, too: the only one along each axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute, Block, Operation, SSAValue

from ....dialects.base import ints, text, to_ints
from ....dialects.graph import BroadcastOp, ElementwiseOp, FusionOp, ReduceOp, ReduceWindowOp
from ....dialects.graph.control import AXES, axes_of
from ....dialects.graph.interface import shape_of
from ....kernels.pooled_axes import PooledAxis
from ...forms.access import is_layout, splat_of
from ...forms.nests import ProductNest, nest_of
from ...fusion.merged import MergedBody
from ..axes import behind_merges, reduced_dims
from ..indexed.windows import UNROLLED_TAPS
from .contraction_axes import product_in

PoolOp = ReduceWindowOp | ReduceOp
"""An op that reduces windows, or all positions."""

NOT_ALONE = "what is not pooled is read elsewhere, too, so that it has to be in memory"
OTHERS = "the kernel of the windows reads other tensors that are made later"
ORDER = "the windows are over a view of the product's result, which is in another order"
COLUMNS = (
    "the windows are over columns of the product, or over products side by side, and a tile has few of these"
)
ONE_PLACE = "the windows are over a dimension of one element"
LARGE = f"there are more than {UNROLLED_TAPS} elements in a window along a dimension, and several windows"
GROUPED = "the kernel of a convolution in groups has no epilogue"
MIXED = "the kernel of the windows does something else, too, with what is not pooled"


@dataclass(frozen=True)
class Pooling:
    """How the result of a product is pooled: the op, and the windows along axes of the product's loop nest."""

    op: PoolOp
    axes: Mapping[int, PooledAxis]


def windows_of(op: PoolOp) -> dict[int, PooledAxis]:
    """The windows along each dimension of what an op reduces, as far as there are."""
    shape = shape_of(op.x)
    if isinstance(op, ReduceOp):
        return {
            d: PooledAxis(shape[d], 1, shape[d], max(shape[d], 1)) for d in to_ints(op.dims) if shape[d] != 1
        }
    lists = (to_ints(p) for p in (op.window, op.strides, op.dilation, op.low, op.high))
    found: dict[int, PooledAxis] = {}
    out = shape_of(op.result)
    for d, (window, stride, dilation, low, high) in enumerate(zip(*lists, strict=True)):
        if (window, stride, low, high) != (1, 1, 0, 0):
            found[d] = PooledAxis(shape[d], out[d], window, stride, dilation, low)
    return found


def pooling_in(fusion: FusionOp) -> Pooling | None:
    """How a fusion pools the result of its product; None where it does not."""
    op = next((op for op in fusion.body.block.ops if isinstance(op, PoolOp) and AXES in op.attributes), None)
    product = product_in(fusion) if op is not None else None
    if op is None or product is None or AXES not in product.attributes:
        return None
    axes, roles = axes_of(op) or (), nest_of(product).roles
    found = {axes[d]: along for d, along in windows_of(op).items()}
    if not found or any(roles.get(a) != "m" for a in found):
        return None
    return Pooling(op, found)


def chain_behind(fusion: FusionOp, position: Mapping[Operation, float]) -> tuple[list[FusionOp], str]:
    """A product's fusion, the one behind it that pools its result, and those behind that which are elementwise, and ""
    if they may be one kernel; else the first two, and why not. No fusions where nothing pools the result. `position`:
    that of each op of the block."""
    product = product_in(fusion)
    if product is None or AXES not in product.attributes or fusion.schedule is not None:
        return [], ""
    readers = [use.operation for result in fusion.results for use in result.uses]
    reader = next((op for op in readers if isinstance(op, FusionOp) and _pool_in(op) is not None), None)
    if reader is None or reader.schedule is not None or reader.parent is not fusion.parent:
        return [], ""
    chain = [fusion, reader]
    if len(readers) != 1:
        return chain, NOT_ALONE
    if not _is_ready(fusion, reader, fusion.results[0], position):
        return chain, OTHERS
    why = _why_not(chain)
    while not why and (behind := _reader(chain[-1])) is not None:
        if not _is_ready(fusion, behind, chain[-1].results[0], position) or _why_not([*chain, behind]):
            break
        chain.append(behind)
    return chain, why


def _pool_in(fusion: FusionOp) -> PoolOp | None:
    """The one op of a fusion of the vector cores that pools, where the others are elementwise."""
    members = _members(fusion) if text(fusion.kind) == "vector" else []
    found = [op for op in members if isinstance(op, PoolOp)]
    return (
        found[0]
        if len(found) == 1 and all(isinstance(op, ElementwiseOp | PoolOp) for op in members)
        else None
    )


def _reader(fusion: FusionOp) -> FusionOp | None:
    """The only reader of the only result of a fusion, where it is elementwise and has no schedule."""
    reader = fusion.results[0].get_user_of_unique_use() if len(fusion.results) == 1 else None
    if not isinstance(reader, FusionOp) or reader.parent is not fusion.parent or reader.schedule is not None:
        return None
    elementwise = text(reader.kind) == "vector" and all(
        isinstance(op, ElementwiseOp) for op in _members(reader)
    )
    return reader if elementwise else None


def _members(fusion: FusionOp) -> list[Operation]:
    return [op for op in fusion.body.block.ops if AXES in op.attributes]


def _is_ready(fusion: FusionOp, reader: FusionOp, given: SSAValue, position: Mapping[Operation, float]) -> bool:
    """Whether all that a fusion behind a product reads, but what it is given of it, is made before the product."""
    owners = (v.owner for v in reader.inputs if v is not given)
    return all(isinstance(o, Block) or position.get(o, -1) < position[fusion] for o in owners)


def _why_not(chain: Sequence[FusionOp]) -> str:
    """Why fusions one behind the other are not one kernel, whatever that would take; "" where they may be."""
    product = product_in(chain[0])
    assert product is not None
    nest = nest_of(product)
    if any(len(terms) > 1 for terms in nest.out):
        return GROUPED
    fused = pooled_fusion(chain)
    if fused is None:
        return ORDER
    try:
        return _why_illegal(fused, nest)
    finally:
        fused.erase()


def _why_illegal(fused: FusionOp, nest: ProductNest) -> str:
    """Why the fusion of both is no kernel; "" where it is one."""
    members = _members(fused)
    op = next(m for m in members if isinstance(m, PoolOp))
    axes = axes_of(op) or ()
    windows = {axes[d]: along for d, along in windows_of(op).items()}
    for a, along in windows.items():
        if a < 0 or along.extent == 1:
            return ONE_PLACE
        if nest.roles[a] != "m":
            return COLUMNS
        if along.places == 0 or (along.window > UNROLLED_TAPS and not along.is_whole):
            return LARGE
    if not windows:
        return ONE_PLACE
    behind: set[SSAValue] = set(op.results)
    before = {r for m in members[: members.index(op)] for r in m.results}
    for m in members[members.index(op) + 1 :]:
        depends = any(_behind_layout(v) in behind for v in m.operands)
        wide = {d: windows[a] for d, a in enumerate(axes_of(m) or ()) if a in windows}
        if any(shape_of(m.results[0])[d] != along.places for d, along in wide.items()) or (wide and not depends):
            return MIXED
        if not all(v in behind or not wide or splat_of(v) is not None or _lacks(v, wide) for v in m.operands):
            return MIXED
        (behind if depends else before).update(m.results)
    return "" if all(behind_merges(v)[0] in behind for v in fused.yielded(0).values) else MIXED


def _behind_layout(value: SSAValue) -> SSAValue:
    """The value that layout ops turn into this one."""
    while is_layout(value.owner):
        value = value.owner.operands[0]
    return value


def _lacks(value: SSAValue, dims: Iterable[int]) -> bool:
    """Whether a value is repeated along dimensions."""
    return isinstance(value.owner, BroadcastOp) and not set(dims) & set(to_ints(value.owner.dims))


def pooled_fusion(chain: Sequence[FusionOp]) -> FusionOp | None:
    """One fusion, in no block yet, that does what several one behind the other do, with the results of the last one.
    None where one of them sees what it is given in another order."""
    first = chain[0]
    taken = [v for i, one in enumerate(chain) for v in one.inputs if i == 0 or v.owner is not chain[i - 1]]
    body = MergedBody(taken)
    axes: Sequence[int] = range(len(to_ints(first.domain)))
    """The axis of the product's domain of each dimension of what a fusion is given."""

    def renamed(op: Operation) -> dict[str, Attribute]:
        named = axes_of(op)
        known = {} if named is None else {AXES: ints([-1 if a < 0 else axes[a] for a in named])}
        return {**op.attributes, **known}

    for i, one in enumerate(chain):
        if i and not _in_order(one, chain[i - 1].results[0]):
            return None
        body.add(one, renamed)
        given = body.known[one.results[0]]
        found = _result_axes(given)
        if found is None or (i == 0 and shape_of(given) != to_ints(first.domain)):
            return None
        axes = found
    return body.fusion(chain[-1].results, first)


def _result_axes(value: SSAValue) -> Sequence[int] | None:
    """The axes of the dimensions of what a member computes; None for another value."""
    op = value.owner
    axes = axes_of(op) if isinstance(op, Operation) else None
    if axes is None or not isinstance(op, Operation):
        return None
    return [a for d, a in enumerate(axes) if d not in reduced_dims(op)]


def _in_order(reader: FusionOp, given: SSAValue) -> bool:
    """Whether a fusion behind another one uses what it is given as it is, dimension by dimension."""
    argument = reader.body.block.args[list(reader.inputs).index(given)]
    users = [use.operation for use in argument.uses]
    named = [axes_of(op) for op in users]
    if any(axes is None or any(a not in (d, -1) for d, a in enumerate(axes)) for axes in named):
        return False
    windows = any(isinstance(op, ReduceWindowOp) for op in users)
    return windows or list(to_ints(reader.domain)) == list(shape_of(given))
