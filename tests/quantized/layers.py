"""Random layers of quantized numbers: as graph-level text, and as an integer model in numpy that shares no code with
the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

RANGES = {"i8": (-128, 127), "ui8": (0, 255), "i4": (-8, 7), "i16": (-32768, 32767)}
CONTAINERS = {"i8": np.int8, "ui8": np.uint8, "i16": np.int16}
NO_BLOCKS = 0


@dataclass(frozen=True)
class Grid:
    """How numbers are stored: scales and zero points, one, or several along `axis`, or where `group` is not 0 for each
    so many rows and each column of a matrix; the ends of what is stored."""

    storage: str
    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    low: int
    high: int
    axis: int | None = None
    group: int = 0

    def text(self) -> str:
        low, high = RANGES[self.storage]
        storage = (
            self.storage
            if (self.low, self.high) == (low, high)
            else f"{self.storage}<{self.low}:{self.high}>"
        )
        pairs = [f"{_number(s)}:{z}" for s, z in zip(self.scales, self.zeros, strict=True)]
        if self.group:
            return f"!graph.quantized<{storage}:f32:{{0:{self.group}, 1:1}}, {{{', '.join(pairs)}}}>"
        if self.axis is None:
            return f"!graph.quantized<{storage}:f32, {pairs[0]}>"
        return f"!graph.quantized<{storage}:f32:{self.axis}, {{{', '.join(pairs)}}}>"

    def over(self, numbers: Sequence[float], shape: Sequence[int]) -> np.ndarray:
        """Scales, zero points or other numbers of this grid, for a tensor of a shape."""
        found = np.asarray(numbers)
        if self.group:
            return np.repeat(found.reshape(shape[0] // self.group, shape[1]), self.group, axis=0)
        if self.axis is None:
            return found[0]
        return found.reshape([-1 if d == self.axis else 1 for d in range(len(shape))])

    def whole(self, q: np.ndarray) -> np.ndarray:
        """Stored numbers less their zero points, in 64 bits."""
        return q.astype(np.int64) - self.over(self.zeros, q.shape)

    def stored(self, sums: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """Numbers times factors in single precision, rounded to even, with the zero point added, saturated."""
        scaled = np.rint(sums.astype(np.float32) * factors.astype(np.float32)).astype(np.float64)
        return np.clip(scaled + self.over(self.zeros, sums.shape), self.low, self.high).astype(np.int64)

    def requantized(self, q: np.ndarray, source: Grid) -> np.ndarray:
        """Stored numbers of another grid, as this one stores them."""
        many = max(len(self.scales), len(source.scales))
        ours, theirs = (s * (many // len(s)) for s in (self.scales, source.scales))
        factors = [a / b for a, b in zip(theirs, ours, strict=True)]
        finer = source if len(source.scales) > 1 else self
        return self.stored(source.whole(q), finer.over(factors, q.shape))


def _number(value: float) -> str:
    """A number as MLIR takes it."""
    text = repr(value)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def tensor(shape: tuple[int, ...], element: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


@dataclass(frozen=True)
class Layer:
    """One product: of matrices, which may have a batch dimension first, or a convolution in NHWC with HWIO weights and
    `groups`. given: how the weights come, where they are stored in another way first."""

    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    out: tuple[int, ...]
    grids: tuple[Grid, Grid, Grid]
    strides: tuple[int, int] = (1, 1)
    low: tuple[int, int] = (0, 0)
    high: tuple[int, int] = (0, 0)
    spread: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    given: Grid | None = None

    @property
    def is_conv(self) -> bool:
        return len(self.lhs) == 4

    def op(self) -> str:
        """The op's name and properties."""
        if not self.is_conv:
            batch, k = ([], 1) if len(self.lhs) == 2 else ([0], 2)
            sides = (
                f"lhs_batch = {batch}, lhs_contract = [{k}], rhs_batch = {batch}, rhs_contract = [{k - 1}]"
            )
            return f"graph.contract %a, %b {{{sides}}}"
        lists = {
            "dilation": f"lhs_dilation = {[*self.spread]}, rhs_dilation = {[*self.dilation]}",
            "pads": f"low = {[*self.low]}, high = {[*self.high]}, strides = {[*self.strides]}",
            "layouts": "lhs_layout = [0, 3, 1, 2], rhs_layout = [2, 3, 0, 1], out_layout = [0, 3, 1, 2]",
        }
        return f"graph.conv %a, %b {{groups = {self.groups}, {', '.join(lists.values())}}}"

    def body(self, number: int) -> tuple[list[str], list[str], str]:
        """Arguments, lines and the result's type of the layer in a function that holds several."""
        kinds = [tensor(s, g.text()) for s, g in zip((self.lhs, self.rhs, self.out), self.grids, strict=True)]
        names, lines = [f"%a{number}", f"%b{number}"], []
        args = [f"{n}: {k}" for n, k in zip(names, kinds, strict=False)]
        if self.given is not None:
            kind = tensor(self.rhs, self.given.text())
            args[1], names[1] = f"%b{number}: {kind}", f"%w{number}"
            lines.append(f"%w{number} = graph.requantize %b{number} : ({kind}) -> {kinds[1]}")
        op = self.op().replace("%a", names[0]).replace("%b", names[1])
        lines.append(f"%y{number} = {op} : ({kinds[0]}, {kinds[1]}) -> {kinds[2]}")
        return args, lines, kinds[2]

    def operands(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Stored numbers of both operands; their ends are common."""
        made = []
        for shape, grid in ((self.lhs, self.grids[0]), (self.rhs, self.given or self.grids[1])):
            x = rng.integers(grid.low, grid.high, shape, endpoint=True)
            ends = np.where(rng.random(shape) < 0.5, grid.low, grid.high)
            made.append(np.where(rng.random(shape) < 0.2, ends, x).astype(CONTAINERS[grid.storage]))
        return made[0], made[1]

    def model(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """What is stored for the result."""
        left, right, made = self.grids
        b = b if self.given is None else right.requantized(b, self.given)
        wide_a, wide_b = left.whole(a), right.whole(b)
        sums = (
            convolved(
                wide_a,
                wide_b,
                self.out,
                self.strides,
                self.low,
                self.high,
                self.spread,
                self.dilation,
                self.groups,
            )
            if self.is_conv
            else wide_a @ wide_b
        )
        many = max(len(right.scales), len(made.scales))
        ours, theirs = (s * (many // len(s)) for s in (made.scales, right.scales))
        factors = np.asarray([left.scales[0] * b / a for a, b in zip(ours, theirs, strict=True)])
        return made.stored(sums, factors)


def convolved(
    a: np.ndarray,
    b: np.ndarray,
    out: Sequence[int],
    strides: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    spread: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> np.ndarray:
    """A convolution in NHWC with HWIO weights, in the type of its operands; out: the shape of the result."""
    n, h, w, c = a.shape
    sizes = [(d - 1) * s + 1 for d, s in zip((h, w), spread, strict=True)]
    room = np.zeros((n, *(s + lo + hi for s, lo, hi in zip(sizes, low, high, strict=True)), c), a.dtype)
    (top, left), (down, right) = low, spread
    room[:, top : top + sizes[0] : down, left : left + sizes[1] : right] = a
    made = np.zeros(out, a.dtype)
    each, features = c // groups, b.shape[3] // groups
    for i, j in product(range(b.shape[0]), range(b.shape[1])):
        rows = np.arange(out[1]) * strides[0] + i * dilation[0]
        cols = np.arange(out[2]) * strides[1] + j * dilation[1]
        met = room[:, rows][:, :, cols]
        for g in range(groups):
            mine = slice(g * features, (g + 1) * features)
            made[..., mine] += met[..., g * each : (g + 1) * each] @ b[i, j, :, mine]
    return made


def module(layers: list[Layer]) -> str:
    """A graph-level function that computes all layers, each of its own operands."""
    bodies = [layer.body(i) for i, layer in enumerate(layers)]
    args = ", ".join(a for b in bodies for a in b[0])
    kinds = ", ".join(b[2] for b in bodies)
    lines = "\n  ".join(line for b in bodies for line in b[1])
    results = ", ".join(f"%y{i}" for i in range(len(layers)))
    return f"func.func @main({args}) -> ({kinds}) {{\n  {lines}\n  func.return {results} : {kinds}\n}}\n"


# -- drawing -------------------------------------------------------------------------------------------------


def _grid(
    rng: np.random.Generator, storage: str, spread: float, blocks: int = NO_BLOCKS, axis: int = 0
) -> Grid:
    """A random grid; `blocks` scales along `axis`, or one."""
    low, high = RANGES[storage]
    if rng.random() < 0.3 and low < 0:
        low += 1  # symmetric
    many = blocks or 1
    kind = rng.integers(4)
    zero = {0: np.zeros(many), 1: np.full(many, low), 2: np.full(many, high)}.get(int(kind))
    zeros = rng.integers(low, high, many, endpoint=True) if zero is None else zero
    if low > 0 or high < 0 or not low <= zeros[0] <= high:
        zeros = np.full(many, low)
    scales = spread * 2.0 ** rng.uniform(-2, 2, many)
    return Grid(
        storage, tuple(map(float, scales)), tuple(int(z) for z in zeros), low, high, axis if blocks else None
    )


def _grids(rng: np.random.Generator, taps: int, features: int, axis: int) -> tuple[Grid, Grid, Grid]:
    left = _grid(rng, str(rng.choice(["i8", "i8", "ui8"])), 0.02)
    per_feature = bool(features and rng.random() < 0.6)
    right = _grid(rng, str(rng.choice(["i8", "i8", "i8", "ui8"])), 0.01, features if per_feature else 0, axis)
    if rng.random() < 0.6:  # weights are symmetric more often than not
        right = Grid(
            right.storage,
            right.scales,
            (max(right.low, 0),) * len(right.zeros),
            right.low,
            right.high,
            right.axis,
        )
    # sums of `taps` products, from far within what is stored to far beyond
    typical = left.scales[0] * float(np.mean(right.scales)) * 70 * 70 * np.sqrt(max(1, taps))
    made = _grid(rng, str(rng.choice(["i8", "i8", "ui8"])), typical / 100 * 2.0 ** rng.uniform(-3, 3))
    return left, right, Grid(made.storage, made.scales, made.zeros[:1], made.low, made.high)


EXTENTS = (1, 2, 3, 5, 7, 13, 16, 17, 31, 32, 33, 64)


def random_layer(rng: np.random.Generator) -> Layer:
    """A product of matrices, a convolution, a grouped or a depthwise one; some with weights that come in i4, or
    with a scale for each group."""
    layer = _random_product(rng)
    often = 0.4 if len(layer.rhs) == 2 else 0.12
    return _stored_otherwise(rng, layer) if rng.random() < often else layer


def _stored_otherwise(rng: np.random.Generator, layer: Layer) -> Layer:
    """A layer whose weights are requantized first: to 4 bits, or from scales of groups."""
    left, right, made = layer.grids
    k = layer.rhs[0]
    sizes = [g for g in (1, 2, 4, 8, 16, 31, 32) if k and k % g == 0]
    if len(layer.rhs) == 2 and sizes and layer.rhs[1] and rng.random() < 0.6:
        size = int(rng.choice(sizes))
        many = k // size * layer.rhs[1]
        zeros = rng.integers(-128, 127, many, endpoint=True) if rng.random() < 0.4 else np.zeros(many, int)
        scales = right.scales[0] * 2.0 ** rng.uniform(-2, 2, many)
        given = Grid("i8", tuple(map(float, scales)), tuple(map(int, zeros)), -128, 127, None, size)
        right = replace(right, scales=right.scales[:1], zeros=right.zeros[:1], axis=None)
    else:
        given = Grid("i8", right.scales, (0,) * len(right.scales), -128, 127, right.axis)
        zeros = (
            rng.integers(-8, 7, len(right.zeros), endpoint=True)
            if rng.random() < 0.4
            else np.zeros(len(right.zeros), int)
        )
        scales = tuple(s * float(rng.choice([1.0, 16.0, 20.0])) for s in right.scales)
        right = Grid("i4", scales, tuple(map(int, zeros)), -8, 7, right.axis)
    return replace(layer, grids=(left, right, made), given=given)


def _random_product(rng: np.random.Generator) -> Layer:
    if rng.random() < 0.4:
        m, k, n = (int(rng.choice(EXTENTS)) for _ in range(3))
        if rng.random() < 0.06:
            m, k, n = ((0 if i == rng.integers(3) else v) for i, v in enumerate((m, k, n)))
        if rng.random() < 0.25:
            b = int(rng.choice([1, 2, 5]))
            return Layer((b, m, k), (b, k, n), (b, m, n), _grids(rng, k, n, 2))
        return Layer((m, k), (k, n), (m, n), _grids(rng, k, n, 1))
    groups = int(rng.choice([1, 1, 1, 2, 3]))
    each, features = int(rng.choice([1, 2, 3, 8, 16])), int(rng.choice([1, 2, 5, 16]))
    if rng.random() < 0.3:  # depthwise
        groups, each, features = int(rng.choice([3, 8, 17])), 1, int(rng.choice([1, 2]))
    window = [int(rng.choice([1, 2, 3])) for _ in range(2)]
    strides, dilation = ([int(rng.choice([1, 1, 2])) for _ in range(2)] for _ in range(2))
    spread = [int(rng.choice([1, 1, 1, 2])) for _ in range(2)]
    low, high = ([int(rng.choice([0, 0, 1, 2])) for _ in range(2)] for _ in range(2))
    extents = [int(rng.choice([5, 6, 7, 9])) for _ in range(2)]
    out = [
        ((n - 1) * s + 1 + lo + hi - ((z - 1) * d + 1)) // t + 1
        for n, s, lo, hi, z, d, t in zip(extents, spread, low, high, window, dilation, strides, strict=True)
    ]
    lhs = (int(rng.choice([1] * 9 + [2] * 10 + [0])), *extents, groups * each)
    rhs = (*window, each, groups * features)
    taps = each * window[0] * window[1]
    return Layer(
        lhs, rhs, (lhs[0], *out, rhs[3]), _grids(rng, taps, rhs[3], 3),
        (strides[0], strides[1]), (low[0], low[1]), (high[0], high[1]), (spread[0], spread[1]),
        (dilation[0], dilation[1]), groups,
    )  # fmt: skip
