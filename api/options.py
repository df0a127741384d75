"""How a program is compiled and run: `tw.Options`, and what its fields may be."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import InitVar, dataclass
from pathlib import Path
from types import UnionType
from typing import Literal

from ..backends.pool import POLICIES
from ..knowledge.goals import LATENCY, Goal
from ..passes.alternatives import FORMER, JOIN, UNIT_FLAGS, check_names
from ..passes.errors import PassError
from ..passes.known_plans import PlanSource
from ..passes.oracle import BOUND
from ..passes.pins import Pins, Schedule, pins_text
from ..passes.pipeline import PIPELINE, PassChoices, Stage, pinned
from ..passes.quantized.recipes import QuantConfig
from ..support.amounts import MOST, STRIP, bytes_in
from ..support.precisions import ORIGIN, PRECISIONS
from ..support.sentences import quoted
from ..support.winograd import OFF, parse_winograd, winograd_text
from .arguments.donation import Donate
from .arguments.signature import CompileError
from .modes import MODES, Memory
from .plans import plans_named

Precision = Literal["origin", "mixed_float16", "mixed_bfloat16", "float16"]

CHECKER = "npu-check"
JOINER = "npu-join-launches"
"""Passes that options leave out."""

WORDS: Mapping[str, Sequence[str]] = {
    "memory": MODES,
    "host": ("allow", "forbid"),
    "precision": PRECISIONS,
    "pool": tuple(POLICIES),
}
"""Fields that are one of several words."""


@dataclass(frozen=True)
class Options:
    """How to compile and run.

    Attributes:
        memory: How a call runs the program: `typed` (an array per buffer, compiled by XLA, fast), `bytes` (real
            addresses) or `step` (one instruction at a time without XLA, for small programs: docs/stepper.md).
        check: Whether npu-check proves the program free of hazards.
        without: The alternatives that are left out, by their names (`tilewright-opt --list-alternatives`), such as
            `{"pooled", "transposed"}`, or as text with commas between them.
        strips: What is large between products, as the scores behind the gradient of attention, is made in strips, one
            after the other, so that only one of them takes memory: the most bytes of a tensor of a strip, as a number
            or as text such as `"32MiB"`. None: it is made in one piece.
        schedule: Pinned tiling choices, for all kernels (a `Schedule`) or by kernel name.
        oracle: Who judges schedules, by the name under which `passes.oracle.register` knows it.
        precision: `origin` leaves types as they are; `mixed_float16` and `mixed_bfloat16` cast f32 products to that
            type, and what is as good in it; `float16` casts all that can be. Arguments and results keep their types.
        winograd: Which convolutions with a window of 3 or 3 x 3 become Winograd's: `off`, `2` or `4` (results of a tile
            along each dimension), `auto` (where that takes less time, and no more error is allowed for than for the
            convolution itself), or a dict of these by the names of products, such as `{"params['conv1']": "4"}`.
        host: `allow` host calls, or `forbid` them: a program with host calls is then refused with their list.
        donate: Arguments, by position or name, whose memory the program may reuse, besides those that the source
            donates. A `jax.Array` that is passed there is deleted.
        quantization: How products are quantized: a `tw.QuantConfig`, the path of its `.toml` file, or a mode for all of
            them, such as `w8a8-dynamic`. None: as the source says.
        cache: A directory in which compiled programs are kept across processes. None: that of the environment variable
            TILEWRIGHT_CACHE, if it is set; empty: none.
        weights: The arguments that are weights, by their names or paths or by patterns of these. What depends on
            them alone is then a program of its own, which runs once (`Program.pack`). None: nothing is set apart.
        memory_limit: The most device memory that the program may take, in bytes or as text such as `"512MiB"`: all of
            the plan, so arguments, constants and results, too. To keep it values are computed again, or wait in the
            host's memory; a program that cannot keep it is refused. None: no limit but the chip's memory.
        pool: How the pool of a `DynamicProgram` chooses places in device memory: `best-fit` or `buddy`.
        pool_bytes: How much device memory that pool has. None: all of the chip's.
        plans: A knowledge base of plans that `tilewright tune` has written: kernels that it has are cut as it says
            (docs/tuning.md), and of those that it has not as plans say that Tilewright comes with. None: that of the
            environment variable TILEWRIGHT_PLANS, or else the user's own; empty: no plans at all.
        plans_for: What these plans are good for: `latency`, or, as it was tuned for, `energy`, `edp`, or with a limit
            `latency, 150 W`. Those that are not for latency are taken whatever else is faster.
        hivm: Whether kernels take forms that the vendor's IR has, so that `Program.to_hivm` gives them as its text.

    What alternatives were called before, as in `Options(pooling=False)`, is taken for `without` for one version more.
    """

    memory: Memory = "typed"
    check: bool = True
    schedule: Pins = None
    oracle: str = BOUND
    host: Literal["allow", "forbid"] = "allow"
    donate: Donate = ()
    quantization: QuantConfig | str | Path | None = None
    weights: str | Sequence[str] | None = None
    precision: Precision = ORIGIN
    cache: str | Path | None = None
    pool: Literal["best-fit", "buddy"] = "best-fit"
    pool_bytes: int | None = None
    without: str | Collection[str] = ()
    strips: int | str | None = STRIP
    winograd: str | Mapping[str, str] = OFF
    memory_limit: int | str | None = None
    hivm: bool = False
    plans: str | Path | PlanSource | None = None
    plans_for: str = LATENCY
    fuse: InitVar[bool | None] = None
    attention: InitVar[bool | None] = None
    turned: InitVar[bool | None] = None
    widened: InitVar[bool | None] = None
    pooling: InitVar[bool | None] = None
    tails: InitVar[bool | None] = None
    stream_k: InitVar[bool | None] = None
    placed: InitVar[bool | None] = None
    inline: InitVar[bool | None] = None
    banks: InitVar[bool | None] = None
    unit_flags: InitVar[bool | None] = None
    join: InitVar[bool | None] = None
    ahead: InitVar[bool | None] = None
    fractals: InitVar[bool | None] = None

    def __post_init__(self, *former: bool | None) -> None:
        """Raises CompileError for a field that is not what it may be."""
        object.__setattr__(self, "without", _left_out(self.without, dict(zip(FORMER, former, strict=True))))
        _check(self)

    def may(self, name: str) -> bool:
        """Whether the alternative of this name is considered."""
        return name not in self.without

    @property
    def memory_limit_bytes(self) -> int | None:
        """The most device memory that the program may take; None where there is no limit."""
        return _bytes(self.memory_limit)

    @property
    def weight_patterns(self) -> tuple[str, ...] | None:
        """The patterns of weights, None where there are none."""
        if self.weights is None:
            return None
        return (self.weights,) if isinstance(self.weights, str) else tuple(self.weights)

    def stages(self, stages: Sequence[Stage] = PIPELINE) -> list[Stage]:
        """The pipeline, or some of its passes, as these options ask for."""
        choices = PassChoices(
            pins_text(self.schedule),
            self.host,
            self.oracle,
            self.precision,
            winograd_text(self.winograd),
            _bytes(self.strips) or 0,
            self.memory_limit_bytes,
            tuple(sorted({*self.without, *((UNIT_FLAGS,) if self.hivm else ())})),
            self.hivm,
            plans_named(self.plans, self.plans_for),
        )
        left_out = {name for name, asked in ((CHECKER, self.check), (JOINER, self.may(JOIN))) if not asked}
        return [s for s in pinned(stages, choices) if s.name not in left_out]


def _left_out(without: object, former: Mapping[str, object]) -> tuple[str, ...]:
    """The names of the alternatives that are left out, each once, in order. former: what is said of some by the names
    that they had before. Raises CompileError."""
    names = [name for name in without.split(",") if name] if isinstance(without, str) else without
    if not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise _wrong("without", "the names of alternatives", without)
    named = set(names)
    for name, said in former.items():
        if said is None:
            continue
        if not isinstance(said, bool):
            raise _wrong(name, "True or False", said)
        now = FORMER[name]
        instead = "does nothing any more" if now is None else f"is called without={{{now!r}}} now"
        warnings.warn(f"tw.Options({name}=...) {instead}", DeprecationWarning, stacklevel=4)
        if now is not None:
            named = named - {now} if said else named | {now}
    try:
        check_names(sorted(named))
    except PassError as error:
        raise CompileError(f"options: {error}") from None
    return tuple(sorted(named))


def _check(options: Options) -> None:
    """Raises CompileError for the first field that is not what it may be."""
    for each in dataclasses.fields(options):
        if each.type == "bool" and not isinstance(getattr(options, each.name), bool):
            raise _wrong(each.name, "True or False", getattr(options, each.name))
    for name, words in WORDS.items():
        given = getattr(options, name)
        if not isinstance(given, str) or given not in words:
            raise _wrong(name, " or ".join(map(repr, words)), given)
    kinds = {
        "quantization": (QuantConfig | str | Path | None, "a tw.QuantConfig, a .toml file or a mode"),
        "cache": (str | Path | None, "the path of a directory"),
        "oracle": (str, "its name"),
        "plans_for": (str, "a goal such as 'energy'"),
        "plans": (str | Path | PlanSource | None, "the path of a knowledge base"),
        "winograd": (str | Mapping, "a choice, or a dict of choices by the names of products"),
    }
    for name, (kind, said) in kinds.items():
        if not isinstance(getattr(options, name), kind):
            raise _wrong(name, said, getattr(options, name))
    amounts = dict.fromkeys(("memory_limit", "strips"), "bytes or text such as '512MiB'")
    for name, said in (amounts | {"pool_bytes": "a positive number of bytes"}).items():
        if getattr(options, name) is not None and _bytes(getattr(options, name)) is None:
            raise _wrong(name, said, getattr(options, name))
    if not _are(options.donate, int | str):
        raise _wrong("donate", "the names of arguments", options.donate)
    if options.weights is not None and not _are(options.weights, str):
        raise _wrong("weights", "the names of arguments", options.weights)
    try:
        Goal.parse(options.plans_for)
        parse_winograd(winograd_text(options.winograd))
    except ValueError as error:
        raise CompileError(f"options: {error}") from None
    pins = options.schedule.values() if isinstance(options.schedule, Mapping) else (options.schedule,)
    if not all(isinstance(p, Schedule | None) for p in pins):
        raise _wrong("schedule", "a tw.Schedule, or one for each kernel name", options.schedule)


def _wrong(name: str, said: str, given: object) -> CompileError:
    """What is wrong with a field."""
    return CompileError(f"options: {name} must be {said}, not {quoted(given)}")


def _are(given: object, kinds: UnionType | type[str]) -> bool:
    """Whether something is one of these kinds, or a sequence of them; an integer is none of an argument if it is more
    than any program has."""
    listed = (given,) if isinstance(given, int | str) else given
    return isinstance(listed, Sequence) and all(
        isinstance(one, kinds) and not isinstance(one, bool) and (isinstance(one, str) or abs(one) < MOST)
        for one in listed
    )


def _bytes(given: int | str | None) -> int | None:
    """A positive number of bytes, from one or from text; None where it is none."""
    if isinstance(given, str):
        return bytes_in(given)
    return given if isinstance(given, int) and not isinstance(given, bool) and 0 < given < MOST else None
