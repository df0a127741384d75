"""Arguments by name: what messages call them, and how a call's come into the form that a program was compiled for."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from ...passes.errors import CompileError

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Those by position and those by keyword."""


@dataclass(frozen=True)
class Parameters:
    """What the arguments of a function are called.

    positional: those that may be given by position, in order; only: how many of these may not be given by keyword;
    variadic: the name of `*args`, if any; keyword: those that are given by keyword alone; static: those
    that are compiled in; noun: what one is called. defaults: what a program takes where a call leaves one out.
    """

    positional: tuple[str, ...] = ()
    only: int = 0
    variadic: str = ""
    keyword: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    noun: str = "argument"
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)

    @staticmethod
    def of(fn: Callable[..., Any] | None) -> Parameters:
        """Those of a function; no names where it has no signature."""
        try:
            found = list(inspect.signature(fn).parameters.values()) if fn is not None else []
        except (TypeError, ValueError):
            return Parameters()
        listed = [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        return Parameters(
            tuple(listed),
            sum(p.kind == p.POSITIONAL_ONLY for p in found),
            next((p.name for p in found if p.kind == p.VAR_POSITIONAL), ""),
            tuple(p.name for p in found if p.kind == p.KEYWORD_ONLY),
            defaults=getattr(fn, "default_arguments", {}),
        )

    def label(self, i: int) -> str:
        """The name of the argument at position `i`: `x`, `xs[1]` of `*xs`, or its number where it has none."""
        if i < len(self.positional):
            return self.positional[i]
        return f"{self.variadic}[{i - len(self.positional)}]" if self.variadic else str(i)

    def path(self, path: Sequence[Any]) -> str:
        """The name of a leaf of (args, kwargs), as `d['a']['w']`, from its path in JAX's keys."""
        import jax

        by_keyword, which, *rest = path
        root = which.key if by_keyword.idx else self.label(which.idx)
        return f"{root}{jax.tree_util.keystr(tuple(rest))}"

    def arranged(self, title: str, count: int, keywords: Sequence[str], arguments: Arguments) -> Arguments:
        """A call's arguments, `count` of them by position and those called `keywords` by keyword, wherever the call
        has them. Raises CompileError, which calls the function `title`, for one missing, unexpected or given twice."""
        args, kwargs = arguments
        if len(args) == count and kwargs.keys() == set(keywords):
            return arguments
        labels = [self.label(i) for i in range(count)]
        wanted = [*labels, *keywords]
        given: dict[str, Any] = {}
        for i, value in enumerate(args):
            name = self.label(i) if i < len(self.positional) else None
            if i < count:
                given[labels[i]] = value
            elif name in keywords:
                given[str(name)] = value
            elif name is not None:
                raise CompileError(self._compiled_in(title, name))
            else:
                raise CompileError(self._count(title, len(wanted), len(args) + len(kwargs)))
        by_name = [*self.positional[self.only : count], *keywords]
        for name, value in kwargs.items():
            if name in given:
                raise CompileError(f"{self.noun} {name} of {title} is given by position and by keyword")
            if name not in by_name:
                raise CompileError(self._unexpected(title, name, by_name))
            given[name] = value
        given = {name: self.defaults[name] for name in wanted if name in self.defaults} | given
        missing = [name for name in wanted if name not in given]
        if missing:
            listed = f"{self.noun} {missing[0]} is" if len(missing) == 1 else f"{', '.join(missing)} are"
            raise CompileError(
                f"{self._count(title, len(wanted), len(args) + len(kwargs))}: {listed} missing"
            )
        return tuple(given[n] for n in labels), {k: given[k] for k in keywords}

    def _count(self, title: str, wanted: int, given: int) -> str:
        static = f" that {'are' if wanted != 1 else 'is'} not static" if self.static else ""
        return f"{title} takes {wanted} {self.noun}{'s' * (wanted != 1)}{static}, called with {given}"

    def _compiled_in(self, title: str, name: str) -> str:
        return f"{self.noun} {name} of {title} was left at its default when it was compiled: compile it with a {name}"

    def _unexpected(self, title: str, name: str, by_name: Sequence[str]) -> str:
        if name in self.positional[: self.only]:
            return f"{self.noun} {name} of {title} can only be given by position"
        if name in self.static:
            return f"{self.noun} {name} of {title} is static, and compiled in: leave it out"
        if name in (*self.positional, *self.keyword):
            return self._compiled_in(title, name)
        close = get_close_matches(name, by_name, 1)
        listed = f"it takes {', '.join(by_name)}" if by_name else "it takes none by keyword"
        return f"{title} has no {self.noun} {name!r}{f'; did you mean {close[0]!r}?' if close else f'; {listed}'}"


INPUTS = Parameters(noun="input")
"""Of a program whose inputs have no names."""


def title_of(fn: Any) -> str:
    """What messages call a function: its name, that of the function inside a partial, or the class of an object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", None) or type(fn).__name__


def check_binds(fn: Callable[..., Any], title: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises CompileError for arguments that Python would not call `fn` with."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return  # a callable without a signature
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        unknown = [k for k in kwargs if k not in signature.parameters]
        close = get_close_matches(unknown[0], signature.parameters, 1) if unknown else []
        near = f"; did you mean {close[0]!r}?" if close else ""
        raise CompileError(f"{title} cannot be called with these arguments: {error}{near}") from None
