"""Kernels as compiled functions of arrays, on one host thread or split over two.

XLA runs the small products of a tiled loop on one thread each, so a heavy kernel is run as two groups of
cores, each of which fills its own part of the outputs. Execution is asynchronous: Python goes on to the next
kernel while XLA computes. Each group reuses its memory in the next run of the kernel, since filling it with zeros took
a tenth of a kernel's time. Elements that a kernel does not write keep their old contents, as on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from xdsl.dialects import scf
from xdsl.ir import SSAValue

from ...dialects.base import integer, to_ints
from ...dialects.dtypes import numpy_dtype, size
from ...dialects.npu import MmadOp, TransferOp, ViewOp
from ...dialects.npu.handing import takes_turns
from ...dialects.npu.interface import buffer, gm
from ...dialects.npu.structure import KernelOp, SectionOp
from ...dialects.open_sizes import choosing
from ...machine import Machine
from ..functions.compiling import PLAIN_OPTIONS, compile_kernel, in_rows, lowered, row_major
from ..functions.loops import bounds
from ..functions.scope import Blank, Offset, Ranges, RunTimeSizes
from ..functions.values import cooked, on_device, raw, raw_dtype
from .accumulators import accumulator_blanks
from .batching import Batch, find_batches, narrowed
from .grid import CoreGroup, Local
from .kernel import NpuKernel
from .open_kernels import is_open_kernel, open_numbers
from .ranges import index_ranges
from .views import View

GROUPS = ThreadPoolExecutor(1, thread_name_prefix="tilewright-group")
"""Runs the second group of cores of a kernel."""

HEAVY_FLOPS = 30e6
HEAVY_BYTES = 2e6
"""From this much work on, a kernel is compiled by itself."""

SPLIT_FLOPS = 300e6
"""Flops of matrix products from which on two groups of cores pay. XLA takes 30 to 40 ms longer for a kernel that is
split, and one with fewer flops saves less than one ms a run (ResNet-50 without its nine: the first call takes 1.40 s
instead of 1.65, a run 70 ms instead of 63)."""

JOIN_FLOPS = 200
"""Flops of matrix products for each byte of the outputs from which two threads pay, which write the outputs in parts
and then again as one (measured: 100 do not, 250 do)."""

XLA_ALIGNMENT = 64
"""Bytes. Memory of the host that begins at a multiple JAX takes as it is; of 32, 16 and less it makes a copy (measured,
jaxlib 0.10.2)."""


@dataclass(frozen=True)
class BoundTensor:
    """A whole device tensor that a launch works on. fresh: nothing was written to it yet."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fresh: bool
    written: bool


@dataclass(frozen=True)
class LaunchBinding:
    """How a launch binds a kernel's tensor arguments: argument i is a view of tensor `tensors[of[i]]`."""

    of: tuple[int, ...]
    tensors: tuple[BoundTensor, ...]

    @property
    def passed(self) -> list[BoundTensor]:
        """The tensors whose contents the kernel gets."""
        return [t for t in self.tensors if not t.fresh]

    @property
    def returned(self) -> list[BoundTensor]:
        return [t for t in self.tensors if t.written]


@dataclass(frozen=True)
class Split:
    """Cores in two groups of `size` along a grid axis: the first and the last ones. Where their number is odd, both
    run the one in the middle. `parts[t]` = (dimension, elements per coordinate) of output t."""

    axis: int
    size: int
    parts: dict[int, tuple[int, int]]


def tensor_arguments(kernel: KernelOp) -> Sequence[SSAValue]:
    return kernel.body.block.args[len(to_ints(kernel.grid)) :]


