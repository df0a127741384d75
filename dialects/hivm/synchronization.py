"""Ops that order pipes, cores and blocks, and set modes of a core."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, MemRefType, i1, i64
from xdsl.ir import TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)

from .attributes import (
    AtomicKind,
    CacheKind,
    CacheMode,
    CoreType,
    Event,
    Pipe,
    SyncBlockMode,
    SyncInstrMode,
)
from .forms import GROUPS, PLAIN, EventNumber, FlagNumber, key
from .rules import error

_FLAG = (
    "`[` $set_pipe `,` $wait_pipe `,` custom<EventNumber>($static_event_id, $dynamic_event_id) `]` attr-dict"
)


class FlagOp(IRDLOperation):
    """One half of a flag between two pipes of a core: `[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]`."""

    set_pipe = prop_def(Pipe)
    wait_pipe = prop_def(Pipe)
    static_event_id = opt_prop_def(Event)
    dynamic_event_id = opt_operand_def(i64)

    irdl_options = PLAIN
    custom_directives = (EventNumber,)
    assembly_format = _FLAG

    def verify_(self) -> None:
        if (self.static_event_id is None) == (self.dynamic_event_id is None):
            raise error(self, "needs one event, written or computed")


@irdl_op_definition
class SetFlagOp(FlagOp):
    """Signals, in order of `set_pipe`, that its instructions so far are done."""

    name = "hivm.hir.set_flag"


@irdl_op_definition
class WaitFlagOp(FlagOp):
    """Holds `wait_pipe` until the flag was set."""

    name = "hivm.hir.wait_flag"


@irdl_op_definition
class PipeBarrierOp(IRDLOperation):
    """Holds a pipe until its instructions so far are done; PIPE_ALL: all pipes."""

    name = "hivm.hir.pipe_barrier"
    pipe = prop_def(Pipe)
    irdl_options = PLAIN
    assembly_format = "`[` $pipe `]` attr-dict"


_BLOCK = (
    "attr-dict `[` $tcore_type `,` $tpipe `,` $pipe `]` `flag` `=` "
    "custom<FlagNumber>($static_flag_id, $dynamic_flag_id)"
)


@irdl_op_definition
class SyncBlockSetOp(IRDLOperation):
    """Signals the other kind of core of the block, when `tpipe` of this one is done."""

    name = "hivm.hir.sync_block_set"
    tcore_type = prop_def(CoreType)
    tpipe = prop_def(Pipe)
    pipe = prop_def(Pipe)
    static_flag_id = opt_prop_def(IntegerAttr)
    dynamic_flag_id = opt_operand_def(i64)
    ffts_base_addr = opt_operand_def(i64)
    tsync_instr_mode = opt_prop_def(SyncInstrMode)

    irdl_options = GROUPS
    custom_directives = (FlagNumber,)
    assembly_format = f"{_BLOCK} {key('ffts_base_addr')} (`sync_instr_mode` `=` $tsync_instr_mode^)?"

    def verify_(self) -> None:
        if (self.static_flag_id is None) == (self.dynamic_flag_id is None):
            raise error(self, "needs one flag, written or computed")


@irdl_op_definition
class SyncBlockWaitOp(IRDLOperation):
    """Holds `pipe` of this core until the other kind of core has signalled."""

    name = "hivm.hir.sync_block_wait"
    tcore_type = prop_def(CoreType)
    tpipe = prop_def(Pipe)
    pipe = prop_def(Pipe)
    static_flag_id = opt_prop_def(IntegerAttr)
    dynamic_flag_id = opt_operand_def(i64)
    tsync_instr_mode = opt_prop_def(SyncInstrMode)

    irdl_options = PLAIN
    custom_directives = (FlagNumber,)
    assembly_format = f"{_BLOCK} (`sync_instr_mode` `=` $tsync_instr_mode^)?"

    def verify_(self) -> None:
        if (self.static_flag_id is None) == (self.dynamic_flag_id is None):
            raise error(self, "needs one flag, written or computed")


@irdl_op_definition
class SyncBlockOp(IRDLOperation):
    """Brings all cores of a kind, or all, to one point."""

    name = "hivm.hir.sync_block"
    sync_block_mode = prop_def(SyncBlockMode)
    flag_id = opt_prop_def(IntegerAttr)
    ffts_base_addr = opt_operand_def(i64)
    tcube_pipe = opt_prop_def(Pipe)
    cube_pipe = opt_prop_def(Pipe)
    tvector_pipe = opt_prop_def(Pipe)
    vector_pipe = opt_prop_def(Pipe)

    irdl_options = PLAIN
    assembly_format = (
        "attr-dict `[` $sync_block_mode (`,` $flag_id^)? `]` "
        f"{key('ffts_base_addr')} {key('tcube_pipe')} {key('cube_pipe')} {key('tvector_pipe')} {key('vector_pipe')}"
    )

    NEEDS: ClassVar[dict[str, tuple[str, ...]]] = {
        "ALL_CUBE": ("tcube_pipe",),
        "ALL_VECTOR": ("tvector_pipe",),
        "ALL_SUB_VECTOR": ("tvector_pipe",),
        "BARRIER_CUBE": (),
        "BARRIER_VECTOR": (),
        "ALL": ("tcube_pipe", "tvector_pipe"),
    }

    def verify_(self) -> None:
        mode = self.sync_block_mode.data
        for name in ("tcube_pipe", "tvector_pipe"):
            if (name in self.NEEDS[mode]) != (getattr(self, name) is not None):
                raise error(
                    self, f"in mode {mode} {'needs' if name in self.NEEDS[mode] else 'has no'} {name}"
                )


class LockOp(IRDLOperation):
    """An op on the lock with which blocks take turns."""

    lock_var = operand_def(MemRefType)
    irdl_options = PLAIN
    assembly_format = "attr-dict `lock_var` `(` $lock_var `:` type($lock_var) `)`"


@irdl_op_definition
class SyncBlockLockOp(LockOp):
    """Waits for this block's turn."""

    name = "hivm.hir.sync_block_lock"


