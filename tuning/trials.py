"""A program, and the same one compiled with other options: only what was tried is advised."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..api.compiling import compile as compile_program
from ..api.options import Options
from ..api.program import CompileError, Program
from ..api.quantized import named_module
from ..api.sizes.dynamic import DynamicProgram
from ..api.sources import entry_of
from ..backends.report import Report
from ..backends.simulator import SimulationError
from ..dialects.graph.donation import donated
from ..dialects.source_places import source_place, without_folder
from ..passes.errors import PassError
from ..passes.quantized.products_named import mark_weights, named_products, weight_patterns
from ..passes.reasons import ReasonKind, reasons_asked

WORTH = 0.01
"""The share of the time, or of the device memory, that something must save to be advised."""

Say = Callable[[str], object]


@dataclass(frozen=True)
class Trial:
    """What was tried, as plain data. switch: what does it, for the command line; microseconds, bytes: of the program
    with it, time and device memory, and before: those that it is compared with; failed: why there is no such program,
    as a sentence."""

    switch: str
    microseconds_before: float
    bytes_before: int
    microseconds: float | None = None
    bytes: int | None = None
    failed: str = ""

    @property
    def saves_time(self) -> bool:
        """Whether the program takes less time, by an amount that is worth it."""
        return self.microseconds is not None and self.microseconds < self.microseconds_before * (1 - WORTH)

    @property
    def costs_time(self) -> bool:
        """Whether the program takes longer, by an amount that counts."""
        return self.microseconds is not None and self.microseconds * (1 - WORTH) > self.microseconds_before

    @property
    def saves_bytes(self) -> bool:
        """Whether the program needs less device memory, by an amount that is worth it."""
        return self.bytes is not None and self.bytes < self.bytes_before * (1 - WORTH)

    @property
    def time(self) -> str:
        """`--precision float16 takes 12.00 us instead of 24.10`, or why it does not."""
        if self.microseconds is None:
            return f"{self.switch} cannot be compiled: {self.failed}"
        return f"{self.switch} takes {_both(us(self.microseconds), us(self.microseconds_before), 'us')}"

    @property
    def memory(self) -> str:
        """The same of device memory."""
        if self.bytes is None:
            return f"{self.switch} cannot be compiled: {self.failed}"
        return f"{self.switch} needs {_both(f'{self.bytes:,}', f'{self.bytes_before:,}', 'bytes')}"


@dataclass(frozen=True)
class Made:
    """A trial and its program, None where it failed."""

    trial: Trial
    program: Program | None
    changes: Mapping[str, Any]

    @property
    def report(self) -> Report | None:
        """What the program costs."""
        return None if self.program is None else self.program.report()


@dataclass
class Trials:
    """A program as it was asked for, and what is tried of it; each variant is compiled once.

    source, args, kwargs, target, options: as for `tw.compile`; sizes: those of a program with open ones; command: how
    the command line calls the program; evaluations, budget: of the search for plans; say: is told what takes its time.
    """

    source: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    target: str | None
    options: Options
    sizes: Mapping[str, int] | None
    command: str
    evaluations: int
    budget: str | float
    say: Say
    made: dict[str, Made] = field(default_factory=dict[str, Made])

    def __post_init__(self) -> None:
        """Compiles the program as it was asked for. Raises as `tw.compile` does."""
        self.say("compiling")
        with reasons_asked() as reasons:
            self.program = self.compiled(replace(self.options, cache=""))
        self._reasons = list(reasons)
        self.report = self.program.report()

    def compiled(self, options: Options) -> Program:
        """The program with options, at the sizes where some are open. Raises as `tw.compile` does."""
        found = compile_program(self.source, *self.args, target=self.target, options=options, **self.kwargs)
        if isinstance(found, DynamicProgram):
            if self.sizes is None:
                known = ", ".join(f'"{name}": 8' for name in found.symbols)
                raise CompileError(f"checklist: {found.name} has open sizes: say which, as at={{{known}}}")
            return found.at(self.sizes)
        if self.sizes is not None:
            raise CompileError(f"checklist: at= is for programs with open sizes, and {found.source.name} has none")
        return found

    def tried(self, against: Made | None = None, **changes: Any) -> Made:
        """The program compiled with other options, compared with the program as it was asked for, or with another one
        that takes less. Warnings of it are not shown."""
        switch = switch_of(changes, self.options)
        if switch not in self.made:
            self.say(f"trying {switch}")
            options = replace(self.options, **changes)
            self.made[switch] = self.compared(switch, lambda: self.compiled(options), against, changes)
        return self.made[switch]

    def compared(
        self,
        switch: str,
        make: Callable[[], Program],
        against: Made | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> Made:
        """What a program takes that is made otherwise, and what the program as it was asked for does, or another one
        that takes less."""
        other = None if against is None else against.report
        first = other if other is not None and other.microseconds < self.report.microseconds else self.report
        before = first.microseconds, first.memory.arena_bytes
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program = make()
            found = program.report()
        except (CompileError, SimulationError) as error:
            failed = str(error).splitlines()[0].rstrip(".")
            return Made(Trial(switch, *before, failed=failed), None, changes or {})
        trial = Trial(switch, *before, found.microseconds, found.memory.arena_bytes)
        return Made(trial, program, changes or {})

    def reasons(self, kind: ReasonKind) -> list[str]:
        """What the passes said of this, each sentence once with its place and how often it was said, the most frequent
        first."""
        counts: dict[str, int] = {}
        for reason in self._reasons:
            if reason.kind == kind:
                place = source_place(reason.ops[-1])
                said = f"{'' if place is None else f'{without_folder(str(place))}: '}{reason.why}"
                counts[said] = counts.get(said, 0) + 1
        ordered = sorted(counts, key=lambda said: -counts[said])
        return [said if counts[said] == 1 else f"{said} ({counts[said]} times)" for said in ordered]

    @cached_property
    def weights(self) -> tuple[int, tuple[str, ...]]:
        """How many products have weights, and the patterns of the arguments that are weights. Both are nothing for a
        program that begins below the graph level."""
        origin = self.program.origin.original or self.program.origin
        try:
            module, signature = named_module(origin)
            flags = mark_weights(module)
            return len(named_products(module, flags)), weight_patterns(signature.names, flags)
        except PassError:
            return 0, ()

    @cached_property
    def donatable(self) -> list[int | str]:
        """The arguments, by name or position, that are not donated and of which a part has the type of a result that no
        donated one has."""
        module, signature = self.program.origin.lower()
        free = donated(entry_of(module))
        types, results = self.program.input_types, [*self.program.output_types]
        for kind, is_free in zip(types, free, strict=False):
            if is_free and kind in results:
                results.remove(kind)
        count, keywords = signature.form
        names: list[int | str] = [*map(signature.parameters.label, range(count)), *keywords]
        tree = signature.in_tree
        leaves = [1] * count if tree is None else [c.num_leaves for p in tree.children() for c in p.children()]
        found, at = list[int | str](), 0
        for i, (name, number) in enumerate(zip(names, leaves, strict=False)):
            own = range(at, at + number)
            at += number
            if any(not free[j] and types[j] in results for j in own):
                found.append(i if isinstance(name, str) and name.isdecimal() else name)
        return found


def _both(after: str, before: str, unit: str) -> str:
    """`12.00 us instead of 24.10`."""
    return f"{after} {unit} instead of {before}" if after != before else f"{after} {unit} as without it"


def us(microseconds: float) -> str:
    """Microseconds as text: two places where they are less than 100, else one."""
    return f"{microseconds:,.2f}" if microseconds < 99.995 else f"{microseconds:,.1f}"


SWITCHES = {
    "precision": "--precision",
    "weights": "--weights",
    "quantization": "--quant-config",
    "strips": "--strips",
    "memory_limit": "--memory-limit",
    "donate": "--donate",
}
"""Fields of `tw.Options` and their switches on the command line."""


def switch_of(changes: Mapping[str, Any], asked: Options) -> str:
    """What asks for options on the command line, where it can, as changes of those that were asked for: a switch that
    was given and is not any more is `no --weights`, and a field without a switch is as in Python."""
    said: list[str] = []
    for name, value in changes.items():
        if name == "without":
            more, less = [n for n in value if asked.may(n)], [n for n in asked.without if n not in value]
            said += [f"--without {n}" for n in more] + [f"no --without {n}" for n in less]
        elif name not in SWITCHES:
            said.append(f"tw.Options({name}={value!r})")
        elif value is None:
            said.append(f"no {SWITCHES[name]}")
        else:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            said.append(shlex.join([SWITCHES[name], text]))
    return " ".join(said)
