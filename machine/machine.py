"""The data model of a chip. Times are core cycles unless a name says otherwise; sizes are bytes."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
_REQUIRED_SPACES = ("gm", "l1", "l0a", "l0b", "l0c", "ub")
_MOVE_PIPES = ("MTE1", "MTE2", "MTE3", "FIX", "V")
_REQUIRED_MOVES = (
    ("gm", "l1"),
    ("gm", "ub"),
    ("l1", "l0a"),
    ("l1", "l0b"),
    ("l0c", "gm"),
    ("ub", "gm"),
)


class MachineError(Exception):
    """A target that is unknown, or a machine file that is malformed; the message is one sentence."""


@dataclass(frozen=True)
class MemorySpace:
    """One memory: per core, except `gm`, whose size is the device's."""

    name: str
    bytes: int
    align: int


@dataclass(frozen=True)
class Move:
    """A data path of one core: cycles = fixed_cycles + bytes / bytes_per_cycle on `pipe`."""

    source: str
    target: str
    pipe: str
    bytes_per_cycle: float
    fixed_cycles: int


@dataclass(frozen=True)
class CubeRate:
    """The block of a matrix product that one cube finishes in one cycle."""

    m: int
    k: int
    n: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates per cycle."""
        return self.m * self.k * self.n


@dataclass(frozen=True)
class VectorUnit:
    """One vector core: elements per cycle by instruction and dtype, and what other ops are built of."""

    repeat_bytes: int
    fixed_cycles: int
    streamed_cycles: int
    native: frozenset[str]
    compute_as: Mapping[str, str]
    rates: Mapping[str, Mapping[str, float]]
    expansions: Mapping[str, tuple[str, ...]]

    def cycles(self, op: str, dtype: str, elements: int) -> int:
        """Cycles of `op` on `elements` values when the pipe is already busy; KeyError if unsupported."""
        rates = self._instruction_rates(op, dtype)
        if rates is None:
            raise KeyError(f"no vector instruction or expansion for {op} on {dtype}")
        return sum(math.ceil(elements / rate) + self.streamed_cycles for rate in rates)

    def supports(self, op: str, dtype: str) -> bool:
        """Whether `cycles` has an answer for `op` on `dtype`."""
        return self._instruction_rates(op, dtype) is not None

    def _instruction_rates(self, op: str, dtype: str) -> tuple[float, ...] | None:
        """Elements per cycle of each instruction of `op`, or None.

        A rate at `dtype` wins; then an expansion every part of which is supported at `dtype`; then the
        dtype it is computed as. Conversions to that dtype are ops of their own and are not counted here.
        """
        rate = self.rates.get(op, {}).get(dtype)
        if rate is not None:
            return (rate,)
        if op in self.expansions:
            nested = [self._instruction_rates(part, dtype) for part in self.expansions[op]]
            known = [rates for rates in nested if rates is not None]
            if len(known) == len(nested):
                return tuple(rate for rates in known for rate in rates)
        wider = self.compute_as.get(dtype)
        return None if wider is None else self._instruction_rates(op, wider)


@dataclass(frozen=True)
class HostCost:
    """What leaving the device costs: link bytes per microsecond and microseconds per host call."""

    pcie_bytes_per_us: float
    call_us: float


@dataclass(frozen=True)
class Energy:
    """Modelled energy: picojoules per multiply-accumulate by dtype and per byte by memory level."""

    pj_per_mac: Mapping[str, float]
    pj_per_byte: Mapping[str, float]
    idle_watts: float


@dataclass(frozen=True)
class Machine:
    """One chip. Rates of `moves`, `cube` and `vector` are per core; L2 and HBM rates are chip-wide."""

    name: str
    clock_mhz: float
    fused: bool
    cube_cores: int
    vector_cores: int
    spaces: Mapping[str, MemorySpace]
    moves: Mapping[tuple[str, str], Move]
    cube: Mapping[str, CubeRate]
    cube_k0: Mapping[str, int]
    cube_fixed_cycles: int
    vector: VectorUnit
    l2_bytes: int
    l2_bytes_per_cycle: float
    hbm_bytes_per_cycle: float
    burst_bytes: int
    gm_align: int
    launch_us: float
    launch_us_all: float
    host: HostCost
    energy: Energy
    flags: int = 8

    def cycles_to_microseconds(self, cycles: float) -> float:
        """Core cycles as microseconds at this chip's clock."""
        return cycles / self.clock_mhz

    def launch_microseconds(self, cores: int) -> float:
        """Microseconds to start and finish a kernel on `cores` cores, linear up to every cube core in use."""
        if self.cube_cores == 1:
            return self.launch_us
        share = (min(max(cores, 1), self.cube_cores) - 1) / (self.cube_cores - 1)
        return self.launch_us + share * (self.launch_us_all - self.launch_us)

    @staticmethod
    def load(name_or_path: str) -> Machine:
        """The machine of a known target name, or of a path to a .toml; MachineError otherwise."""
        path = _FOLDER / f"{name_or_path}.toml"
        if name_or_path not in Machine.names():
            path = Path(name_or_path)
            if path.suffix != ".toml" or not path.is_file():
                known = ", ".join(Machine.names())
                raise MachineError(
                    f"unknown target '{name_or_path}': known are {known}, or a path to a .toml"
                )
        return _read(path, path.stat().st_mtime_ns)

    @staticmethod
    def names() -> list[str]:
        """The known targets."""
        return sorted(path.stem for path in _FOLDER.glob("*.toml"))


