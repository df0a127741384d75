"""The host program of the npu level: launches on tensors in device memory, with updates in place."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from xdsl.dialects.builtin import FunctionType, IntegerAttr, ModuleOp, TensorType, i64
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from ...dialects.base import describe, text, to_ints
from ...dialects.dtypes import tensor
from ...dialects.graph import (
    CaseOp,
    ConstantOp,
    FusionOp,
    HostOp,
    ReshapeOp,
    ToHostOp,
    WhileOp,
    YieldOp,
)
from ...dialects.npu import GmType, structure
from ...dialects.npu.ops import ViewOp
from ...dialects.tile import ops as tile
from ..calls import calls_of
from ..errors import PassError


def gm_type(value: SSAValue) -> GmType:
    """The dense device tensor of a tensor value."""
    assert isinstance(value.type, TensorType)
    return GmType.of(value.type.get_shape(), value.type.element_type)


def lower_program(module: ModuleOp) -> None:
    """Rewrites the functions of a module from tensors to device memory."""
    kernels = {text(op.sym_name): op for op in module.ops if isinstance(op, structure.KernelOp)}
    functions = [f for f in module.ops if isinstance(f, FuncOp) and f.body.blocks]
    called = {name for f in functions for name in calls_of(f)}
    for func in functions:
        old = func.body.block
        if all(isinstance(a.type, GmType) for a in old.args) and old.args:
            continue
        new = ProgramLowering(kernels).function(old, text(func.sym_name) in called)
        func.body.detach_block(old)
        func.body.add_block(new)
        last = new.last_op
        assert isinstance(last, ReturnOp)
        func.function_type = FunctionType.from_lists(
            [a.type for a in new.args], [v.type for v in last.operands]
        )
        old.erase(safe_erase=False)
        for op in list(func.walk()):
            if isinstance(op, structure.GmConstantOp) and not op.result.uses:
                op.detach()
                op.erase()


class ProgramLowering:
    """Lowers one function. `owned` are tensors this program made, which a last use may overwrite.

    `env` has for each value the device tensor or the number of the host that it became.
    """

    def __init__(self, kernels: dict[str, structure.KernelOp]):
        self.kernels = kernels
        self.env: dict[SSAValue, SSAValue] = {}
        self.copies: dict[tuple[SSAValue, bool, Block], SSAValue] = {}
        """Numbers that were brought to the device (True) or to the host (False) in a block."""
        self.owned: set[SSAValue] = set()
        self.carried: dict[SSAValue, SSAValue] = {}
        """For values that a loop's body yields, its block argument in the same place."""
        self.outputs: Sequence[SSAValue] = ()
        """The tensors of the caller that a called function writes its results to."""
        self.hosted: dict[SSAValue, SSAValue] = {}
        """What the host has, in this block or around it, of values that the device has too."""
        self.into: dict[SSAValue, SSAValue] = {}
        """Those of them that a result is made in."""
        self.block = Block()

    def add(self, op: Operation) -> None:
        self.block.add_op(op)

    def function(self, old: Block, called: bool) -> Block:
        """The block of a function. One that is called has a device tensor for each result behind its arguments, and
        returns nothing."""
        last = old.last_op
        assert isinstance(last, ReturnOp)
        results = list(last.operands) if called else []
        self.block = Block(arg_types=[gm_type(a) for a in (*old.args, *results)])
        for a, b in zip(old.args, self.block.args, strict=False):
            b.name_hint = a.name_hint
            self.env[a] = b
        self.outputs = self.block.args[len(old.args) :]
        for value, tensor_ in zip(results, self.outputs, strict=True):
            self.into.setdefault(value, tensor_)
        self.ops(old)
        return self.block

    def ops(self, old: Block, order: Sequence[int] = (), host: Container[int] = ()) -> None:
        """Lowers the ops of a block, whose end gives operands in this order, those in `host` as numbers."""
        for op in old.ops:
            if isinstance(op, ReturnOp | YieldOp):
                self.finish(op, order, host)
                continue
            handler = HANDLERS.get(type(op))
            if handler is None:
                raise PassError(f"{describe(op)} has no counterpart at the npu level")
            handler(self, op)

    def allocate(self, kind: GmType, source: Operation) -> SSAValue:
        op = structure.GmAllocOp.create(result_types=[kind], location=source.location)
        self.add(op)
        self.owned.add(op.result)
        return op.result

    def result(self, value: SSAValue, source: Operation) -> SSAValue:
        """The tensor for a result of `source`: that of the loop's state which it is the next value of, if the old
        value is not needed any more, or else a new one."""
        if value in self.into:
            return self.into[value]
        old = self.carried.get(value)
        if old is not None and self._spent(old, source):
            return self.env[old]
        return self.allocate(gm_type(value), source)

    def _spent(self, old: SSAValue, source: Operation) -> bool:
        """Whether all uses of a loop's value, in the same block, come before `source`, and none of them may have made
        its tensor another value's."""
        block = source.parent
        assert block is not None
        pending = [old]
        while pending:
            for use in pending.pop().uses:
                user = use.operation
                at: Operation | None = user
                while at is not None and at.parent is not block:
                    at = at.parent_op()
                if at is None or at is source or not _before(at, source) or self._takes(user, use.index):
                    return False
                if isinstance(user, ReshapeOp):
                    pending.append(user.result)
        return True

    def _takes(self, user: Operation, operand: int) -> bool:
        """Whether a result of `user` may live in the tensor of this operand."""
        return isinstance(user, WhileOp) or (
            isinstance(user, tile.LaunchOp) and operand in to_ints(user.inits)
        )

    def copied(self, value: SSAValue, source: Operation) -> SSAValue:
        """A new tensor with the contents of `value`."""
        found, new = self.env[value], self.allocate(gm_type(value), source)
        cls = structure.CopyOp if isinstance(found.type, GmType) else structure.ToDeviceOp
        self.add(cls.create(operands=[found, new], location=source.location))
        return new

    def device(self, value: SSAValue, source: Operation) -> SSAValue:
        """The device tensor of `value`, written there if the host has it."""
        found = self.env[value]
        if isinstance(found.type, GmType):
            return found
        key = (found, True, self.block)
        if key not in self.copies:
            copy = self.allocate(gm_type(found), source)
            self.add(structure.ToDeviceOp.create(operands=[found, copy], location=source.location))
            self.copies[key] = copy
        return self.copies[key]

    def number(self, value: SSAValue, source: Operation) -> SSAValue:
        """The number of the host that `value` is, read from the device if only that has it."""
        if isinstance(value.owner, ConstantOp):
            return self._constant_number(value.owner)
        return self.fetched(value, source)

    def fetched(self, value: SSAValue, source: Operation) -> SSAValue:
        """What the host has of `value`, read from the device if only that has it. Later uses take the same copy:
        the tensor may be written meanwhile, the value stays."""
        found = self.env[value]
        if not isinstance(found.type, GmType):
            return found
        if value not in self.hosted:
            read = structure.ToHostOp.create(
                operands=[found],
                result_types=[tensor(found.type.shape, found.type.element)],
                location=source.location,
            )
            self.add(read)
            self.hosted[value] = read.result
        return self.hosted[value]

    def _constant_number(self, op: ConstantOp) -> SSAValue:
        key = (op.result, False, self.block)
        if key not in self.copies:
            inside = op.clone()
            inside.location = op.location
            body = Block([inside, YieldOp.create(operands=[inside.result])])
            made = structure.ScalarsOp.create(
                result_types=[op.result.type], regions=[Region(body)], location=op.location
            )
            self.add(made)
            self.copies[key] = made.results[0]
        return self.copies[key]

    def takes_over(self, value: SSAValue, user: Operation) -> bool:
        """Whether `user` may overwrite the tensor of `value`: ours, used by it once, and nobody looks at it
        afterwards."""
        if self.env[value] not in self.owned:
            return False
        block = user.parent
        assert block is not None
        owner_block = value.owner if isinstance(value.owner, Block) else value.owner.parent
        if owner_block is not block or any(v.owner is not user for v in self._aliases(value, user)):
            return False
        own = 0
        for use in value.uses:
            at: Operation | None = use.operation
            while at is not None and at.parent is not block:
                at = at.parent_op()
            own += at is user
            if at is not user and (at is None or not _before(at, user)):
                return False
        return own == 1

    def _aliases(self, value: SSAValue, user: Operation) -> list[SSAValue]:
        """Reshapes of `value`, which share its memory, and tensors it shares the memory of."""
        found: list[SSAValue] = [
            u.operation.results[0] for u in value.uses if isinstance(u.operation, ReshapeOp)
        ]
        if isinstance(value.owner, ReshapeOp):
            found.append(value.owner.x)
        return found

    # -- ops ---------------------------------------------------------------------------------------------------

    def launch(self, op: tile.LaunchOp) -> None:
        inits = to_ints(op.inits)
        used = {i for i in inits if i >= 0}
        operands = [self.env[v] for i, v in enumerate(op.arguments) if i not in used]
        outputs: list[SSAValue] = []
        for result, init in zip(op.outputs, inits, strict=True):
            if init < 0:
                outputs.append(self.result(result, op))
            elif self.takes_over(op.arguments[init], op):
                outputs.append(self.env[op.arguments[init]])
            else:
                outputs.append(self.copied(op.arguments[init], op))
        name = op.callee.root_reference.data
        kernel = self.kernels.get(name)
        if kernel is None:
            raise PassError(f"{describe(op)} launches @{name}, which does not exist")
        n = kernel.workspaces.value.data
        args = kernel.body.block.args
        spaces = []
        for a in args[len(args) - n :] if n else ():
            assert isinstance(a.type, GmType)
            spaces.append(self.allocate(a.type, op))
        self.add(
            structure.LaunchOp.create(
                operands=[*operands, *outputs, *spaces],
                properties={
                    "callee": op.callee,
                    "outputs": IntegerAttr(len(outputs), i64),
                    "workspaces": IntegerAttr(n, i64),
                },
                location=op.location,
            )
        )
        self.env.update(zip(op.outputs, outputs, strict=True))

    def reshape(self, op: ReshapeOp) -> None:
        new = ViewOp.create(
            operands=[self.device(op.x, op)], result_types=[gm_type(op.result)], location=op.location
        )
        self.add(new)
        self.env[op.result] = new.result

    def constant(self, op: ConstantOp) -> None:
        new = structure.GmConstantOp.create(
            result_types=[gm_type(op.result)], properties={"value": op.value}, location=op.location
        )
        self.add(new)
        self.env[op.result] = new.result

    def scalars(self, op: FusionOp) -> None:
        inputs = [self.number(v, op) for v in op.inputs]
        body = op.body.clone()
        for old, new in zip(op.body.block.ops, body.block.ops, strict=True):
            new.location = old.location
        made = structure.ScalarsOp.create(
            operands=inputs, result_types=list(op.result_types), regions=[body], location=op.location
        )
        self.add(made)
        self.env.update(zip(op.results, made.results, strict=True))

    def to_host(self, op: ToHostOp) -> None:
        self.env[op.result] = self.number(op.x, op)

    def call(self, op: CallOp) -> None:
        inputs = [self.device(v, op) for v in op.arguments]
        outputs = [self.result(r, op) for r in op.results]
        self.add(
            structure.CallOp.create(
                operands=[*inputs, *outputs],
                properties={"callee": op.callee, "outputs": IntegerAttr(len(outputs), i64)},
                location=op.location,
            )
        )
        self.env.update(zip(op.results, outputs, strict=True))

    def host(self, op: HostOp) -> None:
        call = structure.HostCallOp.create(
            operands=[self.fetched(v, op) for v in op.inputs],
            result_types=list(op.result_types),
            properties={"op": op.op, "module": op.module, "work": IntegerAttr(op.host_bytes(), i64)},
            location=op.location,
        )
        self.add(call)
        for old, new in zip(op.outputs, call.outputs, strict=True):
            self.hosted[old] = new
            if all(isinstance(use.operation, HostOp | ToHostOp) for use in old.uses):
                self.env[old] = new
                continue
            target = self.env[old] = self.result(old, op)
            self.add(structure.ToDeviceOp.create(operands=[new, target], location=op.location))

    def loop(self, op: WhileOp) -> None:
        host = set(to_ints(op.host))
        order = [*(i for i in range(len(op.inits)) if i not in host), *sorted(host)]
        state = [
            self.number(op.inits[i], op)
            if i in host
            else self.env[op.inits[i]]
            if self.takes_over(op.inits[i], op)
            else self.copied(op.inits[i], op)
            for i in order
        ]
        regions = []
        for region in (op.condition, op.body):
            old = region.block
            outer, hosted = self.block, dict(self.hosted)
            self.block = Block(arg_types=[v.type for v in state])
            for i, b in zip(order, self.block.args, strict=True):
                self.env[old.args[i]] = b
                if region is op.body and i not in host:
                    self.owned.add(b)
                    self.carried[op.yielded(1).values[i]] = old.args[i]
            if region is op.condition and op.trip_count is not None:
                self.add(structure.NpuYieldOp.create())
            else:
                self.ops(old, order if region is op.body else (), host if region is op.body else {0})
            regions.append(Region(self.block))
            self.block, self.hosted = outer, hosted
        properties = {} if op.trip_count is None else {"trip_count": op.trip_count}
        made = structure.LoopOp.create(
            operands=state,
            result_types=[op.results[i].type for i in sorted(host)],
            properties=properties,
            regions=regions,
            location=op.location,
        )
        self.add(made)
        after = [*state[: len(state) - len(host)], *made.results]
        self.env.update((op.outputs[i], v) for i, v in zip(order, after, strict=True))

    def case(self, op: CaseOp) -> None:
        host = set(to_ints(op.host))
        order = [*(i for i in range(len(op.outputs)) if i not in host), *sorted(host)]
        index = self.number(op.index, op)
        outputs = [self.allocate(gm_type(op.outputs[i]), op) for i in order if i not in host]
        regions = []
        for region in op.branches:
            outer, hosted = self.block, dict(self.hosted)
            self.block = Block()
            self.ops(region.block, order, host)
            regions.append(Region(self.block))
            self.block, self.hosted = outer, hosted
        made = structure.BranchOp.create(
            operands=[index, *outputs],
            result_types=[op.outputs[i].type for i in sorted(host)],
            regions=regions,
            location=op.location,
        )
        self.add(made)
        after = [*outputs, *made.results]
        self.env.update((op.outputs[i], v) for i, v in zip(order, after, strict=True))

    def finish(self, op: Operation, order: Sequence[int], host: Container[int]) -> None:
        """Ends a block with the values of the operands `order` (without: of all), numbers where they are of the
        host."""
        cls = ReturnOp if isinstance(op, ReturnOp) else structure.NpuYieldOp
        if self.outputs and isinstance(op, ReturnOp):
            for value, target in zip(op.operands, self.outputs, strict=True):
                found = self.env[value]
                if found is not target:
                    copy = structure.CopyOp if isinstance(found.type, GmType) else structure.ToDeviceOp
                    self.add(copy.create(operands=[found, target], location=op.location))
            self.add(ReturnOp())
            return
        values = [
            self.number(op.operands[i], op) if i in host else self.device(op.operands[i], op)
            for i in order or range(len(op.operands))
        ]
        self.add(cls.create(operands=values, location=op.location))


def _before(first: Operation, second: Operation) -> bool:
    at = first.next_op
    while at is not None:
        if at is second:
            return True
        at = at.next_op
    return False


HANDLERS: dict[type[Operation], Callable[[ProgramLowering, Any], None]] = {
    tile.LaunchOp: ProgramLowering.launch,
    ReshapeOp: ProgramLowering.reshape,
    ConstantOp: ProgramLowering.constant,
    HostOp: ProgramLowering.host,
    WhileOp: ProgramLowering.loop,
    CaseOp: ProgramLowering.case,
    CallOp: ProgramLowering.call,
    FusionOp: ProgramLowering.scalars,
    ToHostOp: ProgramLowering.to_host,
}
