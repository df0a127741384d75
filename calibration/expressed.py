"""What a record becomes, and the fields that all kinds of records share: chip, cores, element types, numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..machine import Machine
from ..passes.pins import Schedule
from .records import Record


class Inexpressible(Exception):
    """Why a record is not a program of ours; the message is a clause."""


@dataclass(frozen=True)
class Expressed:
    """A program of ours for a record.

    source: a JAX function or npu text; shapes: (shape, element type) of its inputs; warm: whether L2 holds what the
    last run left; bypassing: inputs that L2 does not keep; waves: how often the cores are started because
    there are more blocks than cores; unit_flag_products: products for which a drain with unit flags waits, as its
    counter shows; calls: blocks that one core takes, each a call of the library; issue_factor, start_us: what a
    library's code costs the scalar unit, over and above our own; combined: results added to one address in turn;
    one_launch: the kernels are parts of one, so that all but the dearest launch are free; in_turn: its loops load,
    compute and store in turn; banks: its buffers avoid conflicts of banks; lone: a cube core has one vector core beside
    it; staggered: cores begin to read what they share at places of their own; iterations: of the loop that was timed;
    wide: it has 64-bit types.
    """

    source: Callable[..., Any] | str
    machine: str
    shapes: tuple[tuple[tuple[int, ...], str], ...] = ()
    schedule: Schedule = field(default_factory=Schedule)
    warm: bool = False
    bypassing: frozenset[int] = frozenset()
    waves: int = 1
    unit_flag_products: int = 0
    issue_factor: float = 1.0
    start_us: float = 0.0
    calls: float = 1.0
    combined: int = 0
    one_launch: bool = False
    in_turn: bool = False
    banks: bool = False
    lone: bool = False
    staggered: bool = False
    iterations: int = 1
    wide: bool = False

    @property
    def chip(self) -> Machine:
        """The machine, with the vector cores that the kernel uses."""
        return _lone(self.machine) if self.lone else Machine.load(self.machine)

    def precision(self) -> AbstractContextManager[object]:
        """JAX's mode of 64 bits where the record has such types."""
        import jax

        return jax.enable_x64(self.wide)

    @property
    def arguments(self) -> list[Any]:
        """Example arguments of the function."""
        import jax
        import ml_dtypes
        import numpy as np

        return [
            jax.ShapeDtypeStruct(s, ml_dtypes.bfloat16 if d == "bf16" else np.dtype(NUMPY[d]))
            for s, d in self.shapes
        ]


@cache
def _lone(name: str) -> Machine:
    """A machine with as many vector cores as cube cores."""
    cores = Machine.load(name).cube_cores
    path = Path(_folder().name, f"{name}-lone.toml")
    path.write_text(f'extends = "{name}"\n[cores]\ncube = {cores}\nvector = {cores}\n', encoding="utf-8")
    return Machine.load(path)


@cache
def _folder() -> TemporaryDirectory[str]:
    """Where machine files are that a process writes: until it ends, as programs refer to theirs."""
    return TemporaryDirectory()


NUMPY = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "u16": "uint16",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "u64": "uint64",
    "bool": "bool",
}
"""Element types of records -> NumPy's names."""

SPELLINGS = {
    **{name: name for name in NUMPY},
    **{long: short for short, long in NUMPY.items()},
    "fp16": "f16",
    "half": "f16",
    "float16_t": "f16",
    "bfloat16_t": "bf16",
    "fp32": "f32",
    "float": "f32",
    "int": "i32",
    "s8": "i8",
    "s32": "i32",
    "b8": "bool",
}
"""Other spellings of element types."""

ITEM_BYTES = {
    **dict.fromkeys(("i8", "u8", "bool"), 1),
    **dict.fromkeys(("f16", "bf16", "i16", "u16"), 2),
    **dict.fromkeys(("f32", "i32", "u32"), 4),
    **dict.fromkeys(("i64", "u64"), 8),
}

CHIPS = (
    (r"(950|a5\b)", "ascend-950pr"),
    (r"910b4", "ascend-910b4"),
    (r"310p", "ascend-310p3"),
    (r"910(a|pro)?$", "ascend-910a"),
    (r"310$", "ascend-310"),
)
"""Patterns of the beginnings of chips' names -> machine. A 310B is another core design."""


def target_for(record: Record) -> str:
    """The target for a record's chip: the 910B family by how many cube cores it has. Raises Inexpressible."""
    name = record.chip.lower().strip().removeprefix("ascend").strip(" -_")
    for pattern, target in CHIPS:
        if re.match(pattern, name):
            return target
    if record.family:
        cores = max(cores_of(record, "aic") or 0, (cores_of(record, "aiv") or 0) // 2)
        return "ascend-910b3" if cores == 20 else "ascend-910b1"
    raise Inexpressible(f"there is no machine file for the chip '{record.chip[:40]}'")


def cores_of(record: Record, kind: str) -> int | None:
    """Cores of a kind (aic, aiv) that the record names."""
    return record.integer("cores", kind)


def vector_cores_of(record: Record, machine: Machine) -> int:
    """Vector cores that a kernel uses: all of the chip where the record names none."""
    return min(cores_of(record, "aiv") or machine.vector_cores, machine.vector_cores)


def element_named(record: Record, *keys: str, default: str | None = None) -> str:
    """The element type that the first given key of the workload names. Raises Inexpressible."""
    for key in keys:
        name = record.text("workload", key).lower().strip()
        if name:
            if name not in SPELLINGS:
                raise Inexpressible(f"there is no element type '{name[:40]}'")
            return SPELLINGS[name]
    if default is None:
        raise Inexpressible("names no element type")
    return default


def has_wide_types(record: Record) -> bool:
    """Whether it names an element type of 64 bits."""
    names = (record.text("workload", key).lower().strip() for key in ("dtype", "dtype_in", "dtype_out"))
    return any(ITEM_BYTES.get(SPELLINGS.get(name, ""), 0) == 8 for name in names)


def need(record: Record, part: str, *keys: str) -> list[int]:
    """Positive integers that a record must have. Raises Inexpressible."""
    found = []
    for key in keys:
        value = record.integer(part, key)
        if value is None:
            raise Inexpressible(f"{part} has no number '{key}'")
        found.append(value)
    return found


def shape_named(record: Record, key: str = "shape") -> tuple[int, ...]:
    """A shape of the workload. Raises Inexpressible."""
    shape = record.integers("workload", key)
    if shape is None:
        raise Inexpressible(f"workload has no {key}")
    return shape


def axes_named(record: Record, rank: int, default: str = "last") -> tuple[int, ...]:
    """The axes that a record names: first, last, all, a number or a list of numbers; ascending. Raises
    Inexpressible."""
    said = record.part("workload").get("axis")
    counted = re.search(r"\(last (\d+) ax", record.text("workload", "op").lower())
    if said is None and counted:
        said = list(range(max(0, rank - int(counted[1])), rank))
    said = default if said is None or said == "" else said
    words = {"first": [0], "last": [rank - 1], "all": list(range(rank))}
    named = words.get(said.lower().strip()) if isinstance(said, str) else None
    if named is None:
        try:
            named = [int(a) for a in (said if isinstance(said, list) else [said])]
        except (TypeError, ValueError):
            named = []
    axes = {a + rank if a < 0 else a for a in named}
    if not axes or not all(0 <= a < rank for a in axes):
        raise Inexpressible(f"a shape of {rank} axes has no axis '{str(said)[:20]}'")
    return tuple(sorted(axes))


def operation(record: Record) -> str:
    """The name of the operation: lower case, single spaces."""
    return " ".join(record.text("workload", "op").lower().replace("_", " ").split())
