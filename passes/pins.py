"""`Schedule`: tiling choices pinned by hand, for all kernels or by kernel name. Plain values, no IR.

graph-schedule makes a kernel's `VectorSchedule` or `CubeSchedule` of it and chooses what is left free.

    Schedule(base_m=128, base_n=256, base_k=64, step_k_a=4, step_k_b=4, split_m=4, split_n=6, l0c=1)
    Schedule.parse("base_m=128,split_n=6")                        the same as text (CLI, pass option)
    parse_pins("contract_0: base_m=64; add_0: tile=1x4096,ub=1")  by kernel

What is None stays the compiler's choice. A pin is obeyed, or refused with a PassError that says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeGuard

from ..dialects.graph.schedules import MOST_BUFFERS, SPACES
from ..dialects.graph.schedules import Schedule as Choices
from ..support.amounts import MOST
from ..support.sentences import quoted, suggestion
from .errors import PassError

WORDS = {"inner": ("m", "n"), "on": ("cube", "vector")}
"""The pins that are words, and which they may be."""


EXAMPLES = {"tile": "8x512", "grid": "4x6"} | {name: values[0] for name, values in WORDS.items()}
"""A value of each pin that is no number."""


def _positive(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < MOST


@dataclass(frozen=True)
class Schedule:
    """Pinned choices of a kernel; None leaves the choice to the compiler.

    Attributes:
        base_m: Rows of one mma step.
        base_n: Columns of one mma step.
        base_k: Contracted elements of one mma step.
        step_k_a: Mma steps that one load of the left operand to l1 covers along k.
        step_k_b: The same for the right operand.
        split_m: Cores along the rows of the result.
        split_n: Cores along the columns of the result.
        split_k: Parts of the sums, each a product of its own; a kernel behind it adds them up.
        stream_m: With `split_k`, the rows at the end of the result whose sums alone are cut; the others stay whole.
        stream_n: The same of the columns.
        cores: The most cores that may work.
        l1: Buffers in flight in l1; 1 is single, 2 is double buffering. `l0a`, `l0b`, `l0c` and `ub` likewise.
        on: Which cores compute a product, "cube" or "vector".
        inner: Which loop over tiles is the inner one, "m" or "n".
        tail: 1 makes what reduces rows of a product part of its kernel, 2 a kernel of its own.
        deal: 1 makes every tile of the result a grid point of its own, dealt to the cores in turn.
        tile: Extents of the tile of a vector kernel, over its axes after neighbours are merged; a single number
            counts elements of the merged domain.
        copy_length: Elements of one copy of a vector kernel, filled from the innermost axis outwards.
        piecewise: 1 makes a vector kernel reduce each piece of a row by itself before it combines them.
        grid: Cores along each axis of a vector kernel, or of the result of attention but its last.
        split_keys: Parts of the keys of attention of few rows.
        rows: Rows of a tile of scores of attention.
        keys: Keys of a tile of scores of attention.
        scored: Keys of scores that the cube sums up at once.
        columns: Columns of a part of the result that the cube sums up at once.
        buffered: Tiles of scores in ub: 2 loads the next one while one is worked on, 1 works on it in its place.
        features: Elements of a mma step along what queries and keys share.
        summed: Keys of a mma step of weights and values.
        bands: Bands that the rows of attention are cut into, each a launch over the keys that its rows see; with 1 all
            rows walk all keys.
        places: Places of the kernel of attention at which weights and values are multiplied: 2 adds the last parts of a
            result behind the loop over the keys, 1 in turns of it whose scores nobody uses.
    """

    base_m: int | None = None
    base_n: int | None = None
    base_k: int | None = None
    step_k_a: int | None = None
    step_k_b: int | None = None
    split_m: int | None = None
    split_n: int | None = None
    split_k: int | None = None
    stream_m: int | None = None
    stream_n: int | None = None
    cores: int | None = None
    l1: int | None = None
    l0a: int | None = None
    l0b: int | None = None
    l0c: int | None = None
    ub: int | None = None
    on: str | None = None
    inner: str | None = None
    tile: tuple[int, ...] | None = None
    copy_length: int | None = None
    piecewise: int | None = None
    grid: tuple[int, ...] | None = None
    deal: int | None = None
    split_keys: int | None = None
    rows: int | None = None
    keys: int | None = None
    scored: int | None = None
    columns: int | None = None
    buffered: int | None = None
    features: int | None = None
    summed: int | None = None
    bands: int | None = None
    places: int | None = None
    tail: int | None = None

    def __post_init__(self) -> None:
        for name, value in self.pinned().items():
            if name in WORDS:
                if value not in WORDS[name]:
                    raise PassError(f"schedule: {name} must be {' or '.join(WORDS[name])}, not {quoted(value)}")
                continue
            if isinstance(value, tuple) != (name in ("tile", "grid")):
                kind = "a tuple, as in (8, 512)" if name in ("tile", "grid") else "a positive integer"
                raise PassError(f"schedule: {name} must be {kind}, not {quoted(value)}")
            numbers: list[int] = [
                n for n in (value if isinstance(value, tuple) else (value,)) if _positive(n)
            ]
            if not numbers or len(numbers) != (len(value) if isinstance(value, tuple) else 1):
                raise PassError(f"schedule: {name} must be a positive integer, not {quoted(value)}")
            if name in SPACES and max(numbers) > MOST_BUFFERS:
                raise PassError(f"schedule: {name} must be 1 to {MOST_BUFFERS} buffers, not {quoted(value)}")

    def pinned(self) -> dict[str, int | str | tuple[int, ...]]:
        """The fields that are not None."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        shown = {k: "x".join(map(str, v)) if isinstance(v, tuple) else v for k, v in self.pinned().items()}
        return ",".join(f"{name}={value}" for name, value in shown.items())

    @staticmethod
    def parse(text: str) -> Schedule:
        """`name=value,...`; tuples are written 8x512. Raises PassError with one sentence."""
        known = {f.name for f in fields(Schedule)}
        values: dict[str, Any] = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            name, equals, value = (s.strip() for s in part.partition("="))
            if name not in known:
                near = suggestion(name, known) or f"; there are {', '.join(sorted(known))}"
                raise PassError(f"schedule: there is no choice {name!r}{near}")
            if not equals:
                raise PassError(f"schedule: {name} needs a value, as in {name}={EXAMPLES.get(name, 64)}")
            if name in values:
                raise PassError(f"schedule: {name} is given twice")
            try:
                if name in WORDS:
                    values[name] = value
                elif name in ("tile", "grid"):
                    values[name] = tuple(int(n) for n in value.split("x"))
                else:
                    values[name] = int(value)
            except ValueError:
                kind = "positive integers, as in 8x512" if name in ("tile", "grid") else "a positive integer"
                raise PassError(f"schedule: {name} must be {kind}, not {quoted(value)}") from None
        return Schedule(**values)


