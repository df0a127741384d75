"""Kernels of the vendor's compiler against our own flags: `python benchmarks/hivm.py FILE.hivm.mlir ...`.

Each kernel is imported and checked. Then its flags and barriers are taken out, and npu-synchronize puts its own: the
same instructions at the same addresses. A row has what one core executes of both (loops unrolled), the bytes of ub that
the kernel uses, and the modelled times.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tilewright.api.launched import Launched
from tilewright.dialects.base import integer
from tilewright.dialects.module import record_states, recorded_states
from tilewright.dialects.npu import (
    AllocOp,
    BufferType,
    NpuOp,
    PipeBarrierOp,
    SetCrossOp,
    SetFlagOp,
    WaitCrossOp,
    WaitFlagOp,
)
from tilewright.dialects.npu.synchronization import BarrierOp, OrderOp
from tilewright.machine import Machine
from tilewright.passes.errors import PassError
from tilewright.passes.npu.check import check
from tilewright.passes.npu.synchronize import NpuSynchronizePass

COLUMNS = ("kernel", "ub", "work", "set/wait", "barriers", "us", "our set/wait", "our barriers", "our us", "verdict")


def counts(module: ModuleOp) -> Counter[str]:
    """How many instructions, flags and barriers the first kernel has."""
    kernel = next(op for op in module.ops if op.name == "npu.kernel")
    found: Counter[str] = Counter()
    for op in kernel.walk():
        if isinstance(op, SetFlagOp | SetCrossOp):
            found["set"] += 1
        elif isinstance(op, WaitFlagOp | WaitCrossOp):
            found["wait"] += 1
        elif isinstance(op, PipeBarrierOp | BarrierOp):
            found["barriers"] += 1
        elif isinstance(op, NpuOp):
            found["work"] += 1
    return found


def ub_bytes(module: ModuleOp) -> int:
    """Bytes of ub up to the end of the last buffer."""
    ends = [0]
    for op in module.walk():
        if isinstance(op, AllocOp) and op.address is not None:
            kind = op.result.type
            if isinstance(kind, BufferType) and kind.space == "ub":
                ends.append(integer(op.address) + kind.slot_bytes)
    return max(ends)


def with_our_flags(module: ModuleOp, machine: Machine) -> ModuleOp:
    """The module with the flags and barriers of npu-synchronize in place of its own. Raises PassError."""
    made = module.clone()
    for op in list(made.walk()):
        if isinstance(op, OrderOp):
            op.detach()
            op.erase()
    later = ("synchronized", "planned", "ordered", "joined", "checked")
    record_states(made, [s for s in recorded_states(made) if s not in later])
    NpuSynchronizePass(target=machine.name).apply(Context(), made)
    return made


def row(source: Path, launch: str | None, target: str | None) -> Sequence[str]:
    """The row of a file."""
    name = source.name.removesuffix(".hivm.mlir")
    given = Launched(source, launch) if launch is not None else source
    try:
        program = tw.compile(given, target=target, options=tw.Options(check=False))
    except tw.CompileError as error:
        return (name, *[""] * (len(COLUMNS) - 2), f"refused: {error}")
    module, machine = program.module(), program.machine
    found, theirs = check(module, machine), counts(module)
    cells = [name, f"{ub_bytes(module):,}", str(theirs["work"]), f"{theirs['set']}/{theirs['wait']}"]
    cells += [str(theirs["barriers"]), f"{program.report().microseconds:.1f}"]
    verdict = "safe" if not found else str(found[0])
    try:
        own = with_our_flags(module, machine)
        ours = counts(own)
        again = tw.compile(str(own))
        cells += [f"{ours['set']}/{ours['wait']}", str(ours["barriers"]), f"{again.report().microseconds:.1f}"]
    except (PassError, tw.CompileError) as error:
        cells += ["", "", ""]
        verdict += f"; ours: {error}"
    return (*cells, verdict)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--launch", help="of all files, in place of what they say")
    parser.add_argument("--target", help="the chip: what the text says, or ascend-910b1")
    args = parser.parse_args(argv)
    rows = [COLUMNS, *(row(f, args.launch, args.target) for f in args.files)]
    widths = [max(len(r[i]) for r in rows) for i in range(len(COLUMNS) - 1)]
    for r in rows:
        print("  ".join([*(c.ljust(w) for c, w in zip(r, widths, strict=False)), r[-1][:160]]).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
