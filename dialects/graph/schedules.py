"""Schedules of fusions: what graph-schedule decides, a pin fixes by hand, and graph-to-tile obeys.

    schedule = #graph.vector_schedule<axes = [[0], [1]], tile = [8, 1024], grid = [48, 1], ub = 2>
    schedule = #graph.cube_schedule<axes = [[0], [1], [2]], step = [128, 256, 64], lhs = [128, 256, 256], ...>
    schedule = #graph.cube_schedule<base_m = 64>          a pin: graph-schedule fills in the rest

Fields that are left out are free. A schedule is complete when nothing that graph-to-tile needs is free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

Numbers = tuple[int, ...]

SPACES = ("l1", "l0a", "l0b", "l0c", "ub")
"""Memory spaces whose buffers in flight a schedule may say."""

MOST_BUFFERS = 4
"""Buffers in flight, at most."""

CUTS = ("split_k", "stream_m", "stream_n")
"""Fields that say how sums are cut."""

LISTS = frozenset(["tile", "grid", "step", "lhs", "rhs", "epilogue"])
"""Fields that hold a number for each axis."""

T = TypeVar("T", bound="_Choices")


@dataclass(frozen=True)
class LastTiles:
    """The last rows (side "m") or columns ("n") of a product, so many of them: their sums alone are cut into parts."""

    side: str
    length: int

    def cut_in(self, parts: int) -> CubeSchedule:
        """A schedule that cuts these sums into so many parts, and leaves the rest free."""
        if self.side == "m":
            return CubeSchedule(split_k=parts, stream_m=self.length)
        return CubeSchedule(split_k=parts, stream_n=self.length)


@dataclass(frozen=True)
class _Choices:
    """Fields of which each is a choice or, where it is None, free."""

    NEEDED: ClassVar[frozenset[str]] = frozenset()
    """The fields that graph-to-tile needs."""

    def chosen(self) -> dict[str, Any]:
        """The fields that are not free."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def complete(self) -> bool:
        """Whether graph-to-tile needs no more than this says."""
        return self.chosen().keys() >= self.NEEDED

    @classmethod
    def obeyed(cls: type[T], pins: Mapping[str, Any]) -> T:
        """A schedule of those of `pins` that are choices of this class."""
        known = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in pins.items() if name in known})

    def slots(self, chosen: Mapping[str, int]) -> dict[str, int]:
        """Buffers in flight by memory space: those that are chosen here over `chosen`."""
        return {space: getattr(self, space, None) or count for space, count in chosen.items()}

    def whole(self: T) -> T:
        """The same without a split of the sums: for one of the parts."""
        return replace(self, **{name: None for name, _ in self.cuts}) if self.cuts else self

    @property
    def cuts(self) -> tuple[tuple[str, int], ...]:
        """The fields that say how sums are cut, and their values, as far as they are chosen."""
        found = ((name, getattr(self, name, None)) for name in CUTS)
        return tuple((name, value) for name, value in found if value is not None)

    @property
    def parts(self) -> int | None:
        """Into how many parts the sums are cut; None where they stay whole."""
        return getattr(self, "split_k", None)

    @property
    def stream(self) -> LastTiles | None:
        """The rows or columns of a product whose sums alone are cut; None where all are, or none."""
        found = [(side, getattr(self, f"stream_{side}", None)) for side in ("m", "n")]
        return next((LastTiles(side, length) for side, length in found if length is not None), None)

    def fault(self) -> str | None:
        """What no machine could obey, as the rest of a sentence; None where there is nothing."""
        for name, value in self.chosen().items():
            if name == "inner":
                if value not in ("m", "n"):
                    return f"inner must be m or n, not {value!r}"
            elif name == "axes":
                if not _is_groups(value):
                    return f"axes must be lists of axes, as in [[0], [1, 2]], not {value!r}"
            elif name in LISTS:
                if not isinstance(value, tuple) or not all(map(_positive, value)):
                    return f"{name} must be positive integers, as in [8, 512], not {value!r}"
            elif not _positive(value):
                return f"{name} must be a positive integer, not {value!r}"
            elif name in SPACES and value > MOST_BUFFERS:
                return f"{name} must be 1 to {MOST_BUFFERS} buffers, not {value!r}"
        if self.stream is not None and self.parts is None:
            return f"stream_{self.stream.side} needs split_k, the parts of the sums"
        if {"stream_m", "stream_n"} <= self.chosen().keys():
            return "sums are cut of the last rows or of the last columns: give stream_m or stream_n"
        return None


