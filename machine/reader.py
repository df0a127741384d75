"""Reads machine files: checks every key, and names the one that is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..support.files import read_plain, real_path, toml_of
from . import files
from .parts import (
    ACCUMULATIONS,
    ALL_DTYPES,
    LEVELS,
    PIPES,
    Banks,
    CubeRate,
    Energy,
    HostCost,
    MachineError,
    MemorySpace,
    Move,
    ScaledDrains,
    VectorUnit,
)

_REQUIRED_SPACES = ("gm", "l1", "l0a", "l0b", "l0c", "ub")
_COMPUTING_PIPES = ("S", "M")
"""Pipes that move nothing."""

LANES = ("f16", "f32", "i8", "i16", "i32")
"""Types of a lane of the vector unit that the energy table must have."""

_REQUIRED_MOVES = (
    ("gm", "l1"),
    ("gm", "ub"),
    ("l1", "l0a"),
    ("l1", "l0b"),
    ("l0c", "gm"),
    ("ub", "gm"),
)


LEAST, MOST, MOST_INTEGER = 1e-30, 1e30, 1 << 53
"""The least and the largest number, and the largest integer, in a file: what is computed of them stays finite."""

MOST_CORES = 1 << 16
"""Cores of a kind that a chip may have."""


def tables(path: Path) -> tuple[dict[str, Any], list[Path]]:
    """The tables of a file over those of the target that it `extends`, if any; and the files. Raises MachineError."""
    return _tables(path, ())


def _tables(path: Path, seen: tuple[Path, ...]) -> tuple[dict[str, Any], list[Path]]:
    try:
        own = toml_of(read_plain(path).decode())
    except OSError as error:
        raise MachineError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise MachineError(f"{path}: not a text file in UTF-8") from error
    except ValueError as error:
        raise MachineError(f"{path}: not TOML: {error}") from error
    base = own.pop("extends", None)
    if base is None:
        return own, [path]
    if not isinstance(base, str):
        raise MachineError(f"{path}: key 'extends' must be a string")
    seen = (*seen, real_path(path))
    found = files.find(base, path)
    if real_path(found) in seen:
        raise MachineError(f"{path}: key 'extends' leads from {seen[0].name} back to {found.name}")
    below, read = _tables(found, seen)
    return _over(below, own), [path, *read]


def _over(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """`base` with what `own` has in its place; tables are merged key by key, an empty table removes one."""
    out = dict(base)
    for key, value in own.items():
        inner = out.get(key)
        out[key] = (
            _over(inner, value) if isinstance(inner, dict) and isinstance(value, dict) and value else value
        )
    return {key: value for key, value in out.items() if value != {}}


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
        if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST <= value <= MOST:
            raise self.error(key, "must be a positive number")
        return float(value)

    def optional(self, key: str, default: float) -> float:
        """A positive number, or the default where it is missing."""
        return self.number(key) if key in self.table else default

    def integer(self, key: str, most: int = MOST_INTEGER) -> int:
        """A positive integer, no larger than `most`."""
        value = self.take(key)
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise self.error(key, "must be a positive integer")
        if value > most:
            raise self.error(key, f"must be at most {most}")
        return value

    def text(self, key: str) -> str:
        """A string."""
        value = self.take(key)
        if not isinstance(value, str):
            raise self.error(key, "must be a string")
        if not value.isprintable():
            raise self.error(key, f"has characters that cannot be shown: {value!a}")
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


def facts(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """The fields of `Machine`, from the tables of a file. Raises MachineError."""
    table = _Table(path, "", content)
    name, clock = table.text("name"), table.number("clock_mhz")
    cores, memory, launch = table.child("cores"), table.child("memory"), table.child("launch")
    host, energy, cube = table.child("host"), table.child("energy"), table.child("cube")
    scalar = table.child("scalar")
    issue = scalar.integer("issue_cycles")
    waits = {p: int(n) for p, n in table.numbers("waits").items()} if "waits" in table.table else {}
    fused = table.flag("fused")
    spaces, l2 = _spaces(table.child("spaces"), fused), memory.number("l2_tb_per_s")
    counts = {kind: cores.integer(kind, MOST_CORES) for kind in ("cube", "vector")}
    units = {
        t: clock * counts["vector" if t == "ub" or s.core == "vector" else "cube"] for t, s in spaces.items()
    }
    pipes = (*PIPES, *_pipes(table))
    rates, k0 = _cube(cube.child("rates"))
    order = table.child("order") if "order" in table.table else None
    fixpipe = table.child("fixpipe") if "fixpipe" in table.table else None
    found: dict[str, Any] = {
        "name": name,
        "clock_mhz": clock,
        "fused": fused,
        "cube_cores": counts["cube"],
        "vector_cores": counts["vector"],
        "spaces": spaces,
        "moves": _moves(table.child("moves"), spaces, units, pipes),
        "cube": rates,
        "cube_k0": k0,
        "cube_fixed_cycles": cube.integer("fixed_cycles"),
        "cube_biases": cube.texts("biases") if "biases" in cube.table else (),
        "cube_sparse": _sparse(cube.child("sparse"), rates) if "sparse" in cube.table else {},
        "cube_head_cycles": int(cube.optional("head_cycles", 0)),
        "vector": _vector(table.child("vector")),
        "l2_bytes": memory.integer("l2_bytes"),
        "l2_bytes_per_cycle": l2 * 1e6 / clock,
        "hbm_bytes_per_cycle": memory.number("hbm_tb_per_s") * 1e6 / clock,
        "burst_bytes": memory.integer("burst_bytes"),
        "gm_align": memory.integer("gm_align"),
        "launch_us": launch.number("one_core_us"),
        "launch_us_all": launch.number("all_cores_us"),
        "barrier_share": launch.number("barrier_share"),
        "mixed_us": 0.0 if fused else launch.number("mixed_one_core_us"),
        "mixed_us_all": 0.0 if fused else launch.number("mixed_all_cores_us"),
        "cross_us": 0.0 if fused else launch.number("cross_us"),
        "max_blocks": launch.integer("max_blocks") if "max_blocks" in launch.table else 65_535,
        "host": HostCost(
            host.number("pcie_gb_per_s") * 1e3,
            host.number("call_us"),
            host.number("scalar_ns") * 1e-3,
            host.number("compute_gb_per_s") * 1e3,
        ),
        "energy": Energy(
            energy.numbers("pj_per_mac"),
            energy.numbers("pj_per_lane"),
            energy.numbers("pj_per_byte"),
            energy.number("idle_watts"),
        ),
        "flags": table.integer("flags"),
        "unordered": frozenset() if order is None else _unordered(order, pipes),
        "unordered_sums": 0 if order is None else int(order.optional("sums_below", 0)),
        "issue_cycles": issue,
        "row_instructions": scalar.integer("row_instructions"),
        "vector_issue_cycles": int(scalar.optional("vector_issue_cycles", issue)),
        "vector_slot_cycles": int(scalar.optional("vector_slot_cycles", 0)),
        "atomic_us": memory.optional("atomic_us", 0.0),
        "hbm_turn_share": memory.optional("hbm_turn_share", 0.0),
        "scalar_start_us": scalar.optional("start_us", 0.0),
        "pipes": pipes,
        "wait_cycles": waits,
        "accumulations": _accumulations(table.child("accumulate")) if "accumulate" in table.table else {},
        "unit_flags": fixpipe is not None and "unit_flags" in fixpipe.table and fixpipe.flag("unit_flags"),
        "scaled_drains": None if fixpipe is None else _scaled_drains(fixpipe),
        "library_issue_factor": scalar.optional("library_issue_factor", 1.0),
        "library_constant_factor": scalar.optional("library_constant_factor", 1.0),
        "library_start_us": scalar.optional("library_start_us", 0.0),
        "library_constant_start_us": scalar.optional("library_constant_start_us", 0.0),
    }
    if not found["fused"] and counts["vector"] < counts["cube"]:
        raise cores.error(
            "vector", "must be at least cores.cube: a split chip has a vector core beside each cube core"
        )
    if found["fused"] and ("l0c", "ub") not in found["moves"]:
        raise table.error("moves", "lacks l0c.ub, which a fused chip has")
    for pipe in waits:
        if pipe not in pipes:
            raise table.error(f"waits.{pipe}", f"is not a pipe ({', '.join(pipes)})")
    _check_energy(energy, found)
    for part in (cores, memory, launch, host, energy, cube, scalar, table):
        part.close()
    return found


def _unordered(table: _Table, pipes: Sequence[str]) -> frozenset[str]:
    """The pipes whose dependent instructions need a barrier between them. Raises MachineError."""
    found = table.texts("needs_barrier")
    for pipe in found:
        if pipe not in pipes or pipe == pipes[0]:
            raise table.error("needs_barrier", f"names {pipe!r}, which is none of {', '.join(pipes[1:])}")
    return frozenset(found)


def _banks(table: _Table) -> Banks:
    """How the memory of a vector core is banked. Raises MachineError."""
    found = Banks(
        table.integer("window_bytes"),
        table.integer("span_bytes"),
        table.number("read_cycles"),
        table.number("write_cycles"),
    )
    if found.span_bytes % (2 * found.window_bytes):
        raise table.error("span_bytes", "must be a multiple of two windows")
    table.close()
    return found


def _check_energy(table: _Table, found: Mapping[str, Any]) -> None:
    """Every level, lane and product has its energy. Raises MachineError."""
    energy: Energy = found["energy"]
    own = [space.level for space in found["spaces"].values() if space.name not in (*LEVELS, "gm")]
    for level in dict.fromkeys(("gm", "l2", "l1", "l0", "ub", *own)):
        if level not in energy.pj_per_byte:
            raise table.error(f"pj_per_byte.{level}", "is missing")
    for lane in LANES:
        if lane not in energy.pj_per_lane:
            raise table.error(f"pj_per_lane.{lane}", "is missing")
    for dtype in found["cube"]:
        if dtype not in energy.pj_per_mac:
            raise table.error(f"pj_per_mac.{dtype}", "is missing")


def _accumulations(table: _Table) -> dict[str, tuple[str, ...]]:
    """By kind, the element types that stores combine with those in device memory. Raises MachineError."""
    found = {kind: table.texts(kind) for kind in ACCUMULATIONS if kind in table.table}
    table.close()
    return found


def _pipes(table: _Table) -> tuple[str, ...]:
    """The pipes that a chip has beyond those of all."""
    if "pipes" not in table.table:
        return ()
    names = table.texts("pipes")
    for i, name in enumerate(names):
        if not name.isidentifier():
            raise table.error("pipes", f"has '{name}', which is no identifier")
        if name in (*PIPES, *names[:i]):
            raise table.error("pipes", f"has '{name}', which is there already")
    return names


def _spaces(table: _Table, fused: bool) -> dict[str, MemorySpace]:
    for required in _REQUIRED_SPACES:
        if required not in table.table:
            raise table.error(required, "is missing")
    spaces: dict[str, MemorySpace] = {}
    for name in list(table.table):
        if not name.isidentifier():
            raise table.error(name, "is no identifier")
        entry = table.child(name)
        known = name in (*_REQUIRED_SPACES, "bt", "fb")
        core = ("vector" if name == "ub" else "cube") if known else entry.text("core")
        if core not in ("cube", "vector"):
            raise entry.error("core", "must be cube or vector")
        core = "" if name == "gm" else "fused" if fused else core
        spaces[name] = MemorySpace(name, entry.integer("bytes"), entry.integer("align"), core)
        if spaces[name].align & (spaces[name].align - 1):
            raise entry.error("align", "must be a power of two")
        entry.close()
    return spaces


def _moves(
    table: _Table, spaces: Mapping[str, MemorySpace], units: Mapping[str, float], pipes: tuple[str, ...]
) -> dict[tuple[str, str], Move]:
    """`units`: cores that have a space, times the clock in MHz."""
    moves: dict[tuple[str, str], Move] = {}
    for source in list(table.table):
        targets = table.child(source)
        for target in list(targets.table):
            if source not in spaces or target not in spaces:
                raise targets.error(target, "joins a memory space that 'spaces' does not have")
            entry = targets.child(target)
            pipe = entry.text("pipe")
            movers = [p for p in pipes if p not in _COMPUTING_PIPES]
            if pipe not in movers:
                raise entry.error("pipe", f"must be one of {', '.join(movers)}")
            moves[source, target] = Move(
                source,
                target,
                pipe,
                entry.number("bytes_per_cycle"),
                entry.integer("fixed_cycles"),
                entry.optional("run_cycles", 0.0),
                entry.optional("miss_bytes_per_cycle", math.inf),
                entry.optional("shared_tb_per_s", math.inf) * 1e6 / units[target],
                entry.optional("hbm_share", 1.0),
                entry.optional("bypass_run_cycles", 0.0),
                entry.optional("turn_cycles", 0.0),
                entry.optional("turn_bytes", 0.0),
                entry.optional("overlap_factor", 1.0),
            )
            entry.close()
    for source, target in _REQUIRED_MOVES:
        if (source, target) not in moves:
            raise table.error(f"{source}.{target}", "is missing")
    return moves


def _scaled_drains(table: _Table) -> ScaledDrains:
    scaled = table.child("scaled")
    found = ScaledDrains(
        {total: scaled.texts(total) for total in list(scaled.table)},
        table.integer("mantissa_bits"),
        table.integer("offset_bits"),
        table.texts("relu") if "relu" in table.table else (),
        table.text("words") if "words" in table.table else None,
    )
    if found.mantissa_bits > 23:
        raise table.error("mantissa_bits", "must be at most 23, as an f32 has")
    table.close()
    return found


def _cube(table: _Table) -> tuple[dict[str, CubeRate], dict[str, int]]:
    rates: dict[str, CubeRate] = {}
    k0: dict[str, int] = {}
    for dtype in list(table.table):
        entry = table.child(dtype)
        others = entry.texts("with") if "with" in entry.table else ()
        biased = entry.flag("biased") if "biased" in entry.table else True
        rates[dtype] = CubeRate(entry.integer("m"), entry.integer("k"), entry.integer("n"), others, biased)
        k0[dtype] = entry.integer("k0")
        entry.close()
    for dtype, rate in rates.items():
        for other in rate.others:
            if other not in rates or k0[other] != k0[dtype]:
                raise table.error(
                    f"{dtype}.with", f"has '{other}', which the cube does not have in fractals as wide"
                )
    return rates, k0


def _sparse(table: _Table, rates: Mapping[str, CubeRate]) -> dict[str, int]:
    """By how much the products of a sparse right side are fewer, by element type."""
    found = {dtype: table.integer(dtype) for dtype in list(table.table)}
    for dtype in found:
        if dtype not in rates:
            raise table.error(dtype, "has no rate in cube.rates")
    table.close()
    return found


def _vector(table: _Table) -> VectorUnit:
    rates_table, as_table, expansions_table = (
        table.child("rates"),
        table.child("compute_as"),
        table.child("expansions"),
    )
    rates = {op: rates_table.numbers(op) for op in list(rates_table.table)}
    compute_as = {dtype: as_table.text(dtype) for dtype in list(as_table.table)}
    expansions = {op: _expansion(expansions_table, op) for op in list(expansions_table.table)}
    native = frozenset(table.texts("native"))
    roundings = _roundings(table)
    order_as = _order_as(table, native)
    parts_of = {op: [part for parts in found.values() for part in parts] for op, found in expansions.items()}
    for op, found in expansions.items():
        for dtype in found:
            if dtype != ALL_DTYPES and dtype not in native:
                raise expansions_table.error(f"{op}.{dtype}", "is for no native dtype")
    for op, parts in parts_of.items():
        for part in parts:
            if part not in rates and part not in expansions:
                raise expansions_table.error(op, f"uses '{part}', which has neither a rate nor an expansion")
    for cycle in _circular(parts_of):
        raise expansions_table.error(cycle, "expands into itself")
    for dtype, wider in compute_as.items():
        if wider not in native:
            raise as_table.error(dtype, f"is computed as '{wider}', which is not native")
        if dtype in native and (wider == dtype or wider in compute_as):
            raise as_table.error(dtype, "must lead to a native dtype that leads no further")
    unit = VectorUnit(
        repeat_bytes=table.integer("repeat_bytes"),
        streamed_cycles=table.integer("streamed_cycles"),
        banks=_banks(table.child("banks")) if "banks" in table.table else None,
        native=native,
        compute_as=compute_as,
        rates=rates,
        expansions=expansions,
        roundings=roundings,
        order_as=order_as,
    )
    table.close()
    return unit


def _roundings(table: _Table) -> dict[str, dict[str, tuple[str, ...]]]:
    """The conversions of `[vector.roundings]` by rule and dtype."""
    if "roundings" not in table.table:
        return {}
    rules, found = table.child("roundings"), {}
    for mode in list(rules.table):
        by_dtype = rules.child(mode)
        found[mode] = {dtype: by_dtype.texts(dtype) for dtype in list(by_dtype.table)}
        by_dtype.close()
    rules.close()
    return found


def _order_as(table: _Table, native: frozenset[str]) -> dict[str, str]:
    """The dtypes of `[vector.order_as]`, which are native."""
    if "order_as" not in table.table:
        return {}
    entries = table.child("order_as")
    found = {dtype: entries.text(dtype) for dtype in list(entries.table)}
    for dtype, other in found.items():
        if other not in native:
            raise entries.error(dtype, f"is ordered as '{other}', which is not native")
    entries.close()
    return found


def _expansion(table: _Table, op: str) -> dict[str, tuple[str, ...]]:
    """The instructions of an op by dtype: a list for all, or a table of lists."""
    if not isinstance(table.table[op], dict):
        return {ALL_DTYPES: table.texts(op)}
    by_dtype = table.child(op)
    found = {dtype: by_dtype.texts(dtype) for dtype in list(by_dtype.table)}
    by_dtype.close()
    return found


def _circular(expansions: Mapping[str, Sequence[str]]) -> list[str]:
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
