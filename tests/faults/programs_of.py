"""Runs a whole host program in program order, step by step, and says what its results depend on.

Memory is ranges of contents (pieces.py), and what is computed is a content that follows from all that is read: it
costs the same for tensors of any size. Which bytes a kernel writes is found out once (effects.py); from then on a
launch mixes all that its kernel reads into those. Numbers of the host are contents too: arithmetic on them mixes them,
op by op. Which branch is taken and how often a loop with a condition runs is chosen by `turn`, so that the turns meet
all of them; what they were chosen by is part of the result.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

from effects import Effect
from oracle import Crash
from pieces import Parts, Pieces, content, cut, joined
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright.dialects.base import integer, text, to_ints
from tilewright.dialects.dtypes import itemsize, size
from tilewright.dialects.graph import ConstantOp, GraphOp, YieldOp
from tilewright.dialects.graph.attributes import DataAttr
from tilewright.dialects.npu import GmType, ViewOp, gm, structure
from tilewright.machine import Machine

MOST_TRIPS = 3
"""Iterations of a loop of the host program that are run: what one leaves, the next one meets."""

KNOWN = (
    structure.LaunchOp,
    structure.CopyOp,
    structure.GmAllocOp,
    structure.GmConstantOp,
    structure.NpuYieldOp,
    structure.ScalarsOp,
    structure.ToDeviceOp,
    structure.ToHostOp,
    structure.CallOp,
    structure.HostCallOp,
    structure.LoopOp,
    structure.BranchOp,
    structure.RecordEventOp,  # it runs in program order: streams.py tries the other orders
    structure.WaitEventOp,
    ViewOp,
    ReturnOp,
    FuncOp,
    GraphOp,
    YieldOp,
)


def host_module(module: ModuleOp) -> ModuleOp:
    """A copy of a module's functions, without its kernels."""
    return ModuleOp([op.clone() for op in module.ops if isinstance(op, FuncOp)])


def kernels_of(module: ModuleOp) -> dict[str, structure.KernelOp]:
    return {text(op.sym_name): op for op in module.ops if isinstance(op, structure.KernelOp)}


def entry_of(module: ModuleOp) -> FuncOp:
    """The function that the program starts with."""
    return next(op for op in module.ops if isinstance(op, FuncOp) and "npu.arena_bytes" in op.attributes)


