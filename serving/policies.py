"""How requests are put into batches, and what a batch takes."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..api.program import Program
from ..api.sizes.dynamic import DynamicProgram
from ..support.amounts import seconds_in
from ..support.sentences import suggestion
from .arrivals import MOST_ITEMS, ServingError

KEYS = ("batch", "wait", "fixed", "sizes", "deadline")


@dataclass(frozen=True)
class BatchPolicy:
    """How requests become batches. A batch begins when a device is free, and it is full or its oldest request has
    waited long enough.

    Attributes:
        batch: Items of a batch, at most.
        wait: Seconds that the oldest request waits for others at most; inf: until the batch is full, or no more
            requests come.
        sizes: Sizes that batches are padded to, ascending; empty for any that there is a program for.
        deadline: Seconds after its arrival in which a request is to be answered that says nothing else; then the batch
            with the earliest deadline comes first (EDF). None: the oldest comes first.
    """

    batch: int = 1
    wait: float = 0.0
    sizes: tuple[int, ...] = ()
    deadline: float | None = None

    def __post_init__(self) -> None:
        """Raises ServingError."""
        if not 0 < self.batch <= MOST_ITEMS or not all(0 < size <= MOST_ITEMS for size in self.sizes):
            raise ServingError(f"{self}: a batch has 1 to {MOST_ITEMS:,} items")
        if not self.wait >= 0 or not (self.deadline is None or 0 < self.deadline < math.inf):
            raise ServingError(f"{self}: a batch waits 0 seconds or more, and a deadline is finite and above 0")
        if list(self.sizes) != sorted({*self.sizes}) or (self.sizes and self.batch > self.sizes[-1]):
            raise ServingError(f"{self}: sizes= ascend, and the last one has room for a batch")

    @staticmethod
    def of(text: str) -> BatchPolicy:
        """`none`, `batch=8,wait=2ms`, `fixed=8`, with `sizes=1+4+8` and `deadline=10ms`. Raises ServingError."""
        said: dict[str, str] = {}
        for part in [] if text.strip() == "none" else text.split(","):
            name, _, value = (word.strip() for word in part.partition("="))
            if name not in KEYS or name in said:
                again = "is said twice" if name in said else f"is not known{suggestion(name, KEYS)}"
                raise ServingError(f"policy {text}: {name!r} {again}; there are {', '.join(KEYS)}, and none alone")
            said[name] = value
        if "fixed" in said and {"batch", "wait"} & said.keys():
            raise ServingError(f"policy {text}: fixed= says batch= and wait= already")
        fixed = said.pop("fixed", None)
        if fixed is not None:
            said["batch"] = fixed
        found: dict[str, Any] = {} if fixed is None else {"wait": math.inf}
        for name, value in said.items():
            try:
                if name == "sizes":
                    found[name] = tuple(map(_whole, value.split("+")))
                else:
                    found[name] = _whole(value) if name == "batch" else seconds_in(value)
            except ValueError as error:
                raise ServingError(f"policy {text}: {name}: {error}") from None
        return BatchPolicy(**found)

    def __str__(self) -> str:
        """The text that `of` reads."""
        if self.wait == math.inf:
            parts = [f"fixed={self.batch}"]
        elif self == BatchPolicy():
            return "none"
        else:
            parts = [f"batch={self.batch}", *([f"wait={duration(self.wait)}"] if self.wait else [])]
        parts += [f"sizes={'+'.join(map(str, self.sizes))}"] if self.sizes else []
        return ",".join([*parts, *([] if self.deadline is None else [f"deadline={duration(self.deadline)}"])])


def _whole(text: str) -> int:
    """Raises ValueError."""
    if not re.fullmatch(r"\s*[0-9]{1,18}\s*", text):
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def duration(seconds: float) -> str:
    """A time as `seconds_in` reads it: `2ms`."""
    scale, unit = (1e6, "us") if seconds < 1e-3 else (1e3, "ms") if seconds < 1 else (1, "s")
    return f"{seconds * scale:.12g}{unit}"


@dataclass(frozen=True)
class BatchCost:
    """What a batch takes: microseconds and joules."""

    microseconds: float
    joules: float = 0.0


@dataclass
class BatchCosts:
    """What batches of an entry take. name: what messages call it; sizes: for which there is a program, ascending; None
    for any; cost: what a batch of such a size takes; idle_watts: what a device draws that has nothing to do."""

    name: str
    sizes: tuple[int, ...] | None
    cost: Callable[[int], BatchCost]
    idle_watts: float = 0.0
    _known: dict[int, BatchCost] = field(default_factory=dict[int, BatchCost])

    @staticmethod
    def of(programs: Any, batch: str | None, at: Mapping[str, int] | None, name: str = "") -> BatchCosts:
        """Those of a program, or of some by batch size, or costs by batch size. batch: the open size that is the
        batch; at: the other ones. Raises ServingError, and CompileError for sizes that the program has not."""
        if isinstance(programs, DynamicProgram):
            return _open_costs(programs, batch, at or {}, name)
        if batch is not None or at:
            raise ServingError(f"{name or 'the program'} has no open sizes, which batch= and at= are for")
        by_size = programs if isinstance(programs, Mapping) else {1: programs}
        idle = 0.0
        for size, one in by_size.items():
            if not isinstance(size, int) or not 0 < size <= MOST_ITEMS:
                raise ServingError(f"{name or 'programs'}: {size!r} is no size of a batch")
            if isinstance(one, DynamicProgram) or not isinstance(one, Program | BatchCost):
                raise ServingError(f"{name or 'programs'}: for {size} items there is no program without open sizes")
            if isinstance(one, Program):
                idle = one.machine.energy.idle_watts
            elif not (0 < one.microseconds < math.inf and 0 <= one.joules < math.inf):
                raise ServingError(f"{name or 'programs'}: a batch takes finite microseconds above 0, and 0 J or more")
        if not by_size:
            raise ServingError(f"{name or 'programs'}: there is no program")

        def cost(size: int) -> BatchCost:
            one = by_size[size]
            return one if isinstance(one, BatchCost) else _reported(one, None)

        return BatchCosts(name, tuple(sorted(by_size)), cost, idle)

    def of_size(self, size: int) -> BatchCost:
        """What a batch of a size takes that there is a program for. Each size is priced once."""
        if size not in self._known:
            self._known[size] = self.cost(size)
        return self._known[size]

    def padding(self, policy: BatchPolicy) -> Callable[[int], int]:
        """The size of the program that takes so many items. Raises ServingError where there is none for a batch of the
        policy."""
        title = self.name or "the program"
        if self.sizes is not None:
            missing = [size for size in policy.sizes if size not in self.sizes]
            if missing:
                raise ServingError(f"{policy}: {title} is compiled for batches of {self._said}, not of {missing[0]}")
        sizes = policy.sizes or self.sizes
        if sizes is None:
            return lambda items: items
        if policy.batch > sizes[-1]:
            raise ServingError(
                f"{policy}: {title} is compiled for batches of {self._said}: give it an open size (batch=), or "
                f"programs of more sizes"
            )
        return lambda items: sizes[bisect_left(sizes, items)]

    @property
    def _said(self) -> str:
        return ", ".join(map(str, self.sizes or ()))


def _open_costs(program: DynamicProgram, batch: str | None, at: Mapping[str, int], name: str) -> BatchCosts:
    """Those of a program with open sizes. Raises ServingError."""
    left = [symbol for symbol in program.symbols if symbol not in at]
    symbol = batch or (left[0] if len(left) == 1 else None)
    known = ", ".join(program.symbols)
    if symbol is None:
        raise ServingError(f"{program.name} has the open sizes {known}: say which is the batch, and the others in at=")
    if symbol not in program.symbols or symbol in at:
        said = "is given in at=" if symbol in at else f"is not one of them{suggestion(symbol, program.symbols)}"
        raise ServingError(f"{program.name} has the open sizes {known}: the batch {symbol!r} {said}")

    def cost(size: int) -> BatchCost:
        return _reported(program, {**at, symbol: size})

    return BatchCosts(name or program.name, None, cost, program.machine.energy.idle_watts)


def _reported(program: Program, at: Mapping[str, int] | None) -> BatchCost:
    report = program.report(at)
    return BatchCost(report.microseconds, report.energy_joules)
