"""`tw.jit`: a function that compiles itself on the first call for each kind of arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

from .program import CompileError, Options, Program, compile
from .signature import not_an_array


class Jitted:
    """A function, or a method, compiled for a target by structure, shape and dtype of its arguments.

    Arguments are pytrees of arrays. Static ones are Python values that the function sees as they are; each new value
    compiles anew, and they have to be hashable. The object of a method is an argument: a pytree where JAX knows it as
    one, and static otherwise, so that what it holds is read when the method is compiled.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        target: str,
        options: Options | None,
        static_argnums: Sequence[int],
        static_argnames: Sequence[str],
        donated: Sequence[int | str] = (),
    ) -> None:
        functools.update_wrapper(self, fn)
        self._fn, self.target, self.options = fn, target, options
        self._numbers, self._names = _chosen(fn, static_argnums, static_argnames, "be static")
        given = [d for d in donated if not isinstance(d, str)], [d for d in donated if isinstance(d, str)]
        self._donated, self._donated_names = _chosen(fn, *given, "donate")
        for both in sorted(self._names & self._donated_names):
            raise CompileError(f"argument {both!r} of {self._title} cannot be static and donated")
        self._programs: dict[Hashable, Program] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the npu level. Raises CompileError for arguments that cannot be compiled."""
        program, given = self.find(args, kwargs)
        return program(*given)

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """The compiled program for such arguments (arrays, or jax.ShapeDtypeStruct), which is not run. It takes the
        arguments that are not static: positional ones, then those by keyword in the order of their names."""
        return self.find(args, kwargs)[0]

    @property
    def programs(self) -> list[Program]:
        """What has been compiled so far, oldest first."""
        return list(self._programs.values())

    def __repr__(self) -> str:
        count = len(self._programs)
        name = getattr(self._fn, "__qualname__", type(self._fn).__name__)
        return f"<tilewright.jit {name} for {self.target}: {count} program{'s' if count != 1 else ''}>"

    def __get__(self, instance: Any, owner: type | None = None) -> Jitted | Bound:
        """The method of an object."""
        return self if instance is None else Bound(self, instance)

    def find(
        self, args: Sequence[Any], kwargs: dict[str, Any], also: Sequence[int] = ()
    ) -> tuple[Program, list[Any]]:
        """The program for such arguments, and those that it takes; `also`: more static ones, by position."""
        import jax

        fixed = {i: args[i] for i in sorted({*self._numbers, *also}) if i < len(args)}
        named = {n: kwargs[n] for n in self._names if n in kwargs}
        for which, value in [*fixed.items(), *named.items()]:
            if not isinstance(value, Hashable) or _hash(value) is None:
                raise CompileError(
                    f"argument {which} of {self._title} is static and must be hashable, got {type(value).__name__}"
                )
        free = [a for i, a in enumerate(args) if i not in fixed]
        keywords = sorted(set(kwargs) - set(named))
        given = [*free, *(kwargs[k] for k in keywords)]
        leaves, tree = jax.tree.flatten(tuple(given))
        kinds = tuple(self._kind(leaf) for leaf in leaves)
        # 1, 1.0 and True are equal, and not alike
        static = tuple((k, type(v), v) for k, v in [*fixed.items(), *named.items()])
        key = (tree, kinds, len(args), tuple(keywords), static)
        found = self._programs.get(key)
        if found is None:
            fn = self._fn
            gone = {i for i in self._donated if i not in fixed}, self._donated_names
            if fixed or kwargs:
                fn = self._closed(len(args), fixed, named, keywords)
                gone = self._given_away(gone, args, kwargs)
            order = [*(i for i in range(len(args)) if i not in fixed), *keywords]
            donate = tuple(n for n, which in enumerate(order) if which in gone[isinstance(which, str)])
            options = replace(self.options or Options(), donate=donate)
            found = self._programs[key] = compile(fn, *given, target=self.target, options=options)
        return found, given

    def _given_away(
        self, gone: tuple[set[int], frozenset[str]], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[set[int], set[str]]:
        """The arguments that are donated, by position and by name, those that a jax.jit inside donates included."""
        import jax

        numbers, names = set(gone[0]), set(gone[1])
        if isinstance(self._fn, jax.stages.Wrapped):
            info = self._fn.trace(*args, **kwargs).args_info
            found = jax.tree.map(
                lambda leaf: leaf.donated, info, is_leaf=lambda leaf: hasattr(leaf, "donated")
            )
            by_place, by_name = found
            places = [i for i in range(len(args)) if i not in self._numbers]
            numbers |= {i for i, leaf in zip(places, by_place, strict=False) if any(jax.tree.leaves(leaf))}
            names |= {name for name, leaf in by_name.items() if any(jax.tree.leaves(leaf))}
        return numbers, names

    def _kind(self, leaf: Any) -> tuple[tuple[int, ...], str, bool]:
        """Shape, dtype and whether it is weak, as a Python scalar's is."""
        import jax

        try:
            aval: Any = leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf)
        except (TypeError, OverflowError) as error:
            said = not_an_array(f"an argument of {self._title}", leaf, error)
            raise CompileError(f"{said}, or name it in static_argnames") from None
        return tuple(aval.shape), str(aval.dtype), bool(aval.weak_type)

    def _closed(
        self, count: int, fixed: dict[int, Any], named: dict[str, Any], keywords: Sequence[str]
    ) -> Callable[..., Any]:
        """The function of the free arguments alone."""
        fn = self._fn

        @functools.wraps(fn)
        def closed(*given: Any) -> Any:
            free = iter(given)
            args = [fixed[i] if i in fixed else next(free) for i in range(count)]
            return fn(*args, **named, **dict(zip(keywords, free)))

        del closed.__wrapped__  # its signature is another
        return closed

    @property
    def _title(self) -> str:
        return getattr(self._fn, "__name__", type(self._fn).__name__)


