"""When each tensor of device memory is needed, and the most bytes that are needed at one time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from ...packing import Buffer, PackingProblem
from ..base import describe, source_of
from ..graph.donation import donated
from ..module import find_main
from ..open_sizes import example
from .buffers import ViewOp
from .interface import gm
from .places import frame_of
from .structure import GmAllocOp, GmConstantOp


@dataclass(frozen=True)
class DeviceTensor:
    """A tensor that takes some bytes (at the example, where that is open) of device memory from the op numbered `first`
    in its function to `last`, both included."""

    value: SSAValue
    first: int
    last: int
    bytes: int

    @property
    def name(self) -> str:
        """`argument 0, !npu.gm<8xf32>`, or the type alone of what an op makes."""
        kind = str(gm(self.value))
        return f"argument {self.value.index}, {kind}" if isinstance(self.value, BlockArgument) else kind

    @property
    def source(self) -> str | None:
        """`file:line` that it comes from."""
        return source_of(self.value.owner) if isinstance(self.value.owner, Operation) else None

    def __str__(self) -> str:
        """`!npu.gm<8xf32>, 512 bytes (model.py:12)`."""
        return f"{self.name}, {self.bytes} bytes" + (f" ({self.source})" if self.source else "")


@dataclass(frozen=True)
class LiveSet:
    """What is in device memory where most of it is needed: no plan takes less than `bytes`. op: the one that is then
    run, None at the start; tensors: the largest first; frames: bytes of the functions that are called."""

    bytes: int
    op: Operation | None
    tensors: tuple[DeviceTensor, ...]
    frames: int

    @property
    def place(self) -> str:
        """`at npu.launch @k (model.py:12)`."""
        return "at the start" if self.op is None else f"at {describe(self.op)}"


@dataclass(frozen=True)
class ProgramOrder:
    """The ops of a block and of the regions below it, numbered as they stand in the text. first, last: by op, its own
    number and that of the last op in its regions; behind: a number behind all of them."""

    first: Mapping[Operation, int]
    last: Mapping[Operation, int]
    behind: int

    def span(self, tensor: SSAValue) -> tuple[int, int]:
        """The numbers of the first and the last op for which a tensor is needed: from the op that makes it (-1 for an
        argument) to the last one that uses it or a view of it, `behind` for a result of the program. An op in a loop or
        a branch that the tensor is not made in stands for all of the loop or the branch."""
        own = tensor.owner if isinstance(tensor.owner, Block) else tensor.owner.parent
        begin = end = self.first[tensor.owner] if isinstance(tensor.owner, Operation) else -1
        stack = [tensor]
        while stack:
            for use in stack.pop().uses:
                user = use.operation
                if isinstance(user, ViewOp):
                    stack.append(user.result)
                if isinstance(user, ReturnOp):
                    end = self.behind
                around = None if own is None else own.find_ancestor_op_in_block(user)
                if around is not None:
                    end = max(end, self.last.get(around, end))
        return begin, end


def order_of(block: Block) -> ProgramOrder:
    """The numbers of the ops of a block and of the regions below it."""
    first: dict[Operation, int] = {}
    last: dict[Operation, int] = {}
    for op in block.ops:
        nested = list(op.walk())
        first.update((inner, i) for i, inner in enumerate(nested, len(first)))
        for inner in reversed(nested):
            ends = [last[below.last_op] for r in inner.regions for below in r.blocks if below.last_op is not None]
            last[inner] = max(ends, default=first[inner])
    return ProgramOrder(first, last, len(first) + 1)


def device_tensors(
    func: FuncOp, inner: Sequence[FuncOp], align: int, given: Sequence[SSAValue]
) -> list[DeviceTensor]:
    """The tensors of a program, those of the functions that it calls left out, but for constants. given: the arguments
    that are donated; others are needed all the time."""
    order = order_of(func.body.block)
    found = []

    def add(value: SSAValue, first: int, last: int) -> None:
        units = max(-(-example(gm(value).bytes) // align), 1)
        found.append(DeviceTensor(value, first, last, units * align))

    for a in func.body.block.args:
        add(a, -1, order.span(a)[1] if a in given else order.behind)
    for f in (func, *inner):
        for op in f.walk():
            if isinstance(op, GmConstantOp):
                add(op.result, -1, order.behind)
            elif isinstance(op, GmAllocOp) and f is func:
                add(op.result, *order.span(op.result))
    return found


def problem_of(tensors: Sequence[DeviceTensor]) -> PackingProblem:
    """Tensors as buffers."""
    return PackingProblem(tuple(Buffer(str(i), t.first, t.last + 1, t.bytes) for i, t in enumerate(tensors)))


def fullest(func: FuncOp, inner: Sequence[FuncOp], align: int) -> LiveSet:
    """Where a program needs most device memory. The frames of called functions, which lie behind all else, count as
    they are planned."""
    given = [a for a, free in zip(func.body.block.args, donated(func), strict=True) if free]
    tensors = device_tensors(func, inner, align, given)
    problem = problem_of(tensors)
    frames = frames_of(inner)
    time = problem.fullest
    ops = list(func.body.block.walk())
    live = () if time is None else tuple(tensors[int(b.name)] for b in problem.live_at(time))
    # the op for which the last of them is allocated
    op = None if time is None or time < 0 else next((op for op in ops[time:] if not isinstance(op, GmAllocOp)), None)
    return LiveSet(problem.bound + frames, op, live, frames)


def fullest_of(module: ModuleOp, align: int) -> LiveSet:
    """Where the program of a module needs most device memory; nothing of a module without @main."""
    main = find_main(module)
    if main is None:
        return LiveSet(0, None, (), 0)
    inner = [f for f in module.ops if isinstance(f, FuncOp) and frame_of(f) is not None]
    return fullest(main, inner, align)


def frames_of(inner: Sequence[FuncOp]) -> int:
    """The bytes that called functions work in."""
    frames = [frame for f in inner if (frame := frame_of(f)) is not None]
    return example(max(b for _, b in frames)) - example(min(a for a, _ in frames)) if frames else 0
