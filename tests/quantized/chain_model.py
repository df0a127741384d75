"""What a quantized program computes, in numpy: written from docs/quantization.md and docs/passes/graph-quantized.md,
sharing no code with the compiler.

A value is floats in the type of the program. A product in a static mode also has i32 sums, with the bias in them. Its
result leaves the integers where something other than one quantization is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from chain_programs import (
    AFFINE,
    ELEMENTWISE,
    MOVES,
    PRODUCTS,
    STATIC,
    ChainProgram,
    Step,
    moved,
    multiplied,
    plain,
    pooled,
)

F32 = np.float32
LEAST = F32(2.0**-100)
Kind = tuple[float, int]
"""Scale and zero point of a stored input."""


@dataclass
class Sums:
    """i32 sums with a bias; unit: what one of them stands for, in f32, along the feature dimensions `dims`."""

    total: np.ndarray
    unit: np.ndarray
    dims: tuple[int, ...]

    def times(self, factors: np.ndarray, total: np.ndarray) -> np.ndarray:
        """Sums as f32 numbers times factors of features."""
        return total.astype(F32) * along(factors, self.dims, total.ndim)


@dataclass
class Product:
    """A product in the program: the step, the last step that goes into its weights and bias, the scale and the shift of
    these, and what its input comes from."""

    step: int
    end: int
    name: str
    mode: str
    scale: np.ndarray | None
    shift: np.ndarray | None
    source: int
    kind: Kind

    @property
    def static(self) -> bool:
        return self.mode in STATIC


class ChainModel:
    """Runs a program as it is quantized. The constructor finds out what is made of each value; `results` computes."""

    def __init__(self, program: ChainProgram) -> None:
        self.program = program
        self.steps = program.steps
        self.takers: list[list[int]] = [[] for _ in self.steps]
        for i, step in enumerate(self.steps):
            for v in step.args:
                self.takers[v].append(i)
        self.products = {i: self._product(i, name) for i, name in program.products.items()}
        self.inside = {i for p in self.products.values() for i in range(p.step, p.end) if self._leads(p, i)}
        self.paths: dict[tuple[int, Kind], tuple[Product, bool, int | None]] = {}
        for p in self.products.values():
            found = self._path(p) if self._is_integer(p) else None
            if found is not None:
                self.paths.setdefault(found[:2], (p, *found[2:]))
        self.values: list[np.ndarray] = []
        self.sums: dict[int, Sums] = {}
        self.made: dict[tuple[int, Kind], np.ndarray] = {}
        self.overflows = False
        """Whether what is added to a residual is more than f16 holds of units of the result: docs/limits.md."""

    def results(self) -> list[np.ndarray]:
        """The results of the program."""
        for i, step in enumerate(self.steps):
            self.values.append(self._value(i, step))
        return [self.values[i] for i in self.program.results]

    # -- what is made of what --------------------------------------------------------------------------------

    def _product(self, at: int, name: str) -> Product:
        """A product with what follows it feature by feature: factors, and numbers that are added."""
        step, mode = self.steps[at], self.program.mode(name)
        choice = self.program.choices.get(name)
        source = step.args[0]
        while self.steps[source].kind in MOVES:
            (source,) = self.steps[source].args
        kind = (choice.scale, choice.zero) if choice is not None else (1.0, 0)
        scale: np.ndarray | None = None
        shift: np.ndarray | None = None
        end, dims = at, feature_dims(self.program, at)
        sizes = [self.program.shapes[at][d] for d in dims]
        while mode not in ("f16", "bf16", "origin") and len(self.takers[end]) == 1:
            (after,) = self.takers[end]
            then = self.steps[after]
            if then.kind == "scaled":
                v = np.broadcast_to(self.values_type(then.facts["by"]).astype(F32), sizes)
            elif then.kind in AFFINE and {*then.facts["dims"]} <= {*dims}:
                v = self.values_type(self.program.params[then.param]).astype(F32)
                v = np.broadcast_to(
                    v.reshape(
                        [v.shape[then.facts["dims"].index(d)] if d in then.facts["dims"] else 1 for d in dims]
                    ),
                    sizes,
                )
            else:
                break
            match then.kind:
                case "times" | "scaled":
                    scale = v if scale is None else scale * v
                    shift = None if shift is None else shift * v
                case "divided":
                    scale = (F32(1) if scale is None else scale) / v
                    shift = None if shift is None else shift / v
                case "plus":
                    shift = v if shift is None else shift + v
                case "minus":
                    shift = -v if shift is None else shift - v
                case _:
                    scale = np.full(sizes, F32(-1)) if scale is None else -scale
                    shift = v if shift is None else v - shift
            end = after
        return Product(at, end, name, mode, scale, shift, source, kind)

    def values_type(self, x: np.ndarray | float) -> np.ndarray:
        """Numbers in the type of the program."""
        return np.asarray(x).astype(self.program.x.dtype)

    def _leads(self, p: Product, at: int) -> bool:
        """Whether a value is one between a product and its end."""
        v = p.step
        while v != p.end:
            if v == at:
                return True
            (v,) = self.takers[v]
        return False

    def _is_integer(self, p: Product) -> bool:
        """Whether a product gives sums with one unit for each feature: a convolution has no zero point then, since
        what is beside an image stands for 0."""
        kind = self.steps[p.step].kind
        return p.static and kind != "batched" and (kind != "conv" or not p.kind[1])

    def _quantized_at(self, p: Product) -> int:
        """The value that is stored for a product's input: behind largest numbers of windows they are taken of what is
        stored."""
        at = p.source
        while self.steps[at].kind == "largest" and self.steps[self.steps[at].args[0]].kind != "input":
            (at,) = self.steps[at].args
        return at

    def _read_again(self, value: int, taker: int) -> Product | None:
        """The convolution whose stored input an elementwise step or a window behind it reads in the place of the
        floats."""
        if self.steps[taker].kind not in (*ELEMENTWISE, "largest", "average"):
            return None
        for p in self.products.values():
            if p.static and self.steps[p.step].kind == "conv" and p.source == value and p.end < taker:
                return p
        return None

    def _floats_needed(self, value: int) -> bool:
        """Whether anything reads a value as floats."""
        return not self.takers[value] or any(self._reads_floats(value, t) for t in self.takers[value])

    def _reads_floats(self, value: int, taker: int) -> bool:
        step = self.steps[taker]
        if step.kind in PRODUCTS:
            return not self.products[taker].static
        if self._read_again(value, taker) is not None:
            return False
        if step.kind in MOVES or (step.kind == "largest" and self.steps[value].kind != "input"):
            return self._floats_needed(taker)
        return True

    def _uses(self, value: int) -> list[int | Kind]:
        """What is made of a value: steps that read its floats, and quantizations."""
        found: list[int | Kind] = [t for t in self.takers[value] if self._reads_floats(value, t)]
        found += [-1] * (not self.takers[value])
        kinds = {p.kind for p in self.products.values() if p.static and self._quantized_at(p) == value}
        return [*found, *kinds]

    def _path(self, p: Product) -> tuple[int, Kind, bool, int | None] | None:
        """The only quantization of a product's result: of which value, how, behind a relu or not, and what is added
        before."""
        at, relu, other = p.end, False, None
        while len(uses := self._uses(at)) == 1:
            (use,) = uses
            if isinstance(use, tuple):
                return at, use, relu, other
            if use < 0:
                return None
            step = self.steps[use]
            if step.kind == "relu" and not relu:
                relu = True
            elif step.kind == "add" and not relu and other is None:
                other = next(v for v in step.args if v != at)
                made = self._read_again(other, use)
                ends = [q.end for q in self.products.values() if self._is_integer(q)]
                if made is None and other not in ends:
                    return None
            else:
                return None
            at = use
        return None

    # -- values ----------------------------------------------------------------------------------------------

    def _value(self, at: int, step: Step) -> np.ndarray:
        if step.kind == "input":
            return self.program.x
        p = next((p for p in self.products.values() if p.end == at), None)
        if p is not None:
            return self._of_product(p).astype(self.program.x.dtype)
        if at in self.inside:
            return np.zeros(self.program.shapes[at], self.program.x.dtype)
        taken = []
        for v in step.args:
            again = self._read_again(v, at)
            taken.append(self.values[v] if again is None else self._dequantized(again))
        return plain(step, taken, self.program.params, self.program.shapes[at])

    def _dequantized(self, p: Product) -> np.ndarray:
        scale, zero = p.kind
        q = self._stored(p.source, p.kind)
        return ((q.astype(F32) - F32(zero)) * F32(scale)).astype(self.program.x.dtype)

    def _stored(self, value: int, kind: Kind) -> np.ndarray:
        """A value as i8 numbers with a scale and a zero point."""
        if (value, kind) not in self.made:
            self.made[value, kind] = self._store(value, kind)
        return self.made[value, kind]

    def _store(self, value: int, kind: Kind) -> np.ndarray:
        scale, zero = kind
        step = self.steps[value]
        if step.kind == "largest" and self.steps[step.args[0]].kind != "input":
            return pooled(step, self._stored(step.args[0], kind), np.max, -128)
        if (value, kind) not in self.paths:
            units = self.values[value].astype(F32) * F32(1 / scale)
            return saturated(np.rint(units), zero, -128)
        p, relu, other = self.paths[value, kind]
        sums = self.sums[p.end]
        if other is None:
            units = self._units(sums, kind, np.maximum(sums.total, 0) if relu else sums.total)
            return saturated(np.rint(units), zero, -128)
        # a residual is added in units of the result, in f16
        x = self._units(sums, kind, sums.total).astype(np.float16)
        again = self._read_again(other, value if not relu else self.steps[value].args[0])
        if again is None:
            y = self._units(self.sums[other], kind, self.sums[other].total).astype(np.float16)
        else:
            theirs, their_zero = again.kind
            q = self._stored(again.source, again.kind).astype(np.float16) - np.float16(their_zero)
            y = q * np.float16(theirs / scale)
        self.overflows |= not (np.isfinite(x).all() and np.isfinite(y).all())
        rounded = np.rint(x + y)
        return saturated(rounded, zero, max(-128, zero) if relu else -128)

    def _units(self, sums: Sums, kind: Kind, total: np.ndarray) -> np.ndarray:
        """Sums in units of a scale, f32."""
        return sums.times(short(sums.unit * F32(1 / kind[0])), total)

    # -- products --------------------------------------------------------------------------------------------

    def _of_product(self, p: Product) -> np.ndarray:
        step = self.steps[p.step]
        w = self.program.params[step.param].astype(F32)
        if p.scale is not None:
            w = w * along(p.scale, weight_features(step, w.ndim), w.ndim)
        if self._is_integer(p):
            return self._integers(p, step, w)
        if p.mode in ("f16", "bf16", "origin") or p.mode.startswith(("w4a16", "w8a16-")):
            made = self._floats(p, step, w)
        else:
            made = self._dequantized_product(p, step, w)
        if p.shift is not None:
            made = made + along(p.shift, feature_dims(self.program, p.step), made.ndim)
        return made

    def _product_of(self, step: Step, x: np.ndarray, w: np.ndarray, at: int) -> np.ndarray:
        return multiplied(step, x, w, self.program.shapes[at])

    def _input(self, p: Product, of: Callable[[int], np.ndarray]) -> np.ndarray:
        """What a product's input is, moved from its source."""
        at, moves = self.steps[p.step].args[0], list[Step]()
        while at != p.source:
            moves.append(self.steps[at])
            (at,) = self.steps[at].args
        x = of(at)
        for step in reversed(moves):
            x = moved(step, x)
        return x

    def _integers(self, p: Product, step: Step, w: np.ndarray) -> np.ndarray:
        """A product in a static mode: scales have 10 bits of mantissa."""
        scale, zero = p.kind
        top, summed = limit(p.mode), summed_dims(step, w.ndim)
        count = int(np.prod([w.shape[d] for d in summed]))
        unit = np.maximum(np.abs(w).max(summed, initial=0), LEAST) * F32(1 / reach(top, count))
        order = weight_features(step, w.ndim)  # features of the result in the order of those of the weights
        if p.shift is not None:
            unit = np.maximum(unit, np.abs(p.shift) * F32(1 / (scale * 2.0**24)))
        kept = short(unit * F32(scale))
        inverse = F32(1) / (kept * F32(1 / scale))
        q = np.clip(np.rint(w * along(inverse, order, w.ndim)), -top, top).astype(np.int64)
        x = self._input(p, lambda at: self._stored(at, p.kind)).astype(np.int64)
        total = self._product_of(step, x - zero, q, p.step)
        dims = feature_dims(self.program, p.step)
        if p.shift is not None:
            bias = np.rint(np.clip(p.shift / kept, F32(-(2.0**30)), F32(2.0**30))).astype(np.int64)
            total = total + along(bias, dims, total.ndim)
        self.sums[p.end] = Sums(total, kept, dims)
        return self.sums[p.end].times(kept, total)

    def _dequantized_product(self, p: Product, step: Step, w: np.ndarray) -> np.ndarray:
        """A product of stored numbers whose sums are multiplied by scales: those of the input, then those of the
        weights."""
        q, unit = stored_weights(step, w, limit(p.mode), 0)
        dims = [feature_of(self.program, p.step, d) for d in kept_dims(step, w.ndim)]
        if p.static:
            scale, zero = p.kind
            x = self._input(p, lambda at: self._stored(at, p.kind)).astype(np.int64) - zero
            made = self._product_of(step, x, q, p.step).astype(F32)
            made = made * F32(scale) if F32(scale) != 1 else made
            return made * along(unit, dims, made.ndim)
        x = self.values[step.args[0]].astype(F32)
        wide = p.mode == "w8a16"
        high = 127 * 256 + 127 if wide else 127
        rows = row_dims(step, x.ndim)
        others = tuple(d for d in range(x.ndim) if d not in rows)
        scales = np.maximum(np.abs(x).max(others, initial=0), LEAST) * F32(1 / high)
        units = np.rint(x * along(F32(1) / scales, tuple(rows), x.ndim))
        stored = np.clip(units, -high, high).astype(np.int64)
        spread = lambda rank: along(scales, tuple(rows.values()), rank)  # noqa: E731
        if not wide:
            made = self._product_of(step, stored, q, p.step).astype(F32)
            scales = spread(made.ndim), along(unit, dims, made.ndim)
            first, second = (
                scales[::-1] if step.kind == "left" else scales
            )  # those of the left operand come first
            return made * first * second
        digits = (stored + 128) >> 8, stored - (((stored + 128) >> 8) << 8)
        parts = [self._product_of(step, d, q, p.step).astype(F32) for d in digits]
        first, second = (x * along(unit, dims, x.ndim) for x in parts)
        return (first * F32(256) + second) * spread(first.ndim)

    def _floats(self, p: Product, step: Step, w: np.ndarray) -> np.ndarray:
        """A product of floats, f32; weights may have been stored in integers."""
        x, kind = self.values[step.args[0]], self.program.x.dtype
        if p.mode == "origin":
            w = self.program.params[step.param]
        elif p.mode == "bf16":
            kind = np.dtype(ml_dtypes.bfloat16)
        else:
            kind = np.dtype(np.float16)
        if "a16" in p.mode:
            name, _, group = p.mode.partition("-g")
            q, unit = stored_weights(step, w, limit(name), int(group or (128 if name == "w4a16" else 0)))
            w = q.astype(F32) * unit
        x, w = (a.astype(kind).astype(np.float64) for a in (x, w))
        return self._product_of(step, x, w, p.step).astype(F32)


