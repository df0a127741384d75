"""npu kernels as HIVM text, one module for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from ...dialects import npu
from ...dialects.base import integer, text, to_ints
from ...dialects.dtypes import dtype_name, size
from ...dialects.hivm import attributes as attrs
from ...dialects.hivm.attributes import HACC_ATTRIBUTES, HIVM_ATTRIBUTES
from ...dialects.hivm.structure import GetBlockIdxOp, GetSubBlockIdxOp
from ...dialects.hivm.synchronization import PipeBarrierOp, SetFftsBaseAddrOp, SetMaskNormOp
from ...dialects.module import NO_HIVM
from ...dialects.npu import AllocOp, VectorOp, structure
from ...dialects.open_sizes import any_open
from ...machine import Machine
from .building import made
from .cube import CubeRules
from .emitter import INDEX, FunctionEmitter, element_in_memory, memref
from .errors import NotInHivm
from .flags import FlagRules
from .memory import FunctionMemory
from .moves import MoveRules
from .vector import VectorRules, is_read_as_number

CORE_TYPES = {"vector": "AIV", "cube": "AIC", "mix": "MIX"}
_NAMED = {a.name: a for a in (*HIVM_ATTRIBUTES, *HACC_ATTRIBUTES)}


@dataclass(frozen=True)
class DeviceArgument:
    """A device tensor that a kernel takes: `role` is input, output or workspace, or updated: an output that it
    reads."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str


@dataclass(frozen=True)
class HivmKernel:
    """A kernel as HIVM text. kind: AIV, AIC or MIX; blocks: how many run side by side; notes: what the
    vendor's library does otherwise than our kernel, a sentence each."""

    name: str
    kind: str
    target: str
    blocks: int
    arguments: tuple[DeviceArgument, ...]
    notes: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return self.text


def kernels_of(module: ModuleOp) -> Iterator[structure.KernelOp]:
    """The kernels of a program, in order."""
    return (op for op in module.ops if isinstance(op, structure.KernelOp))


def export_kernel(
    kernel: structure.KernelOp, machine: Machine, target: str, slotted: bool = False
) -> HivmKernel:
    """The HIVM module of a kernel; `target` is what the vendor calls the chip. slotted: see `FunctionMemory`. Raises
    NotInHivm for what HIVM cannot say."""
    if machine.fused:
        raise NotInHivm(
            kernel, f"is for {machine.name}, whose cores are fused: HIVM has cube and vector cores apart"
        )
    kept = kernel.attributes.get(NO_HIVM)
    if isinstance(kept, StringAttr):
        raise NotInHivm(kernel, f"has no room for what HIVM's instructions work in: {kept.data}")
    args = kernel.body.block.args[len(to_ints(kernel.grid)) :]
    if any_open([n for a in args for n in npu.gm(a).shape]) or any_open(to_ints(kernel.grid)):
        raise NotInHivm(kernel, "has open sizes: export a version for given ones")
    name, kind = text(kernel.sym_name), CORE_TYPES[text(kernel.kind)]
    mixed = kind == "MIX"
    blocks = size(to_ints(kernel.grid))
    functions = []
    notes: list[str] = []
    for section in kernel.body.block.ops:
        if isinstance(section, structure.SectionOp):
            function = _Function(kernel, section, machine, mixed, blocks, slotted)
            functions.append(function.build())
            notes += function.cube.notes()
    attributes = {
        "hacc.target": _NAMED["hacc.target"].new([StringAttr(target)]),
        # the vendor's driver deletes from hacc.hivmc_version to the next comma: that must not be the last attribute
        "hivm.module_core_type": _NAMED["hivm.module_core_type"](kind),
    }
    whole = ModuleOp(functions, attributes)
    whole.verify()
    return HivmKernel(
        name,
        kind,
        target,
        blocks,
        tuple(_arguments(kernel)),
        tuple(notes),
        str(whole) + "\n",
    )


def _arguments(kernel: structure.KernelOp) -> Iterator[DeviceArgument]:
    args = kernel.body.block.args[len(to_ints(kernel.grid)) :]
    first_workspace = len(args) - integer(kernel.workspaces)
    first_output = first_workspace - integer(kernel.outputs)
    updated = {
        npu.whole_tensor(v)
        for op in kernel.walk()
        if isinstance(op, npu.StoreOp) and op.accumulates()
        for v in op.destinations()
    }
    for i, arg in enumerate(args):
        role = "input" if i < first_output else "output" if i < first_workspace else "workspace"
        number = i - {"input": 0, "output": first_output, "workspace": first_workspace}[role]
        kind, name = npu.gm(arg), f"{role}{number}"
        if role == "output" and arg in updated:
            role = "updated"
        yield DeviceArgument(name, kind.shape, dtype_name(kind.element), role)


