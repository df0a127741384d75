"""Steps that are run again and again: one by one, as a scan, or as a while loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...bounding import first
from ..errors import ValueNeeded
from ..node import Node
from ..values import as_traced, dtype_of, is_known, is_sizes

FEW = 4
"""Iterations that are run one by one: they cost less so than a loop does."""

UNROLLED = 256
"""The most iterations that are run one by one, where they cannot be a loop."""

_STEPS: ContextVar[int] = ContextVar("steps", default=1)
"""How often a step is run one by one, by the loops around it."""


@contextmanager
def _step_of(count: int) -> Iterator[None]:
    """Runs a step of a loop of so many."""
    token = _STEPS.set(_STEPS.get() * max(count, 1))
    try:
        yield
    finally:
        _STEPS.reset(token)


TRUE = np.asarray(True)


class Changed(Exception):
    """A carried value changes its type, or branches differ in what they give."""


class CountComputed(Exception):
    """Whether a loop goes on is computed by the program."""


Step = Callable[[Any, Sequence[Any], Sequence[Any]], tuple[Any, list[Any], list[Any]]]
"""Of a number, carried values and elements to whether it goes on, carried values and what is collected."""


@dataclass
class Iteration:
    """Runs a step while it goes on, at most a number of times.

    carried: values that a step takes from the one before. most: how often it runs at most: a number, a symbolic size,
    an array of JAX, or None. condition: whether it begins. rows: arrays of which each step gets the next row. count:
    how many of the rows count, where data decides that.
    """

    node: Node
    step: Step
    carried: list[Any]
    most: Any
    condition: Any = field(default_factory=lambda: TRUE)
    rows: list[Any] = field(default_factory=list[Any])
    count: Any = None

    def run(self) -> tuple[Any, ...]:
        """The carried values after the last step, and what the steps collect."""
        begins, most, alone = is_known(self.condition), self.most, UNROLLED // _STEPS.get()
        if begins and not truth(self.condition):
            most = self.most = 0
        if isinstance(most, int) and most <= 0:
            return (*self.carried, *map(_empty, self._first[2]))
        if self.count is not None:
            return self._counted_by_data()
        if any(v is None or isinstance(v, list) for v in self.carried):
            return self._surely_one_by_one()
        goes_on, folds, _ = self._first
        if begins and goes_on:
            few = isinstance(most, int) and most <= (alone if folds else min(FEW, alone))
            if few or (folds and most is None):
                try:
                    return self._one_by_one()
                except CountComputed:
                    return self._while()
            if not _is_array(most):
                return self._counted()
        return self._while()

    @cached_property
    def _first(self) -> tuple[bool, bool, list[Any]]:
        """Of the first step: whether it is known if it goes on, whether all that it gives is known, and what types it
        collects."""
        import jax

        found: list[bool] = []

        def first() -> list[Any]:
            go, carried, collected = self.step(np.asarray(0), self.carried, self._row(0, True))
            found.extend([is_known(go), all(map(_is_known, [go, *carried, *collected]))])
            return plain(collected)

        elements = jax.eval_shape(first)
        return found[0], found[1] and self.node.xp is np, elements

    def _row(self, i: int, any_row: bool = False) -> list[Any]:
        """The elements of a step. any_row: zeros do where there are no rows."""
        if any_row and any(n == 0 for r in self.rows for n in r.shape[:1]):
            return [as_traced(np.zeros(r.shape[1:], dtype_of(r))) for r in self.rows]
        return [r[i] for r in self.rows]

    def _one_by_one(self) -> tuple[Any, ...]:
        """Runs the steps at once. Raises CountComputed where there are too many, or how many there are is not known."""
        most = UNROLLED if self.most is None else self.most
        if _is_array(most):
            self.node.refuse(0)
        if not isinstance(most, int):
            raise self.node.unsupported(f"how often it runs is open, {most}, and it must be known")
        if not is_known(self.condition):
            self.node.refuse(1)
        carried, collected, go, i = self.carried, [], TRUE, 0
        alone = UNROLLED // _STEPS.get()
        while i < most and truth(go):
            if i == alone:
                raise CountComputed
            with _step_of(min(most, alone)):
                go, carried, more = self.step(np.asarray(i), carried, self._row(i))
            collected.append(more)
            i += 1
            if not is_known(go):
                raise CountComputed
        if self.most is None and truth(go):
            raise CountComputed
        if not collected:
            return (*carried, *map(_empty, self._first[2]))
        return (*carried, *map(_stacked, zip(*collected, strict=True)))

    def _counted(self) -> tuple[Any, ...]:
        """Runs the steps as a scan, if the number of them is known."""
        import jax

        try:
            if self.most is not None:
                return self.scanned(self.most)
        except CountComputed:
            pass
        except (Changed, ValueNeeded):
            return self._surely_one_by_one()
        found: list[int] = []

        def count() -> None:
            """Whether it goes on follows from numbers that are known."""
            carried, go, i = self.carried, TRUE, 0
            while truth(go) and i < min(UNROLLED, UNROLLED if self.most is None else self.most):
                go, carried, _ = self.step(np.asarray(i), carried, self._row(i))
                i += 1
                if not is_known(go):
                    return
            if i == self.most or not truth(go):
                found.append(i)

        if not isinstance(self.most, int | None):
            return self._while()
        jax.eval_shape(count)
        if not found:
            return self._while()
        try:
            return self.scanned(found[0], True)
        except (Changed, ValueNeeded):
            return self._surely_one_by_one()

    def _counted_by_data(self) -> tuple[Any, ...]:
        """Runs the steps of all rows that there may be as a scan; those behind the rows that count change nothing."""
        if any(v is None or isinstance(v, list) for v in self.carried):
            raise self.node.unsupported("its values are sequences, and data decides how often it runs")
        try:
            made = self.scanned(self.most)
        except Changed:
            raise self.node.unsupported(
                "its states change shape, and data decides how often it runs"
            ) from None
        states = len(self.carried)
        return (*made[:states], *(first(v, self.count, 0) for v in made[states:]))

    def _surely_one_by_one(self) -> tuple[Any, ...]:
        try:
            return self._one_by_one()
        except CountComputed:
            what = f"how often it runs is computed, or more than {UNROLLED // _STEPS.get()} times"
            raise self.node.unsupported(f"its values are sequences or change shape, and {what}") from None

    def scanned(self, trips: Any, goes_on: bool = False) -> tuple[Any, ...]:
        """Runs the steps as a scan. goes_on: that there are so many is sure. Raises CountComputed, Changed."""
        import jax
        import jax.numpy as jnp

        def body(carried: Any, given: Any) -> Any:
            i, row = given
            go, after, collected = self.step(i, carried, row)
            if not goes_on and not (is_known(go) and truth(go)):
                raise CountComputed
            if types_of(after) != types_of(carried):
                raise Changed
            after = plain(after)
            if self.count is not None:
                after = [jnp.where(i < self.count, a, b) for a, b in zip(after, carried, strict=True)]
            return after, plain(collected)

        rows = list(map(as_traced, self.rows))
        numbers = jnp.arange(trips, dtype=jnp.int64)
        carried, collected = jax.lax.scan(body, plain(self.carried), (numbers, rows))
        return (*carried, *collected)

    def _while(self) -> tuple[Any, ...]:
        """Runs the steps as a while loop; what they collect is as long as there are steps at most."""
        import jax
        import jax.numpy as jnp

        elements, room = self._first[2], self.most
        if elements and _is_array(self.most):
            room = self.node.highest(0)
            if room is None:
                self.node.refuse(0)
        if elements and self.most is None:
            raise self.node.unsupported("it collects values, and how many at most is not known")
        most = as_traced(self.most) if _is_array(self.most) else self.most
        carried = plain(self.carried)
        types = types_of(carried)

        def more(state: Any) -> Any:
            return state[1] if most is None else state[1] & (state[0] < most)

        def body(state: Any) -> Any:
            i, _, carried, buffers = state
            go, after, collected = self.step(i, carried, [])
            self._check(types, types_of(after))
            kept = [
                jax.lax.dynamic_update_index_in_dim(b, c, i, 0)
                for b, c in zip(buffers, plain(collected), strict=True)
            ]
            return i + 1, as_traced(go).reshape(()), plain(after), kept

        buffers = [jnp.zeros((room, *e.shape), e.dtype) for e in elements]
        start = (jnp.asarray(0, jnp.int64), as_traced(self.condition).reshape(()), carried, buffers)
        try:
            count, _, carried, buffers = jax.lax.while_loop(more, body, start)
        except ValueNeeded as error:
            raise self._needed(error) from None
        return (*carried, *(first(b, count, 0) for b in buffers))

    def _needed(self, error: ValueNeeded) -> Exception:
        """What to raise where a step needs a value: how often it runs, unless that has no part in it."""
        for i, computed in enumerate((_is_array(self.most), not is_known(self.condition))):
            try:
                if computed:
                    self.node.refuse(i)
            except ValueNeeded as own:
                if not error.inputs or own.inputs <= error.inputs:
                    return own
        return error

    def _check(self, before: Sequence[Any], after: Sequence[Any]) -> None:
        for i, (a, b) in enumerate(zip(before, after, strict=True)):
            if a != b:
                raise self.node.unsupported(
                    f"its carried value {i} changes from {_said(a)} to {_said(b)}, and how often it runs is computed"
                )


# -- values ------------------------------------------------------------------------------------------------


def truth(value: Any) -> bool:
    return bool(np.asarray(value).reshape(-1)[0])


def library(value: Any) -> Any:
    """What to compute with a value by."""
    if is_known(value):
        return np
    import jax.numpy as jnp

    return jnp


def _is_array(value: Any) -> bool:
    """Whether a count is computed."""
    import jax

    return isinstance(value, jax.Array)


def _is_known(value: Any) -> bool:
    return all(map(_is_known, value)) if isinstance(value, list) else value is None or is_known(value)


def plain(values: Any) -> list[Any]:
    """Values as arrays of JAX whose types are their own, and do not give way to those of others."""
    import jax

    made = []
    for v in values:
        if isinstance(v, list):
            made.append(plain(v))
        else:
            x = as_traced(v)
            made.append(x if x is None else jax.lax.convert_element_type(x, x.dtype))
    return made


def types_of(values: Any) -> list[Any]:
    return [
        types_of(v) if isinstance(v, list) else None if v is None else (tuple(v.shape), dtype_of(v))
        for v in values
    ]


def _said(one: Any) -> str:
    return f"{one[1]}[{','.join(map(str, one[0]))}]" if isinstance(one, tuple) else "a sequence"


def _empty(element: Any) -> Any:
    """What no step has collected, of a type."""
    import jax.numpy as jnp

    return jnp.zeros((0, *element.shape), element.dtype)


def _stacked(column: Sequence[Any]) -> Any:
    """What steps have collected, as one array."""
    import jax.numpy as jnp

    if all(map(is_known, column)):
        return np.stack(column)
    if any(map(is_sizes, column)):
        column = list(map(as_traced, column))
    return jnp.stack(list(column))
