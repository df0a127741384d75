"""npu-plan-memory: one static plan of device memory for the program: arguments, constants, results, workspaces.

Before:  %y = npu.gm_alloc : !npu.gm<128x768xf32>
After:   %y = npu.gm_alloc {address = 1572864} : !npu.gm<128x768xf32>    and the arena's size on the function

Arguments and constants are live for the whole run. Every other tensor is live from its first to its last use, a donated
argument from the start. One that is made in front of a loop or branch and used inside is live for that whole op; what a
loop's body makes is live in each round from its first to its last use.
Launches that are independent of each other share no memory where there is room (independent.py).
A called function has its own frame behind those of its callers; its arguments and results are tensors of the caller.

Where sizes are open, so are the addresses: `address = "512*t + 4096"`. The plan is that for the example of the
compilation, and `stacked` (stacking.py) makes one for all sizes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, SSAValue

from ...dialects.base import describe, integer, integer_attr, text
from ...dialects.graph.donation import donated
from ...dialects.npu import gm, whole_tensor
from ...dialects.npu.host_program import HostProgramOp
from ...dialects.npu.lifetimes import order_of
from ...dialects.npu.places import LIMIT, addresses_of, limit_of, set_addresses, set_arena, set_frame
from ...dialects.npu.structure import GmAllocOp, GmConstantOp
from ...dialects.open_sizes import OpenSize, any_open, example, is_open, size_of
from ...dialects.size_order import largest
from ...machine import Machine
from ...packing import Budget, Buffer, PackingPlan, PackingProblem, solve
from ..base import TargetPass
from ..calls import callers_first, calls_of
from ..errors import PassError
from .independent import kept_apart
from .no_room import needs, no_room
from .stacking import stacked


@dataclass(frozen=True)
class NpuPlanMemoryPass(TargetPass):
    """Assigns device addresses. The function's `npu.addresses` are its arguments', `npu.arena_bytes` the total."""

    name = "npu-plan-memory"

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        functions = callers_first(module)
        called = {name for f in functions for name in calls_of(f)}
        for func in functions:
            if text(func.sym_name) not in called:
                inner = reached(func, functions)
                plan(func, inner, machine)


def reached(func: FuncOp, callers_first: Sequence[FuncOp]) -> list[FuncOp]:
    """The functions that one calls, directly or through others, each behind all that call it."""
    names = set(calls_of(func))
    found = []
    for other in callers_first:
        if text(other.sym_name) in names:
            found.append(other)
            names.update(calls_of(other))
    return found


class OverLimit(PassError):
    """A plan takes more than it may: `bytes` in all."""

    def __init__(self, func: FuncOp, bytes_: int, limit: int) -> None:
        super().__init__(f"{describe(func)}: the plan takes {bytes_} bytes of device memory, over {LIMIT} {limit}")
        self.bytes = bytes_


def plan(func: FuncOp, inner: Sequence[FuncOp], machine: Machine) -> None:
    """Plans one function and the `inner` ones that it calls, callers first. Raises PassError if the device has less
    memory, at the example where sizes are open, OverLimit if less is allowed, and NoOpenPlan where there is no plan for
    all sizes.

    Since no function calls itself, each has one frame (`npu.frame`: its first byte and the one behind its last), which
    lies behind the frames of all its callers: functions that do not call each other share memory.
    """
    align = machine.gm_align
    block = func.body.block
    end = 0

    def fixed(bytes_: int) -> int:
        nonlocal end
        at = end
        end += whole_units(bytes_, align)
        return at

    given = [a for a, free in zip(block.args, donated(func), strict=True) if free]
    places: dict[SSAValue, int] = {a: fixed(gm(a).bytes) for a in block.args if a not in given}
    for op in (op for f in (func, *inner) for op in f.walk()):
        if isinstance(op, GmConstantOp):
            at = fixed(gm(op.result).bytes)
            check_addressable(end, machine)
            op.properties["address"] = integer_attr(at)
    limit = limit_of(func)
    end += share(block, end, machine, given, places, limit is None)
    first = dict.fromkeys((text(f.sym_name) for f in inner), end)
    for callee in inner:
        start = first[text(callee.sym_name)]
        behind = start + share(callee.body.block, start, machine, apart=limit is None)
        set_frame(callee, start, behind)
        first.update((name, later(first[name], behind)) for name in calls_of(callee))
        end = later(end, behind)
    if end > machine.spaces["gm"].bytes:
        raise PassError(no_room(func, inner, example(end), machine))
    if limit is not None and example(end) > limit:
        raise OverLimit(func, example(end), limit)
    set_addresses(func, [places[a] for a in block.args])
    set_arena(func, end)


ADDRESSABLE = 1 << 60
"""Bytes that addresses, and sums of them, are surely numbers of 64 bits for. No device has as many."""


def check_addressable(end: int, machine: Machine) -> None:
    """Raises PassError where a byte is too far for an attribute to hold its address."""
    if example(end) > ADDRESSABLE:
        raise PassError(needs(example(end), machine))


def whole_units(bytes_: int, align: int) -> int:
    """Bytes rounded up to a multiple of `align`."""
    return -(-bytes_ // align) * align


def later(a: int, b: int) -> int:
    """The larger of two ends, at all sizes."""
    return max(a, b) if not (is_open(a) or is_open(b)) else OpenSize.of(largest(size_of(a), size_of(b)))


def share(
    block: Block,
    start: int,
    machine: Machine,
    given: Sequence[SSAValue] = (),
    places: dict[SSAValue, int] | None = None,
    apart: bool = True,
) -> int:
    """Addresses from `start` for the tensors allocated in `block` and the regions below it, and for the arguments
    `given`, whose addresses are put into `places`; bytes used. apart: whether independent launches share no memory as
    far as there is room. Raises PassError if the device has less memory."""
    align = machine.gm_align
    order = order_of(block)
    tensors = [*given, *(op.result for op in block.walk() if isinstance(op, GmAllocOp))]
    spans = [(*order.span(tensor), tensor) for tensor in tensors]
    spans.sort(key=lambda s: s[0])
    sizes = [later(whole_units(gm(t).bytes, align), align) for _, _, t in spans]
    lives = [Life(first, last, example(size)) for (first, last, _), size in zip(spans, sizes, strict=True)]
    most = most_at_once(lives)
    if sum(life.size for life in lives) > ADDRESSABLE:
        raise PassError(needs(example(start + most), machine))
    if apart:
        lives = kept_apart(block, order.first, lives, most)
    plan = placed(lives)
    found, top = plan.offsets.tolist(), plan.height
    check_addressable(start + top, machine)
    if any_open(sizes):
        open_places, end = stacked(lives, found, list(map(size_of, sizes)))
        found, top = list(map(OpenSize.of, open_places)), OpenSize.of(end)
    for (_, _, tensor), at in zip(spans, found, strict=True):
        if isinstance(tensor.owner, GmAllocOp):
            tensor.owner.properties["address"] = integer_attr(start + at)
        elif places is not None:
            places[tensor] = start + at
    return top


@dataclass(frozen=True)
class Life:
    """A tensor of `size` bytes (at the example, where that is open) that is needed from the op numbered `first` to
    `last`, both included."""

    first: int
    last: int
    size: int


def most_at_once(lives: Sequence[Life]) -> int:
    """The bytes that are needed at one time, be they as many as they may."""
    changes = sorted(e for life in lives for e in ((life.first, 1, life.size), (life.last, 2, -life.size)))
    return max(accumulate((size for _, _, size in changes), initial=0))


PLACEMENTS = Budget(nodes=4000)
"""What the exact search looks at where no greedy plan meets the bound: some 0.15 s, and the same plan each time."""


def placed(lives: Sequence[Life]) -> PackingPlan:
    """The lowest places found for some tensors."""
    buffers = (Buffer(str(i), life.first, life.last + 1, life.size) for i, life in enumerate(lives))
    return planned(PackingProblem(tuple(buffers)))


def planned(problem: PackingProblem) -> PackingPlan:
    """The lowest places found for some buffers. Those in the order in which they come to life, each in the smallest gap
    that fits, are taken if they need no more than the bytes that are needed at one time."""
    return solve(problem, PLACEMENTS)


def reused(func: FuncOp) -> list[bool]:
    """For each argument of a planned @main, whether the program writes something else to its memory, or returns it."""
    places = addresses_of(func) or ()
    used: set[SSAValue] = set()
    taken: list[tuple[int, int]] = []
    for op in func.walk():
        if isinstance(op, HostProgramOp):
            used.update(whole_tensor(v) for v in op.written())
        elif isinstance(op, ReturnOp):
            used.update(map(whole_tensor, op.operands))
        elif isinstance(op, GmAllocOp) and op.address is not None:
            taken.append((integer(op.address), integer(op.address) + gm(op.result).bytes))
    found = []
    for arg, at in zip(func.body.block.args, places, strict=False):
        end = at + gm(arg).bytes
        found.append(arg in used or any(first < end and at < last for first, last in taken))
    return found
