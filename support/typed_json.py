"""Dataclasses and named tuples as JSON, and back: what is read has the declared types, or is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


def plain(value: Any) -> Any:
    """A value as JSON: dataclasses are tables of their fields, tuples lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value) if field.init}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def typed(kind: Any, value: Any) -> Any:
    """The value of a type that `plain` gave as JSON. Fields with a default may be missing. Raises ValueError for what
    is of another type, and for fields that there are none of."""
    origin, args = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return _one_of(args, value)
    if is_dataclass(origin) and isinstance(value, dict):
        return _dataclass(origin, value)
    if isinstance(origin, type) and issubclass(origin, tuple) and isinstance(value, list):
        return _tuple(origin, args, value)
    if origin in (list, Sequence) and isinstance(value, list):
        return [typed(args[0], each) for each in value]
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {typed(args[0], key): typed(args[1], each) for key, each in value.items()}
    if origin is float and type(value) is int:
        return float(value)
    if type(value) is not origin and not (value is None and origin is NoneType):
        raise ValueError(f"{str(value)[:40]!r} is no {getattr(origin, '__name__', origin)}")
    return value


def _one_of(kinds: Sequence[Any], value: Any) -> Any:
    """The value of the first of several types that it is of."""
    for kind in kinds:
        try:
            return typed(kind, value)
        except ValueError:
            continue
    raise ValueError(f"{str(value)[:40]!r} is of none of the types that it may be of")


def _dataclass(kind: Any, value: Mapping[str, Any]) -> Any:
    hints, own = _hints(kind), {field.name: field for field in fields(kind) if field.init}
    unknown = sorted(value.keys() - own.keys())
    if unknown:
        raise ValueError(f"{kind.__name__} has no {unknown[0][:40]!r}")
    for name, field in own.items():
        if name not in value and field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"a {kind.__name__} has no {name}")
    return kind(**{name: typed(hints[name], each) for name, each in value.items()})


def _tuple(kind: Any, args: Sequence[Any], value: Sequence[Any]) -> Any:
    """A named tuple, or one of parts of the same type or each of its own."""
    if kind is not tuple:
        hints = _hints(kind)
        if len(value) != len(kind._fields):
            raise ValueError(f"a {kind.__name__} has {len(kind._fields)} parts, not {len(value)}")
        return kind(*(typed(hints[name], each) for name, each in zip(kind._fields, value, strict=True)))
    if len(args) == 2 and args[1] is ...:
        return tuple(typed(args[0], each) for each in value)
    if len(args) != len(value):
        raise ValueError(f"{len(args)} parts are wanted, not {len(value)}")
    return tuple(typed(each, part) for each, part in zip(args, value, strict=True))


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
