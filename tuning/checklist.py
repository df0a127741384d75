"""`tw.checklist`: the checklist of a tuning guide, filled from reports of a program and of what was tried of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import TextWrapper
from typing import Any

from ..api.options import Options
from ..api.program import CompileError
from ..support.amounts import seconds_in
from ..support.sentences import counted, suggestion
from .checklist_items import HEADINGS, ITEMS, Item, ItemVerdict, judged
from .trials import Trial, Trials, us

WIDTH = 100
"""Columns of what is printed; command lines are not cut."""

SCHEMA = "tilewright.checklist/1"

Progress = Callable[[str], object]


@dataclass(frozen=True)
class CheckedItem:
    """An item with its verdict. heading, title: of the item; the rest: as `ItemVerdict` has it."""

    heading: str
    title: str
    done: bool
    text: str
    details: tuple[str, ...]
    switch: str
    trials: tuple[Trial, ...]

    def __str__(self) -> str:
        lines = [_wrapped(f"[{'x' if self.done else ' '}] {self.title}: {self.text}", 2, 6)]
        lines += [f"{' ' * 8}{d}" if d.startswith("tilewright ") else _wrapped(d, 8, 10) for d in self.details]
        return "\n".join(lines)


def _wrapped(text: str, first: int, more: int) -> str:
    """Text in lines of at most `WIDTH` columns, with so many spaces before the first line and before others."""
    wrapper = TextWrapper(WIDTH, " " * first, " " * more, break_long_words=False, break_on_hyphens=False)
    return wrapper.fill(text)


@dataclass(frozen=True)
class Checklist:
    """A filled checklist. name, target: of the program; microseconds, bytes: its time and its device memory as it was
    asked for; together: all switches that are advised at once, None where there are fewer than two."""

    name: str
    target: str
    microseconds: float
    bytes: int
    items: tuple[CheckedItem, ...]
    together: Trial | None

    @property
    def done(self) -> bool:
        """Whether all items are ticked."""
        return all(item.done for item in self.items)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"schema": SCHEMA, **asdict(self)}

    def __str__(self) -> str:
        ticked = sum(item.done for item in self.items)
        lines = [
            f"{self.name} on {self.target}: {us(self.microseconds)} us, {self.bytes:,} bytes of device memory; "
            f"{ticked} of {counted(len(self.items), 'item', 'items')} ticked"
        ]
        for heading in dict.fromkeys(item.heading for item in self.items):
            lines.append(heading)
            lines += [str(item) for item in self.items if item.heading == heading]
        if self.together is not None:
            said = f"all that is advised: {self.together.time}"
            if self.together.saves_bytes:
                said += f", and needs {self.together.bytes:,} bytes instead of {self.together.bytes_before:,}"
            lines.append(_wrapped(said, 0, 2))
        return "\n".join(lines)


def checklist(
    source: Any,
    /,
    *args: Any,
    target: str | None = None,
    options: Options | None = None,
    only: Sequence[str] = (),
    at: Mapping[str, int] | None = None,
    command: str = "SOURCE",
    budget: str | float = "20s",
    evaluations: int = 1000,
    progress: Progress | None = None,
    **kwargs: Any,
) -> Checklist:
    """Fills the checklist of a tuning guide for a program. Nothing is advised that was not compiled and simulated: an
    item that is not ticked says what to do, and what the program takes with it and without.

    source, args, kwargs, target, options: as for `tw.compile`. only: the headings that are looked at, of preparation,
    precision, fusion, memory, streams and monitoring; none: all. at: the sizes of a program with open ones. command:
    how commands in texts call the program. budget, evaluations: of the search for plans that is tried, as for
    `tw.tune`. progress: is told what takes its time.

    Raises CompileError as `tw.compile` does, for the program as it is asked for, and for a heading that there is not. A
    variant that cannot be compiled is no error: its item says so.
    """
    items = _chosen(only)
    if evaluations < 1:
        raise CompileError(f"checklist: evaluations must be at least 1, not {evaluations}")
    try:
        seconds_in(budget)
    except ValueError as error:
        raise CompileError(f"checklist: budget: {error}") from None
    say = progress or (lambda _: None)
    asked = options or Options()
    trials = Trials(source, args, kwargs, target, asked, at, command, evaluations, budget, say)
    found: list[CheckedItem] = []
    verdicts: list[ItemVerdict] = []
    for item in items:
        say(item.title)
        verdict = judged(item, trials)
        verdicts.append(verdict)
        found.append(
            CheckedItem(
                item.heading,
                item.title,
                verdict.done,
                verdict.text,
                verdict.details,
                verdict.switch,
                verdict.trials,
            )
        )
    report = trials.report
    return Checklist(
        trials.program.source.name,
        trials.program.target,
        report.microseconds,
        report.memory.arena_bytes,
        tuple(found),
        _together(trials, verdicts),
    )


def _chosen(only: Sequence[str]) -> list[Item]:
    """The items of some headings. Raises CompileError for one that there is not."""
    for name in only:
        if name not in HEADINGS:
            near = suggestion(name, HEADINGS)
            raise CompileError(f"checklist: there is no heading {name!r}; there are {', '.join(HEADINGS)}{near}")
    return [item for item in ITEMS if not only or item.heading in only]


def _together(trials: Trials, verdicts: Sequence[ItemVerdict]) -> Trial | None:
    """All that is advised, at once: of what changes the same option the later one counts."""
    advised = [verdict.changes for verdict in verdicts if verdict.changes]
    if len(advised) < 2:
        return None
    changes: dict[str, Any] = {}
    for each in advised:
        both = "without" in changes and "without" in each  # each of them takes an alternative back
        kept = {"without": tuple(n for n in changes["without"] if n in each["without"])} if both else {}
        changes |= {**each, **kept}
    return trials.tried(**changes).trial
