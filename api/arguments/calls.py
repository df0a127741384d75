"""Calls of functions: which arguments are static, and the function of the others; tracers where arrays belong."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from ...passes.errors import CompileError
from .parameters import Parameters, title_of


@dataclass(frozen=True)
class Call:
    """A function that takes no static argument, with what it is called with: `fn(*args, **kwargs)`. places: for each
    argument by position, its place in the call that it is part of; static: the names of those that are left out;
    compiled: whether `fn` runs as it is, and cannot be inside a jax.jit."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    places: tuple[int, ...] = ()
    static: tuple[str, ...] = ()
    compiled: bool = False


@runtime_checkable
class Referenced(Protocol):
    """A function whose values another implementation gives, which programs are compared with in place of JAX."""

    @property
    def reference_name(self) -> str:
        """What messages call the other implementation."""
        ...

    def reference(self, *args: Any, **kwargs: Any) -> Any:
        """What the other implementation computes."""
        ...


def call_of(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    numbers: Collection[int] = (),
    names: Collection[str] = (),
) -> Call:
    """The call of `fn`, the arguments closed over that are static: those at `numbers`, those called `names`, and
    those that a jax.jit says. Raises CompileError for one that is not hashable."""
    from ...frontends.jax import jit_arguments

    said = jit_arguments(fn)
    numbers, names = {*numbers, *said.static_numbers}, {*names, *said.static_names}
    numbers = _from_start(numbers, len(args))
    fixed = {i: value for i, value in enumerate(args) if i in numbers}
    named = {name: value for name, value in kwargs.items() if name in names}
    _check_hashable(fn, [*fixed.items(), *named.items()])
    places = tuple(i for i in range(len(args)) if i not in fixed)
    if not fixed and not named:
        return Call(fn, tuple(args), dict(kwargs), places)
    closed = _closed(fn, len(args), fixed, named)
    if said.donated_numbers or said.donated_names:
        import jax

        donated = _from_start(said.donated_numbers, len(args))
        given_away = [n for n, i in enumerate(places) if i in donated]
        closed = jax.jit(
            closed, donate_argnums=given_away, donate_argnames=sorted(said.donated_names - {*named})
        )
    left = {k: v for k, v in kwargs.items() if k not in named}
    label = Parameters.of(fn).label
    return Call(closed, tuple(args[i] for i in places), left, places, (*map(label, fixed), *named))


def _from_start(numbers: Iterable[int], count: int) -> set[int]:
    return {n + count if n < 0 else n for n in numbers}


def parameters_of(call: Call) -> Parameters:
    """What the arguments of a call's function are called."""
    return replace(Parameters.of(call.fn), static=call.static)


def _check_hashable(fn: Callable[..., Any], static: Iterable[tuple[int | str, Any]]) -> None:
    for which, value in static:
        if isinstance(value, Hashable):
            try:
                hash(value)
            except TypeError:
                pass
            else:
                continue
        refuse_tracers(title_of(fn), [value], "tw.jit")
        label = Parameters.of(fn).label(which) if isinstance(which, int) else which
        raise CompileError(
            f"argument {label} of {title_of(fn)} is static and must be hashable, got {type(value).__name__}"
        )


def _closed(
    fn: Callable[..., Any], count: int, fixed: Mapping[int, Any], named: Mapping[str, Any]
) -> Callable[..., Any]:
    """The function of the arguments that are not static, with their names."""

    @functools.wraps(fn)
    def closed(*given: Any, **keywords: Any) -> Any:
        free = iter(given)
        args = [fixed[i] if i in fixed else next(free) for i in range(count)]
        return fn(*args, **named, **keywords)

    closed.__name__ = title_of(fn)
    vars(closed).pop("__wrapped__", None)  # its signature is another
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return closed
    left = [p for i, p in enumerate(parameters) if p.name not in named and (i not in fixed or _many(p))]
    vars(closed)["__signature__"] = inspect.Signature(left)
    return closed


def _many(parameter: inspect.Parameter) -> bool:
    """Whether it is `*args` or what follows it, which no position fixes."""
    return parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def refuse_tracers(title: str, leaves: Iterable[Any], caller: str | None) -> None:
    """Raises CompileError where an argument is a tracer of JAX; it says to put `caller`, which compiles the function,
    outermost, or without one to call what is no function of JAX elsewhere."""
    from jax.core import Tracer

    if not any(isinstance(leaf, Tracer) for leaf in leaves):
        return
    advice = "call it outside of them"
    if caller is not None:
        rest = "" if caller == "tw.jit" else ", ..."
        advice = f"put {caller} outermost, as in {caller}(jax.grad({title}){rest})"
    raise CompileError(
        f"{title} is compiled already and cannot be inside jax.grad, jax.vmap or jax.jit: {advice}"
    )
