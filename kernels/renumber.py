"""Stages with other numbers for their axes, so that they stand among those of another graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, get_args, get_type_hints

from xdsl.ir import Attribute

from .stage import Axis, KernelStage, Ref


def renumbered(stage: KernelStage, axes: Sequence[int], operands: Sequence[Ref]) -> KernelStage:
    """A stage of a graph whose axes are called so here, in order, on these operands. The dimensions of its results stay
    what they are."""
    op = _with(stage.op, type(stage.op), axes)
    spacing = stage.spacing and replace(stage.spacing, axis=axes[stage.spacing.axis])
    shaped = stage.elements and stage.kind != "scalar" and op.shape([1] * (max(axes, default=0) + 1)) is None
    dims = stage.tile_axes or range(len(axes))
    return KernelStage(
        op,
        stage.elements,
        frozenset(axes[a] for a in stage.axes),
        operands,
        spacing,
        frozenset(axes[a] for a in stage.pooled),
        stage.location,
        tuple(axes[a] for a in dims) if shaped else (),
    )


@cache
def _hints(cls: type) -> Mapping[str, Any]:
    """The types of the fields of a class."""
    return get_type_hints(cls, include_extras=True)


def _with(value: Any, hint: Any, axes: Sequence[int]) -> Any:
    """A value of this type with other numbers in the place of axes."""
    arms = get_args(hint)
    if value is None or isinstance(value, Attribute):
        return value
    if hint == Axis or (Axis in arms and not isinstance(value, tuple)):
        return axes[value]
    if is_dataclass(value) and not isinstance(value, type):
        hints = _hints(type(value))
        return replace(value, **{f.name: _with(getattr(value, f.name), hints[f.name], axes) for f in fields(value)})
    if isinstance(value, tuple):
        kinds = arms[:1] * len(value) if arms[-1] is Ellipsis else arms
        return tuple(_with(v, kind, axes) for v, kind in zip(value, kinds, strict=True))
    return value