@dataclass(frozen=True)
class VectorSchedule(_Choices):
    """How a kernel of the vector cores walks its domain, or a copy its box. A product with one is computed on the
    vector cores; its domain is that of the result, with what is summed over before the axis along which the longer
    operand is contiguous, or behind all.

    Attributes:
        axes: The domain's axes that are walked as one, for each axis of the loops; free where a kernel walks no domain.
        tile: Elements of a tile along each axis. As a pin, a single number counts elements of the whole domain.
        grid: Cores along each axis.
        ub: Buffers in flight in ub; 2 is double buffering.
        cores: As a pin, the most cores that may work.
        copy_length: As a pin, the elements of a tile, filled from the innermost axis outwards.
        split_k: Parts of a product's sums, each a product of its own; a kernel behind it adds them up.
        piecewise: As a pin, 1 reduces each piece of a row by itself before it combines them; free, pieces are combined
            lane by lane where there is room.
    """

    NEEDED = frozenset(["tile", "grid", "ub"])

    axes: tuple[Numbers, ...] | None = None
    tile: Numbers | None = None
    grid: Numbers | None = None
    ub: int | None = None
    cores: int | None = None
    copy_length: int | None = None
    split_k: int | None = None
    piecewise: int | None = None


@dataclass(frozen=True)
class CubeSchedule(_Choices):
    """How a contraction is cut. Its axes are those of the result, and behind them those that are summed over.

    Attributes:
        axes: The axes of the contraction that are walked as one, for each axis of the loops.
        step: Elements of one mma step along each axis.
        lhs: Elements of one load of the left operand to l1 along each axis.
        rhs: The same for the right operand.
        grid: Grid points along each axis; more than there are cores are dealt to them in turn.
        inner: Which loop over tiles is the inner one, "m" or "n".
        l1: Buffers in flight in l1; 1 is single, 2 is double buffering. `l0a`, `l0b`, `l0c` and `ub` likewise.
        epilogue: Elements of one tile of the epilogue in ub along each axis of the result.
        base_m: As a pin, rows of one mma step.
        base_n: As a pin, columns of one mma step.
        base_k: As a pin, contracted elements of one mma step.
        step_k_a: As a pin, mma steps that one load of the left operand covers along k.
        step_k_b: The same for the right operand.
        split_m: As a pin, cores along the rows of the result.
        split_n: As a pin, cores along the columns of the result.
        split_k: Parts of the sums, each a product of its own; a kernel behind it adds them up.
        stream_m: With `split_k`, the rows at the end of the result whose sums alone are cut; the others stay whole.
        stream_n: The same of the columns.
        cores: As a pin, the most cores that may work.
        deal: As a pin, 1 makes every tile of the result a grid point of its own.
        tail: As a pin, 1 makes what reduces rows of the result part of the kernel, 2 a kernel of its own.
    """

    NEEDED = frozenset(["axes", "step", "lhs", "rhs", "grid", "inner", *SPACES])

    axes: tuple[Numbers, ...] | None = None
    step: Numbers | None = None
    lhs: Numbers | None = None
    rhs: Numbers | None = None
    grid: Numbers | None = None
    inner: str | None = None
    l1: int | None = None
    l0a: int | None = None
    l0b: int | None = None
    l0c: int | None = None
    ub: int | None = None
    epilogue: Numbers | None = None
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
    deal: int | None = None
    tail: int | None = None