def trace_kernel(
    kernel: KernelOp,
    signature: LaunchBinding,
    zero: Array,
    passed: Sequence[Array],
    machine: Machine | None = None,
    split: Split | None = None,
    start: Any = 0,
    batches: Mapping[SectionOp, Batch] | None = None,
    blanks: Mapping[Blank, Array] | None = None,
    inside: bool = False,
    room: Sequence[Array] | None = None,
    sizes: RunTimeSizes | None = None,
) -> list[Array]:
    """The kernel's effect: contents of `signature.passed` in, of `signature.returned` out. With `split`, that of the
    group of cores from coordinate `start` on. `batches` as `find_batches` gives them, zeros as `find_blanks`. inside:
    other kernels that are compiled with this one take what it gives. room: what the fresh tensors are before they are
    written, instead of zeros; then contents of all of them come out. sizes: what open sizes are."""
    core = NpuKernel(kernel, zero, machine, batches)
    core.scope.blanks = blanks or {}
    if sizes is not None:
        core.scope.sizes = sizes.keeping(open_numbers(kernel))
    part = None
    if split is not None:
        cores = to_ints(kernel.grid)[split.axis]
        part = CoreGroup(split.axis, Offset(start, 0, cores - split.size, still=True), split.size)
        parts = {i: (signature.tensors[i].shape, d, split.size * n) for i, (d, n) in split.parts.items()}
        core.local = Local(kernel.body.block.args[split.axis], part, parts)
    contents, rooms = iter(passed), iter(room or ())
    for i, t in enumerate(signature.tensors):
        if not t.fresh:
            core.tensors[i] = raw(next(contents))
        elif room is not None:
            core.tensors[i] = next(rooms)
        else:
            core.tensors[i] = core.scope.zeros(*_fresh(signature, i, split))
    for arg, t in zip(tensor_arguments(kernel), signature.of, strict=True):
        view = View.of(gm(arg))
        core.bind(arg, t, view if core.local is None else core.local.view(t, view))
    core.run(part)
    for i in sorted(core.stored) if inside else ():
        core.tensors[i] = in_rows(core.tensors[i])
    if room is not None:
        return [core.tensors[i] for i, t in enumerate(signature.tensors) if t.fresh]
    return [cooked(core.tensors[i], t.dtype) for i, t in enumerate(signature.tensors) if t.written]


def _fresh(signature: LaunchBinding, tensor: int, split: Split | None) -> Blank:
    """The contents of a tensor, or of the part that a group of cores writes, before it is written."""
    t = signature.tensors[tensor]
    shape = list(t.shape)
    if split is not None and tensor in split.parts:
        d, each = split.parts[tensor]
        shape[d] = split.size * each
    return tuple(shape), raw_dtype(t.dtype)


def find_blanks(
    kernel: KernelOp, signature: LaunchBinding, batches: Mapping[SectionOp, Batch], split: Split | None
) -> list[Blank]:
    """The zeros that a kernel may begin with: of its accumulators and, without rooms, of its fresh tensors."""
    fresh = enumerate(signature.tensors) if split is None else ()
    found = [_fresh(signature, i, split) for i, t in fresh if t.fresh]
    for section, batch in batches.items():
        if split is not None and (index := kernel.body.block.args[split.axis]) in batch.counts:
            batch = batch.part(index, Offset.known(0), split.size)
        found += accumulator_blanks(section, batch)
    return list(dict.fromkeys(found))


