"""What ops of the graph level compute, and how far off their results may be: by XLA, or by NumPy where that has the
same bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax import Array
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ..backends.functions.compiling import QUICK_OPTIONS, Options, options_once, xla_jit
from ..backends.interpreter.graph import RULES
from ..backends.interpreter.views import View, realise
from ..dialects import tile
from ..dialects.base import describe
from ..dialects.graph import control
from ..dialects.npu.types import GmType
from .bounds import Bound, propagate, settles
from .plain import is_plain_op, plain_bounds, plain_values
from .structure import Cache, structure
from .tolerance import Mode


class OpFunctions:
    """The functions of the ops of one module, each of which XLA compiles once."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.structures: dict[Operation, int] = {}

    def values(self, op: Operation, xs: Sequence[Any]) -> list[Array]:
        """The results of an op."""
        if is_plain_op(op, xs, False):
            return plain_values(op, xs)

        def make(options: Options) -> Any:
            return xla_jit(lambda xs: evaluate(op, xs, [], None)[0], options)

        return self._function(("values", self.structure(op)), xs, make)(list(xs))

    def likely(
        self, op: Operation, xs: Sequence[Array], es: Sequence[Bound]
    ) -> tuple[list[Array], list[Bound]]:
        """The results of an op and what each may be off over a whole program."""
        if is_plain_op(op, xs, any(e is not None for e in es)):
            ys = plain_values(op, xs)
            return ys, plain_bounds(op, xs, es, ys, "likely")
        exact = tuple(e is None for e in es)

        def make(options: Options) -> Any:
            return xla_jit(lambda xs, es: evaluate(op, xs, _unpack(es, exact), "likely"), options)

        known = [e for e in es if e is not None]
        return self._function(("likely", self.structure(op), settles(op), exact), xs, make)(list(xs), known)

    def bounds(self, op: Operation, xs: Sequence[Array], es: Sequence[Bound], mode: Mode) -> list[Bound]:
        """What each result of an op may be off, where what it takes is off by `es`."""
        if is_plain_op(op, xs, any(e is not None for e in es)):
            return plain_bounds(op, xs, es, plain_values(op, xs), mode)
        exact = tuple(e is None for e in es)

        def make(options: Options) -> Any:
            return xla_jit(lambda xs, es: evaluate(op, xs, _unpack(es, exact), mode)[1], options)

        known = [e for e in es if e is not None]
        return self._function(("bounds", self.structure(op), settles(op), mode, exact), xs, make)(list(xs), known)

    def structure(self, op: Operation) -> int:
        """A number that ops of equal structure share."""
        found = self.structures.get(op)
        if found is None:
            found = self.structures[op] = self.cache.number(structure(op))
        return found

    def _function(self, key: tuple[Any, ...], xs: Sequence[Any], make: Callable[[Options], Any]) -> Any:
        """What XLA compiles for an op, kept by its key. make: compiles it with some options."""
        options = options_once(xs)
        return self.cache.get((*key, options is QUICK_OPTIONS), lambda: make(options))


def _unpack(es: Sequence[Array], exact: Sequence[bool]) -> list[Bound]:
    rest = iter(es)
    return [None if none else next(rest) for none in exact]


def evaluate(
    op: Operation, xs: Sequence[Array], es: Sequence[Bound], mode: Mode | None
) -> tuple[list[Array], list[Bound]]:
    """Results of an op or fusion and, where `mode` is given, their bounds. Raises VerifyException for an op that
    is not of the graph level."""
    if isinstance(op, control.FusionOp):
        env: dict[SSAValue, tuple[Array, Bound]] = dict(
            zip(op.body.block.args, zip(xs, es or [None] * len(xs), strict=True), strict=True)
        )
        for inner in op.body.block.ops:
            if isinstance(inner, control.YieldOp):
                ends = [env[v] for v in inner.values]
                return [x for x, _ in ends], [e for _, e in ends]
            operands = [env[v] for v in inner.operands]
            ys, bounds = evaluate(inner, [x for x, _ in operands], [e for _, e in operands], mode)
            env.update(zip(inner.results, zip(ys, bounds, strict=True), strict=True))
    if isinstance(op, tile.ViewOp):
        assert isinstance(op.result.type, GmType)
        return [realise(xs[0], View.of(op.result.type))], [None]
    rule = RULES.of(type(op))
    if rule is None:
        raise VerifyException(f"{describe(op)} cannot be executed at the graph level")
    found: Any = rule(op, *xs)
    ys: list[Array] = list(found) if isinstance(found, (list, tuple)) else [found]
    if mode is None:
        return ys, [None] * len(ys)
    return ys, propagate(op, xs, es, ys, mode)
