"""JAX functions to the graph level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from ..dialects.callbacks import Callback
from ..dialects.graph.donation import donate
from .custom import private_parameters
from .stablehlo import convert_module


@dataclass(frozen=True)
class Lowered:
    """A graph-level module with what is needed to call it like the function it came from.

    in_tree: pytree of the argument tuple; out_tree: of the result. in_avals, out_avals: one
    jax.ShapeDtypeStruct for each flat input and output, in the order of @main's; those of outputs say which are weak.
    """

    module: ModuleOp
    in_tree: Any
    out_tree: Any
    in_avals: tuple[Any, ...]
    out_avals: tuple[Any, ...]


def lower_function(fn: Callable[..., Any], args: Sequence[Any]) -> Lowered:
    """Trace `fn(*args)` and convert it; leaves of `args` are arrays, scalars or jax.ShapeDtypeStruct.

    Arrays that `fn` closes over become constants. Raises whatever JAX raises while tracing `fn`.
    """
    import jax

    from .bindings import number_callbacks

    # Without keep_unused, @main would lose the inputs that fn ignores; custom calls follow the platform, and
    # the host of the device is a CPU.
    traced = jax.jit(fn, keep_unused=True).trace(*args)
    lowered = traced.lower(lowering_platforms=("cpu",), **private_parameters())
    source: Any = lowered.compiler_ir("stablehlo")
    number_callbacks(source, _callbacks(lowered))
    module = convert_module(source)
    (main,) = (op for op in module.ops if isinstance(op, FuncOp) and op.sym_name.data == "main")
    donate(main, donated_inputs(fn, args))
    return Lowered(
        module,
        jax.tree.structure(tuple(args)),
        lowered.out_tree,
        _avals(lowered.in_avals),
        tuple(jax.tree.leaves(traced.out_info)),
    )


def _callbacks(lowered: Any) -> Sequence[Callback]:
    """The Python functions that a lowered function calls; JAX hands them to its compiler and tells nobody else."""
    return lowered._lowering.compile_args["host_callbacks"]


def donated_inputs(fn: Callable[..., Any], args: Sequence[Any]) -> list[bool]:
    """For each flat input, whether `fn` is a `jax.jit` that donates it."""
    import jax

    # @main is that of another jit around it, which does not know
    infos = fn.trace(*args).args_info if isinstance(fn, jax.stages.Wrapped) else ()
    return [info.donated for info in jax.tree.leaves(infos, is_leaf=lambda i: hasattr(i, "donated"))]


def _avals(tree: Any) -> tuple[Any, ...]:
    import jax

    return tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree))
