"""A configuration of a whole program: its target, its sizes and its options, and the file that keeps them.

The file is JSON; keys stay, new ones may come:

    {"schema": "tilewright.configuration/1", "tilewright": version, "source": str | null,
     "chosen": {axis: value},          what the space had, as text
     "target": str, "sizes": {dimension: int},
     "options": {...},                 fields of tw.Options that are not as they are by default; quantization is a mode,
                                       the path of a .toml file, or the tables of one
     "metric": str, "value": float, "unit": str,
     "figures": {metric: float}}
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..api.arguments.signature import CompileError
from ..api.options import Options
from ..passes.errors import PassError
from ..passes.pins import parse_pins, pins_text
from ..passes.quantized.recipes import SUFFIX as QUANT_SUFFIX
from ..passes.quantized.recipes import QuantConfig, recipe_of
from ..support.amounts import MOST
from ..support.files import read_plain, write_whole
from ..support.sentences import quoted, suggestion

SCHEMA = "tilewright.configuration/1"


@dataclass(frozen=True)
class Configuration:
    """What `tw.compile` takes besides a source and its arguments.

    Attributes:
        target: The chip, or the path of its `.toml` file.
        sizes: The sizes of open dimensions; empty where none are open.
        options: The options.
    """

    target: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    options: Options = field(default_factory=Options)

    def to_json(self) -> dict[str, Any]:
        """As plain data, with the fields of options that decide what a program is. Raises CompileError for an option
        that JSON does not hold."""
        if changed(self.options, "oracle") is not None:
            raise CompileError("options: an oracle is registered in a process, which a file does not hold")
        own = {name: found[0] for name in _FIELDS if (found := changed(self.options, name)) is not None}
        options = {name: _FIELDS[name][0](given) for name, given in own.items()}
        return {"target": self.target, "sizes": dict(self.sizes), "options": options}

    def save(self, path: str | Path, **more: object) -> None:
        """Writes it to a file in one step. more: plain data that the file has besides. Raises CompileError for an
        option that JSON does not hold, and OSError."""
        write_whole(path, self.text(**more))

    def text(self, **more: object) -> str:
        """What `save` writes."""
        from .. import __version__

        head = {"schema": SCHEMA, "tilewright": __version__, **more}
        return json.dumps({**head, **self.to_json()}, indent=2, allow_nan=False) + "\n"

    @staticmethod
    def load(path: str | Path) -> Configuration:
        """Reads what `save` wrote. Raises CompileError, with the file's name, for what is wrong in it, and OSError."""
        content = read_plain(path)
        try:
            found = json.loads(content.decode())
        except RecursionError:
            raise CompileError(f"{path}: it is nested too deeply") from None
        except ValueError as error:
            said = "no text" if isinstance(error, UnicodeDecodeError) else f"no JSON: {error}"
            raise CompileError(f"{path}: {said}; a configuration is what `tilewright autotune` writes") from None
        try:
            return _read(found)
        except (CompileError, PassError) as error:
            raise CompileError(f"{path}: {error}") from None


def changed(options: Options, name: str) -> tuple[Any] | None:
    """The value of a field that is not as it is by default."""
    given = getattr(options, name)
    return None if given == getattr(_DEFAULT, name) else (given,)


_DEFAULT = Options()


def _read(found: Any) -> Configuration:
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:  # pyright: ignore[reportUnknownMemberType]
        schema = found.get("schema") if isinstance(found, dict) else None  # pyright: ignore[reportUnknownMemberType]
        said = "" if schema is None else f", but {quoted(schema)}"
        raise CompileError(f"no configuration of `tilewright autotune`: its schema is not {SCHEMA!r}{said}")
    target = found.get("target")
    if not isinstance(target, str) or not target:
        raise CompileError(f"target must be the name of a chip, not {quoted(target)}")
    sizes, options = (found.get(key, {}) for key in ("sizes", "options"))
    for key, table in (("sizes", sizes), ("options", options)):
        if not isinstance(table, dict):
            raise CompileError(f"{key} must be a table, not {quoted(table)}")
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < MOST:
            raise CompileError(f"the size {name} must be a whole number, not {quoted(size)}")
    return Configuration(target, sizes, Options(**_options(options)))


def _options(table: Mapping[str, Any]) -> dict[str, Any]:
    for name in table:
        if name not in _FIELDS:
            known = f"options are {', '.join(_FIELDS)}{suggestion(name, _FIELDS)}"
            raise CompileError(f"there is no option {quoted(name)} in a configuration; {known}")
    return {name: _FIELDS[name][1](given) for name, given in table.items()}


# -- fields --------------------------------------------------------------------------------------------------


def _same(given: Any) -> Any:
    return given


def _names(given: Any) -> Any:
    return given if isinstance(given, str) else [*given]


def _write_quantization(given: Any) -> Any:
    if not isinstance(given, QuantConfig):
        return os.fspath(given)
    if any(product.arrays() for product in given.products.values()):
        raise CompileError(
            "options: quantization has arrays, which JSON does not hold: save it as a .toml file, and give its path"
        )
    return given.to_table()


def _read_quantization(given: Any) -> Any:
    if isinstance(given, dict):
        return QuantConfig.of_table(given)
    if isinstance(given, str) and not given.endswith(QUANT_SUFFIX):
        recipe_of(given)
    return given


def _write_path(given: Any) -> Any:
    if not isinstance(given, str | os.PathLike):
        raise CompileError("options: plans are a source of plans, which JSON does not hold: give the path of a file")
    return os.fspath(given)


def _read_pins(given: Any) -> Any:
    if not isinstance(given, str):
        raise CompileError(f"options: schedule must be text such as base_m=128, not {quoted(given)}")
    return parse_pins(given)


_FIELDS: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "schedule": (pins_text, _read_pins),
    "host": (_same, _same),
    "donate": (lambda given: [given] if isinstance(given, int) else _names(given), _same),
    "quantization": (_write_quantization, _read_quantization),
    "weights": (_names, _same),
    "precision": (_same, _same),
    "without": (_names, _same),
    "strips": (_same, _same),
    "winograd": (lambda given: given if isinstance(given, str) else dict(given), _same),
    "memory_limit": (_same, _same),
    "hivm": (_same, _same),
    "plans": (_write_path, _same),
}
"""How a field is written as plain data, and read. What is not here does not decide what a program is."""

assert _FIELDS.keys() <= {each.name for each in fields(Options)}
