"""What a debugger shows of a program that has stopped: values, who wrote them, what pipes wait for."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.ir import Operation

from .errors import DebugError
from .expressions import Expression
from .lookahead import flags_of, waits_of
from .runner import Runner
from .scopes import ShownValue, span_of
from .texts import array_text, writes_text


class Inspector(Runner):
    """A run that is looked at where it stops."""

    def where(self, around: int = 3) -> str:
        """`here`, and the lines of the kernel around the instruction."""
        if self.is_over or not self.has_begun:
            return self.here()
        return f"{self.here()}\n{self.excerpt(self.op, around)}"

    def excerpt(self, op: Operation, around: int) -> str:
        """The ops around an op, that marked by an arrow."""
        listing = self.listing(op)
        at = listing.line_of.get(op, 0)
        first, end = max(0, at - around), min(len(listing.lines), at + around + 1)
        lines = []
        for i in range(first, end):
            text = listing.said(listing.ops[i]) if i in listing.ops else listing.lines[i].strip()
            indent = " " * (len(listing.lines[i]) - len(listing.lines[i].lstrip()))
            lines.append(f"{'->' if i == at else '  '} {indent}{text}")
        return "\n".join(lines)

    def find(self, text: str) -> ShownValue | Any:
        """What an expression stands for: a value as it is, with where it is, or what is computed."""
        in_main, text = _of_main(text)
        expression = Expression(text)
        scope = self.scope(in_main)
        found = {name: scope.find(name) for name in expression.names}
        value = expression.value({name: each.values for name, each in found.items()})
        if not expression.is_value:
            return value
        (one,) = found.values()
        unwritten = one.unwritten
        if unwritten is not None and text.strip() not in found:
            unwritten = np.asarray(expression.value({expression.names[0]: unwritten}))
            unwritten = unwritten if unwritten.any() else None
        return ShownValue(one.what, value, one.writes, unwritten)

    def value(self, text: str) -> Any:
        """The value of an expression such as `%5[0, :8]` or `max(%5)`: a copy, whose type is that of the buffer."""
        found = self.find(text)
        made = found.values if isinstance(found, ShownValue) else found
        return made.copy() if isinstance(made, np.ndarray) else made

    def shown(self, text: str) -> str:
        """What `print` prints."""
        found = self.find(text)
        if not isinstance(found, ShownValue):
            return array_text(found)
        if not isinstance(found.values, np.ndarray):
            return found.what if found.values is None else f"{found.what}: {array_text(found.values)}"
        foreign = [w for w in found.writes if w.foreign]
        notes = [f"{w.span} holds what was written as {w.foreign}" for w in foreign[:1]]
        return "\n".join([found.what, array_text(found.values, found.unwritten), *notes])

    def print(self, text: str) -> None:
        """Prints a value or an expression."""
        print(self.shown(text))

    def who(self, text: str) -> str:
        """Who wrote the bytes of a value or of an address such as `ub+4096` or `gm+0..255`, line by line."""
        in_main, rest = _of_main(text)
        scope = self.scope(in_main)
        span = span_of(rest, self.code.spaces)
        if span is not None:
            writes = scope.at(span)
        else:
            found = scope.find(rest.strip())
            if not found.writes:
                raise DebugError(f"{rest.strip()} has no bytes in a memory")
            writes = found.writes
        return "\n".join(writes_text(writes, self.listing))

    def waits(self) -> str:
        """What each pipe of each core waits for: its clock, its next instruction, and what that needs."""
        running = self.session.running
        if running is None or not running.running:
            raise DebugError(
                "no launch runs" if self.has_begun else "the program has not begun: 'run' or 'step' does it"
            )
        listing, lines = self.listing(running.plan.op), list[str]()
        current = self.core
        for core in running.running:
            lines.append(
                f"{core}{', the one that runs' if core is current and len(running.running) > 1 else ''}"
            )
            lines += waits_of(core, self._seen, current, listing)
            lines += flags_of(core.order, core)
        return "\n".join(lines)

    def faults(self) -> str:
        """The fault that the program stopped at, who wrote what its instruction uses, or that there is none."""
        return "no fault so far" if self.fault is None else self.fault_text(self.fault)


def _of_main(text: str) -> tuple[bool, str]:
    """Whether a text is about `@main`'s values, and the rest of it."""
    rest = text.strip()
    return (True, rest.removeprefix("@main").strip()) if rest.startswith("@main ") else (False, rest)
