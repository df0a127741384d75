"""What a chip is made of. Times are core cycles unless a name says otherwise; sizes are bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..support.sentences import SentenceError

PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
"""The instruction queues that every chip has. The scalar unit S, which issues, is first."""

ACCUMULATIONS = ("add", "max", "min")
"""How a store may combine what it writes with what device memory holds."""

LEVELS = {"l1": "l1", "l0a": "l0", "l0b": "l0", "l0c": "l0", "ub": "ub", "bt": "l0", "fb": "l0"}
"""Where the energy table has the bytes of the spaces that the compiler knows; those of others have their own names."""


class MachineError(SentenceError):
    """A target that is unknown, or a machine file that is malformed; the message is one sentence."""


@dataclass(frozen=True)
class MemorySpace:
    """One memory: of each `core` of that kind ("cube", "vector", "fused"), or of the device ("")."""

    name: str
    bytes: int
    align: int
    core: str = ""

    @property
    def level(self) -> str:
        """Its key in the table of energy by bytes."""
        return LEVELS.get(self.name, self.name)


@dataclass(frozen=True)
class Move:
    """A data path of one core, on `pipe`.

    An instruction takes fixed_cycles, and for each contiguous run in device memory the longer of run_cycles and
    its bytes over bytes_per_cycle. Bytes that miss L2 come at miss_bytes_per_cycle at best, bytes that all cores
    read at the same time at shared_bytes_per_cycle: a core's part of what L2 gives of the same lines. All cores
    together get hbm_share of HBM's bandwidth. A run that L2 is told not to keep takes at least bypass_run_cycles
    more. Cores that ask for less than the same turn_bytes at the same time take turns of turn_cycles. Where the source
    is filled while it is read (a multi-buffer), everything takes overlap_factor times as long.
    """

    source: str
    target: str
    pipe: str
    bytes_per_cycle: float
    fixed_cycles: int
    run_cycles: float = 0.0
    miss_bytes_per_cycle: float = math.inf
    shared_bytes_per_cycle: float = math.inf
    hbm_share: float = 1.0
    bypass_run_cycles: float = 0.0
    turn_cycles: float = 0.0
    turn_bytes: float = 0.0
    overlap_factor: float = 1.0

    def cycles(self, bytes: float, runs: int = 0, overlapped: bool = False) -> int:
        """Whole cycles of one instruction whose bytes all hit L2."""
        streamed = bytes / self.bytes_per_cycle
        alone = self.fixed_cycles + max(self.run_cycles * runs, streamed)
        return math.ceil(alone * (self.overlap_factor if overlapped else 1))

    def missed_cycles(self, bus: float, cycles: float) -> float:
        """Cycles of one instruction, which takes so many where they hit L2, whose `bus` bytes all miss: runs are asked
        for while the lines of those before are on their way."""
        return max(float(cycles), self.fixed_cycles + bus / self.miss_bytes_per_cycle)

    def bypassed_cycles(self, bus: float, runs: int, cycles: int) -> float:
        """The same where L2 keeps none of them: each run waits for its lines."""
        return cycles + max(bus * self.miss_cycles, runs * self.bypass_run_cycles)

    def turn(self, bytes: float, bus: float, runs: int) -> float:
        """Cycles that an instruction takes at least for each core that asks for the same lines at the same time: for
        each run that is shorter than turn_bytes, twice for one that straddles lines, as its `bus` bytes say. What
        longer runs cost is in shared_bytes_per_cycle."""
        run = bytes / runs if runs else math.inf
        return self.turn_cycles * bus / run if run < self.turn_bytes else 0.0

    @property
    def miss_cycles(self) -> float:
        """Cycles that a byte takes more where it misses L2."""
        return max(0.0, 1 / self.miss_bytes_per_cycle - 1 / self.bytes_per_cycle)


@dataclass(frozen=True)
class CubeRate:
    """The block of a matrix product that one cube finishes in one cycle; others: element types that the second matrix
    may have beside the first one's own; biased: whether its sums may begin as a bias. Of pairs, k counts numbers."""

    m: int
    k: int
    n: int
    others: tuple[str, ...] = ()
    biased: bool = True

    @property
    def macs(self) -> int:
        """Multiply-accumulates per cycle."""
        return self.m * self.k * self.n


@dataclass(frozen=True)
class ScaledDrains:
    """What accumulators become on their way out of the cube where they are multiplied by a number.

    types: element types that are stored, by the accumulator's; mantissa_bits: of the number, which is an f32 with so
    many; offset_bits: of the whole number that is added before an integer is stored, with its sign; relu: types of
    accumulators of which negative ones may leave as 0, scaled or not; words: the type of what the memory fb has for
    each column, where every column may have a number of its own. The low 32 bits of a word are the number.
    """

    types: Mapping[str, tuple[str, ...]]
    mantissa_bits: int
    offset_bits: int
    relu: tuple[str, ...] = ()
    words: str | None = None

    def takes(self, factor: float) -> bool:
        """Whether a number is a normal f32 with so few bits that accumulators can be multiplied by it."""
        bits = struct.unpack("<I", struct.pack("<f", factor))[0]
        return not bits & (1 << 23 - self.mantissa_bits) - 1 and 0 < bits >> 23 & 0xFF < 0xFF


