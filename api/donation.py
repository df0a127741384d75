"""Donated arguments as a JAX user sees them: which they are, and what becomes of the arrays that are passed."""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from ..dialects.dtypes import dtype_name
from ..dialects.graph.donation import donate, donated
from ..dialects.npu import gm
from ..passes.npu.plan_memory import reused
from .signature import CompileError, Signature

Donate = int | str | Sequence[int | str]
"""Arguments by position (from the end where negative) or by name."""


class DonatedError(CompileError, RuntimeError):
    """An array that is not there any more, or is donated and also used otherwise by the same call."""


def main_of(module: ModuleOp) -> FuncOp:
    """The function @main of a module."""
    return next(op for op in module.ops if isinstance(op, FuncOp) and op.sym_name.data == "main")


def positions(which: Donate, names: Sequence[str], count: int, title: str, what: str = "donate") -> set[int]:
    """The arguments of a function of `count`, whose names are `names`. Raises CompileError for one it does not have."""
    found = set()
    for each in (which,) if isinstance(which, int | str) else which:
        at = names.index(each) if isinstance(each, str) and each in names else each
        if isinstance(at, str):
            raise CompileError(
                f"{title} has no argument {at!r} to {what}; it has {', '.join(names) or 'none'}"
            )
        if not -count <= at < count:
            raise CompileError(f"{title} has no argument {at} to {what}; it has {count}")
        found.add(at % count)
    return found


def donate_inputs(
    module: ModuleOp, signature: Signature, which: Donate, fn: Callable[..., Any] | None, title: str
) -> None:
    """Donates arguments of @main: those of `fn`, whose leaves the inputs are, or without it the inputs themselves.
    Raises CompileError for an argument that does not exist."""
    if which == ():
        return
    main = main_of(module)
    leaves = [1] * len(signature.inputs)
    names = [a.name_hint or "" for a in main.body.block.args]
    if signature.in_tree is not None:
        leaves = [child.num_leaves for child in signature.in_tree.children()]
        names = parameters(fn)[: len(leaves)]
    chosen = positions(which, names, len(leaves), title)
    donate(main, [i in chosen for i, n in enumerate(leaves) for _ in range(n)])


def parameters(fn: Callable[..., Any] | None) -> list[str]:
    """The names of a function's positional parameters; none where it has no signature."""
    try:
        found = inspect.signature(fn).parameters.values() if fn is not None else ()
    except ValueError:
        return []
    return [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


class Donations:
    """The donated inputs of a compiled program: `taken`, by number, are those that are gone after a call. As in JAX
    that are those of a result's type; and those whose memory the program uses."""

    def __init__(self, module: ModuleOp, title: str) -> None:
        main = main_of(module)
        args = main.body.block.args
        given = [i for i, free in enumerate(donated(main)) if free]
        uses = reused(main) if given else []
        results = Counter(main.function_type.outputs)
        for i in given:
            if results[args[i].type] > 0:
                results[args[i].type] -= 1
                uses[i] = True
        self.title = title
        self.taken = [i for i in given if uses[i]]
        self.unused = [_named(i, args[i]) for i in given if not uses[i]]

    def warn(self) -> None:
        """Says which donated inputs are of no use, as JAX does."""
        if self.unused:
            what = f"Some donated buffers of {self.title} were not usable: {', '.join(self.unused)}."
            warnings.warn(what, stacklevel=3)

    def check(self, leaves: Sequence[Any]) -> None:
        """Raises DonatedError for an array that was given away before, or is given away now and used twice."""
        places: dict[int, list[int]] = {}
        for i, leaf in enumerate(leaves):
            if _is_array(leaf):
                places.setdefault(id(leaf), []).append(i)
                if leaf.is_deleted():
                    raise DonatedError(
                        f"input {i} of {self.title} has been deleted: it was donated to an earlier call"
                    )
        for i in self.taken:
            others = [j for j in places.get(id(leaves[i]), ()) if j != i]
            if others:
                raise DonatedError(
                    f"input {i} of {self.title} is donated, and input {others[0]} is the same array"
                )

    def keep(self, results: Sequence[Any], flat: Sequence[Any]) -> list[Any]:
        """The results, with arrays of their own where one is a donated input."""
        import jax

        given = {id(flat[i]) for i in self.taken}
        return [jax.numpy.copy(x) if id(x) in given else x for x in results]

    def delete(self, leaves: Sequence[Any]) -> None:
        """JAX arrays that were donated are gone; other arrays were copied to the device, and stay."""
        for i in self.taken:
            if _is_array(leaves[i]):
                leaves[i].delete()


def _is_array(leaf: Any) -> bool:
    """Whether it is an array of JAX, which can be deleted."""
    return hasattr(leaf, "is_deleted") and hasattr(leaf, "delete")


def _named(i: int, arg: SSAValue) -> str:
    kind = gm(arg)
    shape = ",".join(map(str, kind.shape))
    return f"{arg.name_hint or f'argument {i}'} {dtype_name(kind.element)}[{shape}]"
