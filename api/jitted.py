"""`tw.jit`: a function that compiles itself on the first call for each kind of arguments."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

from ..frontends.jax import jit_arguments
from ..machine import DEFAULT_TARGET, Machine, Target
from .arguments.calls import Call, call_of, refuse_tracers
from .arguments.parameters import Arguments, Parameters, check_binds, title_of
from .arguments.signature import not_an_array
from .arguments.specs import ArgumentSpecs, Dims, Specs, symbolic_shapes
from .compiling import compile
from .options import Options
from .program import CompileError, Program
from .sources import Recompiling


class Jitted(Recompiling):
    """A function, or a method, compiled for a target by structure, shape and dtype of its arguments; where some of
    their dimensions are `dynamic`, once for all sizes of these.

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
        dynamic: Specs = None,
        constraints: Sequence[str] = (),
    ) -> None:
        functools.update_wrapper(self, fn)
        self._fn, self._title, self.target, self.options = fn, title_of(fn), target, options
        said = jit_arguments(fn)
        static = [*static_argnums, *said.static_numbers], [*static_argnames, *said.static_names]
        self._numbers, self._names = _chosen(fn, *static, "be static")
        donate = (*donated, *said.donated_numbers, *said.donated_names)
        given = [d for d in donate if not isinstance(d, str)], [d for d in donate if isinstance(d, str)]
        self._donated, self._donated_names = _chosen(fn, *given, "donate")
        for both in sorted(self._names & self._donated_names):
            raise CompileError(f"argument {both!r} of {self._title} cannot be static and donated")
        self._programs: dict[Hashable, Program] = {}
        self._lock = threading.RLock()
        """Held while a program is compiled, which other threads wait for."""
        self._dynamic, self._constraints = None, tuple(constraints)
        if dynamic is not None:
            self._dynamic = ArgumentSpecs(self._title, "dynamic", Parameters.of(fn), dynamic)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the npu level. Raises CompileError for arguments that cannot be compiled, and inside jax.grad, jax.vmap
        or jax.jit."""
        return self.run(args, kwargs)

    def run(self, args: Sequence[Any], kwargs: dict[str, Any], also: Sequence[int] = ()) -> Any:
        """Runs the npu level; `also`: more static arguments, by position."""
        import jax

        refuse_tracers(self._title, jax.tree.leaves((args, kwargs)), "tw.jit")
        program, (free, keywords) = self.find(args, kwargs, also)
        return program(*free, **keywords)

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """The compiled program for such arguments (arrays, or jax.ShapeDtypeStruct), which is not run. It takes those
        that are not static, by position or by keyword."""
        return self.find(args, kwargs)[0]

    @property
    def programs(self) -> list[Program]:
        """What has been compiled so far, oldest first."""
        return list(self._programs.values())

    def __repr__(self) -> str:
        count = len(self._programs)
        name = getattr(self._fn, "__qualname__", self._title)
        return f"<tilewright.jit {name} for {self.target}: {count} program{'s' if count != 1 else ''}>"

    def __get__(self, instance: Any, owner: type | None = None) -> Jitted | BoundMethod:
        """The method of an object."""
        return self if instance is None else BoundMethod(self, instance)

    def find(
        self, args: Sequence[Any], kwargs: dict[str, Any], also: Sequence[int] = ()
    ) -> tuple[Program, Arguments]:
        """The program for such arguments, and those that it takes; `also`: more static ones, by position."""
        import jax

        check_binds(self._fn, self._title, args, kwargs)
        call = call_of(self._fn, args, kwargs, {*self._numbers, *also}, self._names)
        given = call.args, call.kwargs
        leaves, tree = jax.tree.flatten(given)
        try:
            kinds = tuple(map(_kind, leaves))
        except (TypeError, OverflowError):
            raise self._no_array(call) from None
        dims = None if self._dynamic is None else self._dynamic.dims(call.args, call.kwargs, call.places)
        if dims is not None:
            kinds = tuple(_open_kind(*pair) for pair in zip(kinds, dims, strict=True))
        # 1, 1.0 and True are equal, and not alike
        free = {*call.places}
        static = tuple((i, type(v), v) for i, v in enumerate(args) if i not in free)
        named = tuple((k, type(v), v) for k, v in sorted(kwargs.items()) if k not in call.kwargs)
        key = (tree, kinds, len(args), static, named)
        found = self._programs.get(key)
        if found is None:
            with self._lock:
                found = self._programs.get(key)
                if found is None:
                    found = self._programs[key] = self._compiled(call, kinds, dims is not None)
        return found, given

    def _compiled(self, call: Call, kinds: Sequence[Kind], is_open: bool) -> Program:
        """The program for arguments of these kinds."""
        donate = [n for n, i in enumerate(call.places) if i in self._donated]
        by_name = [k for k in call.kwargs if k in self._donated_names]
        options = replace(self.options or Options(), donate=(*donate, *by_name))
        given = call.args, call.kwargs
        args, kwargs = self._symbolic(call, [kind[0] for kind in kinds]) if is_open else given
        return compile(call.fn, *args, target=self.target, options=options, **kwargs)

    def _symbolic(self, call: Call, dims: Sequence[Dims]) -> Arguments:
        """The arguments of a call with symbolic shapes, where dimensions are open."""
        import jax

        leaves, tree = jax.tree.flatten((call.args, call.kwargs))
        shapes = symbolic_shapes(dims, self._constraints, f"dynamic_constraints of {self._title}")
        types = [leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf) for leaf in leaves]
        made = [
            jax.ShapeDtypeStruct(shape, t.dtype, weak_type=bool(t.weak_type))
            for shape, t in zip(shapes, types, strict=True)
        ]
        return jax.tree.unflatten(tree, made)

    def _no_array(self, call: Call) -> CompileError:
        """Says which argument of a call is no array."""
        import jax

        parameters = Parameters.of(call.fn)
        for path, leaf in jax.tree_util.tree_leaves_with_path((call.args, call.kwargs)):
            try:
                _kind(leaf)
            except (TypeError, OverflowError) as error:
                said = not_an_array(f"argument {parameters.path(path)} of {self._title}", leaf, error)
                return CompileError(f"{said}, or name it in static_argnames")
        raise AssertionError("all are arrays")


Kind = tuple[Dims, str, bool]
"""Shape, dtype and whether it is weak."""


def _open_kind(kind: Kind, dims: Dims) -> Kind:
    """The same for all sizes of the dimensions that are open."""
    shape, dtype, weak = kind
    return tuple(n if d is None else d for n, d in zip(shape, dims, strict=True)), dtype, weak


def _kind(leaf: Any) -> Kind:
    """Shape, dtype and whether it is weak, as a Python scalar's is. Raises TypeError and OverflowError."""
    import jax

    aval: Any = leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf)
    return tuple(aval.shape), str(aval.dtype), bool(aval.weak_type)


