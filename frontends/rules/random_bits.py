"""rng_bit_generator as integer arithmetic: Threefry-2x32 and Philox-4x32 with XLA's use of their counters.

Both: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. How the state counts, and where its words
go, is XLA's RngBitGeneratorExpander; its CPU backend takes Philox where the program leaves the choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from ...dialects.dtypes import dtype_name, element_type, is_float, itemsize, shape_in, tensor
from ...dialects.graph import BroadcastOp, IotaOp, ReshapeOp, SliceOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import certain
from .. import bindings
from ..bindings import Op
from ..walk import BOOLEAN, Rule, Walk
from .base import Results, Types, Values

_U32, _U64 = element_type("ui32"), element_type("ui64")

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
"""Threefry-2x32 with 20 rounds; the parity constant of its key schedule."""

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
"""Philox-4x32: factors of a round, and what its key grows by."""
PHILOX_ROUNDS = 10


class _Words:
    """Arithmetic on unsigned integers of one shape."""

    def __init__(self, walk: Walk):
        self.walk = walk

    def number(self, value: int, like: SSAValue) -> SSAValue:
        return self.walk.fill(self.walk.scalar(value, element_of(like)), shape_of(like))

    def apply(self, name: str, a: SSAValue, b: SSAValue | int) -> SSAValue:
        other = self.walk.fill(b, shape_of(a)) if isinstance(b, SSAValue) else self.number(b, a)
        return self.walk.elementwise(name, [a, other], a.type)

    def convert(self, x: SSAValue, element: Attribute) -> SSAValue:
        if element_of(x) == element:
            return x
        return self.walk.elementwise("convert", [x], tensor(shape_of(x), element))

    def rotate(self, x: SSAValue, by: int) -> SSAValue:
        left, right = self.apply("shl", x, by), self.apply("shr_logical", x, 32 - by)
        return self.apply("or", left, right)

    def halves(self, x: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The low and the high word of 64-bit integers."""
        return self.convert(x, _U32), self.convert(self.apply("shr_logical", x, 32), _U32)

    def whole(self, low: SSAValue, high: SSAValue) -> SSAValue:
        """64-bit integers of their words."""
        return self.apply("or", self.apply("shl", self.convert(high, _U64), 32), self.convert(low, _U64))

    def select(self, mask: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.walk.elementwise("select", [mask, a, b], a.type)

    def reshape(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        if shape_of(x) == tuple(shape):
            return x
        return self.walk.emit(ReshapeOp, [x], [tensor(shape, element_of(x))])[0]

    def iota(self, shape: Sequence[int], dim: int, element: Attribute) -> SSAValue:
        return self.walk.emit(IotaOp, [], [tensor(shape, element)], dim=dim)[0]

    def sliced(self, x: SSAValue, starts: Sequence[int], limits: Sequence[int]) -> SSAValue:
        shape = [b - a for a, b in zip(starts, limits, strict=True)]
        if all(certain(a, "==", b) for a, b in zip(shape, shape_of(x), strict=True)):
            return x
        ones = [1] * len(shape)
        out = tensor(shape, element_of(x))
        return self.walk.emit(SliceOp, [x], [out], starts=starts, limits=limits, strides=ones)[0]

    def beside(self, parts: Sequence[SSAValue], dim: int) -> SSAValue:
        """The parts along a new dimension `dim`: each place takes the part of its number."""
        shape = shape_of(parts[0])
        out = [*shape[:dim], len(parts), *shape[dim:]]
        kept = [d for d in range(len(out)) if d != dim]
        place = self.iota(out, dim, element_type("i32"))
        made: SSAValue | None = None
        for i, part in enumerate(parts):
            wide = self.walk.emit(BroadcastOp, [part], [tensor(out, element_of(part))], dims=kept)[0]
            if made is None:
                made = wide
                continue
            known = self.walk.fill(self.walk.scalar(i, element_type("i32")), out)
            here = self.walk.elementwise("eq", [place, known], tensor(out, BOOLEAN))
            made = self.select(here, wide, made)
        assert made is not None
        return made


def threefry(w: _Words, counter: tuple[SSAValue, SSAValue], key: tuple[SSAValue, SSAValue]) -> Values:
    """Two words for each counter."""
    keys = [*key, w.apply("xor", w.apply("xor", key[0], key[1]), PARITY)]
    x, y = w.apply("add", counter[0], keys[0]), w.apply("add", counter[1], keys[1])
    for i in range(5):
        for by in ROTATIONS[i % 2]:
            x = w.apply("add", x, y)
            y = w.apply("xor", x, w.rotate(y, by))
        x = w.apply("add", x, keys[(i + 1) % 3])
        y = w.apply("add", w.apply("add", y, keys[(i + 2) % 3]), i + 1)
    return [x, y]


def philox(w: _Words, counter: Values, key: tuple[SSAValue, SSAValue]) -> Values:
    """Four words for each counter of four."""
    a, b, c, d = counter
    for i in range(PHILOX_ROUNDS):
        first, second = (
            w.halves(w.apply("mul", w.convert(x, _U64), m))
            for x, m in ((a, MULTIPLIERS[0]), (c, MULTIPLIERS[1]))
        )
        round_key = [w.apply("add", k, i * step % 2**32) for k, step in zip(key, WEYL, strict=True)]
        a, b, c, d = (
            w.apply("xor", w.apply("xor", second[1], b), round_key[0]),
            second[0],
            w.apply("xor", w.apply("xor", first[1], d), round_key[1]),
            first[0],
        )
    return [a, b, c, d]


def _with_threefry(
    w: _Words, state: Values, shape: Sequence[int], element: Attribute
) -> tuple[SSAValue, Values]:
    """Bits of `shape`, and the words of the new state. Narrow bits are the low ones of 32."""
    key, counter = state
    wide = itemsize(element) == 8
    if wide:
        made, count = _counted(w, key, counter, shape)
        return w.whole(*made), [key, count]
    split = next((d for d, n in enumerate(shape) if n % 2 == 0), None)
    if split is None and shape:
        split = max(range(len(shape)), key=lambda d: shape[d])
    if split is None:
        made, count = _counted(w, key, counter, [1])
        return w.convert(w.reshape(made[0], []), element), [key, count]
    half = [*shape[:split], -(-shape[split] // 2), 1, *shape[split + 1 :]]
    made, count = _counted(w, key, counter, half)
    short = [w.reshape(m, [*half[: split + 1], *half[split + 2 :]]) for m in made]
    even = [*shape[:split], 2 * half[split], *shape[split + 1 :]]
    both = w.reshape(w.beside([w.convert(m, element) for m in short], split + 1), even)
    return w.sliced(both, [0] * len(shape), shape), [key, count]


def _counted(
    w: _Words, key: SSAValue, counter: SSAValue, shape: Sequence[int]
) -> tuple[tuple[SSAValue, SSAValue], SSAValue]:
    """Threefry of a counter for each place of `shape`, and the counter after them."""
    (place,) = (w.iota([math.prod(shape)], 0, _U64),)
    place = w.reshape(w.apply("add", place, counter), shape)
    keys = [w.walk.fill(k, shape) for k in w.halves(key)]
    made = threefry(w, w.halves(place), (keys[0], keys[1]))
    return (made[0], made[1]), w.apply("add", counter, math.prod(shape))


def _with_philox(
    w: _Words, state: Values, shape: Sequence[int], element: Attribute
) -> tuple[SSAValue, Values]:
    """Bits of `shape`, and the words of the new state. Bits follow each other in row order, 64 of them low word
    first. A counter of one word has the key for its high half."""
    key, *counter = state
    words = math.prod(shape) * (2 if itemsize(element) == 8 else 1)
    count = -(-words // 4)
    wide = counter if len(counter) > 1 else [*counter, key]
    low, high = _raised(w, wide, w.iota([count], 0, _U64))
    keys = [w.walk.fill(k, [count]) for k in w.halves(key)]
    made = philox(w, [*w.halves(low), *w.halves(high)], (keys[0], keys[1]))
    if itemsize(element) == 8:
        bits = w.beside([w.whole(made[0], made[1]), w.whole(made[2], made[3])], 1)
    else:
        bits = w.beside([w.convert(m, element) for m in made], 1)
    flat = w.reshape(bits, [math.prod(shape_of(bits))])
    new = _raised(w, wide, w.number(count, key))
    return w.reshape(w.sliced(flat, [0], [math.prod(shape)]), shape), [key, *new[: len(counter)]]


def _raised(w: _Words, counter: Values, by: SSAValue) -> Values:
    """A counter of 128 bits, low half first, plus a number of 64."""
    shape = shape_of(by)
    low, high = (w.walk.fill(half, shape) for half in counter)
    total = w.apply("add", low, by)
    carry = w.walk.elementwise("lt", [total, low], tensor(shape, BOOLEAN))
    return [total, w.select(carry, w.apply("add", high, 1), high)]


_ALGORITHMS = {"THREE_FRY": _with_threefry, "PHILOX": _with_philox, "DEFAULT": _with_philox}


def _rng_bit_generator(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    (state,), (_, result) = args, types
    element, shape = result.element_type, shape_in(result)
    algorithm = bindings.rng_algorithm(op)
    words = shape_of(state)
    if dtype_name(element_of(state)) != "ui64" or is_float(element) or element == BOOLEAN:
        return None
    if words not in ((2,), (3,)) or (words == (3,) and algorithm == "THREE_FRY"):
        return None
    w = _Words(walk)
    parts = [w.reshape(w.sliced(state, [i], [i + 1]), []) for i in range(words[0])]
    unsigned = element_type(f"ui{8 * itemsize(element)}")
    bits, new = _ALGORITHMS[algorithm](w, parts, shape, unsigned)
    if element != unsigned:
        bits = walk.elementwise("bitcast", [bits], result)
    return [w.beside(new, 0), bits]


RULES: dict[str, Rule] = {"stablehlo.rng_bit_generator": _rng_bit_generator}