@dataclass(frozen=True)
class AttentionSchedule(_Choices):
    """How attention is cut: a cube core and its vector cores take some rows of scores, and the keys in pieces. So are
    other chained products, and those back to back, where a cube core takes them alone.

    Attributes:
        rows: Rows of a tile of scores.
        keys: Keys of a tile of scores.
        scored: Keys of scores that the cube sums up at once.
        columns: Columns of a part of the result that the cube sums up at once.
        buffered: Tiles of scores in ub: 2 loads the next one while one is worked on, 1 works on it in its place.
        features: Elements of a mma step along what q and k share.
        summed: Keys of a mma step of weights and values.
        grid: Cores along each axis of the result but the last.
        bands: Bands that the rows are cut into, each a launch over the keys that its rows see, as under a causal mask.
        places: Places of the kernel at which weights and values are multiplied: with 2 the last two parts of a result
            are added behind the loop over the keys, with 1 in turns of it whose scores nobody uses.
        l1: Buffers in flight in l1; 1 is single, 2 is double buffering. `l0a`, `l0b`, `l0c` and `ub` likewise.
        cores: As a pin, the most cores that may work.
    """

    NEEDED = frozenset(["rows", "keys", "scored", "columns", "buffered", "features", "summed", "grid", *SPACES])

    rows: int | None = None
    keys: int | None = None
    scored: int | None = None
    columns: int | None = None
    buffered: int | None = None
    features: int | None = None
    summed: int | None = None
    grid: Numbers | None = None
    bands: int | None = None
    places: int | None = None
    l1: int | None = None
    l0a: int | None = None
    l0b: int | None = None
    l0c: int | None = None
    ub: int | None = None
    cores: int | None = None


@dataclass(frozen=True)
class RowAttentionSchedule(_Choices):
    """How attention of few rows is cut: vector cores take keys and values in pieces, as they are loaded.

    Attributes:
        rows: Rows of a tile, along the longest axis of rows.
        keys: Keys of a tile.
        grid: Cores along each axis of the result but the last.
        split_keys: Parts of the keys, each on cores of its own; kernels behind it combine them.
        ub: Buffers in flight in ub; 2 is double buffering.
        cores: As a pin, the most cores that may work.
    """

    NEEDED = frozenset(["rows", "keys", "grid", "ub"])

    rows: int | None = None
    keys: int | None = None
    grid: Numbers | None = None
    split_keys: int | None = None
    ub: int | None = None
    cores: int | None = None

    @property
    def parts(self) -> int | None:
        """Into how many parts the keys are cut; None where they stay whole."""
        return self.split_keys


Schedule = VectorSchedule | CubeSchedule | AttentionSchedule | RowAttentionSchedule
"""The choices of one kernel."""


def _positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_groups(value: object) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(group, tuple) and all(isinstance(a, int) and a >= 0 for a in group) for group in value
    )


class _ScheduleAttr(Data[T]):
    """The textual form that schedules share: `<name = value, ...>`, free fields left out."""

    KIND: ClassVar[type[_Choices]]

    def print_parameter(self, printer: Printer) -> None:
        shown = ", ".join(f"{name} = {_shown(value)}" for name, value in self.data.chosen().items())
        printer.print_string(f"<{shown}>")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Any:
        known = {f.name for f in fields(cls.KIND)}
        values: dict[str, Any] = {}

        def entry() -> None:
            start = parser.pos
            name = parser.parse_identifier()
            if name not in known:
                parser.raise_error(
                    f"{cls.KIND.__name__} has no {name!r}: there are {', '.join(sorted(known))}",
                    start,
                    start + len(name),
                )
            if name in values:
                parser.raise_error(f"{name} is given twice", start, start + len(name))
            parser.parse_punctuation("=")
            values[name] = parser.parse_identifier() if name == "inner" else _parse_numbers(parser)

        parser.parse_comma_separated_list(parser.Delimiter.ANGLE, entry)
        return cls.KIND(**values)

    def verify(self) -> None:
        fault = self.data.fault()
        if fault is not None:
            raise VerifyException(f"schedule: {fault}")


