"""The host program of the npu level: launches on tensors in device memory, with updates in place."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue, Use

from ...dialects import graph, tile
from ...dialects.base import block_of, describe, integer, integer_attr, ints, text, to_ints
from ...dialects.graph import CaseOp, ConstantOp, FusionOp, HostOp, ReshapeOp, ToHostOp, WhileOp, YieldOp
from ...dialects.graph.donation import donated
from ...dialects.npu import GmType, ViewOp, structure, whole_tensor
from ..calls import calls_of
from ..errors import PassError
from .host_values import HostValues, gm_type, made_over
from .in_place import in_place


def lower_program(module: ModuleOp) -> None:
    """Rewrites the functions of a module from tensors to device memory; its kernels are those of the tile level."""
    kernels = {text(op.sym_name): op for op in module.ops if isinstance(op, tile.KernelOp)}
    functions = [f for f in module.ops if isinstance(f, FuncOp) and f.body.blocks]
    called = {name for f in functions for name in calls_of(f)}
    handed = {name: updated_arguments(f) for f in functions if (name := text(f.sym_name)) in called}
    for func in functions:
        old = func.body.block
        if all(isinstance(a.type, GmType) for a in old.args) and old.args:
            continue
        new = ProgramLowering(kernels, handed).function(old, handed.get(text(func.sym_name)), donated(func))
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


class ProgramLowering(HostValues):
    """Lowers one function."""

    def __init__(self, kernels: dict[str, tile.KernelOp], handed: Mapping[str, Mapping[int, int]]):
        """handed: for each function that is called, the arguments that results of it are updates of."""
        super().__init__()
        self.kernels, self.handed = kernels, handed
        self.pairs: dict[tile.KernelOp, frozenset[tuple[int, int]]] = {}

    def function(self, old: Block, handed: Mapping[int, int] | None, donations: Sequence[bool]) -> Block:
        """The block of a function. One that is called (`handed` is not None) has a device tensor for each result behind
        its arguments, and returns nothing. `handed`: results by the arguments that they are updates of; such an
        argument comes in the tensor of the result."""
        last = old.last_op
        assert isinstance(last, ReturnOp)
        results = [] if handed is None else list(last.operands)
        inputs = [a for i, a in enumerate(old.args) if handed is None or i not in handed]
        self.block = Block(arg_types=[gm_type(a) for a in (*inputs, *results)])
        self.outputs = self.block.args[len(inputs) :]
        homes = dict(zip(inputs, self.block.args, strict=False))
        homes |= {old.args[i]: self.outputs[o] for i, o in (handed or {}).items()}
        for a in old.args:
            homes[a].name_hint = a.name_hint
            self.bind(a, homes[a])
        given = [homes[a] for a, free in zip(old.args, donations, strict=False) if free]
        self.owned.update(given)
        self.owned.update(self.outputs[o] for o in (handed or {}).values())
        for value, tensor_ in zip(results, self.outputs, strict=True):
            self.into.setdefault(value, tensor_)
        if given:
            for value in last.operands:
                self.settle(value, given)
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

    def launch(self, op: tile.LaunchOp) -> None:
        name = op.callee.root_reference.data
        kernel = self.kernels.get(name)
        if kernel is None:
            raise PassError(f"{describe(op)} launches @{name}, which does not exist")
        inits = to_ints(op.inits)
        lacking = misfit_of(op, kernel)
        if lacking is not None:
            raise PassError(lacking)
        operands = [self.env[op.arguments[i]] for i in op.input_numbers()]
        outputs: dict[int, SSAValue] = {}
        updates: list[int] = []
        for o, init in enumerate(inits):
            if init >= 0:
                updates.append(o)
                old, taken = op.arguments[init], {whole_tensor(v) for v in outputs.values()}
                over_ = self.takes_over(old, op)
                outputs[o] = self.env[old] if over_ else self.copied(old, op, op.outputs[o], taken)
        reads: dict[SSAValue, list[int]] = {}
        for i, v in enumerate(operands):
            if isinstance(v.type, GmType):
                reads.setdefault(whole_tensor(v), []).append(i)

        def over(o: int, home: SSAValue) -> bool:
            return home in reads and all((i, o) in self.in_place(kernel) for i in reads[home])

        def choices(o: int) -> int:
            return sum(over(o, home) for home in self.homes.get(op.outputs[o], ()))

        # those with few tensors to choose from first
        for o in sorted(set(range(len(inits))) - outputs.keys(), key=choices):
            taken = {whole_tensor(v) for v in outputs.values()}
            outputs[o] = self.result(op.outputs[o], op, lambda home, o=o: over(o, home), taken)
        n = kernel.workspaces.value.data
        args = kernel.body.block.args
        spaces = []
        for a in args[len(args) - n :] if n else ():
            assert isinstance(a.type, GmType)
            spaces.append(self.allocate(a.type, op))
        again = {} if op.again is None else {"again": op.again}
        self.add(
            structure.LaunchOp.create(
                operands=[*operands, *(outputs[o] for o in range(len(inits))), *spaces],
                properties={
                    "callee": op.callee,
                    "outputs": integer_attr(len(outputs)),
                    "workspaces": integer_attr(n),
                    **({"updates": ints(updates)} if updates else {}),
                    **again,
                },
                location=op.location,
            )
        )
        for o, result in enumerate(op.outputs):
            self.bind(result, outputs[o])

    def in_place(self, kernel: tile.KernelOp) -> frozenset[tuple[int, int]]:
        """Pairs of an input and an output of a kernel that may be one tensor."""
        if kernel not in self.pairs:
            self.pairs[kernel] = in_place(kernel)
        return self.pairs[kernel]

    def reshape(self, op: ReshapeOp | graph.ViewOp) -> None:
        new = ViewOp.create(
            operands=[self.device(op.x, op)], result_types=[gm_type(op.result)], location=op.location
        )
        self.add(new)
        self.bind(op.result, new.result)

    def constant(self, op: ConstantOp) -> None:
        new = structure.GmConstantOp.create(
            result_types=[gm_type(op.result)], properties={"value": op.value}, location=op.location
        )
        self.add(new)
        self.bind(op.result, new.result)

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
        if not all(map(_is_counted, op.result.uses)):
            self.env[op.result] = self.number(op.x, op)

    def offload(self, op: graph.OffloadOp) -> None:
        source = self.device(op.x, op)
        made = structure.ToHostOp.create(operands=[source], result_types=[op.result.type], location=op.location)
        self.add(made)
        self.env[op.result] = made.result

    def restore(self, op: graph.RestoreOp) -> None:
        target = self.result(op.result, op)
        self.add(structure.ToDeviceOp.create(operands=[self.env[op.x], target], location=op.location))
        self.bind(op.result, target)

    def call(self, op: CallOp) -> None:
        handed = self.handed.get(op.callee.root_reference.data, {})
        inputs = [self.device(v, op) for i, v in enumerate(op.arguments) if i not in handed]
        updates: dict[int, SSAValue] = {}
        for i, o in handed.items():
            old, taken = op.arguments[i], {whole_tensor(v) for v in updates.values()}
            over = self.takes_over(old, op) and whole_tensor(self.env[old]) not in taken
            updates[o] = self.env[old] if over else self.copied(old, op, op.results[o], taken)
        rest = [r for o, r in enumerate(op.results) if o not in updates]
        made = dict(zip(rest, self.results(rest, op, updates.values()), strict=True))
        outputs = [updates[o] if o in updates else made[r] for o, r in enumerate(op.results)]
        self.add(
            structure.CallOp.create(
                operands=[*inputs, *outputs],
                properties={
                    "callee": op.callee,
                    "outputs": integer_attr(len(outputs)),
                    **({"updates": ints(sorted(updates))} if updates else {}),
                },
                location=op.location,
            )
        )
        self.bind_all(op.results, outputs)

    def host(self, op: HostOp) -> None:
        call = structure.HostCallOp.create(
            operands=[self.fetched(v, op) for v in op.inputs],
            result_types=list(op.result_types),
            properties={"op": op.op, "module": op.module, "work": integer_attr(op.host_bytes())},
            location=op.location,
        )
        self.add(call)
        taken: set[SSAValue] = set()
        for old, new in zip(op.outputs, call.outputs, strict=True):
            self.hosted[old] = new
            if all(isinstance(use.operation, HostOp | ToHostOp) for use in old.uses):
                self.env[old] = new
                continue
            target = self.result(old, op, lambda home: True, taken)  # its inputs were read before
            taken.add(whole_tensor(target))
            self.bind(old, target)
            self.add(structure.ToDeviceOp.create(operands=[new, target], location=op.location))

    def loop(self, op: WhileOp) -> None:
        host = set(to_ints(op.host))
        order = [*(i for i in range(len(op.inits)) if i not in host), *sorted(host)]
        state: list[SSAValue] = []
        for i in order:
            if i in host:
                state.append(self.number(op.inits[i], op))
            elif self.takes_over(op.inits[i], op):
                state.append(self.env[op.inits[i]])
            else:
                taken = {whole_tensor(v) for v in state}
                state.append(self.copied(op.inits[i], op, op.outputs[i], taken))
        regions = []
        for region in (op.condition, op.body):
            old, inner = region.block, Block(arg_types=[v.type for v in state])
            with self.inside(inner):
                for i, b in zip(order, inner.args, strict=True):
                    self.bind(old.args[i], b)
                    if region is op.body and i not in host:
                        self.owned.add(b)
                        value = op.yielded(1).values[i]
                        if block_of(value) is old:
                            self.settle(value, [b])
                if region is op.condition and op.trip_count is not None:
                    self.add(structure.NpuYieldOp.create())
                else:
                    self.ops(old, order if region is op.body else (), host if region is op.body else {0})
            regions.append(Region(inner))
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
        self.bind_all([op.outputs[i] for i in order], after)

    def case(self, op: CaseOp) -> None:
        host = set(to_ints(op.host))
        order = [*(i for i in range(len(op.outputs)) if i not in host), *sorted(host)]
        index = self.number(op.index, op)
        outputs = self.results([op.outputs[i] for i in order if i not in host], op)
        regions = []
        for region in op.branches:
            inner = Block()
            with self.inside(inner):
                self.ops(region.block, order, host)
            regions.append(Region(inner))
        made = structure.BranchOp.create(
            operands=[index, *outputs],
            result_types=[op.outputs[i].type for i in sorted(host)],
            regions=regions,
            location=op.location,
        )
        self.add(made)
        after = [*outputs, *made.results]
        self.bind_all([op.outputs[i] for i in order], after)

    def finish(self, op: Operation, order: Sequence[int], host: Container[int]) -> None:
        """Ends a block with the values of the operands `order` (without: of all), numbers where they are of the
        host."""
        cls = ReturnOp if isinstance(op, ReturnOp) else structure.NpuYieldOp
        if self.outputs and isinstance(op, ReturnOp):
            for value, target in zip(op.operands, self.outputs, strict=True):
                found = self.env[value]
                if whole_tensor(found) is not target:
                    copy = structure.CopyOp if isinstance(found.type, GmType) else structure.ToDeviceOp
                    self.add(copy.create(operands=[found, target], location=op.location))
            self.add(ReturnOp())
            return
        values = [
            self.number(op.operands[i], op) if i in host else self.device(op.operands[i], op)
            for i in order or range(len(op.operands))
        ]
        self.add(cls.create(operands=values, location=op.location))


def updated_arguments(func: FuncOp) -> dict[int, int]:
    """Of the arguments of a function those that a result is an update of and nothing needs as they were: the number of
    that result for each. The result can then be made in the tensor of the argument."""
    block = func.body.block
    last = block.last_op
    assert last is not None
    order = {op: i for i, op in enumerate(block.ops)}
    found: dict[int, int] = {}
    for o, result in enumerate(last.operands):
        value, updated = result, False
        while isinstance(op := value.owner, Operation) and (source := made_over(value)) is not None:
            if not _ends_with(source, op, order):
                break
            value, updated = source, updated or not isinstance(op, ReshapeOp | graph.ViewOp)
        if not isinstance(value, BlockArgument) or not updated or gm_type(value) != gm_type(result):
            continue
        if value.index not in found and list(last.operands).count(result) == 1:
            found[value.index] = o
    return found


def _ends_with(value: SSAValue, user: Operation, order: Mapping[Operation, int]) -> bool:
    """Whether an op of a block is the last that needs a value, which it takes once and nothing looks at otherwise."""
    users = [use.operation for use in value.uses]
    return users.count(user) == 1 and all(
        op is user
        or (
            op.parent is user.parent
            and order[op] < order[user]
            and not isinstance(op, ReshapeOp | graph.ViewOp)
        )
        for op in users
    )


def _is_counted(use: Use) -> bool:
    """Whether a use is in the condition of a loop whose trip count is known, which nobody computes."""
    region = use.operation.parent_region()
    while region is not None and (op := region.parent) is not None:
        if isinstance(op, WhileOp) and op.trip_count is not None and region is op.condition:
            return True
        region = op.parent_region()
    return False


def misfit_of(op: tile.LaunchOp, kernel: tile.KernelOp) -> str | None:
    """Why a launch does not give what its kernel takes, in a sentence; None where it does."""
    inputs = [op.arguments[i] for i in op.input_numbers()]
    outputs, workspaces = integer(kernel.outputs), integer(kernel.workspaces)
    takes = [a.type for a in kernel.body.block.args[len(to_ints(kernel.grid)) :]]
    takes = takes[: len(takes) - workspaces]
    gives = [gm_type(v) for v in (*inputs, *op.outputs)]
    if len(op.outputs) != outputs or len(gives) != len(takes):
        return (
            f"{describe(op)} gives {len(inputs)} tensors and takes {len(op.outputs)}; {describe(kernel)} "
            f"@{text(kernel.sym_name)} takes {len(takes) - outputs} and gives {outputs}"
        )
    for i, (mine, its) in enumerate(zip(gives, takes, strict=True)):
        if mine != its:
            return f"{describe(op)} has {mine} where argument {i} of {describe(kernel)} is {its}"
    return None


HANDLERS: dict[type[Operation], Callable[[ProgramLowering, Any], None]] = {
    tile.LaunchOp: ProgramLowering.launch,
    ReshapeOp: ProgramLowering.reshape,
    graph.ViewOp: ProgramLowering.reshape,
    ConstantOp: ProgramLowering.constant,
    HostOp: ProgramLowering.host,
    WhileOp: ProgramLowering.loop,
    CaseOp: ProgramLowering.case,
    CallOp: ProgramLowering.call,
    FusionOp: ProgramLowering.scalars,
    ToHostOp: ProgramLowering.to_host,
    graph.OffloadOp: ProgramLowering.offload,
    graph.RestoreOp: ProgramLowering.restore,
}
