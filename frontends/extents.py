"""Values of which only the first elements along some dimensions count: their extents, while a program is converted.

At the graph level such a value has the shape of its bounds, and each bounded dimension an i32 number beside it, its
extent. Each op that takes such a value says what it makes of the dimension (`GraphOp.along`); where it needs something
of the elements behind the extent, they are replaced before it. What says nothing of a dimension is refused, unless
rules/bounded.py rewrites it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from ..dialects.dtypes import dtype_name, element_type, shape_in, tensor
from ..dialects.elementwise import identity
from ..dialects.graph import DynamicUpdateSliceOp, GraphOp, IotaOp, ReshapeOp
from ..dialects.graph.attributes import Literal
from ..dialects.graph.extents import FULL, BoundedDim, Padding, set_extents
from ..dialects.graph.interface import element_of, shape_of
from ..dialects.quantized import quantized
from .errors import FrontendError

if TYPE_CHECKING:
    from .walk import Walk

I32, I1 = element_type("i32"), element_type("i1")

Dims = dict[int, SSAValue]
"""Extents by dimension."""


class Rewrite(Protocol):
    """Makes an op right for a bounded dimension d of operand i, whose extent is n, and says what becomes of it;
    None where it cannot."""

    def __call__(self, extents: Extents, op: GraphOp, i: int, d: int, n: SSAValue) -> BoundedDim | None: ...


class Extents:
    """The extents of the values of one conversion."""

    def __init__(self, walk: Walk, rewrites: Mapping[type[GraphOp], Rewrite] | None = None) -> None:
        self.walk = walk
        self._rewrites = rewrites or {}
        self._known: dict[SSAValue, Dims] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def of(self, value: SSAValue) -> Dims:
        """The extents of a value's bounded dimensions."""
        return self._known.get(value, {})

    # -- marking -------------------------------------------------------------------------------------------

    def mark(self, x: SSAValue, n: SSAValue, dim: int) -> SSAValue:
        """x, of which the first n elements along `dim` count; n is an i32 number. Raises FrontendError."""
        shape = shape_of(x)
        if not 0 <= dim < len(shape):
            raise FrontendError(
                f"{self.walk.named()} marks dimension {dim} of a tensor of rank {len(shape)}: give one that it has"
            )
        if shape_of(n):
            raise FrontendError(
                f"{self.walk.named()} marks a size of shape {list(shape_of(n))}, which must be one number; under "
                "jax.vmap each example would have a size of its own: mark the result outside of it"
            )
        known = dict(self.of(x))
        with self.taken_whole(x):
            (made,) = self.walk.emit(ReshapeOp, [x], [x.type])
        size = self.walk.number(n)
        known.pop(dim, None)
        if size is None or size < shape[dim]:
            known[dim] = self.clamped(n, shape[dim])
        if known:
            self._known[made] = known
        return made

    def know(self, values: Sequence[SSAValue], places: Sequence[tuple[int, int]]) -> None:
        """Notes extents, which are the last of `values`: each is that of a value, by its number, along a dimension."""
        for (i, d), extent in zip(places, values[len(values) - len(places) :], strict=True):
            self._known.setdefault(values[i], {})[d] = extent

    def size(self, x: SSAValue, dim: int) -> SSAValue:
        """How many elements of x count along a dimension: an i32 number."""
        found = self.of(x).get(dim)
        return self.number(shape_of(x)[dim]) if found is None else found

    def behind(self, results: Sequence[SSAValue]) -> list[SSAValue]:
        """The extents of values, each once: what @main gives behind its results."""
        return list(dict.fromkeys(e for v in results for e in self.of(v).values()))

    def describe(self, func: FuncOp, results: Sequence[SSAValue]) -> None:
        """Says on @main which of its results are the extents of those before them, `results`."""
        place = {e: len(results) + k for k, e in enumerate(self.behind(results))}
        rows: dict[int, list[int]] = {}
        for i, v in enumerate(results):
            known = self.of(v)
            if known:
                rows[i] = [place[known[d]] if d in known else FULL for d in range(len(shape_of(v)))]
        if rows:
            set_extents(func, rows)

    # -- arithmetic ----------------------------------------------------------------------------------------

    def number(self, value: int) -> SSAValue:
        """An i32 number."""
        return self._once(("extent", value), lambda: self.walk.scalar(value, I32))

    def combined(self, function: str, a: SSAValue, b: SSAValue) -> SSAValue:
        """A function of two i32 numbers."""
        return self._once(
            ("extent", function, a, b), lambda: self.walk.elementwise(function, [a, b], tensor([], I32))
        )

    def clamped(self, n: SSAValue, size: int) -> SSAValue:
        """n, at least 0 and at most `size`."""
        return self.combined("min", self.combined("max", n, self.number(0)), self.number(size))

    def least(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The smaller one of two extents."""
        return a if a is b else self.combined("min", a, b)

    def _once(self, key: tuple[object, ...], make: Callable[[], SSAValue]) -> SSAValue:
        shared = self.walk.shared
        if key not in shared:
            shared[key] = make()
        return shared[key]

    def refuse(self, values: Sequence[SSAValue]) -> None:
        """Raises FrontendError where one of these is bounded: for what cuts tensors up by their shapes."""
        for value in values:
            for d in self.of(value):
                raise self._mixing(d)

    def _mixing(self, d: int) -> FrontendError:
        return FrontendError(
            f"{self.walk.named()} takes a tensor whose dimension {d} is bounded, and would mix what counts along it "
            "with what does not: do this before it is marked"
        )

    # -- ops -----------------------------------------------------------------------------------------------

    def carry(self, op: Operation) -> None:
        """Makes an op right that is about to be appended, and notes the extents of its results. Raises FrontendError
        where it says nothing of a bounded dimension."""
        if not isinstance(op, GraphOp):
            raise FrontendError(
                f"{self.walk.named()} has a body that gives a bounded tensor, and takes whole ones"
            )
        known = [dict(self.of(v)) for v in op.operands]
        self._meet(op, known)
        made: Dims = {}
        for i, dims in enumerate(known):
            for d, extent in dims.items():
                along = op.along(i, d) or self._rewritten(op, i, d, extent)
                if along is None:
                    raise self._mixing(d)
                if along.padding is not None:
                    op.operands[i] = self.padded(op.operands[i], {d: extent}, along.padding)
                if along.dim is not None:
                    size = shape_of(op.results[0])[along.dim]
                    n = self._becomes(along, extent, shape_of(op.operands[i])[d], size)
                    made[along.dim] = self.least(made[along.dim], n) if along.dim in made else n
        if made:
            self._known.update((r, dict(made)) for r in op.results)

    def _meet(self, op: GraphOp, known: Sequence[Dims]) -> None:
        """Bounds dimensions of operands by those that they meet."""
        pairs = op.meeting()
        for (i, d), (j, e) in (
            *pairs,
            *pairs,
        ):  # twice: the last one may bound the first, which all others meet
            if d in known[i] or e in known[j]:
                found = [dims[at] for dims, at in ((known[i], d), (known[j], e)) if at in dims]
                known[i][d] = known[j][e] = self.least(found[0], found[-1])

    def _rewritten(self, op: GraphOp, i: int, d: int, extent: SSAValue) -> BoundedDim | None:
        rewrite = self._rewrites.get(type(op))
        return None if rewrite is None else rewrite(self, op, i, d, extent)

    def _becomes(self, along: BoundedDim, n: SSAValue, before: int, size: int) -> SSAValue:
        """The extent of the dimension that one of `before` elements becomes, of `size`."""
        if (along.scale, along.offset, along.divisor, size) == (1, 0, 1, before):
            return n
        for function, by, neutral in (
            ("mul", along.scale, 1),
            ("add", along.offset, 0),
            ("div", along.divisor, 1),
        ):
            if by != neutral:
                n = self.combined(function, n, self.number(by))
        return self.clamped(n, size)

    @contextmanager
    def taken_whole(self, *values: SSAValue) -> Iterator[None]:
        """Takes values with what does not count, too."""
        kept = {v: self._known.pop(v) for v in values if v in self._known}
        yield
        self._known.update(kept)

    def joined(self, parts: Sequence[SSAValue], kind: TensorType, dim: int) -> SSAValue:
        """What counts of tensors, one behind the other along a dimension of a tensor of type `kind`: each is put behind
        what counts of those before it."""
        shape, zero = shape_in(kind), self.number(0)
        made, end = self.walk.fill(self.walk.scalar(0, kind.element_type), shape), zero
        dims: Dims = {}
        for x in parts:
            starts = [end if d == dim else zero for d in range(len(shape))]
            with self.taken_whole(x):
                (made,) = self.walk.emit(DynamicUpdateSliceOp, [made, x, *starts], [kind])
            end = self.combined("add", end, self.size(x, dim))
            for d, n in self.of(x).items():
                dims[d] = self.least(dims[d], n) if d in dims else n
        self._known[made] = {**dims, dim: end}
        return made

    def inside(self, x: SSAValue, dims: Mapping[int, SSAValue]) -> SSAValue:
        """Which elements of x are within extents: bools of its shape."""
        shape, found = shape_of(x), None
        for d, n in dims.items():
            here = self._once(("inside", shape, d, n), lambda d=d, n=n: self._before(shape, d, n))
            found = here if found is None else self.walk.elementwise("and", [found, here], here.type)
        assert found is not None
        return found

    def _before(self, shape: tuple[int, ...], d: int, n: SSAValue) -> SSAValue:
        (place,) = self.walk.emit(IotaOp, [], [tensor(shape, I32)], dim=d)
        return self.walk.elementwise("lt", [place, self.walk.fill(n, shape)], tensor(shape, I1))

    def padded(self, x: SSAValue, dims: Mapping[int, SSAValue], padding: Padding) -> SSAValue:
        """x with `padding` in place of the elements behind extents. Raises FrontendError for quantized numbers."""
        element = element_of(x)
        if quantized(x.type):
            raise FrontendError(
                f"{self.walk.named()} combines quantized numbers of which only the first ones count"
            )
        if isinstance(padding, SSAValue):
            value = padding
        elif isinstance(padding, Literal):
            value = self.walk.constant(padding)
        else:
            neutral = identity(padding, dtype_name(element)) if isinstance(padding, str) else padding
            value = self.walk.scalar(neutral, element)
        with self.taken_whole(x):
            there, fill = self.inside(x, dims), self.walk.fill(value, shape_of(x))
            made = self.walk.elementwise("select", [there, x, fill], x.type)
        return made