class _Function:
    """The function of a section."""

    def __init__(
        self,
        kernel: structure.KernelOp,
        section: structure.SectionOp,
        machine: Machine,
        mixed: bool,
        blocks: int,
        slotted: bool,
    ) -> None:
        self.kernel, self.section, self.mixed, self.blocks = kernel, section, mixed, blocks
        self.core = "AIC" if text(section.core) == "cube" else "AIV"
        args = kernel.body.block.args[len(to_ints(kernel.grid)) :]
        types: list[Attribute] = [i64] if mixed else []
        for arg in args:
            kind = npu.gm(arg)
            types.append(memref(kind.shape or (1,), element_in_memory(dtype_name(kind.element)), "gm"))
        self.emit = FunctionEmitter(types)
        self.ffts = self.emit.top.args[0] if mixed else None
        tensors: dict[SSAValue, SSAValue] = dict(zip(args, self.emit.top.args[mixed:], strict=True))
        for given, of in zip(self.emit.top.args[mixed:], _arguments(kernel), strict=True):
            given.name_hint = of.name
        self.memory = FunctionMemory(self.emit, tensors, slotted)
        allocs = [op for op in section.body.block.ops if isinstance(op, AllocOp)]
        scratch = next((op for op in allocs if op.scratch is not None), None)
        self.vector = VectorRules(self.emit, self.memory, scratch)
        self.moves = MoveRules(self.emit, self.memory)
        self.flags = FlagRules(self.emit, self.memory, self.core, self.ffts)
        self.cube = CubeRules(self.emit, self.memory, self.moves, machine, section)
        self.unordered = False
        """Whether the vector unit may have begun something since its last barrier: else another one orders nothing."""

    def build(self) -> func.FuncOp:
        emit = self.emit
        if self.ffts is not None:
            emit.add(made(SetFftsBaseAddrOp, ffts_base_addr=self.ffts))
        if self.core == "AIV":
            emit.add(made(SetMaskNormOp))
        self._coordinates()
        self._ops(self.kernel.body.block)
        self._ops(self.section.body.block)
        emit.add(made(PipeBarrierOp, pipe=attrs.Pipe("PIPE_ALL")))
        emit.add(func.ReturnOp())
        name = text(self.kernel.sym_name)
        if self.mixed:
            name += f"_mix_{self.core.lower()}"
        found = func.FuncOp(name, ([a.type for a in emit.top.args], []), Region(emit.top))
        found.attributes |= {
            "hacc.block_dim": IntegerAttr(self.blocks, i64),
            "hacc.entry": UnitAttr(),
            "hacc.function_kind": _NAMED["hacc.function_kind"]("DEVICE"),
            "hivm.func_core_type": _NAMED["hivm.func_core_type"](self.core),
        }
        if self.mixed:
            found.attributes |= {"hivm.part_of_mix": UnitAttr(), "mix_mode": StringAttr("mix")}
            ffts = DictionaryAttr({"hacc.arg_type": _NAMED["hacc.arg_type"]("ffts_base_address")})
            rest = [DictionaryAttr({}) for _ in emit.top.args[1:]]
            found.properties["arg_attrs"] = ArrayAttr([ffts, *rest])
        return found

    def _coordinates(self) -> None:
        """Block index to grid coordinates, the last one fastest, and the number of the vector core."""
        emit, grid = self.emit, to_ints(self.kernel.grid)
        args = self.kernel.body.block.args
        number = 0
        if self.blocks > 1:
            raw = emit.value(made(GetBlockIdxOp, [i64]))
            number = emit.value(arith.IndexCastOp(raw, INDEX))
        left = self.blocks
        for coordinate, n in zip(args, grid, strict=False):
            left //= n
            outer = emit.over(number, left)
            emit.indices[coordinate] = emit.modulo(outer, n) if left * n != self.blocks else outer
            if n == 1:
                emit.indices[coordinate] = 0
            emit.ranges[coordinate] = (0, n - 1)
        unit, units = self.section.body.block.args[0], integer(self.section.units)
        emit.indices[unit] = 0
        emit.ranges[unit] = (0, units - 1)
        if units > 1:
            raw = emit.value(made(GetSubBlockIdxOp, [i64]))
            emit.indices[unit] = emit.value(arith.IndexCastOp(raw, INDEX))

    def _ops(self, block: Block) -> None:
        for op in block.ops:
            self._op(op)

    def _op(self, op: Operation) -> None:
        emit = self.emit
        if self.cube.takes(op):
            if isinstance(op, npu.MmadOp):
                waiting, self.cube.deferred = self.cube.deferred, []
                for flag in waiting:
                    self.flags(flag)
        elif self.cube.defers(op):
            return
        elif isinstance(op, arith.ConstantOp):
            if isinstance(op.value, IntegerAttr):
                number = op.value.value.data
                emit.indices[op.result], emit.ranges[op.result] = number, (number, number)
        elif isinstance(op, scf.ForOp):
            self._loop(op)
        elif isinstance(
            op, npu.SyncOp | npu.PipeBarrierOp | npu.BarrierOp | npu.SetCrossOp | npu.WaitCrossOp
        ):
            vector = isinstance(op, npu.PipeBarrierOp) and text(op.pipe) == "V"
            if not vector or self.unordered:
                self.flags(op)
            self.unordered = self.unordered and not vector
        elif isinstance(op, npu.TransferOp | npu.FillL1Op | npu.LoadScalarOp | npu.LoadIndirectOp):
            self.moves(op)
        elif isinstance(op, VectorOp):
            if not (isinstance(op, npu.VFillOp) and is_read_as_number(op)):
                self.vector(op)
                self.unordered = True
        elif not isinstance(op, npu.AllocOp | npu.SlotOp | npu.ViewOp | scf.YieldOp | structure.SectionOp):
            raise NotInHivm(op, "has no counterpart in HIVM")

    def _loop(self, op: scf.ForOp) -> None:
        bounds = [self.emit.indices.get(v) for v in (op.lb, op.ub, op.step)]
        first, last, step = (n if isinstance(n, int) else None for n in bounds)
        if first is None or last is None or step is None:
            raise NotInHivm(op, "has open bounds: export a version for given sizes")
        self.unordered = True  # what the iteration before has begun
        with self.emit.loop(op.body.block.args[0], first, last, step):
            self._ops(op.body.block)
        self.unordered = True


__all__ = ["DeviceArgument", "HivmKernel", "export_kernel", "kernels_of"]