class BoundMethod:
    """A jitted method of an object, which is a pytree or static."""

    def __init__(self, jitted: Jitted, instance: Any) -> None:
        functools.update_wrapper(self, jitted)
        self._jitted, self._instance = jitted, instance
        self._also = () if _is_tree(instance) else (0,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the npu level."""
        return self._jitted.run((self._instance, *args), kwargs, self._also)

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """As `Jitted.program`; where the object is a pytree, the program takes it first."""
        return self._jitted.find((self._instance, *args), kwargs, self._also)[0]

    def __repr__(self) -> str:
        return f"<bound {self._jitted!r} of {type(self._instance).__name__}>"


def _is_tree(value: Any) -> bool:
    """Whether JAX knows how to take an object apart."""
    import jax

    return not jax.tree_util.all_leaves([value])


def _chosen(
    fn: Callable[..., Any], numbers: Sequence[int], names: Sequence[str], what: str
) -> tuple[frozenset[int], frozenset[str]]:
    """Arguments by position and by name, each found from the other. Raises CompileError for one that is not there to
    `what`."""
    title = title_of(fn)
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # a callable without a signature
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
    target: Target = DEFAULT_TARGET,
    options: Options | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    dynamic: Specs = None,
    dynamic_constraints: str | Sequence[str] = (),
) -> Any:
    """Decorator: compiles a function or method on its first call for each structure, shape and dtype of its arguments.

    Raises CompileError inside `jax.grad`, `jax.vmap` and `jax.jit`: write `tw.jit(jax.grad(f))`.

    Args:
        fn: A function of pytrees of arrays, also a `jax.jit`, a `functools.partial` or an object with `__call__`.
            Without it the result is the decorator with these options.
        target: A chip that `tilewright machines` lists, the path of a machine's `.toml` file, or a `tw.Machine`.
        options: As for `compile`.
        static_argnums: As in `jax.jit`, positions of arguments that are Python values. They must be hashable; each
            new value compiles anew.
        static_argnames: The same by name.
        donate_argnums: As in `jax.jit`, positions of arguments whose memory the program may reuse. JAX arrays passed
            there are deleted.
        donate_argnames: The same by name.
        dynamic: Which dimensions are open, so that one program is for all their sizes. As
            `jax.export.symbolic_args_specs` takes them, a text for each argument or a pytree of texts, None for fixed
            shapes: `("b, 128", None)`; one text for all arguments; or texts by name, `{"x": "b, 8*s, ..."}`. `_` and
            `...` are dimensions as the arrays have them.
        dynamic_constraints: What holds of these sizes: `("b <= 64", "mod(s, 8) == 0")`.

    Returns:
        A callable that takes the arguments of `fn`. Its `program(*args, **kwargs)` returns the `Program` for these
            arguments, a `DynamicProgram` where dimensions are open, and `programs` all of them.

    Raises:
        CompileError: A static, donated or dynamic argument does not exist; in a call, arguments cannot be compiled,
            sizes do not fit together or break a constraint, or the call is inside `jax.grad`, `jax.vmap` or `jax.jit`.
        MachineError: The target is unknown.
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
            dynamic=dynamic,
            dynamic_constraints=dynamic_constraints,
        )
    also = () if options is None else _tuple(options.donate)
    donated = (*_tuple(donate_argnums), *_tuple(donate_argnames), *also)
    static = _tuple(static_argnums), _tuple(static_argnames)
    if dynamic is None and dynamic_constraints:
        raise CompileError(
            f"tw.jit of {title_of(fn)}: dynamic_constraints are about sizes that dynamic= opens"
        )
    return Jitted(fn, Machine.named(target), options, *static, donated, dynamic, _tuple(dynamic_constraints))


def _tuple(which: Any) -> tuple[Any, ...]:
    return (which,) if isinstance(which, int | str) else tuple(which)