@irdl_op_definition
class SyncBlockUnlockOp(LockOp):
    """Gives the turn to the next block."""

    name = "hivm.hir.sync_block_unlock"


@irdl_op_definition
class FreeLockVarOp(LockOp):
    """Takes and gives a turn, where the code with the lock was left out."""

    name = "hivm.hir.free_lock_var"


@irdl_op_definition
class CreateSyncBlockLockOp(IRDLOperation):
    """Memory of a lock, in a kernel's argument or of its own."""

    name = "hivm.hir.create_sync_block_lock"
    lock_arg = opt_operand_def(MemRefType)
    memref = result_def(MemRefType)
    irdl_options = PLAIN
    assembly_format = "(`from` $lock_arg^)? attr-dict `:` (`from` type($lock_arg)^ `to`)? type($memref)"


@irdl_op_definition
class SetFftsBaseAddrOp(IRDLOperation):
    """Says where the flags between cores are."""

    name = "hivm.hir.set_ffts_base_addr"
    ffts_base_addr = operand_def(i64)
    irdl_options = PLAIN
    assembly_format = "attr-dict $ffts_base_addr"


@irdl_op_definition
class SetMaskNormOp(IRDLOperation):
    """Sets the mask of vector instructions to normal mode."""

    name = "hivm.hir.set_mask_norm"
    irdl_options = PLAIN
    assembly_format = "attr-dict"


@irdl_op_definition
class SetCtrlOp(IRDLOperation):
    """Sets a bit of the control register: `true at ctrl[60]`."""

    name = "hivm.hir.set_ctrl"
    enable = prop_def(IntegerAttr.constr(type=i1))
    idx = prop_def(IntegerAttr.constr(type=i64))
    irdl_options = PLAIN
    assembly_format = "$enable `at` `ctrl` `[` $idx `]` attr-dict"


@irdl_op_definition
class SetAtomicOp(IRDLOperation):
    """Lets what is written to device memory be combined with what is there."""

    name = "hivm.hir.set_atomic"
    kind = prop_def(AtomicKind)
    type = opt_prop_def(TypeAttribute)
    irdl_options = PLAIN
    assembly_format = "`kind` `=` $kind (`[` `type` `=` $type^ `]`)? attr-dict"


@irdl_op_definition
class DcciOp(IRDLOperation):
    """Writes the data cache back and forgets it: one line or all of it."""

    name = "hivm.hir.dcci"
    mode = prop_def(CacheMode)
    dataCacheKind = prop_def(CacheKind)
    ptr = opt_operand_def(MemRefType)
    irdl_options = PLAIN
    assembly_format = "attr-dict `(` $mode `,` $dataCacheKind (`,` $ptr^ `:` type($ptr))? `)`"


SYNCHRONIZATION = [
    SetFlagOp,
    WaitFlagOp,
    PipeBarrierOp,
    SyncBlockSetOp,
    SyncBlockWaitOp,
    SyncBlockOp,
    SyncBlockLockOp,
    SyncBlockUnlockOp,
    FreeLockVarOp,
    CreateSyncBlockLockOp,
    SetFftsBaseAddrOp,
    SetMaskNormOp,
    SetCtrlOp,
    SetAtomicOp,
    DcciOp,
]