class HostRun:
    """The host program of `module`, whose kernels stay as they are."""

    def __init__(self, module: ModuleOp, machine: Machine):
        self.machine, self.kernels = machine, kernels_of(module)
        self.module = host_module(module)
        self.effects: dict[str, Effect] = {}
        self.env: dict[SSAValue, tuple[int, int]] = {}
        self.numbers: dict[SSAValue, Parts] = {}
        self.memory = Pieces(0, 0)
        self._constants: dict[DataAttr, int] = {}

    @property
    def possible(self) -> bool:
        """Whether all ops are known here."""
        return all(isinstance(op, KNOWN) for f in self.module.ops for op in f.walk())

    def turns(self) -> range:
        """How many runs it takes to meet each branch, and loops that run 0 times to MOST_TRIPS."""
        ways = [1]
        for op in self.module.walk():
            if isinstance(op, structure.BranchOp):
                ways.append(len(op.branches))
            elif isinstance(op, structure.LoopOp) and op.trip_count is None:
                ways.append(MOST_TRIPS + 1)
        return range(max(ways))

    def outcome(self, module: ModuleOp, seed: int) -> list[Parts]:
        """What the results of all turns hold, and what steered them; `seed`: of what memory holds at the start. Raises
        Crash for an address outside the arena."""
        return [x for turn in self.turns() for x in self._turn(module, seed, turn)]

    def _turn(self, module: ModuleOp, seed: int, turn: int) -> Iterator[Parts]:
        self.functions = {text(f.sym_name): f for f in module.ops if isinstance(f, FuncOp)}
        func = entry_of(module)
        self.size, self.turn, self.steered = integer(func.attributes["npu.arena_bytes"]), turn, 0
        self.memory = Pieces(self.size, content(0, seed))
        self.env, self.numbers, self.branches = {}, {}, 0
        addresses = to_ints(func.attributes["npu.addresses"])
        for i, (arg, address) in enumerate(zip(func.body.block.args, addresses, strict=True)):
            self._put(arg, address, content(1, i))
        for op in module.walk():
            if isinstance(op, structure.GmConstantOp) and op.address is not None:
                self._put(op.result, integer(op.address), self._constant(op.value))
            elif isinstance(op, structure.GmAllocOp) and op.address is not None:
                self.env[op.result] = self._range(integer(op.address), gm(op.result))
        last = self._block(func.body.block)
        assert last is not None
        for value in last.operands:
            yield self._held(value)
        yield ((self.steered, 0, 1),)

    # -- contents ------------------------------------------------------------------------------------------

    def _range(self, address: int, kind: GmType) -> tuple[int, int]:
        if address < 0 or address + kind.bytes > self.size:
            raise Crash(f"{kind} at {address} leaves the arena")
        return address, kind.bytes

    def _put(self, value: SSAValue, address: int, held: int) -> None:
        self.env[value] = at, n = self._range(address, gm(value))
        self.memory.write(at, ((held, 0, n),))

    def _constant(self, value: DataAttr) -> int:
        if value not in self._constants:
            self._constants[value] = content(2, zlib.crc32(value.data.array().tobytes()))
        return self._constants[value]

    def _held(self, value: SSAValue) -> Parts:
        """What a tensor holds, or a number."""
        return self.numbers[value] if value in self.numbers else self.memory.read(*self.env[value])

    def _store(self, value: SSAValue, parts: Parts) -> None:
        """Puts parts into a tensor, which they fill."""
        at, n = self.env[value]
        self.memory.write(at, next(cut(parts, [n])))

    def _steer(self, what: object) -> None:
        """Takes note of what decides about the way."""
        self.steered = content(self.steered, what)

    # -- ops -----------------------------------------------------------------------------------------------

    def _block(self, block: Block) -> Operation | None:
        for op in block.ops:
            if isinstance(op, structure.NpuYieldOp | ReturnOp):
                return op
            self._op(op)
        return None

    def _op(self, op: Operation) -> None:
        if isinstance(op, ViewOp):
            self.env[op.result] = self.env[op.source]
        elif isinstance(op, structure.CopyOp):
            self._store(op.dest, self._held(op.source))
        elif isinstance(op, structure.ToHostOp):
            self.numbers[op.result] = self._held(op.source)
        elif isinstance(op, structure.ToDeviceOp):
            number, dest = op.operands
            self._store(dest, self._held(number))
        elif isinstance(op, structure.ScalarsOp):
            self._scalars(op)
        elif isinstance(op, structure.LaunchOp):
            self._launch(op)
        elif isinstance(op, structure.HostCallOp):
            made = content(op.module.data, *map(self._held, op.inputs))
            for i, value in enumerate(op.outputs):
                self.numbers[value] = ((content(made, i), 0, _bytes(value.type)),)
        elif isinstance(op, structure.CallOp):
            block = self.functions[op.callee.root_reference.data].body.block
            self.env.update(zip(block.args, [self.env[v] for v in op.operands], strict=True))
            self._block(block)
        elif isinstance(op, structure.LoopOp):
            self._loop(op)
        elif isinstance(op, structure.BranchOp):
            self._steer(self._held(op.index))
            chosen = op.branches[(self.turn + self.branches) % len(op.branches)]
            self.branches += 1
            last = self._block(chosen.block)
            assert last is not None
            self._set(op.outputs, op.results, last.operands)

    def _set(
        self, tensors: Sequence[SSAValue], numbers: Sequence[SSAValue], values: Sequence[SSAValue]
    ) -> None:
        """What a region yields, all at once: into tensors, and as new numbers."""
        new = [self._held(v) for v in values]
        for target, x in zip(tensors, new, strict=False):
            self._store(target, x)
        self.numbers.update(zip(numbers, new[len(tensors) :], strict=True))

    def _loop(self, op: structure.LoopOp) -> None:
        for region in op.regions:
            for arg, value in zip(op.state_args(region.block), op.state, strict=False):
                self.env[arg] = self.env[value]
        known = None if op.trip_count is None else integer(op.trip_count)
        self._steer(known or 0)
        carried = [self._held(v) for v in op.numbers]
        for trip in range(MOST_TRIPS + 1):
            for region in op.regions:
                self.numbers.update(zip(op.number_args(region.block), carried, strict=False))
            if known is None:
                ends = self._block(op.condition.block)
                assert ends is not None
                self._steer(self._held(ends.operands[0]))
            if trip == min(self.turn if known is None else known, MOST_TRIPS):
                break
            last = self._block(op.body.block)
            assert last is not None
            placeholders = list(op.results)
            self._set(op.state, placeholders, last.operands)
            carried = [self.numbers[v] for v in placeholders]
        self.numbers.update(zip(op.results, carried, strict=True))

    def _scalars(self, op: structure.ScalarsOp) -> None:
        env = dict(zip(op.body.block.args, map(self._held, op.inputs), strict=True))
        for inner in op.body.block.ops:
            if isinstance(inner, YieldOp):
                self.numbers.update(zip(op.results, [env[v] for v in inner.operands], strict=True))
            elif isinstance(inner, ConstantOp):
                env[inner.result] = ((self._constant(inner.value), 0, _bytes(inner.result.type)),)
            else:
                key = f"{inner.name} {sorted((k, str(v)) for k, v in inner.properties.items())}"
                made = content(key, *(env[v] for v in inner.operands))
                for i, result in enumerate(inner.results):
                    env[result] = ((content(made, i), 0, _bytes(result.type)),)

    def _launch(self, op: structure.LaunchOp) -> None:
        name = op.callee.root_reference.data
        if name not in self.effects:
            self.effects[name] = Effect(self.kernels[name], self.machine)
        effect = self.effects[name]
        read = content(name, *(_part(self._held(op.operands[i]), seen) for i, seen in effect.reads.items()))
        written = op.operands[effect.first :]
        old = [self._held(v) for v in written]
        for i, (value, runs) in enumerate(zip(written, effect.runs, strict=True)):
            new: list[tuple[int, int, int]] = []
            before = cut(old[i], (stop for _, stop, _, _ in runs))
            results: dict[tuple[int, ...], int] = {}
            for (start, stop, kept, depends), here in zip(runs, before, strict=True):
                if depends not in results:
                    results[depends] = content(read, i, *(old[j] for j in depends if j != i))
                made = results[depends]
                if kept:
                    new += here
                elif i in depends:
                    new += [(content(made, what), first, n) for what, first, n in here]
                else:
                    new.append((made, start, stop - start))
            self._store(value, joined(new))


def _part(parts: Parts, seen: Sequence[tuple[int, int]] | None) -> Parts:
    """What of these parts is seen, by bytes from and to; all where that is None."""
    if seen is None:
        return parts
    pieces = list(cut(parts, (at for ends in seen for at in ends)))
    return joined(part for piece in pieces[1::2] for part in piece)


def _bytes(kind: Attribute) -> int:
    """Of a value in the host's memory."""
    assert isinstance(kind, TensorType)
    return itemsize(kind.element_type) * size(kind.get_shape())
