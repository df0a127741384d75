"""What every instruction of the npu level answers: its pipe, what it reads and writes, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.traits import EffectInstance

from ...machine import Machine
from ..base import FormattedOp, to_ints
from ..dtypes import dtype_name, itemsize, size
from ..effects import MemoryEffectInterface, effects_on
from ..shapes import check_offsets
from .fractals import refuse_matrices
from .legality import EngineOp
from .types import BufferType, GmType, Pipe


@dataclass(frozen=True)
class Cost:
    """What one instruction asks of its pipe.

    cycles: busy time with the machine to itself and all its bytes in L2; gm_bytes: bytes that cross the device
    memory system (whole bursts), read or written; bus_bytes: what they take of its bandwidth, more than gm_bytes
    where runs straddle memory lines; missed_cycles, bypassed_cycles: busy time where all bytes miss L2, which keeps
    them or does not; shared_rate: bytes per cycle at which one core gets what all others read at the same time;
    hbm_share: of HBM's bandwidth, what all cores get together; turn: cycles at least for each core that asks for the
    same lines at the same time; macs: multiply-accumulates; elements: vector lanes worked; write: True where gm_bytes
    go out.
    """

    cycles: int = 0
    gm_bytes: int = 0
    bus_bytes: int = 0
    missed_cycles: float = 0.0
    bypassed_cycles: float = 0.0
    shared_rate: float = math.inf
    hbm_share: float = 1.0
    turn: float = 0.0
    macs: int = 0
    elements: int = 0
    write: bool = False


FREE = Cost()

PRODUCT = " -> "
"""Between the element types that products multiply and those that they add up in."""


@dataclass(frozen=True)
class SourceBox:
    """A box of an on-chip buffer, placed by `at [...]`: `sizes` positions, `steps` apart, for each position of a
    `window` whose neighbours are `window_steps` apart."""

    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    window: tuple[int, ...]
    window_steps: tuple[int, ...]

    @staticmethod
    def of(op: FormattedOp) -> SourceBox:
        """From the properties of an op."""
        found = []
        sizes = op.properties["sizes"]
        assert isinstance(sizes, DenseArrayBase)
        ones = (1,) * len(to_ints(sizes))
        for key in ("steps", "window", "window_steps"):
            attr = op.properties.get(key)
            assert attr is None or isinstance(attr, DenseArrayBase)
            found.append(to_ints(attr) or ones)
        return SourceBox(to_ints(sizes), *found)


class NpuOp(EngineOp, MemoryEffectInterface):
    """One machine instruction. Operands come in the order sources, destinations, indices."""

    PIPE: ClassVar[Pipe]
    N_OUTPUTS: ClassVar[int] = 1

    def pipes(self) -> Sequence[Pipe]:
        """The pipe that the instruction runs on; those of a flag are the two that it orders."""
        return (self.PIPE,)

    def sources(self) -> Sequence[SSAValue]:
        main = self.main_operands()
        return main[: len(main) - self.N_OUTPUTS]

    def destinations(self) -> Sequence[SSAValue]:
        main = self.main_operands()
        return main[len(main) - self.N_OUTPUTS :]

    def reads(self) -> Sequence[SSAValue]:
        """Buffers and device tensors whose contents the instruction uses."""
        return self.sources()

    def writes(self) -> Sequence[SSAValue]:
        return self.destinations()

    def accumulates(self) -> str:
        """How it combines what it writes to device memory with what is there: `add`, say. Empty where it does not."""
        return ""

    def effects(self) -> AbstractSet[EffectInstance]:
        return effects_on(self.reads(), self.writes())

    def matrices(self) -> Sequence[tuple[SSAValue, int]]:
        """The buffers that it fills or reads as matrices in fractals, where the machine has them; each with how many of
        its last dimensions are columns."""
        return ()

    def misfits(self, machine: Machine) -> str | None:
        return refuse_matrices(self.matrices(), machine)

    def in_place(self) -> bool:
        """Whether a destination may be a source too: each lane is read before it is written."""
        return False

    def starts_fresh(self) -> tuple[int, SSAValue] | None:
        """(row, source): where that row of `at [...]` is 0, the source's old contents are not used."""
        return None

    def is_unordered(self, machine: Machine) -> bool:
        """Whether it may begin before the instructions ahead of it on its pipe are over."""
        return self.PIPE in machine.unordered

    def flagged_sums(self) -> SSAValue | None:
        """The accumulator of a product or a drain that has a unit flag."""
        return None

    def source_box(self) -> SourceBox | None:
        """The box of the first source that the instruction reads, for those that read a part of it."""
        return None

    def evaluate(self, scope: Any, sources: Sequence[Any], out: Sequence[Any]) -> Sequence[Any]:
        """What it writes, as JAX arrays of the shapes and dtypes that `out` says, for the contents of its sources.
        `scope` knows the loops' indices. Asked of ops that backends/interpreter/instructions.py does not have."""
        raise NotImplementedError

    def combines_along(self) -> Sequence[int]:
        """The dimensions along which it combines elements, where it does the same everywhere along the others: then
        tiles that lie side by side along those are computed as one."""
        raise NotImplementedError

    def arithmetic(self) -> str:
        """The element types that it computes in: `f32` where a vector instruction works in that, `i8 -> i32` where i8
        is multiplied and added up in i32. Empty where it only moves, makes or converts elements."""
        return ""

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        """Cost on `machine` where the `at [...]` indices have these values. Raises KeyError for a move or rate
        the machine does not have."""
        raise NotImplementedError

    def cost_of_part(self, machine: Machine, indices: Sequence[int], valid: Sequence[int | None]) -> Cost:
        """Cost where only `valid` positions of each extent hold data of a tensor (None: all): (m, k, n) of a product,
        else one for each dimension that the instruction works on."""
        return self.cost(machine, indices)

    def verify_(self) -> None:
        check_offsets(self, len(self.index_operands()))