@dataclass(frozen=True)
class Banks:
    """The banks of a vector core's memory. A repeat reads and writes windows of `window_bytes`, and the groups of banks
    are as wide as two windows; from one bank of a group to the next are `span_bytes`.

    read_cycles: how much longer a repeat takes that reads twice from one group; write_cycles: one that writes to a bank
    that it reads, but not along the windows that it reads.
    """

    window_bytes: int
    span_bytes: int
    read_cycles: float
    write_cycles: float

    def same_groups(self, a: int, b: int) -> bool:
        """Whether windows at two addresses lie in the same groups."""
        return a // self.window_bytes % 2 == b // self.window_bytes % 2

    def crossed(self, read: int, written: int) -> bool:
        """Whether what is written at an address meets what is read at another, window by window."""
        banked = read // self.span_bytes == written // self.span_bytes
        return banked and (written - read) % self.window_bytes != 0


ALL_DTYPES = ""
"""Instead of a dtype: all for which nothing else is said."""


@dataclass(frozen=True)
class VectorUnit:
    """One vector core: elements per cycle by instruction and dtype, and what other ops are built of.

    roundings: the conversions that round by another rule than others, each rule's by the dtype that is converted; what
    they become. order_as: the native dtype in which numbers of one that is not native are compared and chosen from.
    expansions: the instructions of an op that has none, by dtype; under ALL_DTYPES, those of every other dtype.
    """

    repeat_bytes: int
    streamed_cycles: int
    banks: Banks | None
    native: frozenset[str]
    compute_as: Mapping[str, str]
    rates: Mapping[str, Mapping[str, float]]
    expansions: Mapping[str, Mapping[str, tuple[str, ...]]]
    roundings: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    order_as: Mapping[str, str] = field(default_factory=dict)

    def rounds(self, mode: str, source: str, target: str) -> bool:
        """Whether there is an instruction that converts one dtype to another and rounds by the rule `mode`."""
        return target in self.roundings.get(mode, {}).get(source, ())

    def orders(self, op: str, dtype: str) -> str:
        """The dtype in which `op` compares numbers of `dtype`, or chooses one of them."""
        other = self.order_as.get(dtype)
        return other if other is not None and self.runs(op, other) else self.computes(op, dtype)

    def cycles(self, op: str, dtype: str, elements: int) -> int:
        """Cycles of `op` on `elements` values when the pipe is already busy; KeyError if unsupported."""
        rates = self._instruction_rates(op, dtype)
        if rates is None:
            raise KeyError(f"no vector instruction or expansion for {op} on {dtype}")
        return sum(math.ceil(elements / rate) + self.streamed_cycles for rate in rates)

    def peak(self, dtype: str, width: int) -> float:
        """Elements of a dtype of `width` bytes that the unit takes in a cycle at most: a repeat of full lanes, or as
        many as its fastest instruction does."""
        kinds = {dtype, self.compute_as.get(dtype, dtype)}
        fastest = max((rates[k] for rates in self.rates.values() for k in kinds if k in rates), default=0.0)
        return max(self.repeat_bytes / width, fastest)

    def runs(self, op: str, dtype: str) -> bool:
        """Whether there is an instruction, or an expansion into instructions, for `op` on `dtype` itself."""
        return self._own_rates(op, dtype) is not None

    def supports(self, op: str, dtype: str) -> bool:
        """Whether `cycles` has an answer for `op` on `dtype`."""
        return self._instruction_rates(op, dtype) is not None

    def computes(self, op: str, dtype: str) -> str:
        """The dtype that `op` on `dtype` runs in: its own where the unit has it and an instruction for it."""
        if dtype in self.native and self._own_rates(op, dtype) is not None:
            return dtype
        return self.compute_as.get(dtype, dtype)

    def _instruction_rates(self, op: str, dtype: str) -> tuple[float, ...] | None:
        """Elements per cycle of each instruction of `op`, or None.

        A rate at `dtype` wins; then an expansion that is for `dtype` and every part of which is supported there;
        then the dtype it is computed as. Conversions to that dtype are ops of their own and are not counted here.
        """
        own = self._own_rates(op, dtype)
        if own is not None or dtype not in self.compute_as:
            return own
        return self._instruction_rates(op, self.compute_as[dtype])

    def _own_rates(self, op: str, dtype: str) -> tuple[float, ...] | None:
        """As `_instruction_rates`, without going to the dtype it is computed as."""
        rate = self.rates.get(op, {}).get(dtype)
        if rate is not None:
            return (rate,)
        by_dtype = self.expansions.get(op, {})
        parts = by_dtype.get(dtype, by_dtype.get(ALL_DTYPES))
        if parts is None:
            return None
        found: list[float] = []
        for part in parts:
            rates = self._own_rates(part, dtype)
            if rates is None:
                return None
            found += rates
        return tuple(found)


@dataclass(frozen=True)
class HostCost:
    """What leaving the device costs: link bytes per microsecond, microseconds per runtime call, microseconds per
    operation on numbers that the host program does between calls, and bytes of operands and results that the host
    computes with per microsecond."""

    pcie_bytes_per_us: float
    call_us: float
    scalar_us: float
    compute_bytes_per_us: float


@dataclass(frozen=True)
class Energy:
    """Modelled energy: picojoules per multiply-accumulate by dtype, per cycle of a busy lane of the vector unit by
    the type of the lane, and per byte by memory level."""

    pj_per_mac: Mapping[str, float]
    pj_per_lane: Mapping[str, float]
    pj_per_byte: Mapping[str, float]
    idle_watts: float
