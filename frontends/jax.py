"""JAX functions to the graph level."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from ..dialects.callbacks import Callback
from ..dialects.graph.donation import donate
from ..machine import Machine
from .custom import private_parameters
from .errors import FrontendError
from .stablehlo import convert_module


@dataclass(frozen=True)
class Lowered:
    """A graph-level module with what is needed to call it like the function it came from.

    in_tree: pytree of (args, kwargs); out_tree: of the result. in_avals, out_avals: one jax.ShapeDtypeStruct for
    each flat input and output; those of outputs say which are weak. kept: the flat inputs that @main takes, in its
    order. names: for each of these its path in the call, such as `params['w']`, where JAX has noted it.
    """

    module: ModuleOp
    in_tree: Any
    out_tree: Any
    in_avals: tuple[Any, ...]
    out_avals: tuple[Any, ...]
    kept: tuple[int, ...]
    names: tuple[str | None, ...]


@dataclass(frozen=True)
class JitArguments:
    """The arguments that a `jax.jit` treats in a way of their own, by position (negative from the end of a call's) and
    by name."""

    static_numbers: frozenset[int] = frozenset()
    static_names: frozenset[str] = frozenset()
    donated_numbers: frozenset[int] = frozenset()
    donated_names: frozenset[str] = frozenset()


def jit_arguments(fn: Any) -> JitArguments:
    """Which arguments of `fn` are static or donated; none where it is no `jax.jit`."""
    import jax

    if not isinstance(fn, jax.stages.Wrapped):
        return JitArguments()
    # jax.jit tells nobody else; it has found the names of the positions, and the positions of the names.
    info: Any = fn._jit_info  # pyright: ignore[reportAttributeAccessIssue]
    which = (info.static_argnums, info.static_argnames, info.donate_argnums, info.donate_argnames)
    return JitArguments(*map(frozenset, which))


def tracing(fn: Any) -> AbstractContextManager[Any]:
    """The context that JAX traces `fn` in: with 64-bit types where the function has them (`fn.x64`), as functions of
    ONNX models do."""
    import jax

    while isinstance(fn, functools.partial):
        fn = fn.func
    return jax.enable_x64(True) if getattr(fn, "x64", False) else nullcontext()


def lower_function(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    machine: Machine | None = None,
) -> Lowered:
    """Trace `fn(*args, **kwargs)` and convert it; leaves are arrays, scalars or jax.ShapeDtypeStruct. machine: the
    device, whose own element types run there too.

    Arrays that `fn` closes over become constants. Raises whatever JAX raises while tracing `fn`.
    """
    import jax

    # Without keep_unused, @main would lose the inputs that fn ignores; custom calls follow the platform, and
    # the host of the device is a CPU.
    with tracing(fn):
        traced = jax.jit(fn, keep_unused=True).trace(*args, **(kwargs or {}))
        made = lower_staged(_lowered(traced), machine)
        donate(_main(made.module), donated_inputs(fn, args, kwargs or {}))
    return made


def _lowered(traced: Any) -> Any:
    """What JAX lowers of a traced function. Raises FrontendError for ops that its verifier refuses, which it traces all
    the same."""
    try:
        return traced.lower(lowering_platforms=("cpu",), **private_parameters())
    except Exception as error:
        said = " ".join(str(error).split())
        if type(error).__name__ != "MLIRError" and "verifier errors" not in said:
            raise
        raise FrontendError(f"JAX cannot lower the function: {said[:_LONGEST]}") from error


_LONGEST = 300
"""Characters that are shown of what JAX says."""


def run_by_xla(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What XLA computes of `fn(*args, **kwargs)` on the host. Raises whatever JAX raises."""
    import jax

    return jax.jit(fn).trace(*args, **kwargs).lower(**private_parameters(calls=False)).compile()(*args, **kwargs)


def lower_staged(lowered: Any, machine: Machine | None = None) -> Lowered:
    """Convert what JAX has lowered already, a `jax.stages.Lowered`, for a machine. Raises FrontendError."""
    from .bindings import functions, given_name, number_callbacks

    source: Any = lowered.compiler_ir("stablehlo")
    compile_args = lowered._lowering.compile_args
    number_callbacks(source, _callbacks(lowered))
    names = tuple(map(given_name, functions(source)["main"].regions[0].blocks[0].arguments))
    module = convert_module(source, machine)  # what it refuses is said before what follows from it
    avals, kept = _avals(lowered.in_avals), tuple(sorted(compile_args["kept_var_idx"]))
    if len(kept) != len(names):
        raise FrontendError(f"@main takes {len(names)} inputs where its signature has {len(kept)}")
    return Lowered(
        module,
        lowered.in_tree,
        lowered.out_tree,
        avals,
        _avals(compile_args["global_out_avals"]),
        kept,
        names,
    )


def artifact_of(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> bytes:
    """`fn(*args, **kwargs)`, as `lower_function` takes it, as a portable artifact of StableHLO, which takes all flat
    inputs. Raises FrontendError for what has no such form, and whatever JAX raises while tracing `fn`."""
    import jax

    with tracing(fn):
        return staged_artifact(_lowered(jax.jit(fn, keep_unused=True).trace(*args, **(kwargs or {}))))


def staged_artifact(lowered: Any) -> bytes:
    """What JAX has lowered, a `jax.stages.Lowered`, as a portable artifact of StableHLO. Raises FrontendError, also
    where JAX has left inputs out that nothing uses."""
    from .bindings import bytecode, parse, portable

    if len(lowered._lowering.compile_args["kept_var_idx"]) < len(_avals(lowered.in_avals)):
        raise FrontendError("JAX has left out inputs that nothing uses: lower it with keep_unused=True")
    return portable(parse(bytecode(lowered.compiler_ir("stablehlo")), None))


def _main(module: ModuleOp) -> FuncOp:
    return next(op for op in module.ops if isinstance(op, FuncOp) and op.sym_name.data == "main")


def _callbacks(lowered: Any) -> Sequence[Callback]:
    """The Python functions that a lowered function calls; JAX hands them to its compiler and tells nobody else."""
    return lowered._lowering.compile_args["host_callbacks"]


def donated_inputs(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[bool]:
    """For each flat input, whether `fn` is a `jax.jit` that donates it."""
    import jax

    # @main is that of another jit around it, which does not know
    infos = fn.trace(*args, **kwargs).args_info if isinstance(fn, jax.stages.Wrapped) else ()
    return [info.donated for info in jax.tree.leaves(infos, is_leaf=lambda i: hasattr(i, "donated"))]


def _avals(tree: Any) -> tuple[Any, ...]:
    import jax

    return tuple(
        jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak_type) for leaf in jax.tree.leaves(tree)
    )
