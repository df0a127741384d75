"""Faults to inject: each mutation changes one thing about the order or the memory of a kernel (host_mutants.py: of the
host program).

A mutation takes a fresh clone and a random generator and changes it in place; it gives a sentence of what it
did, or None where the program has nothing of the kind.
"""

from __future__ import annotations

from extent_mutants import (
    change_indexed,
    clip_view,
    resize_box,
    resize_indexed,
    shift_box,
    shorten_loop,
    swap_operands,
)
from flag_mutants import (
    drop_barrier,
    drop_cross,
    drop_flag,
    drop_pipe_barrier,
    drop_set,
    drop_unit_flag,
    drop_wait,
    hoist,
    move_barrier,
    recount_flag,
    reorder,
    retarget,
    retarget_cross,
    retarget_pipe_barrier,
    swap_events,
)
from machine_mutants import MACHINE_MUTATIONS
from memory_mutants import (
    shift_address,
    shift_in_workspace,
    shift_view_of_workspace,
    shrink_buffer,
    shrink_room,
    swap_buffers,
    swap_slots,
    swap_tensors_of_kernel,
)
from mutation import Mutation

IMPOSSIBLE = "ask for what the machine lacks"
"""The kind of mutants that must be refused, whatever bytes they would give: no machine runs them."""

KERNEL_MUTATIONS: dict[str, tuple[Mutation, ...]] = {
    "drop a flag": (drop_set, drop_wait, drop_flag, drop_unit_flag),
    "swap flags": (swap_events,),
    "drop or move a barrier": (drop_barrier, move_barrier),
    "drop or retarget a pipe barrier": (drop_pipe_barrier, retarget_pipe_barrier),
    "drop or retarget a cross-core event": (drop_cross, retarget_cross),
    "retarget a flag": (retarget, recount_flag),
    "shift an address": (shift_address, swap_buffers),
    "shrink a buffer": (shrink_buffer, shrink_room),
    "swap slots": (swap_slots,),
    "reorder across pipes": (reorder, hoist),
    "change a valid extent": (shift_box, resize_box, clip_view, shorten_loop),
    "change sort, scatter, cumulate": (change_indexed, swap_operands, resize_indexed),
    IMPOSSIBLE: MACHINE_MUTATIONS,
    "shift a workspace": (shift_in_workspace, shift_view_of_workspace, swap_tensors_of_kernel),
}