def _shown(value: Any) -> str:
    return f"[{', '.join(map(_shown, value))}]" if isinstance(value, tuple) else str(value)


def _parse_numbers(parser: AttrParser) -> Any:
    """A number, or lists of numbers."""
    listed = parser.parse_optional_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: _parse_numbers(parser)
    )
    return parser.parse_integer(allow_boolean=False) if listed is None else tuple(listed)


@irdl_attr_definition
class VectorScheduleAttr(_ScheduleAttr[VectorSchedule]):
    """`#graph.vector_schedule<tile = [8, 512], grid = [48, 1], ub = 2>`."""

    name = "graph.vector_schedule"
    KIND = VectorSchedule


@irdl_attr_definition
class CubeScheduleAttr(_ScheduleAttr[CubeSchedule]):
    """`#graph.cube_schedule<base_m = 128, base_n = 256>`."""

    name = "graph.cube_schedule"
    KIND = CubeSchedule


@irdl_attr_definition
class AttentionScheduleAttr(_ScheduleAttr[AttentionSchedule]):
    """`#graph.attention_schedule<rows = 96, keys = 128>`."""

    name = "graph.attention_schedule"
    KIND = AttentionSchedule


@irdl_attr_definition
class RowAttentionScheduleAttr(_ScheduleAttr[RowAttentionSchedule]):
    """`#graph.row_attention_schedule<rows = 1, keys = 128>`."""

    name = "graph.row_attention_schedule"
    KIND = RowAttentionSchedule


_ATTRIBUTES: Mapping[type[_Choices], type[_ScheduleAttr[Any]]] = {
    each.KIND: each
    for each in (VectorScheduleAttr, CubeScheduleAttr, AttentionScheduleAttr, RowAttentionScheduleAttr)
}


def kind_of(schedule: Schedule) -> str:
    """What IR calls schedules of this kind: `cube_schedule`."""
    return _ATTRIBUTES[type(schedule)].name.removeprefix("graph.")


def schedule_attr(schedules: Sequence[Schedule]) -> Attribute:
    """The schedules of a fusion's launches, in order, as its property."""
    found: list[Attribute] = [_ATTRIBUTES[type(s)](s) for s in schedules]
    return found[0] if len(found) == 1 else ArrayAttr(found)


def to_schedules(attr: Attribute | None) -> tuple[Schedule, ...]:
    """The schedules that a fusion's property holds; () for an absent one. Raises VerifyException."""
    if attr is None:
        return ()
    listed = attr.data if isinstance(attr, ArrayAttr) else (attr,)
    found: list[Schedule] = []
    for one in listed:
        if not isinstance(one, _ScheduleAttr):
            raise VerifyException(
                f"schedule: {one} is no vector_schedule, cube_schedule, attention_schedule or row_attention_schedule"
            )
        found.append(one.data)
    return tuple(found)


def all_complete(schedules: Sequence[Schedule]) -> bool:
    """Whether a fusion with these schedules can be lowered."""
    return bool(schedules) and all(s.complete for s in schedules)


def bands_of(schedules: Sequence[Schedule]) -> int | None:
    """Into how many bands of rows attention with these schedules is cut; None where it stays whole."""
    return next((s.bands for s in schedules if isinstance(s, AttentionSchedule)), None)


def stream_of(schedules: Sequence[Schedule]) -> LastTiles | None:
    """The rows or columns whose sums alone are cut in a fusion with these schedules; None where it is all or none."""
    return next((s.stream for s in schedules if s.stream is not None), None)


def parts_of_sums(schedules: Sequence[Schedule]) -> int | None:
    """Into how many parts the sums of a fusion with these schedules are cut; None where they stay whole."""
    return next((s.parts for s in schedules if s.parts is not None), None)
