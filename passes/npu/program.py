"""The host program of the npu level: launches on tensors in device memory, with updates in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects.builtin import FunctionType, IntegerAttr, ModuleOp, TensorType, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from ...dialects.base import describe, text, to_ints
from ...dialects.graph import CaseOp, ConstantOp, HostOp, ReshapeOp, WhileOp, YieldOp
from ...dialects.npu import GmType, structure
from ...dialects.npu.ops import ViewOp
from ...dialects.tile import ops as tile
from ..errors import PassError


def gm_type(value: SSAValue) -> GmType:
    """The dense device tensor of a tensor value."""
    assert isinstance(value.type, TensorType)
    return GmType.of(value.type.get_shape(), value.type.element_type)


def lower_program(module: ModuleOp) -> None:
    """Rewrites the functions of a module from tensors to device memory."""
    kernels = {text(op.sym_name): op for op in module.ops if isinstance(op, structure.KernelOp)}
    for func in module.ops:
        if isinstance(func, FuncOp) and func.body.blocks:
            old = func.body.block
            if all(isinstance(a.type, GmType) for a in old.args) and old.args:
                continue
            new = ProgramLowering(kernels).function(old)
            func.body.detach_block(old)
            func.body.add_block(new)
            last = new.last_op
            assert isinstance(last, ReturnOp)
            func.function_type = FunctionType.from_lists(
                [a.type for a in new.args], [v.type for v in last.operands]
            )
            old.erase(safe_erase=False)


class ProgramLowering:
    """Lowers one function. `owned` are tensors this program made, which a last use may overwrite."""

    def __init__(self, kernels: dict[str, structure.KernelOp]):
        self.kernels = kernels
        self.env: dict[SSAValue, SSAValue] = {}
        self.owned: set[SSAValue] = set()
        self.block = Block()

    def add(self, op: Operation) -> None:
        self.block.add_op(op)

    def function(self, old: Block) -> Block:
        self.block = Block(arg_types=[gm_type(a) for a in old.args])
        for a, b in zip(old.args, self.block.args, strict=True):
            b.name_hint = a.name_hint
            self.env[a] = b
        self.ops(old)
        return self.block

    def ops(self, old: Block) -> None:
        for op in old.ops:
            handler = HANDLERS.get(type(op))
            if handler is None:
                raise PassError(f"{describe(op)} has no counterpart at the npu level")
            handler(self, op)

    def allocate(self, kind: GmType, source: Operation) -> SSAValue:
        op = structure.GmAllocOp.create(result_types=[kind], location=source.location)
        self.add(op)
        self.owned.add(op.result)
        return op.result

    def copied(self, value: SSAValue, source: Operation) -> SSAValue:
        """A new tensor with the contents of `value`."""
        assert isinstance(value.type, GmType)
        new = self.allocate(GmType.of(value.type.shape, value.type.element), source)
        self.add(structure.CopyOp.create(operands=[value, new], location=source.location))
        return new

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
                outputs.append(self.allocate(gm_type(result), op))
            elif self.takes_over(op.arguments[init], op):
                outputs.append(self.env[op.arguments[init]])
            else:
                outputs.append(self.copied(self.env[op.arguments[init]], op))
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
            operands=[self.env[op.x]], result_types=[gm_type(op.result)], location=op.location
        )
        self.add(new)
        self.env[op.result] = new.result

    def constant(self, op: ConstantOp) -> None:
        new = structure.GmConstantOp.create(
            result_types=[gm_type(op.result)], properties={"value": op.value}, location=op.location
        )
        self.add(new)
        self.env[op.result] = new.result

    def host(self, op: HostOp) -> None:
        outputs = [self.allocate(gm_type(r), op) for r in op.outputs]
        self.add(
            structure.HostCallOp.create(
                operands=[*(self.env[v] for v in op.inputs), *outputs],
                properties={"op": op.op, "module": op.module, "outputs": IntegerAttr(len(outputs), i64)},
                location=op.location,
            )
        )
        self.env.update(zip(op.outputs, outputs, strict=True))

    def loop(self, op: WhileOp) -> None:
        state = [self.env[v] if self.takes_over(v, op) else self.copied(self.env[v], op) for v in op.inits]
        regions = []
        for region in (op.condition, op.body):
            old = region.block
            outer, self.block = self.block, Block(arg_types=[gm_type(a) for a in old.args])
            for a, b in zip(old.args, self.block.args, strict=True):
                self.env[a] = b
                if region is op.body:
                    self.owned.add(b)
            if region is op.condition and op.trip_count is not None:
                self.add(structure.NpuYieldOp.create())
            else:
                self.ops(old)
            regions.append(Region(self.block))
            self.block = outer
        properties = {} if op.trip_count is None else {"trip_count": op.trip_count}
        self.add(
            structure.LoopOp.create(
                operands=state, properties=properties, regions=regions, location=op.location
            )
        )
        self.env.update(zip(op.outputs, state, strict=True))

    def case(self, op: CaseOp) -> None:
        outputs = [self.allocate(gm_type(r), op) for r in op.outputs]
        regions = []
        for region in op.branches:
            outer, self.block = self.block, Block()
            self.ops(region.block)
            regions.append(Region(self.block))
            self.block = outer
        self.add(
            structure.BranchOp.create(
                operands=[self.env[op.index], *outputs], regions=regions, location=op.location
            )
        )
        self.env.update(zip(op.outputs, outputs, strict=True))

    def finish(self, op: Operation) -> None:
        cls = ReturnOp if isinstance(op, ReturnOp) else structure.NpuYieldOp
        self.add(cls.create(operands=[self.env[v] for v in op.operands], location=op.location))


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
    ReturnOp: ProgramLowering.finish,
    YieldOp: ProgramLowering.finish,
}