def products_in(operands: str, sums: str) -> str:
    """How precision is said of products: the element types that they multiply and add up in, `i8 -> i32`."""
    return f"{operands}{PRODUCT}{sums}"


def buffer(value: SSAValue) -> BufferType:
    """The buffer type of a value. Raises TypeError for anything else."""
    if not isinstance(value.type, BufferType):
        raise TypeError(f"expected !npu.buffer, got {value.type}")
    return value.type


def gm(value: SSAValue) -> GmType:
    """The device tensor type of a value. Raises TypeError for anything else."""
    if not isinstance(value.type, GmType):
        raise TypeError(f"expected !npu.gm, got {value.type}")
    return value.type


def parts(shape: Sequence[int], valid: Sequence[int | None]) -> list[int]:
    """Extents with what holds data in place of the whole."""
    return [n if v is None else v for n, v in zip(shape, valid, strict=True)]


def valid_extent(offset: int, count: int, step: int, extent: int) -> int:
    """How many of `offset + i * step`, i < count, lie inside [0, extent)."""
    if step == 0 or count == 0:
        return count if 0 <= offset < extent else 0
    if step < 0:
        offset, step = offset + (count - 1) * step, -step
    first = 0 if offset >= 0 else -(offset // step)
    last = min(count, -(-(extent - offset) // step))
    return max(0, last - first)


class Traffic(NamedTuple):
    """A box transfer: bytes in whole bursts, contiguous runs, and bytes of bandwidth it takes."""

    bytes: int
    runs: int
    bus: int


def gm_traffic(
    view: GmType,
    offsets: Sequence[int],
    sizes: Sequence[int],
    steps: Sequence[int],
    machine: Machine,
    align: int = 0,
) -> Traffic:
    """What a box transfer moves: each contiguous run moves whole bursts, and asks for whole lines, as `gm_runs` has
    them."""
    runs, length, lines = gm_runs(view, offsets, sizes, steps, machine, align)
    return Traffic(runs * length, runs, math.ceil(runs * length * lines))


def gm_runs(
    view: GmType,
    offsets: Sequence[int],
    sizes: Sequence[int],
    steps: Sequence[int],
    machine: Machine,
    align: int = 0,
) -> tuple[int, int, float]:
    """(contiguous runs of a box transfer, bytes of whole bursts in each, bytes of the lines that it asks for in each of
    these on the mean).

    A run that straddles lines of `gm_align` bytes asks for one more than it would in place, and takes that much
    more of the bandwidth. `align` (bytes, 0: all starts) divides the start of every run.
    """
    burst, line = machine.burst_bytes, machine.gm_align
    width = itemsize(view.element)
    valid = [valid_extent(o, c, s, d) for o, c, s, d in zip(offsets, sizes, steps, view.shape, strict=True)]
    if not size(valid):
        return 0, 0, 0.0
    run, expected = 1, 1
    for count, step, stride in sorted(
        zip(valid, steps, view.strides, strict=True), key=lambda t: abs(t[1] * t[2]) if t[0] > 1 else 0
    ):
        if count == 1 or stride == 0:
            continue
        if step * stride != expected:
            break
        run *= count
        expected = run
    distinct = size([v for v, s in zip(valid, view.strides, strict=True) if s != 0])
    runs = distinct // run
    length = -(-run * width // burst) * burst
    for n, step, stride in zip(valid, steps, view.strides, strict=True):
        if n > 1 and abs(step * stride) * width > run * width:
            align = math.gcd(align, step * stride * width)
    return runs, length, straddling(length, align, line)


def straddling(run: int, align: int, line: int) -> float:
    """How many more lines runs of `run` bytes touch than their bytes fill, where starts are multiples of `align`:
    the mean over all places in a line. A run shorter than a line counts as one that fills it: the next ones find
    the line in L2."""
    align = math.gcd(align, line)
    places = range(0, line, max(align, 1))
    touched = sum(-(-(place + run) // line) for place in places) / len(places)
    return touched / max(1.0, run / line)


def vector_elements(target: BufferType) -> int:
    """Lanes a vector instruction works to fill `target`, rows padded to blocks."""
    return target.slot_bytes // itemsize(target.element)


def fill_value(attr: Attribute | None) -> float | int:
    """The number in a `fill` or `value` property, 0 where absent."""
    if attr is None:
        return 0.0
    assert isinstance(attr, FloatAttr | IntegerAttr)
    return attr.value.data


def vector_dtype(*values: SSAValue) -> str:
    """The element type that sets a vector instruction's rate: the widest one it touches."""
    names = [dtype_name(buffer(v).element) for v in values]
    return max(names, key=itemsize)