@functools.lru_cache(maxsize=64)
def _read(path: Path, modified: int) -> Machine:
    """The machine in a file, read once for each time it was `modified` (ns): every pass asks for its target."""
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise MachineError(f"{path}: {error}") from error
    return _machine(_Table(path, "", table))


class _Table:
    """A TOML table being read: errors name the file and the key, and `close` refuses leftovers."""

    def __init__(self, path: Path, prefix: str, table: dict[str, Any]) -> None:
        self.path, self.prefix, self.table = path, prefix, dict(table)

    def error(self, key: str, problem: str) -> MachineError:
        """The error for `key` of this table."""
        return MachineError(f"{self.path}: key '{self.prefix}{key}' {problem}")

    def take(self, key: str) -> Any:
        """Remove and return a key that must be there."""
        if key not in self.table:
            raise self.error(key, "is missing")
        return self.table.pop(key)

    def number(self, key: str) -> float:
        """A positive, finite number."""
        value = self.take(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise self.error(key, "must be a positive number")
        return float(value)

    def integer(self, key: str) -> int:
        """A positive integer."""
        value = self.take(key)
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise self.error(key, "must be a positive integer")
        return value

    def text(self, key: str) -> str:
        """A string."""
        value = self.take(key)
        if not isinstance(value, str):
            raise self.error(key, "must be a string")
        return value

    def flag(self, key: str) -> bool:
        """A boolean."""
        value = self.take(key)
        if not isinstance(value, bool):
            raise self.error(key, "must be true or false")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A non-empty list of strings."""
        value = self.take(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            raise self.error(key, "must be a list of strings, not empty")
        return tuple(value)

    def child(self, key: str) -> _Table:
        """A nested table."""
        value = self.take(key)
        if not isinstance(value, dict):
            raise self.error(key, "must be a table")
        return _Table(self.path, f"{self.prefix}{key}.", value)

    def numbers(self, key: str) -> dict[str, float]:
        """A nested table of positive numbers, not empty."""
        child = self.child(key)
        if not child.table:
            raise self.error(key, "must not be empty")
        return {name: child.number(name) for name in list(child.table)}

    def close(self) -> None:
        """Refuse keys that nothing has read."""
        for key in self.table:
            raise self.error(key, "is not known")


def _machine(table: _Table) -> Machine:
    name, clock = table.text("name"), table.number("clock_mhz")
    cores, memory, launch = table.child("cores"), table.child("memory"), table.child("launch")
    host, energy, cube = table.child("host"), table.child("energy"), table.child("cube")
    spaces = _spaces(table.child("spaces"))
    rates, k0 = _cube(cube.child("rates"))
    machine = Machine(
        name=name,
        clock_mhz=clock,
        fused=table.flag("fused"),
        cube_cores=cores.integer("cube"),
        vector_cores=cores.integer("vector"),
        spaces=spaces,
        moves=_moves(table.child("moves"), spaces),
        cube=rates,
        cube_k0=k0,
        cube_fixed_cycles=cube.integer("fixed_cycles"),
        vector=_vector(table.child("vector")),
        l2_bytes=memory.integer("l2_bytes"),
        l2_bytes_per_cycle=memory.number("l2_tb_per_s") * 1e6 / clock,
        hbm_bytes_per_cycle=memory.number("hbm_tb_per_s") * 1e6 / clock,
        burst_bytes=memory.integer("burst_bytes"),
        gm_align=memory.integer("gm_align"),
        launch_us=launch.number("one_core_us"),
        launch_us_all=launch.number("all_cores_us"),
        host=HostCost(host.number("pcie_gb_per_s") * 1e3, host.number("call_us")),
        energy=Energy(
            energy.numbers("pj_per_mac"), energy.numbers("pj_per_byte"), energy.number("idle_watts")
        ),
        flags=table.integer("flags"),
    )
    if machine.fused and ("l0c", "ub") not in machine.moves:
        raise table.error("moves", "lacks l0c.ub, which a fused chip has")
    for level in ("gm", "l2", "l1", "l0", "ub"):
        if level not in machine.energy.pj_per_byte:
            raise energy.error(f"pj_per_byte.{level}", "is missing")
    for dtype in machine.cube:
        if dtype not in machine.energy.pj_per_mac:
            raise energy.error(f"pj_per_mac.{dtype}", "is missing")
    for part in (cores, memory, launch, host, energy, cube, table):
        part.close()
    return machine


def _spaces(table: _Table) -> dict[str, MemorySpace]:
    for required in _REQUIRED_SPACES:
        if required not in table.table:
            raise table.error(required, "is missing")
    spaces: dict[str, MemorySpace] = {}
    for name in list(table.table):
        if name not in (*_REQUIRED_SPACES, "bt", "fb"):
            raise table.error(name, "is not known")
        entry = table.child(name)
        spaces[name] = MemorySpace(name, entry.integer("bytes"), entry.integer("align"))
        entry.close()
    return spaces


def _moves(table: _Table, spaces: Mapping[str, MemorySpace]) -> dict[tuple[str, str], Move]:
    moves: dict[tuple[str, str], Move] = {}
    for source in list(table.table):
        targets = table.child(source)
        for target in list(targets.table):
            if source not in spaces or target not in spaces:
                raise targets.error(target, "joins a memory space that 'spaces' does not have")
            entry = targets.child(target)
            pipe = entry.text("pipe")
            if pipe not in _MOVE_PIPES:
                raise entry.error("pipe", f"must be one of {', '.join(_MOVE_PIPES)}")
            moves[source, target] = Move(
                source, target, pipe, entry.number("bytes_per_cycle"), entry.integer("fixed_cycles")
            )
            entry.close()
    for source, target in _REQUIRED_MOVES:
        if (source, target) not in moves:
            raise table.error(f"{source}.{target}", "is missing")
    return moves


def _cube(table: _Table) -> tuple[dict[str, CubeRate], dict[str, int]]:
    rates: dict[str, CubeRate] = {}
    k0: dict[str, int] = {}
    for dtype in list(table.table):
        entry = table.child(dtype)
        rates[dtype] = CubeRate(entry.integer("m"), entry.integer("k"), entry.integer("n"))
        k0[dtype] = entry.integer("k0")
        entry.close()
    return rates, k0


def _vector(table: _Table) -> VectorUnit:
    rates_table, as_table, expansions_table = (
        table.child("rates"),
        table.child("compute_as"),
        table.child("expansions"),
    )
    rates = {op: rates_table.numbers(op) for op in list(rates_table.table)}
    compute_as = {dtype: as_table.text(dtype) for dtype in list(as_table.table)}
    expansions = {op: expansions_table.texts(op) for op in list(expansions_table.table)}
    native = frozenset(table.texts("native"))
    for op, parts in expansions.items():
        for part in parts:
            if part not in rates and part not in expansions:
                raise expansions_table.error(op, f"uses '{part}', which has neither a rate nor an expansion")
    for cycle in _circular(expansions):
        raise expansions_table.error(cycle, "expands into itself")
    for dtype, wider in compute_as.items():
        if wider not in native:
            raise as_table.error(dtype, f"is computed as '{wider}', which is not native")
        if dtype in native and (wider == dtype or wider in compute_as):
            raise as_table.error(dtype, "must lead to a native dtype that leads no further")
    unit = VectorUnit(
        repeat_bytes=table.integer("repeat_bytes"),
        fixed_cycles=table.integer("fixed_cycles"),
        streamed_cycles=table.integer("streamed_cycles"),
        native=native,
        compute_as=compute_as,
        rates=rates,
        expansions=expansions,
    )
    table.close()
    return unit


def _circular(expansions: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The ops whose expansion never ends."""
    ending: set[str] = set()
    while True:
        more = {
            op
            for op, parts in expansions.items()
            if op not in ending and all(part in ending or part not in expansions for part in parts)
        }
        if not more:
            return [op for op in expansions if op not in ending]
        ending |= more