# -- numbers ---------------------------------------------------------------------------------------------------


def short(x: np.ndarray) -> np.ndarray:
    """f32 numbers with 10 bits of mantissa."""
    return (np.asarray(x, F32).view(np.uint32) & 0x7FFFE000).view(F32)


def saturated(rounded: np.ndarray, zero: int, low: int) -> np.ndarray:
    """Whole numbers of units with a zero point, as what is stored."""
    return np.clip(rounded.astype(np.float64) + zero, low, 127).astype(np.int64)


def limit(mode: str) -> int:
    return 127 if mode.startswith("w8") else 7


def reach(top: int, count: int) -> float:
    """What the largest of so many weights is in units of their scale: half a step beyond `top` where there are many."""
    return top + 0.5 if count >= {7: 22, 127: 382}[top] else top


def along(x: np.ndarray, dims: Sequence[int], rank: int) -> np.ndarray:
    """x, whose dimensions are `dims` of a tensor of some rank, in that rank."""
    order = sorted(range(len(dims)), key=lambda i: dims[i])
    shape = [1] * rank
    for i in order:
        shape[dims[i]] = x.shape[i]
    return x.transpose(order).reshape(shape)


def stored_weights(step: Step, w: np.ndarray, top: int, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Integer weights; and their scales: one for each feature, in the shape of the kept dimensions, or where `group`
    divides the summed dimension of a matrix product those of each group, in the shape of w."""
    summed = summed_dims(step, w.ndim)
    if group and step.kind != "conv" and w.shape[summed[0]] % group == 0:
        k = summed[0]
        split = w.reshape([*w.shape[:k], w.shape[k] // group, group, *w.shape[k + 1 :]])
        unit = np.maximum(np.abs(split).max(k + 1, keepdims=True, initial=0), LEAST)
        unit = unit * F32(1 / reach(top, group))
        unit = np.broadcast_to(unit, split.shape).reshape(w.shape)
        return np.clip(np.rint(w * (F32(1) / unit)), -top, top).astype(np.int64), unit
    count = int(np.prod([w.shape[d] for d in summed]))
    unit = np.maximum(np.abs(w).max(summed, initial=0), LEAST) * F32(1 / reach(top, count))
    wide = along(unit, kept_dims(step, w.ndim), w.ndim)
    q = np.clip(np.rint(w * (F32(1) / wide)), -top, top).astype(np.int64)
    return q, np.broadcast_to(wide, w.shape) if group else unit


def summed_dims(step: Step, rank: int) -> tuple[int, ...]:
    """The dimensions of weights of which one scale is made."""
    return {"conv": (0, 1, 2), "dot": (0,), "transposed": (1,), "left": (1,), "batched": (1,), "heads": (0,)}[
        step.kind
    ]


def kept_dims(step: Step, rank: int) -> tuple[int, ...]:
    return tuple(d for d in range(rank) if d not in summed_dims(step, rank))


def weight_features(step: Step, rank: int) -> tuple[int, ...]:
    """The dimensions of weights that are features of the result."""
    return (2,) if step.kind == "batched" else kept_dims(step, rank)


def feature_dims(program: ChainProgram, at: int) -> tuple[int, ...]:
    """The dimensions of a product's result that its weights' features are."""
    step, rank = program.steps[at], len(program.shapes[at])
    return {"left": (0,), "heads": (2, 3)}.get(step.kind, (rank - 1,))


def feature_of(program: ChainProgram, at: int, d: int) -> int:
    """The dimension of a product's result that dimension d of its weights is."""
    step = program.steps[at]
    if step.kind == "batched":
        return d
    return feature_dims(program, at)[kept_dims(step, program.params[step.param].ndim).index(d)]


def row_dims(step: Step, rank: int) -> dict[int, int]:
    """The dimensions of an input of which each has scales of its own, and which of the result they are."""
    if step.kind == "conv":
        return {0: 0}
    if step.kind == "left":
        return {1: 1}
    return {d: d for d in range(rank - 1)}
