"""Donated arguments as a JAX user sees them: which they are, and what becomes of the arrays that are passed."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from ...dialects.dtypes import dtype_name
from ...dialects.graph.donation import donate, donated
from ...dialects.npu import gm
from ...passes.npu.plan_memory import reused
from ..sources import entry_of
from .signature import CompileError, Signature

Donate = int | str | Sequence[int | str]
"""Arguments by position (from the end where negative) or by name."""


class DonatedError(CompileError, RuntimeError):
    """An array that is not there any more, or is donated and also used otherwise by the same call."""


def argument_places(which: Donate, names: Sequence[str], places: Sequence[int], title: str) -> set[int]:
    """Which arguments of a call, called `names`, are meant; the first ones are by position, at `places` of a call that
    also has static ones. Raises CompileError for one that is not there."""
    found, count = set(), (max(places) + 1 if places else 0)
    for each in (which,) if isinstance(which, int | str) else which:
        at = names.index(each) if isinstance(each, str) and each in names else each
        if isinstance(at, str):
            raise CompileError(
                f"{title} has no argument {at!r} to donate; it has {', '.join(names) or 'none'}"
            )
        if at is each:
            at = at + count if at < 0 else at
            if at not in places:
                raise CompileError(f"{title} has no argument {each} to donate; it has {len(names)}")
            at = list(places).index(at)
        found.add(at)
    return found


def donate_inputs(
    module: ModuleOp, signature: Signature, which: Donate, title: str, places: Sequence[int] | None
) -> None:
    """Donates arguments of @main: those of a function, whose leaves the inputs are, or without one the inputs
    themselves. places: for each argument by position, its place in the call that `which` speaks of. Raises
    CompileError for an argument that does not exist."""
    if which == ():
        return
    main = entry_of(module)
    count, keywords = signature.form
    names = [*map(signature.parameters.label, range(count)), *keywords]
    if signature.in_tree is None:
        leaves = [1] * count
        if not signature.parameters.positional:
            names = [a.name_hint or "" for a in main.body.block.args]
    else:
        leaves = [child.num_leaves for part in signature.in_tree.children() for child in part.children()]
    chosen = argument_places(which, names, places or range(count), title)
    donate(main, [i in chosen for i, n in enumerate(leaves) for _ in range(n)])


_TAKING = threading.Lock()
"""Held while a call takes the arrays that are donated to it: of several calls, one gets an array."""


class Donations:
    """The donated inputs of a compiled program: `taken`, by number, are those that are gone after a call. As in JAX
    that are those of a result's type; and those whose memory the program uses."""

    def __init__(self, module: ModuleOp, title: str, signature: Signature) -> None:
        main = entry_of(module)
        args = main.body.block.args
        given = [i for i, free in enumerate(donated(main)) if free]
        uses = reused(main) if given else []
        results = Counter(main.function_type.outputs)
        for i in given:
            if results[args[i].type] > 0:
                results[args[i].type] -= 1
                uses[i] = True
        self.title, self._place = title, signature.place
        self.taken = [i for i in given if uses[i]]
        self.unused = [f"{signature.names[i]} {_type(args[i])}" for i in given if not uses[i]]

    def warn(self) -> None:
        """Says which donated inputs are of no use, as JAX does."""
        if self.unused:
            what = f"Some donated buffers of {self.title} were not usable: {', '.join(self.unused)}."
            warnings.warn(what, stacklevel=3)

    def check(self, leaves: Sequence[Any]) -> None:
        """Raises DonatedError for an array that was given away before, or is given away now and used twice."""
        self.check_there(leaves, range(len(leaves)))
        places: dict[int, list[int]] = {}
        for i, leaf in enumerate(leaves):
            if _is_array(leaf):
                places.setdefault(id(leaf), []).append(i)
        for i in self.taken:
            others = [j for j in places.get(id(leaves[i]), ()) if j != i]
            if others:
                raise DonatedError(
                    f"{self._place(i)} of {self.title} is donated, and {self._place(others[0])} is the same array"
                )

    def check_there(self, leaves: Sequence[Any], which: Iterable[int]) -> None:
        """Raises DonatedError for one of these inputs that was given away before."""
        for i in which:
            if _is_array(leaves[i]) and leaves[i].is_deleted():
                raise DonatedError(
                    f"{self._place(i)} of {self.title} has been deleted: it was donated to an earlier call"
                )

    def keep(self, results: Sequence[Any], flat: Sequence[Any]) -> list[Any]:
        """The results, with arrays of their own where one is a donated input."""
        import jax

        given = {id(flat[i]) for i in self.taken}
        return [jax.numpy.copy(x) if id(x) in given else x for x in results]

    def delete(self, leaves: Sequence[Any]) -> None:
        """JAX arrays that were donated are gone; other arrays were copied to the device, and stay. Raises DonatedError
        where a call in another thread has taken one meanwhile; then all others stay."""
        with _TAKING:
            self.check_there(leaves, self.taken)
            for i in self.taken:
                if _is_array(leaves[i]):
                    _delete(leaves[i])


def _is_array(leaf: Any) -> bool:
    """Whether it is an array of JAX, which can be deleted."""
    import jax

    return isinstance(leaf, jax.Array)


def _delete(array: Any) -> None:
    """Deletes what an array holds, by way of another array of the same buffers: the array itself stays whole, since
    `array.delete()` takes apart what JAX may be reading in another thread, which crashes the process. Who reads it
    later gets JAX's error, and what runs already keeps the buffers as long as it needs them."""
    import jax

    parts = [shard.data for shard in array.addressable_shards]
    jax.make_array_from_single_device_arrays(array.shape, array.sharding, parts).delete()


def _type(arg: SSAValue) -> str:
    kind = gm(arg)
    return f"{dtype_name(kind.element)}[{','.join(map(str, kind.shape))}]"