class CompiledKernel:
    """A kernel for one signature as an XLA executable."""

    def __init__(self, kernel: KernelOp, signature: LaunchBinding, symbols: Sequence[str] = ()):
        """symbols: the open sizes, whose values a call gives."""
        self.kernel, self.signature, self.symbols = kernel, signature, symbols
        self.batches = find_batches(kernel)
        whole = is_open_kernel(kernel) or takes_turns(kernel) or not pays_to_split(kernel, signature)
        self.split = None if whole else find_split(kernel, signature, self.batches)
        if self.split is not None:
            self.batches = narrowed(self.batches)
        self.blanks = find_blanks(kernel, signature, self.batches, self.split)
        self.zeros: list[Array] = []
        self.executable: Any = None
        self.join: Any = None
        self.spare: list[list[Array]] = []
        """The rooms of groups that are done, or done before whoever is given them."""

    @property
    def rooms(self) -> list[Blank]:
        """What a group of cores works in: the fresh tensors, or its parts of them."""
        fresh = enumerate(self.signature.tensors) if self.split is not None else ()
        return [_fresh(self.signature, i, self.split) for i, t in fresh if t.fresh]

    def lower(self) -> Callable[[], CompiledKernel]:
        """Traces the kernel. What it gives compiles it, and may run on another thread."""
        shapes = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in self.signature.passed]
        zero = jax.ShapeDtypeStruct((), np.float32)
        coordinate = jax.ShapeDtypeStruct((), np.int32)
        zeros = [jax.ShapeDtypeStruct(*blank) for blank in self.blanks]
        rooms = [jax.ShapeDtypeStruct(*room) for room in self.rooms]
        sizes = [coordinate] * len(self.symbols)
        arguments = [zero, coordinate, sizes, zeros, rooms, *shapes]
        made = lowered(row_major(self._run), arguments, donate_argnums=4)
        join = None if self.split is None else lowered(self._join, [rooms, rooms])

        def compiled() -> CompiledKernel:
            self.executable = compile_kernel(made, self.kernel, self.split is not None)
            self.join = None if join is None else join.compile(PLAIN_OPTIONS)
            self.zeros = [zeros_of(*blank) for blank in self.blanks]
            return self

        return compiled

    def _run(
        self,
        zero: Array,
        start: Array,
        sizes: Sequence[Array],
        zeros: Sequence[Array],
        rooms: Sequence[Array],
        *passed: Array,
    ) -> list[Array]:
        blanks, room = dict(zip(self.blanks, zeros, strict=True)), None if self.split is None else rooms
        return trace_kernel(
            self.kernel,
            self.signature,
            zero,
            passed,
            None,
            self.split,
            start,
            self.batches,
            blanks,
            room=room,
            sizes=RunTimeSizes(dict(zip(self.symbols, sizes, strict=True))),
        )

    def __call__(self, passed: Sequence[Array], sizes: Sequence[Any] = ()) -> list[Array]:
        """sizes: the values of the symbols, i32."""
        if self.split is None:
            return self.executable(ZERO, NONE, list(sizes), self.zeros, [], *passed)
        second = GROUPS.submit(self._group, self._last, passed)
        groups = self._group(0, passed), second.result()
        whole = self.join(*groups)
        self.spare += groups
        return whole

    @property
    def _last(self) -> int:
        """The coordinate from which on the second group works."""
        assert self.split is not None
        return to_ints(self.kernel.grid)[self.split.axis] - self.split.size

    def _group(self, start: int, passed: Sequence[Array]) -> list[Array]:
        """Starts the cores from coordinate `start` on; the fresh tensors as they leave them, or their parts of them."""
        try:
            room = self.spare.pop()
        except IndexError:
            room = [on_device(np.zeros(*blank), own=True) for blank in self.rooms]
        return self.executable(ZERO, np.int32(start), [], self.zeros, room, *passed)

    def _join(self, first: Sequence[Array], second: Sequence[Array]) -> list[Array]:
        """The outputs, of which each group wrote a part."""
        assert self.split is not None
        fresh = [i for i, t in enumerate(self.signature.tensors) if t.fresh]
        out = []
        for i, a, b in zip(fresh, first, second, strict=True):
            t = self.signature.tensors[i]
            if t.written:
                d, each = self.split.parts[i]
                border = self._last * each
                parts = (
                    lax.slice_in_dim(a, 0, border, axis=d),
                    lax.slice_in_dim(b, 0, t.shape[d] - border, axis=d),
                )
                out.append(cooked(lax.concatenate(parts, d), t.dtype))
        return out


def _aligned(memory: np.ndarray) -> np.ndarray:
    """Bytes, from the first one on where XLA takes an array without a copy."""
    return memory[-memory.ctypes.data % XLA_ALIGNMENT :]


class _Zeros:
    """Arrays of zeros that share one memory, as large as the largest of them. The host gives a large one a page of
    zeros at a time, when it is read."""

    def __init__(self) -> None:
        self.memory = np.zeros(0, np.uint8)

    def __call__(self, shape: Sequence[int], dtype: np.dtype) -> Array:
        count, memory = size(shape) * dtype.itemsize, self.memory  # another thread may put another there
        if count > memory.size:
            self.memory = memory = _aligned(np.zeros(count + XLA_ALIGNMENT, np.uint8))
        return on_device(memory[:count].view(dtype).reshape(shape), own=True)


zeros_of = _Zeros()
ZERO = np.float32(0)
NONE = np.int32(0)


# -- how heavy, and how to split ---------------------------------------------------------------------------


def is_heavy(kernel: KernelOp) -> bool:
    """Whether a kernel's arithmetic or traffic is worth being compiled by itself."""
    with choosing():
        flops, traffic = work(kernel)
        return flops > HEAVY_FLOPS or traffic > HEAVY_BYTES


def pays_to_split(kernel: KernelOp, signature: LaunchBinding) -> bool:
    """Whether the products of a heavy kernel, if it has any, are worth compiling more and joining the parts of its
    outputs."""
    flops, _ = work(kernel)
    written = sum(size(t.shape) * t.dtype.itemsize for t in signature.returned)
    return not flops or flops >= max(SPLIT_FLOPS, JOIN_FLOPS * written)


def work(kernel: KernelOp) -> tuple[float, float]:
    """(flops of matrix products, bytes moved to and from device memory) of all cores."""
    flops, traffic = _work(kernel.body.block.ops)
    cores = size(to_ints(kernel.grid))
    return flops * cores, traffic * cores