class Bound:
    """A jitted method of an object, which is a pytree or static."""

    def __init__(self, jitted: Jitted, instance: Any) -> None:
        functools.update_wrapper(self, jitted)
        self._jitted, self._instance = jitted, instance
        self._also = () if _is_tree(instance) else (0,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the npu level."""
        program, given = self._jitted.find((self._instance, *args), kwargs, self._also)
        return program(*given)

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """As `Jitted.program`; where the object is a pytree, the program takes it first."""
        return self._jitted.find((self._instance, *args), kwargs, self._also)[0]

    def __repr__(self) -> str:
        return f"<bound {self._jitted!r} of {type(self._instance).__name__}>"


def _hash(value: Hashable) -> int | None:
    try:
        return hash(value)
    except TypeError:
        return None


def _is_tree(value: Any) -> bool:
    """Whether JAX knows how to take an object apart."""
    import jax

    return not jax.tree_util.all_leaves([value])


def _chosen(
    fn: Callable[..., Any], numbers: Sequence[int], names: Sequence[str], what: str
) -> tuple[frozenset[int], frozenset[str]]:
    """Arguments by position and by name, each found from the other. Raises CompileError for one that is not there to
    `what`."""
    title = getattr(fn, "__name__", type(fn).__name__)
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except ValueError:  # a callable without a signature
        return frozenset(numbers), frozenset(names)
    listed = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = any(p.kind == p.VAR_POSITIONAL for p in parameters)
    known = [p.name for p in parameters]
    taken = any(p.kind == p.VAR_KEYWORD for p in parameters)
    for name in names:
        if name not in known and not taken:
            raise CompileError(
                f"{title} has no argument {name!r} to {what}; it has {', '.join(known) or 'none'}"
            )
    places = {n + len(listed) if n < 0 else n for n in numbers}
    for n in places:
        if not 0 <= n < len(listed) and not variadic:
            raise CompileError(f"{title} has no argument {n} to {what}; it has {len(listed)}")
    places |= {listed.index(name) for name in names if name in listed}
    return frozenset(places), frozenset([*names, *(listed[n] for n in places if n < len(listed))])


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    target: str = "ascend-910b1",
    options: Options | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
) -> Any:
    """Decorator: compiles a function or method on its first call for each structure, shape and dtype of its arguments.

    As in jax.jit: static_argnums, static_argnames: arguments that are Python values; donate_argnums, donate_argnames:
    arguments whose memory the program may use, so that the arrays passed there are deleted. The result is a `Jitted`:
    callable, with `program(*args)` for the compiled program. Raises CompileError for a static or donated argument that
    the function does not have.
    """
    if fn is None:
        return functools.partial(
            jit,
            target=target,
            options=options,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
        )
    also = () if options is None else _tuple(options.donate)
    donated = (*_tuple(donate_argnums), *_tuple(donate_argnames), *also)
    return Jitted(fn, target, options, _tuple(static_argnums), _tuple(static_argnames), donated)


def _tuple(which: Any) -> tuple[Any, ...]:
    return (which,) if isinstance(which, int | str) else tuple(which)
