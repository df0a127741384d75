"""graph-fuse: groups the ops of each block into `graph.fusion` ops, one for each future kernel.

Before:                                        After:
    %y = graph.contract %x, %w ...                 %r = graph.fusion %x, %w, %b {kind = "mix"} {
    %c = graph.broadcast %b {dims = [1]}               ^bb0(%x, %w, %b):
    %z = graph.add %y, %c                                %y = graph.contract ...; broadcast; add; maximum
    %r = graph.max %z, %zero                             graph.yield %r }

An elementwise op joins the kernel that computes its operands; a reduction joins where whole rows stay on chip;
a contraction starts a kernel that its elementwise consumers join as epilogue. Layout ops (broadcast, transpose,
slice, reshape, reverse, pad) belong to no kernel: they are folded into the loads of each kernel that reads through
them, and become a kernel of their own only if the rearranged tensor itself is needed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from ...dialects.base import describe, ints, to_ints
from ...dialects.graph import (
    ArgReduceOp,
    ConcatOp,
    ConstantOp,
    ContractOp,
    ConvOp,
    ElementwiseOp,
    ExpandOp,
    FusionOp,
    GatherOp,
    GraphOp,
    IotaOp,
    PadOp,
    ReduceOp,
    ReduceWindowOp,
    ReshapeOp,
    SelectAndScatterOp,
    TransposeOp,
    YieldOp,
)
from ...dialects.graph.control import AXES
from ...dialects.graph.interface import shape_of
from ...machine import Machine
from ..alternatives import ATTENTION, FUSION
from ..base import ChoosingPass
from ..errors import PassError
from ..forms.access import base_behind, is_layout, splat_of
from ..forms.attention import chained_products
from ..forms.layout_axes import behind
from ..forms.nests import nest_of_conv
from ..reasons import Reason, asked_reasons
from .dependencies import Group
from .groups import Grouper, SingleOps

WindowOp = ReduceWindowOp | SelectAndScatterOp


RECOMPUTED = "it is read for values that are computed again here, which is less than to store and load these"


def reads_through_layout(kind: type[Operation]) -> bool:
    """True for ops whose kernels fold layout ops on their operands into loads; others read dense tensors."""
    return issubclass(kind, GraphOp) and kind.READS_THROUGH_LAYOUT


def own_tensor(value: SSAValue, user: Operation | None) -> bool:
    """True for padding that the loads of `user` cannot fill in: all of a window's, for a contraction all but 0, for a
    select-and-scatter what is not just around what it selects from, or has a border around it again."""
    if not isinstance(value.owner, PadOp):
        return False
    if isinstance(user, ContractOp):
        return splat_of(value.owner.value) != 0
    if isinstance(user, SelectAndScatterOp) and value is user.x and value is not user.source:
        return any((*to_ints(user.low), *to_ints(user.high)))
    return isinstance(user, ConvOp | WindowOp | ExpandOp)


@dataclass(frozen=True)
class GraphFusePass(ChoosingPass):
    """Groups graph ops into fusions that fit the machine."""

    name = "graph-fuse"

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        reasons = asked_reasons()
        for func in module.ops:
            if isinstance(func, FuncOp) and func.body.blocks:
                fuse_block(func.body.block, machine, self.may(ATTENTION), reasons, self.may(FUSION))


def fuse_block(
    block: Block,
    machine: Machine,
    attention: bool = True,
    reasons: list[Reason] | None = None,
    fuse: bool = True,
) -> None:
    """Rewrites one block in place; nested regions of control flow first. `reasons` gets why kernels are apart. fuse:
    whether a kernel may compute several ops."""
    if any(isinstance(op, FusionOp) and not op.on_host for op in block.ops):
        return
    for op in block.ops:
        if not isinstance(op, FusionOp):
            for region in op.regions:
                for inner in region.blocks:
                    fuse_block(inner, machine, attention, reasons, fuse)
    grouper = (Grouper if fuse else SingleOps)(machine, reasons is not None)
    BlockFuser(block, grouper, reasons).run(attention and fuse)


class BlockFuser:
    """Fuses one block: grow groups, find what each must store, emit in dependency order."""

    def __init__(self, block: Block, grouper: Grouper, reasons: list[Reason] | None):
        self.block, self.grouper, self.reasons = block, grouper, reasons
        self.kept: dict[Operation, None] = {}
        """Ops that stay outside of fusions, in order."""
        self.required: set[SSAValue] = set()
        self.live: list[Group] = []
        self.seen_groups: set[int] = set()
        self.position = {op: i for i, op in enumerate(block.ops)}
        self.bases: dict[int, dict[tuple[SSAValue, Operation | None], SSAValue | None]] = {}
        """For each group, what is known of the tensors behind its uses."""
        self.read: dict[int, tuple[int, list[SSAValue]]] = {}
        """For each group, how many outputs it had, and the tensors that it reads."""
        self.axes: dict[tuple[int, Operation], Attribute] = {}
        """The axes of each group's ops, found before any of them moves."""
        self.moved: dict[Operation, tuple[Sequence[SSAValue], dict[str, Attribute]]] = {}
        """Of ops that are in fusions now, the operands and attributes that they had."""

    def run(self, attention: bool = True) -> None:
        """attention: whether two products may be in one kernel."""
        kept: list[Operation] = []
        known = chained_products(self.block, self.grouper.machine, self.reasons) if attention else []
        found = {at.product: at for at in known}
        inside = {op for at in found.values() for op in at.members if op not in at.generated}
        for op in self.block.ops:
            if isinstance(op, ContractOp) and op in found:
                self.grouper.chained(found[op])
            elif op in inside or (isinstance(op, GraphOp) and not op.regions and self.grouper.add(op)):
                continue
            elif not (is_layout(op) or isinstance(op, ConstantOp)):
                kept.append(op)
                mask = 0
                for value in self._outer_operands(op):
                    mask |= self.grouper.makers_of(value)
                for result in op.results:
                    self.grouper.barriers[result] = mask
        pending: list[SSAValue] = []
        for op in kept:
            if op.results and all(not r.uses for r in op.results):
                continue
            self.kept[op] = None
            pending += self._outer_operands(op)
        while pending:
            value = pending.pop()
            if value not in self.required:
                self.required.add(value)
                pending += self._require(value)
        self._emit()

    def _outer_operands(self, op: Operation) -> list[SSAValue]:
        """Operands of `op` and values that its regions use from this block."""
        found = list(op.operands)
        for region in op.regions:
            for inner in region.walk():
                found += [v for v in inner.operands if v.owner is self.block or self._is_local(v)]
        return found

    def _is_local(self, value: SSAValue) -> bool:
        owner = value.owner
        return isinstance(owner, Operation) and owner.parent is self.block

    # -- what must exist as a tensor ------------------------------------------------------------------------

    def _require(self, value: SSAValue) -> list[SSAValue]:
        """Makes `value` available as a dense tensor; returns the tensors needed for that."""
        if not self._is_local(value):
            return []
        op = value.owner
        assert isinstance(op, Operation)
        if value in self.grouper.owner:
            return self._output(self.grouper.owner[value].find(), value)
        if isinstance(op, ReshapeOp):
            self.kept[op] = None
            return [op.x]
        if isinstance(op, TransposeOp) and (group := self._transposes(op)) is not None:
            return self._output(group, value)
        if isinstance(op, ConstantOp):
            self.kept[op] = None
            return []
        if isinstance(op, ExpandOp):
            raise PassError(
                f"{describe(op)} is read by more than products of integers that sum over its dimension: run "
                "graph-simplify before graph-fuse, which writes it out"
            )
        if is_layout(op) or isinstance(op, IotaOp):
            splat = splat_of(value)
            group = self.grouper.new_group(
                "vector" if isinstance(op, IotaOp) or splat is not None else "move",
                shape_of(value),
                "a kernel that only rearranges a tensor computes nothing",
            )
            group.axes[value] = tuple(range(len(group.domain)))
            self.grouper.owner[value] = group
            return self._output(group, value)
        return []

    def _transposes(self, op: TransposeOp) -> Group | None:
        """The group that stores its result transposed, if one does: then that has its axes."""
        chain = [op]
        while isinstance(inner := chain[-1].x.owner, TransposeOp):
            chain.append(inner)
        made = chain[-1].x
        if made not in self.grouper.owner:
            return None
        group = self.grouper.owner[made].find()
        stores = group.chained or (group.kind in ("cube", "mix", "vector") and not group.closed)
        axes = group.axes.get(made)
        if not stores or axes is None:  # parts that are stacked have axes, what they are parts of has none
            return None
        for each in reversed(chain):
            axes = tuple(axes[p] for p in to_ints(each.perm))
        group.axes[op.result] = axes
        return group

    def _output(self, group: Group, value: SSAValue) -> list[SSAValue]:
        if value not in group.outputs:
            group.outputs.append(value)
        if group.number in self.seen_groups:
            return []
        self.seen_groups.add(group.number)
        self.live.append(group)
        group.members = self._needed_members(group)
        return self.external(group)

    def _needed_members(self, group: Group) -> list[Operation]:
        return sorted(dict.fromkeys(group.members), key=lambda op: self.position[op])

    def external(self, group: Group) -> list[SSAValue]:
        """Tensors a group reads: the bases of everything its members use from outside."""
        outputs, read = self.read.get(group.number, (0, []))
        if outputs == len(group.outputs):
            return read
        found: dict[SSAValue, None] = {}
        known = self.bases.setdefault(group.number, {})
        members = set(group.members)
        for use in self._uses(group):
            if use not in known:
                known[use] = self._base(members, *use)
            base = known[use]
            if base is not None:
                found[base] = None
        self.read[group.number] = len(group.outputs), list(found)
        return self.read[group.number][1]

    def _uses(self, group: Group) -> Iterable[tuple[SSAValue, Operation | None]]:
        for op in group.members:
            for value in op.operands:
                yield value, op
        for value in group.outputs:
            for stored in self._stored_by(group, value):
                yield stored, None

    def _stored_by(self, group: Group, output: SSAValue) -> Iterable[SSAValue]:
        """What a group stores of its own for an output: the parts of a concatenation, else the output itself."""
        op = output.owner
        if isinstance(op, ConcatOp) and op not in group.inside:
            for part in op.parts:
                yield from self._stored_by(group, part)
        else:
            yield output

    def _base(self, members: set[Operation], value: SSAValue, user: Operation | None) -> SSAValue | None:
        """The tensor that `value`, as `user` or an output, is read from; None for one that the group has."""
        if user is not None and not reads_through_layout(type(user)):
            return None if shape_of(value) == () and splat_of(value) is not None else value
        if value.owner in members or (
            splat_of(value) is not None and not isinstance(user, ContractOp | ConvOp | WindowOp | ExpandOp)
        ):
            return None
        nest = nest_of_conv(user) if isinstance(user, ConvOp) and value is user.rhs else None
        walked = None if nest is None else (nest.rhs, nest.extents)  # the groups are an axis of their own
        base, filled = base_behind(value, lambda v: self._stops(v) or own_tensor(v, user), walked)
        generated = isinstance(base.owner, IotaOp) and not filled
        if base.owner in members or (
            generated and isinstance(user, ElementwiseOp | ReduceOp | ArgReduceOp | None)
        ):
            return None
        return base

    def _stops(self, value: SSAValue) -> bool:
        """Groups read what other groups compute, but see through layout ops even where those also have a kernel:
        that kernel may need the group itself."""
        return value in self.grouper.owner and not is_layout(value.owner)

    # -- emission -------------------------------------------------------------------------------------------

    def _emit(self) -> None:
        units: list[tuple[Operation | Group, Sequence[SSAValue], list[SSAValue]]] = []
        for op in self.kept:
            units.append((op, self._outer_operands(op), list(op.results)))
        position = self.position
        for group in self.live:
            units.append((group, self.external(group), group.outputs))
            self.axes.update(((group.number, op), axes) for op, axes in self._axes(group))
        maker = {v: i for i, (_, _, made) in enumerate(units) for v in made}
        waits = [0] * len(units)
        users: list[list[int]] = [[] for _ in units]
        for i, (_, used, _) in enumerate(units):
            for j in {maker[v] for v in used if v in maker}:
                waits[i] += 1
                users[j].append(i)

        def place(unit: Operation | Group) -> int:
            if isinstance(unit, Group):
                if unit.members:
                    return position[unit.members[0]]
                return min(
                    (position[v.owner] for v in unit.outputs if isinstance(v.owner, Operation)), default=0
                )
            return position[unit]

        terminator = self.block.last_op
        ready = [(place(u), i) for i, (u, _, _) in enumerate(units) if waits[i] == 0 and u is not terminator]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            _, i = heapq.heappop(ready)
            order.append(i)
            for j in users[i]:
                waits[j] -= 1
                if waits[j] == 0 and units[j][0] is not terminator:
                    heapq.heappush(ready, (place(units[j][0]), j))
        order += [i for i, (u, _, _) in enumerate(units) if u is terminator]
        if len(order) != len(units):
            raise RuntimeError("graph-fuse: groups depend on each other in a circle")
        fused: dict[SSAValue, SSAValue] = {}
        new_ops: list[Operation] = []
        fusions: dict[Group, FusionOp] = {}
        for i in order:
            unit = units[i][0]
            if isinstance(unit, Group):
                fusions[unit] = self._fusion(unit, list(units[i][1]), fused)
                new_ops.append(fusions[unit])
            else:
                new_ops.append(unit)
        if self.reasons is not None:
            self.reasons += self._apart(fusions)
        for op in new_ops:
            if isinstance(op, FusionOp):
                continue
            self._rewire(op, fused)
        keep = set(new_ops)
        old = list(self.block.ops)
        for op in old:
            op.detach()
        self.block.add_ops(new_ops)
        for op in reversed(old):
            if op not in keep:
                op.drop_all_references()
        for op in old:
            if op not in keep:
                op.erase(safe_erase=False)

    def _apart(self, fusions: dict[Group, FusionOp]) -> Iterable[Reason]:
        """Why each value that one fusion makes and another one reads is not read in one with it."""
        made = {value: group for group in fusions for value in group.outputs}
        for group, fusion in fusions.items():
            for base in self.external(group):
                value = behind(base, made)[1]
                maker = made.get(value)
                if maker is None:
                    continue
                readers = [user for (_, user), found in self.bases[group.number].items() if found is base]
                why = next(
                    (w for user in readers if user and (w := self.grouper.why_apart(user, maker)) is not None),
                    group.closed or RECOMPUTED,
                )
                yield Reason("not fused", (fusions[maker], fusion), why, maker.outputs.index(value))

    def _rewire(self, op: Operation, fused: dict[SSAValue, SSAValue]) -> None:
        for i, value in enumerate(op.operands):
            if value in fused:
                op.operands[i] = fused[value]
        for region in op.regions:
            for inner in region.walk():
                for i, value in enumerate(inner.operands):
                    if value in fused:
                        inner.operands[i] = fused[value]

    def _axes(self, group: Group) -> Iterable[tuple[Operation, Attribute]]:
        """The `axes` of a group's ops."""
        for op in group.members:
            axes: Sequence[int | None] | None = group.axes.get(op.results[0])
            if axes is not None:
                if isinstance(op, ReduceOp | ArgReduceOp):
                    axes = self._operand_axes(group, op)
                yield op, ints([-1 if a is None else a for a in axes])

    def _operand_axes(self, group: Group, op: ReduceOp | ArgReduceOp) -> list[int | None]:
        found = self.grouper.axes_in(group, op.x)
        if found is None:
            return [None if s == 1 else d for d, s in enumerate(shape_of(op.x))]
        return [a if isinstance(a, int) else None for a in found]

    def _fusion(self, group: Group, inputs: list[SSAValue], fused: dict[SSAValue, SSAValue]) -> FusionOp:
        contents = _Contents(self, group, inputs)
        contents.block.add_op(YieldOp.create(operands=[contents.clone(v) for v in group.outputs]))
        kind = group.kind
        if (
            kind == "cube"
            and sum(not is_layout(m) and not isinstance(m, ExpandOp | GatherOp) for m in group.members) > 1
        ):
            kind = "mix"
        anchor = next((m for m in group.members if isinstance(m, ContractOp | ConvOp)), None)
        source = anchor or (group.members[-1] if group.members else group.outputs[0].owner)
        assert isinstance(source, Operation)
        fusion = FusionOp.create(
            operands=[fused.get(v, v) for v in inputs],
            result_types=[v.type for v in group.outputs],
            properties={"kind": StringAttr(kind), "domain": ints(group.domain)},
            regions=[Region(contents.block)],
            location=source.location,
        )
        for value, result in zip(group.outputs, fusion.results, strict=True):
            result.name_hint = value.name_hint
        fused.update(zip(group.outputs, fusion.results, strict=True))
        return fusion