def _work(ops: Any) -> tuple[float, float]:
    """(flops of matrix products, bytes moved to and from device memory) of one core."""
    flops = traffic = 0.0
    for op in ops:
        times = 1
        if isinstance(op, scf.ForOp):
            times = bounds(op)[2]
        elif isinstance(op, SectionOp):
            times = integer(op.units)
        for region in op.regions:
            for block in region.blocks:
                f, t = _work(block.ops)
                flops, traffic = flops + times * f, traffic + times * t
        if isinstance(op, MmadOp):
            m, k = buffer(op.a).shape
            flops += 2 * m * k * buffer(op.b).shape[1]
        elif isinstance(op, TransferOp):
            traffic += size(op.box_sizes) * numpy_dtype(op.view.element).itemsize
    return flops, traffic


def find_split(
    kernel: KernelOp, signature: LaunchBinding, batches: Mapping[SectionOp, Batch]
) -> Split | None:
    """A grid axis along which each output falls into two contiguous halves, written by one group each."""
    grid = to_ints(kernel.grid)
    arguments = tensor_arguments(kernel)
    ranges = index_ranges(kernel)
    stores: dict[int, list[TransferOp]] = {}
    views: dict[int, list[View]] = {}
    for i, t in enumerate(signature.tensors):
        if t.written:
            named = [a for a, of in zip(arguments, signature.of, strict=True) if of == i]
            found = _stores(named[0]) if len(named) == 1 and t.fresh else []
            if not found:
                return None
            stores[i], views[i] = found, _views(named[0])
    at_once = batched_axes(kernel, batches)
    for axis, cores in sorted(enumerate(grid), key=lambda g: (g[1] % 2, g[0])):
        if cores < 2 or axis in at_once:  # large products run on both threads anyway
            continue
        coordinate = kernel.body.block.args[axis]
        parts = {i: _part(s, coordinate, ranges, signature.tensors[i].shape) for i, s in stores.items()}
        shapes = {i: signature.tensors[i].shape for i in stores}
        found = {i: p for i, p in parts.items() if p and all(v.of_part(shapes[i], *p) for v in views[i])}
        first = cores - -(-cores // 2)  # what the second group begins with is within the outputs, and so is their end
        whole = all(
            first * each < signature.tensors[i].shape[d] <= cores * each for i, (d, each) in found.items()
        )
        if found and len(found) == len(parts) and whole:
            return Split(axis, -(-cores // 2), found)
    return None


def batched_axes(kernel: KernelOp, batches: Mapping[SectionOp, Batch]) -> set[int]:
    """Grid axes that no section needs a loop for."""
    coordinates = kernel.body.block.args[: len(to_ints(kernel.grid))]
    return {i for i, v in enumerate(coordinates) if all(v in batch.counts for batch in batches.values())}


def _stores(tensor: SSAValue) -> list[TransferOp]:
    """The ops that store to a device tensor or to a view of it; none if another op uses it."""
    found: list[TransferOp] = []
    for op in (use.operation for use in tensor.uses):
        if isinstance(op, ViewOp):
            inner = _stores(op.result)
            if not inner and list(op.result.uses):
                return []
            found += inner
        elif isinstance(op, TransferOp) and op.writes()[0] is tensor:
            found.append(op)
        else:
            return []
    return found


def _views(tensor: SSAValue) -> list[View]:
    """A device tensor and all views of it, also those that nothing uses."""
    inner = (use.operation for use in tensor.uses)
    return [View.of(gm(tensor)), *(v for op in inner if isinstance(op, ViewOp) for v in _views(op.result))]


def _part(
    stores: Sequence[TransferOp], coordinate: SSAValue, ranges: Ranges, shape: Sequence[int]
) -> tuple[int, int] | None:
    """The dimension of an output, of this shape, that `coordinate` moves along, and by how much; None if stores of
    different coordinates could meet, or it is no dimension of the output."""
    found: set[tuple[int | None, int]] = set()
    for op in stores:
        view, starts = View.of(gm(op.writes()[0])), op.linear()
        mine = [d for d, start in enumerate(starts) if start.coefficient(coordinate)]
        if len(mine) != 1:
            return None
        (d,) = mine
        each = starts[d].coefficient(coordinate)
        low, high = starts[d].without({coordinate}).span(ranges)
        step = op.box_steps[d]
        span = (op.box_sizes[d] - 1) * step + 1
        if step < 1 or low < 0 or high + span > each:
            return None
        found.add((view.source_dim(d, shape), each))
    (where, each), *others = found
    return None if others or where is None else (where, each)
