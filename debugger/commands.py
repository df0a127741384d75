"""The commands of the debugger as text: `break exp; run; print %5`."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from difflib import get_close_matches

from ..dialects.base import node_of, place_of, to_ints
from ..dialects.dtypes import name_of_numpy
from .errors import DebugError
from .inspector import Inspector

SOURCE_LINES = 5
"""Lines of the source that `list` shows before and behind the one that it is about."""


class Commands:
    """The commands of a debugger. is_done: whether one asked to leave."""

    def __init__(self, debugger: Inspector) -> None:
        self.debugger = debugger
        self.is_done = False
        self._last = ""

    def do(self, line: str) -> str:
        """Does one command, the one before again where there is none; gives what it says. Raises DebugError."""
        line = line.strip() or self._last
        if not line:
            return ""
        word, _, rest = line.partition(" ")
        name = ALIASES.get(word, word)
        if name not in TABLE:
            near = get_close_matches(word, [*TABLE, *ALIASES], 1)
            raise DebugError(
                f"there is no command '{word}'{f'; did you mean {near[0]}?' if near else '; help lists them'}"
            )
        how, takes, _ = TABLE[name]
        if rest.strip() and not takes:
            raise DebugError(f"'{name}' takes nothing behind it, got '{rest.strip()}'")
        self._last = line if name in AGAIN else ""
        return how(self, rest.strip())

    # -- running -------------------------------------------------------------------------------------------

    def _run(self, rest: str) -> str:
        return str(self.debugger.run())

    def _continue(self, rest: str) -> str:
        return str(self.debugger.resume())

    def _step(self, rest: str) -> str:
        return str(self.debugger.step(_count(rest)))

    def _next(self, rest: str) -> str:
        return str(self.debugger.next(_count(rest)))

    def _finish(self, rest: str) -> str:
        return str(self.debugger.finish())

    def _back(self, rest: str) -> str:
        return str(self.debugger.back(_count(rest) if rest else None))

    def _quit(self, rest: str) -> str:
        self.is_done = True
        return ""

    # -- breakpoints ---------------------------------------------------------------------------------------

    def _break(self, rest: str) -> str:
        made = self.debugger.break_at(rest)
        count = len(made.ops)
        where = f": {count} instruction{'s' * (count != 1)}" if made.ops else ""
        return f"breakpoint {made.number}, {made.text}{where}"

    def _delete(self, rest: str) -> str:
        numbers = rest.split() or [str(b.number) for b in self.debugger.breakpoints]
        for each in numbers:
            if not each.isdecimal():
                raise DebugError(f"delete takes numbers of breakpoints, got '{each}'")
            self.debugger.delete(int(each))
        return f"deleted {', '.join(numbers)}" if numbers else "there are no breakpoints"

    def _info(self, rest: str) -> str:
        topics: dict[str, Callable[[], str]] = {"breakpoints": self._breakpoints, "kernels": self._kernels}
        found = [name for name in topics if rest and name.startswith(rest)]
        if len(found) != 1:
            raise DebugError(f"info is about {' or '.join(topics)}{f', got {rest!r}' if rest else ''}")
        return topics[found[0]]()

    def _breakpoints(self) -> str:
        return "\n".join(map(str, self.debugger.breakpoints)) or "there are no breakpoints"

    def _kernels(self) -> str:
        code, lines = self.debugger.code, list[str]()
        for name, listed in code.instructions.items():
            runs = sum(run.plan.name == name for run, _ in self.debugger.launches)
            grid = list(to_ints(self.debugger.program.functions.kernels[name].grid))
            lines.append(f"@{name}: grid {grid}, {len(listed)} instructions, {runs} launches so far")
        return "\n".join(lines) or "the program has no kernels"

    # -- looking -------------------------------------------------------------------------------------------

    def _print(self, rest: str) -> str:
        if rest == "results":
            return self._results()
        if not rest:
            raise DebugError("say what, as in print %5, print %5[0, :8] or print results")
        return self.debugger.shown(rest)

    def _results(self) -> str:
        from .texts import array_text

        made = self.debugger.results()
        return (
            "\n".join(
                f"result {i}, {name_of_numpy(x.dtype)}{list(x.shape)}\n{array_text(x)}" for i, x in enumerate(made)
            )
            or "there are no results"
        )

    def _who(self, rest: str) -> str:
        if not rest:
            raise DebugError("say what, as in who %5 or who ub+4096")
        return self.debugger.who(rest)

    def _waits(self, rest: str) -> str:
        return self.debugger.waits()

    def _where(self, rest: str) -> str:
        return self.debugger.where()

    def _faults(self, rest: str) -> str:
        return self.debugger.faults()

    def _list(self, rest: str) -> str:
        debugger = self.debugger
        if rest:
            name = rest.removeprefix("@")
            kernels = debugger.program.functions.kernels
            op = debugger.program.functions.main if name == "main" else kernels.get(name)
            if op is None:
                near = get_close_matches(name, kernels, 1)
                raise DebugError(f"there is no kernel @{name}{f'; did you mean @{near[0]}?' if near else ''}")
            return "\n".join(debugger.listing(op).lines)
        if debugger.is_over or not debugger.has_begun:
            raise DebugError(f"{debugger.here()}; 'list KERNEL' shows a kernel")
        place = place_of(debugger.op)
        is_text = place is not None and not node_of(debugger.op)
        lines = linecache.getlines(place.filename.data) if place is not None and is_text else []
        if place is None or not lines:
            return debugger.excerpt(debugger.op, SOURCE_LINES)
        at = place.line.data
        shown = range(max(1, at - SOURCE_LINES), min(len(lines), at + SOURCE_LINES) + 1)
        width = len(str(shown[-1])) if shown else 1
        return "\n".join(
            f"{'->' if i == at else '  '} {i:{width}}  {lines[i - 1].rstrip()}".rstrip() for i in shown
        )

    def _help(self, rest: str) -> str:
        if rest:
            name = ALIASES.get(rest, rest)
            if name not in TABLE:
                raise DebugError(f"there is no command '{rest}'; help lists them")
            return f"{name} {TABLE[name][1]}".rstrip() + f": {TABLE[name][2]}"
        rows = [(f"{name} {takes}".rstrip(), what) for name, (_, takes, what) in TABLE.items()]
        width = max(len(row[0]) for row in rows)
        short = ", ".join(f"{alias} {name}" for alias, name in ALIASES.items())
        return "\n".join([*(f"{usage:{width}}  {what}" for usage, what in rows), f"short: {short}"])


def _count(rest: str) -> int:
    """How many of something. Raises DebugError."""
    if not rest:
        return 1
    if not rest.isdecimal() or int(rest) < 1:
        raise DebugError(f"'{rest}' is no number of instructions")
    return int(rest)


TABLE: dict[str, tuple[Callable[[Commands, str], str], str, str]] = {
    "break": (
        Commands._break,
        "[WHERE] [read|write] [if CONDITION]",
        "stop at exp, model.py:12, @kernel, %5, ub+4096, gm+0..63; if nan, inf, outside -1..1 or %5 > 100",
    ),
    "delete": (Commands._delete, "[N...]", "remove breakpoints, or all"),
    "info": (Commands._info, "breakpoints|kernels", "list them"),
    "run": (Commands._run, "", "run from the beginning to the first stop"),
    "continue": (Commands._continue, "", "run on to the next stop"),
    "step": (Commands._step, "[N]", "run one instruction, or N"),
    "next": (Commands._next, "[N]", "run to the next instruction of this core"),
    "finish": (Commands._finish, "", "run to the end of this launch"),
    "back": (
        Commands._back,
        "[N]",
        "go back to the beginning of this launch or of the one before, or N instructions",
    ),
    "print": (Commands._print, "EXPRESSION", "print %5, %5[0, :8], max(abs(%5)), @main %1, or results"),
    "who": (Commands._who, "%5|ub+4096", "who wrote these bytes: instruction, core, indices, line"),
    "waits": (Commands._waits, "", "what each pipe waits for"),
    "where": (Commands._where, "", "kernel, core, indices, source line, and the instructions around"),
    "list": (Commands._list, "[KERNEL]", "the source around this line, or a kernel"),
    "faults": (Commands._faults, "", "the fault that the program stopped at"),
    "help": (Commands._help, "[COMMAND]", "this list"),
    "quit": (Commands._quit, "", "leave"),
}
"""How a command is done, what it takes, and what it does."""

ALIASES = {
    "b": "break",
    "c": "continue",
    "r": "run",
    "s": "step",
    "n": "next",
    "p": "print",
    "l": "list",
    "bt": "where",
    "h": "help",
    "q": "quit",
}

AGAIN = ("step", "next", "continue")
"""Commands that an empty line does again."""


def split(text: str) -> list[str]:
    """The commands of a text, apart by `;` and ends of lines; `#` begins a comment."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    return [part.strip() for line in lines for part in line.split(";") if part.strip()]
