"""Runs a whole host program on one arena of bytes, step by step, and says what its results depend on.

As in oracle.py, what is computed is replaced by a mixing function of what is read. A kernel is run once on bytes, to
see which bytes of its outputs it writes; from then on a launch mixes all that its kernel reads into those. Numbers of
the host are bytes too: arithmetic on them mixes them, op by op. Which branch is taken and how often a loop with a
condition runs is chosen by `turn`, so that the turns meet all of them; what they were chosen by is part of the result.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
from oracle import Crash, Device, Launch, digest, generated, noise
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from tilewright.dialects.base import integer, text, to_ints
from tilewright.dialects.dtypes import itemsize, size
from tilewright.dialects.graph import ConstantOp, GraphOp, YieldOp
from tilewright.dialects.npu import GmType, ViewOp, gm, structure
from tilewright.machine import Machine

MOST_TRIPS = 3
"""Iterations of a loop of the host program that are run: what one leaves, the next one meets."""

ALIGN = 512

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


class Effect:
    """What a kernel does to its tensors: the inputs that it reads, and for each tensor that it writes the bytes that
    stay as they were (`kept`), and those that depend on what each of the written tensors held before (`depends`)."""

    def __init__(self, kernel: structure.KernelOp, machine: Machine):
        args = kernel.body.block.args[len(to_ints(kernel.grid)) :]
        types = [gm(a) for a in args]
        self.first = len(types) - integer(kernel.outputs) - integer(kernel.workspaces)
        self.reads = [i for i, a in enumerate(args[: self.first]) if _used(a)]
        places = list(itertools.accumulate((-(-t.bytes // ALIGN) * ALIGN + ALIGN for t in types), initial=0))
        written = [slice(at, at + t.bytes) for at, t in zip(places, types, strict=False)][self.first :]

        def run(start: np.ndarray) -> np.ndarray:
            arena = start.copy()
            Launch(kernel, machine, Device(arena), places[:-1]).in_order()
            return arena

        before = noise(places[-1], 1)
        after = run(before)
        self.depends: list[list[np.ndarray]] = [[] for _ in written]
        self.kept: list[np.ndarray] = []
        for here in written:
            start = before.copy()
            start[here] = ~start[here]
            other = run(start)
            for found, there in zip(self.depends, written, strict=True):
                found.append(after[there] != other[there])
            self.kept.append((after[here] == before[here]) & (other[here] == start[here]))


def _used(value: SSAValue) -> bool:
    return any(not isinstance(u.operation, ViewOp) or _used(u.operation.result) for u in value.uses)


class HostRun:
    """The host program of `module`, whose kernels stay as they are."""

    def __init__(self, module: ModuleOp, machine: Machine):
        self.machine, self.kernels = machine, kernels_of(module)
        self.module = host_module(module)
        self.effects: dict[str, Effect] = {}
        self.env: dict[SSAValue, tuple[int, int]] = {}
        self.numbers: dict[SSAValue, np.ndarray] = {}
        self.arena = np.zeros(0, np.uint8)

    @property
    def possible(self) -> bool:
        """Whether all ops are known here."""
        return all(isinstance(op, KNOWN) for f in self.module.ops for op in f.walk())

    @property
    def bytes(self) -> int:
        return integer(entry_of(self.module).attributes["npu.arena_bytes"])

    def turns(self) -> range:
        """How many runs it takes to meet each branch, and loops that run 0 times to MOST_TRIPS."""
        ways = [1]
        for op in self.module.walk():
            if isinstance(op, structure.BranchOp):
                ways.append(len(op.branches))
            elif isinstance(op, structure.LoopOp) and op.trip_count is None:
                ways.append(MOST_TRIPS + 1)
        return range(max(ways))

    def outcome(self, module: ModuleOp, seed: int) -> np.ndarray:
        """The bytes of the results of all turns, and of what steered them. Raises Crash for an address outside the
        arena."""
        return np.concatenate([x for turn in self.turns() for x in self._turn(module, seed, turn)])

    def _turn(self, module: ModuleOp, seed: int, turn: int) -> Iterator[np.ndarray]:
        self.functions = {text(f.sym_name): f for f in module.ops if isinstance(f, FuncOp)}
        func = entry_of(module)
        self.size, self.turn, self.steered = integer(func.attributes["npu.arena_bytes"]), turn, 0
        self.arena = ~noise(self.size, 1) if seed == 2 else noise(self.size, seed)
        self.env, self.numbers, self.branches = {}, {}, 0
        addresses = to_ints(func.attributes["npu.addresses"])  # pyright: ignore[reportArgumentType]
        for i, (arg, address) in enumerate(zip(func.body.block.args, addresses, strict=True)):
            self._put(arg, address, 1000 + i)
        for op in module.walk():
            if isinstance(op, structure.GmConstantOp) and op.address is not None:
                self._put(op.result, integer(op.address), zlib.crc32(op.value.data.array().tobytes()))
            elif isinstance(op, structure.GmAllocOp) and op.address is not None:
                self.env[op.result] = self._range(integer(op.address), gm(op.result))
        last = self._block(func.body.block)
        assert last is not None
        for value in last.operands:
            yield self._bytes(value).copy()
        yield np.frombuffer(self.steered.to_bytes(4, "little"), np.uint8)

    # -- bytes ---------------------------------------------------------------------------------------------

    def _range(self, address: int, kind: GmType) -> tuple[int, int]:
        if address < 0 or address + kind.bytes > self.size:
            raise Crash(f"{kind} at {address} leaves the arena")
        return address, kind.bytes

    def _put(self, value: SSAValue, address: int, seed: int) -> None:
        self.env[value] = self._range(address, gm(value))
        self._bytes(value)[...] = noise(gm(value).bytes, seed)

    def _bytes(self, value: SSAValue) -> np.ndarray:
        """The bytes of a tensor, or of a number."""
        if value in self.numbers:
            return self.numbers[value]
        at, n = self.env[value]
        return self.arena[at : at + n]

    def _steer(self, what: np.ndarray | str) -> None:
        """Takes note of what decides about the way."""
        self.steered = zlib.crc32(what.encode() if isinstance(what, str) else what.tobytes(), self.steered)

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
            self._bytes(op.dest)[...] = self._bytes(op.source).copy()
        elif isinstance(op, structure.ToHostOp):
            self.numbers[op.result] = self._bytes(op.source).copy()
        elif isinstance(op, structure.ToDeviceOp):
            number, dest = op.operands
            self._bytes(dest)[...] = self._bytes(number)
        elif isinstance(op, structure.ScalarsOp):
            self._scalars(op)
        elif isinstance(op, structure.LaunchOp):
            self._launch(op)
        elif isinstance(op, structure.HostCallOp):
            seed = digest([self._bytes(v) for v in op.inputs], zlib.crc32(op.module.data.encode()))
            for i, value in enumerate(op.outputs):
                kind = value.type
                assert isinstance(kind, TensorType)
                n = itemsize(kind.element_type) * size(kind.get_shape())
                self.numbers[value] = generated((n,), 1, seed + i)
        elif isinstance(op, structure.CallOp):
            block = self.functions[op.callee.root_reference.data].body.block
            self.env.update(zip(block.args, [self.env[v] for v in op.operands], strict=True))
            self._block(block)
        elif isinstance(op, structure.LoopOp):
            self._loop(op)
        elif isinstance(op, structure.BranchOp):
            self._steer(self._bytes(op.index))
            chosen = op.branches[(self.turn + self.branches) % len(op.branches)]
            self.branches += 1
            last = self._block(chosen.block)
            assert last is not None
            self._set(op.outputs, op.results, last.operands)

    def _set(
        self, tensors: Sequence[SSAValue], numbers: Sequence[SSAValue], values: Sequence[SSAValue]
    ) -> None:
        """What a region yields, all at once: into tensors, and as new numbers."""
        new = [self._bytes(v).copy() for v in values]
        for target, x in zip(tensors, new, strict=False):
            self._bytes(target)[...] = x
        self.numbers.update(zip(numbers, new[len(tensors) :], strict=True))

    def _loop(self, op: structure.LoopOp) -> None:
        for region in op.regions:
            for arg, value in zip(op.state_args(region.block), op.state, strict=False):
                self.env[arg] = self.env[value]
        known = None if op.trip_count is None else integer(op.trip_count)
        self._steer(str(known))
        carried = [self._bytes(v) for v in op.numbers]
        for trip in range(MOST_TRIPS + 1):
            for region in op.regions:
                self.numbers.update(zip(op.number_args(region.block), carried, strict=False))
            if known is None:
                ends = self._block(op.condition.block)
                assert ends is not None
                self._steer(self._bytes(ends.operands[0]))
            if trip == min(self.turn if known is None else known, MOST_TRIPS):
                break
            last = self._block(op.body.block)
            assert last is not None
            placeholders = list(op.results)
            self._set(op.state, placeholders, last.operands)
            carried = [self.numbers[v] for v in placeholders]
        self.numbers.update(zip(op.results, carried, strict=True))

    def _scalars(self, op: structure.ScalarsOp) -> None:
        env = dict(zip(op.body.block.args, map(self._bytes, op.inputs), strict=True))
        for inner in op.body.block.ops:
            if isinstance(inner, YieldOp):
                self.numbers.update(zip(op.results, [env[v] for v in inner.operands], strict=True))
            elif isinstance(inner, ConstantOp):
                env[inner.result] = np.frombuffer(inner.value.data.array().tobytes(), np.uint8)
            else:
                key = f"{inner.name} {sorted((k, str(v)) for k, v in inner.properties.items())}"
                seed = digest([env[v] for v in inner.operands], zlib.crc32(key.encode()))
                for i, result in enumerate(inner.results):
                    kind = result.type
                    assert isinstance(kind, TensorType)
                    n = itemsize(kind.element_type) * size(kind.get_shape())
                    env[result] = generated((n,), 1, seed + i)

    def _launch(self, op: structure.LaunchOp) -> None:
        name = op.callee.root_reference.data
        if name not in self.effects:
            self.effects[name] = Effect(self.kernels[name], self.machine)
        effect = self.effects[name]
        seed = digest([self._bytes(op.operands[i]) for i in effect.reads], zlib.crc32(name.encode()))
        written = op.operands[effect.first :]
        old = [self._bytes(v).copy() for v in written]
        for i, value in enumerate(written):
            made = generated((len(old[i]),), 1, seed + i)
            for j, depends in enumerate(effect.depends[i]):
                if j != i and depends.any():
                    made = np.where(depends, made ^ generated(made.shape, 1, digest([old[j]], j)), made)
            mixed = np.where(effect.depends[i][i], (old[i] ^ made) * np.uint8(167) + np.uint8(13), made)
            self._bytes(value)[...] = np.where(effect.kept[i], old[i], mixed)
