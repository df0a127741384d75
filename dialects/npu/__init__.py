"""The npu level: addressed buffers, one op per instruction on a pipe, flags, and the host program."""

from xdsl.ir import Dialect

from . import cumulate, ops, scatter, sorting, structure
from .interface import Cost, NpuOp, buffer, gm
from .types import SPACES, BufferType, GmType, Pipe

Npu = Dialect(
    "npu",
    [
        *ops.ELEMENTWISE.values(),
        ops.AllocOp,
        ops.BarrierOp,
        ops.CopyL0cOp,
        ops.FixpipeOp,
        ops.LoadIndirectOp,
        ops.LoadL0Op,
        ops.LoadNd2NzOp,
        ops.LoadNdOp,
        ops.LoadScalarOp,
        ops.MmadOp,
        ops.SetCrossOp,
        ops.SetFlagOp,
        ops.SlotOp,
        ops.StoreNdOp,
        ops.VArgReduceOp,
        cumulate.VCumulateOp,
        ops.VBroadcastOp,
        ops.VExtractOp,
        ops.VFillOp,
        ops.VIotaOp,
        ops.VMaskOp,
        ops.VReduceOp,
        scatter.VScatterOp,
        sorting.VSortOp,
        ops.VTransposeOp,
        ops.ViewOp,
        ops.WaitCrossOp,
        ops.WaitFlagOp,
        structure.BranchOp,
        structure.CallOp,
        structure.CopyOp,
        structure.GmAllocOp,
        structure.GmConstantOp,
        structure.HostCallOp,
        structure.KernelOp,
        structure.LaunchOp,
        structure.LoopOp,
        structure.NpuYieldOp,
        structure.RecordEventOp,
        structure.ScalarsOp,
        structure.SectionOp,
        structure.ToDeviceOp,
        structure.ToHostOp,
        structure.WaitEventOp,
    ],
    [BufferType, GmType],
)

__all__ = [
    "SPACES",
    "BufferType",
    "Cost",
    "GmType",
    "Npu",
    "NpuOp",
    "Pipe",
    "buffer",
    "gm",
    "ops",
    "structure",
]
