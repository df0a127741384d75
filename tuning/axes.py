"""What a configuration of a program may vary: sizes, the target, and fields of `tw.Options`, an axis for each.

An axis reads values, as text or as its field takes them, and says of each what it sets. A configuration is one choice
of each axis, put together; no two axes of a space set the same thing.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from ..api.arguments.signature import CompileError
from ..api.options import WORDS, Options
from ..machine import Machine, MachineError
from ..passes.alternatives import alternatives, check_names
from ..passes.errors import PassError
from ..passes.quantized.recipes import RECIPES, SUFFIX, recipe_of
from ..support.amounts import bytes_in
from ..support.precisions import ORIGIN, PRECISIONS
from ..support.sentences import quoted, suggestion
from ..support.winograd import CHOICES as WINOGRAD
from ..support.winograd import parse_winograd

BATCH = "batch"
"""What stands for the first open dimension, where none is called so."""

TARGET = "target"

NONE = "none"
"""The text of a value that asks for nothing."""

BETWEEN = "+"
"""What stands between several names in one value."""

MOST = 4096
"""Configurations of a space: each is compiled."""


@dataclass(frozen=True)
class Choice:
    """One value of an axis. text: how it is shown; sizes, target, options: what it sets."""

    text: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    target: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def set(self) -> frozenset[str]:
        """The names of what it sets."""
        return frozenset((*self.sizes, *self.options, *((TARGET,) if self.target is not None else ())))


@dataclass(frozen=True)
class Axis:
    """Something that may vary. takes: what its values are, for messages; read: a value from what a person gives, which
    raises ValueError, and errors of the compiler, for what is none."""

    name: str
    takes: str
    read: Callable[[object], Choice]

    def choice(self, value: object) -> Choice:
        """A value. Raises CompileError."""
        try:
            found = self.read(value)
            if found.options:
                Options(**found.options)  # pyright: ignore[reportArgumentType]  # which says what is wrong with it
        except (CompileError, PassError, MachineError) as error:
            raise CompileError(f"space: {self.name}={_said(value)}: {error}") from None
        except ValueError:
            raise CompileError(f"space: {self.name}={_said(value)}: {self.name} takes {self.takes}") from None
        return found


def _said(value: object) -> str:
    return value if isinstance(value, str) else quoted(value)


# -- the axes of options -------------------------------------------------------------------------------------

Reader = Callable[[str], Mapping[str, object]]
"""What a text sets of the options. Raises ValueError."""


def _of_words(words: Mapping[str, Mapping[str, object]]) -> tuple[str, Reader]:
    def read(text: str) -> Mapping[str, object]:
        if text not in words:
            raise ValueError(text)
        return words[text]

    return ", ".join(words), read


def _of_bytes(name: str, nothing: str) -> tuple[str, Reader]:
    def read(text: str) -> Mapping[str, object]:
        count = None if text == nothing else bytes_in(text)
        if count is None and text != nothing:
            raise ValueError(text)
        return {name: count}

    return f"bytes, such as 512K, 64M or 2G, or {nothing}", read


def _of_names(name: str, takes: str, check: Callable[[Sequence[str]], object], nothing: object) -> tuple[str, Reader]:
    def read(text: str) -> Mapping[str, object]:
        names = () if text == NONE else tuple(text.split(BETWEEN))
        if not all(names):
            raise ValueError(text)
        check(names)
        return {name: names or nothing}

    return f"{takes}, with {BETWEEN} between several, or {NONE}", read


def _quantization(text: str) -> Mapping[str, object]:
    if text == NONE:
        return {"quantization": None}
    if not text.endswith(SUFFIX):
        recipe_of(text)
    return {"quantization": text}


def _winograd(text: str) -> Mapping[str, object]:
    parse_winograd(text)
    return {"winograd": text}


_PRECISIONS: Mapping[str, Mapping[str, object]] = {
    "f32": {"precision": ORIGIN},
    "f16": {"precision": "mixed_float16"},
    "bf16": {"precision": "mixed_bfloat16"},
    "int8": {"quantization": "w8a8"},
    **{name: {"precision": name} for name in PRECISIONS},
}


def _option_readers() -> dict[str, tuple[str, Reader]]:
    listed = ", ".join(each.name for each in alternatives())
    return {
        "precision": _of_words(_PRECISIONS),
        "quantization": (f"{', '.join(RECIPES)}, {NONE}, or a {SUFFIX} file", _quantization),
        "winograd": (", ".join(WINOGRAD), _winograd),
        "host": _of_words({word: {"host": word} for word in WORDS["host"]}),
        "strips": _of_bytes("strips", "off"),
        "memory_limit": _of_bytes("memory_limit", NONE),
        "without": _of_names("without", f"alternatives ({listed})", check_names, ()),
        "donate": _of_names("donate", "names of arguments", len, ()),
        "weights": _of_names("weights", "names of arguments or patterns of these", len, None),
        "hivm": _of_words({"no": {"hivm": False}, "yes": {"hivm": True}}),
    }


def _option_axis(name: str, takes: str, reader: Reader) -> Axis:
    def read(value: object) -> Choice:
        if isinstance(value, str):
            return Choice(value, options=reader(value))
        return Choice(_shown(value), options={name: value})

    return Axis(name, takes, read)


def _shown(value: object) -> str:
    """How a value that is no text is shown in tables."""
    if isinstance(value, Collection) and not isinstance(value, Mapping) and all(isinstance(v, str) for v in value):
        return BETWEEN.join(map(str, value)) or NONE
    return NONE if value is None else quoted(value)


# -- all axes ------------------------------------------------------------------------------------------------


def _size_axis(name: str, symbol: str) -> Axis:
    def read(value: object) -> Choice:
        if isinstance(value, str):
            if re.fullmatch(r"\s*\d{1,18}\s*", value) is None:
                raise ValueError(value)
            return Choice(value.strip(), {symbol: int(value)})
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise ValueError(value)
        number = int(value.__index__())  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
        return Choice(str(number), {symbol: number})

    return Axis(name, "whole numbers", read)


def _target(value: object) -> Choice:
    named = Machine.named(value)  # pyright: ignore[reportArgumentType]
    Machine.load(named)
    return Choice(named, target=named)


def batch_symbol(symbols: Sequence[str]) -> str | None:
    """The open dimension that items are counted along: the one called batch, or the first one; None without any."""
    return BATCH if BATCH in symbols else next(iter(symbols), None)


def axes_of(symbols: Sequence[str]) -> dict[str, Axis]:
    """All axes of a program with these open dimensions, by name. A dimension wins over an option of its name."""
    found = {name: _size_axis(name, name) for name in symbols}
    first = batch_symbol(symbols)
    if first is not None:
        found.setdefault(BATCH, _size_axis(BATCH, first))
    found.setdefault(TARGET, Axis(TARGET, "chips that `tilewright machines` lists, or .toml files", _target))
    for name, (takes, reader) in _option_readers().items():
        found.setdefault(name, _option_axis(name, takes, reader))
    return found


Space = Mapping[str, Sequence[Choice]]
"""The choices of each axis, by its name."""


def read_space(given: object, program: str, symbols: Sequence[str]) -> Space:
    """The axes and choices that somebody asks for. given: a list of values for each name. Raises CompileError for a
    name or a value that there is not, for no names or values, for a value that is there twice, for two axes that set
    the same, and for too many configurations."""
    known = axes_of(symbols)
    if not isinstance(given, Mapping) or not given:
        raise CompileError(f"space: give a list of values for each name, as {{'precision': ['f32', 'f16']}}, "
                           f"not {quoted(given)}; names are {', '.join(known)}")  # fmt: skip
    space: dict[str, Sequence[Choice]] = {}
    count = 1
    for name, values in given.items():  # pyright: ignore[reportUnknownVariableType]
        if name not in known:
            raise _unknown(name, program, symbols, known)
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise CompileError(f"space: {name} must be a list of values, not {quoted(values)}")
        if not values:
            raise CompileError(f"space: {name} has no values; it takes {known[name].takes}")
        count *= len(values)  # pyright: ignore[reportUnknownArgumentType]
    if count > MOST:
        raise CompileError(f"space: {count:,} configurations, of which each is compiled; the most is {MOST:,}")
    for name, values in given.items():  # pyright: ignore[reportUnknownVariableType]
        space[name] = _choices(known[name], values)  # pyright: ignore[reportUnknownArgumentType]
    _check_apart(space)
    return space


def _unknown(name: object, program: str, symbols: Sequence[str], known: Mapping[str, Axis]) -> CompileError:
    if name == BATCH and not symbols:
        return CompileError(
            f"space: {program} has no open sizes, which batch is for: open some, as in --shapes 'f32[b,128]'"
        )
    other = {each.name for each in fields(Options)} - known.keys()
    if name in other:
        return CompileError(f"space: the option {name} is none of its names; these are {', '.join(known)}")
    near = suggestion(name, known) if isinstance(name, str) else ""
    return CompileError(f"space: there is no name {quoted(name)}; names are {', '.join(known)}{near}")


def _choices(axis: Axis, values: Sequence[object]) -> list[Choice]:
    found: dict[str, Choice] = {}
    for value in values:
        choice = axis.choice(value)
        same = found.setdefault(repr(replace(choice, text="")), choice)
        if same is not choice:
            said = "is there twice" if same.text == choice.text else f"and {choice.text} are the same"
            raise CompileError(f"space: {axis.name}: {same.text} {said}")
    return [*found.values()]


def _check_apart(space: Space) -> None:
    """Raises CompileError where two axes set the same."""
    owner: dict[str, str] = {}
    for name, choices in space.items():
        for what in sorted(frozenset[str]().union(*(c.set for c in choices))):
            if what in owner:
                raise CompileError(f"space: {owner[what]} and {name} both say {what}: give one of them")
            owner[what] = name


def configurations(space: Space) -> Iterator[Mapping[str, Choice]]:
    """Each combination: a choice of each axis."""
    for chosen in itertools.product(*space.values()):
        yield dict(zip(space, chosen, strict=True))