FREE = Schedule()
"""Nothing pinned."""

Pins = Schedule | Mapping[str, Schedule] | None
"""For all kernels, by kernel name, or none."""


def pins_text(pins: Pins) -> str:
    """Pins as the text of a pass option; `parse_pins` reads it back."""
    if pins is None:
        return ""
    if isinstance(pins, Schedule):
        return str(pins)
    return ";".join(f"{name}:{schedule}" for name, schedule in pins.items() if schedule != FREE)


def parse_pins(text: str) -> Pins:
    """`name=value,...` for all kernels, or `kernel:name=value,...;kernel:...`. Raises PassError."""
    if not text.strip():
        return None
    if ":" not in text:
        return Schedule.parse(text)
    found: dict[str, Schedule] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        name, colon, rest = part.partition(":")
        if not colon:
            raise PassError(f"schedule: {part!r} names no kernel, as in contract_0:base_m=128")
        if name.strip() in found:
            raise PassError(f"schedule: kernel {name.strip()} is given twice")
        if not rest.strip():
            raise PassError(f"schedule: nothing is pinned of {name.strip()}, as in {name.strip()}:cores=4")
        found[name.strip()] = Schedule.parse(rest)
    return found


def cores_pinned(pins: Pins, kernel: str) -> tuple[str | None, bool]:
    """On which cores a product is to be computed, "cube" or "vector", None where that is free; whether the kernel is
    named."""
    if pins is None or isinstance(pins, Schedule):
        return None if pins is None else pins.on, False
    return pins.get(kernel, FREE).on, True


def pinned_for(
    pins: Pins, kernel: str, choices: type[Choices], obeys_all: bool, product: bool = False
) -> Choices:
    """What is pinned of a kernel with such choices; `obeys_all`: whether pins for all kernels are for it too;
    `product`: whether it may be on other cores, which `choices` then says.

    Raises PassError where the kernel is named and has no such choice.
    """
    if pins is None or (isinstance(pins, Schedule) and not obeys_all):
        return choices()
    if isinstance(pins, Schedule):
        return choices.obeyed(pins.pinned())
    schedule = pins.get(kernel, FREE)
    known = {f.name for f in fields(choices)} | ({"on"} if product else set())
    for name in schedule.pinned():
        if name not in known:
            raise PassError(f"@{kernel} cannot obey the pinned {name}: its kind of kernel has no such choice")
    return choices.obeyed(schedule.pinned())
