"""Runs a whole host program on one arena of bytes, launch by launch."""

from __future__ import annotations

import numpy as np
from oracle import Crash, Device, Launch, noise
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from tilewright.backends.interpreter.graph import GraphRunner
from tilewright.dialects.base import integer, text, to_ints
from tilewright.dialects.dtypes import numpy_dtype
from tilewright.dialects.graph import YieldOp
from tilewright.dialects.graph.ops import GraphOp
from tilewright.dialects.npu import GmType, gm, structure
from tilewright.dialects.npu.ops import ViewOp
from tilewright.machine import Machine

MOST_TRIPS = 3
"""Iterations of a loop of the host program that are run: what one leaves, the next one meets."""

PARAMETERS = 4096
"""Bytes behind the arena for the numbers that a launch takes."""


class HostRun:
    """A program whose host function is straight, or has loops of a known trip count."""

    def __init__(self, module: ModuleOp, machine: Machine):
        self.machine = machine
        self.kernels = {text(o.sym_name): o for o in module.ops if isinstance(o, structure.KernelOp)}
        self.func = next(o for o in module.ops if isinstance(o, FuncOp))
        self.env: dict[SSAValue, tuple[int, int]] = {}
        self.numbers: dict[SSAValue, np.ndarray] = {}
        self.arena = np.zeros(0, np.uint8)
        self.seed = 0

    @property
    def possible(self) -> bool:
        """Whether all ops are known here."""
        kinds = (
            structure.LaunchOp,
            structure.CopyOp,
            structure.GmAllocOp,
            structure.GmConstantOp,
            structure.NpuYieldOp,
            structure.ScalarsOp,
            structure.ToDeviceOp,
            structure.ToHostOp,
            ViewOp,
            ReturnOp,
        )
        return all(
            isinstance(op, kinds) or (isinstance(op, structure.LoopOp) and op.trip_count is not None)
            for op in self.func.walk()
            if op is not self.func and not isinstance(op, GraphOp | YieldOp)
        )

    def work(self) -> int:
        """About what a run costs."""
        from campaign import work_of

        cost = {name: work_of(k) * int(np.prod(to_ints(k.grid))) for name, k in self.kernels.items()}
        return sum(
            cost[o.callee.root_reference.data] for o in self.func.walk() if isinstance(o, structure.LaunchOp)
        )

    def outcome(self, func: FuncOp, seed: int) -> np.ndarray:
        """The bytes of the results after a run. Raises Crash for an address outside the arena."""
        block = func.body.block
        self.size, self.seed = integer(func.attributes["npu.arena_bytes"]), seed
        self.arena = noise(self.size + PARAMETERS, seed)
        self.env, self.numbers = {}, {}
        for i, (arg, address) in enumerate(
            zip(block.args, to_ints(func.attributes["npu.addresses"]), strict=True)
        ):  # pyright: ignore
            self._put(arg, address, 1000 + i)
        for i, op in enumerate(func.walk()):
            if isinstance(op, structure.GmConstantOp) and op.address is not None:
                self._put(op.result, integer(op.address), 5000 + i)
            elif isinstance(op, structure.GmAllocOp) and op.address is not None:
                self.env[op.result] = self._range(integer(op.address), gm(op.result))
        for op in block.ops:
            if isinstance(op, ReturnOp):
                return np.concatenate([self._bytes(v) for v in op.operands])
            self._op(op)
        raise AssertionError("a function ends with return")

    def _range(self, address: int, kind: GmType) -> tuple[int, int]:
        if address < 0 or address + kind.bytes > self.size:
            raise Crash(f"{kind} at {address} leaves the arena")
        return address, kind.bytes

    def _put(self, value: SSAValue, address: int, seed: int) -> None:
        self.env[value] = self._range(address, gm(value))
        self._bytes(value)[...] = noise(gm(value).bytes, seed)

    def _bytes(self, value: SSAValue) -> np.ndarray:
        at, n = self.env[value]
        return self.arena[at : at + n]

    def _block(self, block: Block) -> Operation | None:
        for op in block.ops:
            if isinstance(op, structure.NpuYieldOp):
                return op
            self._op(op)
        return None

    def _op(self, op: Operation) -> None:
        if isinstance(op, ViewOp):
            self.env[op.result] = self.env[op.source]
        elif isinstance(op, structure.CopyOp):
            self._bytes(op.dest)[...] = self._bytes(op.source).copy()
        elif isinstance(op, structure.LaunchOp):
            kernel = self.kernels[op.callee.root_reference.data]
            at = [self._address(v, i) for i, v in enumerate(op.operands)]
            Launch(kernel, self.machine, Device(self.arena), at, self.seed).in_order()
        elif isinstance(op, structure.LoopOp):
            assert op.trip_count is not None
            body = op.body.block
            for arg, value in zip(op.state_args(body), op.state, strict=False):
                self.env[arg] = self.env[value]
            numbers = [self.numbers[v] for v in op.numbers]
            for _ in range(min(integer(op.trip_count), MOST_TRIPS)):
                self.numbers.update(zip(op.number_args(body), numbers, strict=True))
                last = self._block(body)
                assert last is not None
                new = [self._bytes(v).copy() for v in last.operands if v in self.env]
                numbers = [self.numbers[v] for v in last.operands if v in self.numbers]
                for value, x in zip(op.state, new, strict=bool(new)):
                    self._bytes(value)[...] = x
            self.numbers.update(zip(op.results, numbers, strict=True))
        elif isinstance(op, structure.ScalarsOp):
            given = dict(zip(op.body.block.args, (self.numbers[v] for v in op.inputs), strict=True))
            made = GraphRunner().block(op.body.block, given)
            self.numbers.update(zip(op.results, map(np.asarray, made), strict=True))
        elif isinstance(op, structure.ToHostOp):
            dtype = numpy_dtype(gm(op.source).element)
            self.numbers[op.result] = self._bytes(op.source).copy().view(dtype).reshape(gm(op.source).shape)
        elif isinstance(op, structure.ToDeviceOp):
            self._bytes(op.dest)[...] = self._words(op.source)

    def _words(self, number: SSAValue) -> np.ndarray:
        """A number's bytes."""
        assert isinstance(number.type, TensorType)
        dtype = numpy_dtype(number.type.element_type)
        return np.frombuffer(self.numbers[number].astype(dtype).tobytes(), np.uint8)

    def _address(self, value: SSAValue, place: int) -> int:
        """Where a kernel finds an argument; numbers travel with the launch, behind the arena."""
        if value in self.env:
            return self.env[value][0]
        words, at = self._words(value), self.size + 32 * place
        self.arena[at : at + len(words)] = words
        return at