class _Contents:
    """The block of a fusion under construction, and what values are called in it."""

    def __init__(self, fuser: BlockFuser, group: Group, inputs: list[SSAValue]) -> None:
        self.fuser, self.group, self.inputs = fuser, group, inputs
        self.block = Block(arg_types=[v.type for v in inputs])
        self.inside: dict[SSAValue, SSAValue] = dict(zip(inputs, self.block.args, strict=True))

    def clone(self, value: SSAValue) -> SSAValue:
        """A value in the fusion, with all that it is made of."""
        # a stack and no recursion: a chain of sums may be as long as a convolution's window has positions
        pending = [value]
        while pending:
            if pending[-1] in self.inside:
                pending.pop()
                continue
            op = pending[-1].owner
            assert isinstance(op, Operation)
            missing = [v for v in self._given(op) if v not in self.inside and not self._literal(op, v)]
            pending += reversed(missing)
            if not missing:
                self._place(op)
        return self.inside[value]

    def _given(self, op: Operation) -> Sequence[SSAValue]:
        """The operands that an op has outside."""
        return self.fuser.moved[op][0] if op in self.fuser.moved else op.operands

    def _literal(self, op: Operation, value: SSAValue) -> bool:
        """Whether the value of a pad stays a constant inside, even where the same constant is read as a tensor."""
        if type(op) is not PadOp or value is not self._given(op)[1]:
            return False
        return isinstance(value.owner, ConstantOp) and value in self.inputs

    def _operand(self, op: Operation, value: SSAValue) -> SSAValue:
        if not self._literal(op, value):
            return self.inside[value]
        constant = value.owner
        assert isinstance(constant, ConstantOp)
        copied = ConstantOp.create(
            result_types=[value.type], properties=constant.properties, location=constant.location
        )
        self.block.add_op(copied)
        return copied.result

    def _place(self, op: Operation) -> None:
        """Puts an op into the fusion: itself where it is in no other yet and not needed outside, else a copy."""
        fuser = self.fuser
        operands = [self._operand(op, v) for v in self._given(op)]
        axes = fuser.axes.get((self.group.number, op))
        attributes = fuser.moved[op][1] if op in fuser.moved else op.attributes
        attributes = {**attributes, **({} if axes is None else {AXES: axes})}
        if op.parent is fuser.block and op not in fuser.kept:
            before = tuple(op.operands)
            fuser.moved[op] = before, op.attributes
            op.attributes = attributes
            op.detach()
            for i, (old, new) in enumerate(zip(before, operands, strict=True)):
                if new is not old:
                    op.operands[i] = new
            self.block.add_op(op)
            self.inside.update((r, r) for r in op.results)
            return
        copied = type(op).create(
            operands=operands,
            result_types=[r.type for r in op.results],
            properties=op.properties,
            attributes=attributes,
            location=op.location,
        )
        self.block.add_op(copied)
        for old, new in zip(op.results, copied.results, strict=True):
            new.name_hint = old.name_hint
        self.inside.update(zip(op.results, copied.results, strict=True))
