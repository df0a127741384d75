"""Random chains of layers in graph-level text with quantized types: products whose results are the next one's inputs,
requantized between them, or floats that are quantized again. Each value is text, and a model in numpy integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from layers import CONTAINERS, RANGES, Grid, Layer, tensor

F32 = np.float32
MOST_ELEMENTS = 3_000
EXTENTS = (1, 2, 3, 5, 7, 8, 13, 16, 17, 31)
Env = list[np.ndarray]
Rule = Callable[[Env], np.ndarray]


@dataclass(frozen=True)
class Value:
    """A value: its name, its shape, and how it is stored, None for f32."""

    name: str
    shape: tuple[int, ...]
    grid: Grid | None

    @property
    def kind(self) -> str:
        return tensor(self.shape, self.grid.text() if self.grid else "f32")


class StoredChain:
    """A chain in the making. `text` is the module, `model` what it gives for its arguments."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(9000 + seed)
        self.args: list[Value] = []
        self.values: list[Value] = []
        self.lines: list[str] = []
        self.rules: list[Rule | None] = []
        self.taken: set[int] = set()

    # -- text and model --------------------------------------------------------------------------------------

    @property
    def results(self) -> list[int]:
        """The values that the program gives: those that nothing takes."""
        return [i for i, rule in enumerate(self.rules) if rule is not None and i not in self.taken]

    def text(self) -> str:
        args = ", ".join(f"{v.name}: {v.kind}" for v in self.args)
        results = [self.values[i] for i in self.results]
        kinds, names = ", ".join(v.kind for v in results), ", ".join(v.name for v in results)
        lines = "\n  ".join(self.lines)
        return f"func.func @main({args}) -> ({kinds}) {{\n  {lines}\n  func.return {names} : {kinds}\n}}\n"

    def operands(self) -> list[np.ndarray]:
        """Stored numbers of all arguments; their ends are common."""
        made = []
        for v in self.args:
            assert v.grid is not None
            x = self.rng.integers(v.grid.low, v.grid.high, v.shape, endpoint=True)
            ends = np.where(self.rng.random(v.shape) < 0.5, v.grid.low, v.grid.high)
            made.append(np.where(self.rng.random(v.shape) < 0.1, ends, x).astype(CONTAINERS[v.grid.storage]))
        return made

    def model(self, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What is stored for the results; f32 numbers of those that are no integers."""
        env: Env = []
        given = iter(args)
        for rule in self.rules:
            env.append(next(given).astype(np.int64) if rule is None else rule(env))
        return [env[i] for i in self.results]

    def put(
        self, line: str, shape: Sequence[int], grid: Grid | None, takes: Sequence[int], rule: Rule
    ) -> int:
        """One more value: `line` is the op and its properties."""
        value = Value(f"%v{len(self.values)}", tuple(shape), grid)
        given = [self.values[i] for i in takes]
        op, _, properties = line.partition(" ")
        operands = ", ".join(v.name for v in given)
        kinds = f"({', '.join(v.kind for v in given)}) -> {value.kind}"
        self.lines.append(f"{value.name} = {op} {operands} {properties} : {kinds}")
        self.values.append(value)
        self.rules.append(rule)
        self.taken.update(takes)
        return len(self.values) - 1

    # -- numbers ---------------------------------------------------------------------------------------------

    def one(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def likely(self, chance: float) -> bool:
        return bool(self.rng.random() < chance)

    def grid(
        self, spread: float, storages: Sequence[str], shape: Sequence[int], axis: int | None = None
    ) -> Grid:
        """A grid whose numbers reach to about `spread`; with scales along `axis`, or one."""
        storage = self.one(*storages)
        low, high = RANGES[storage]
        if low < 0 and self.likely(0.3):
            low += 1
        many = 1 if axis is None else shape[axis]
        scales = spread / (high - low) * 2 * 2.0 ** self.rng.uniform(-1.5, 1.5, many)
        zero = self.one(low, high, 0 if low < 0 else 128, int(self.rng.integers(low, high + 1)))
        zeros = [zero] * many if self.likely(0.5) else self.rng.integers(low, high, many, endpoint=True)
        if storage == "i16":
            zeros = [0] * many if self.likely(0.5) else zeros
        return Grid(storage, tuple(map(float, scales)), tuple(map(int, zeros)), low, high, axis)

    def argument(self, shape: Sequence[int], grid: Grid) -> int:
        value = Value(f"%a{len(self.args)}", tuple(int(n) for n in shape), grid)
        self.args.append(value)
        self.values.append(value)
        self.rules.append(None)
        return len(self.values) - 1

    def reach(self, i: int) -> float:
        """About how large the numbers of a value are."""
        grid = self.values[i].grid
        return 4.0 if grid is None else grid.scales[0] * (grid.high - grid.low) / 2

    # -- ops -------------------------------------------------------------------------------------------------

    def layer(self, layer: Layer, x: int, w: int) -> int:
        """A product of two values, as a layer of its own would be."""
        made = layer.grids[2]
        return self.put(
            layer.op().replace("%a, %b ", ""),
            layer.out,
            made,
            [x, w],
            lambda env: layer.model(env[x], env[w]),
        )

    def requantized(self, i: int, storages: Sequence[str], axis: int | None = None) -> int:
        source = self.values[i]
        assert source.grid is not None
        several = source.grid.axis is not None
        if several and axis not in (None, source.grid.axis):
            axis = None
        grid = self.grid(self.reach(i) * self.one(0.3, 1.0, 1.0, 3.0), storages, source.shape, axis)
        return self.put(
            "graph.requantize", source.shape, grid, [i], lambda env: grid.requantized(env[i], source.grid)
        )  # fmt: skip

    def through_floats(self, i: int) -> int:
        """Floats of a value, a relu or another value's floats added, and what is stored for them."""
        x = self.dequantized(i)
        shape = self.values[x].shape
        if self.likely(0.5):
            x = self.put("graph.neg", shape, None, [x], lambda env, x=x: -env[x])
        others = [j for j, v in enumerate(self.values) if v.shape == shape and v.grid is not None and j != i]
        if others and self.likely(0.6):
            y = self.dequantized(self.one(*others))
            op, rule = self.one(("add", np.add), ("max", np.maximum), ("sub", np.subtract))
            x = self.put(f"graph.{op}", shape, None, [x, y], lambda env, x=x, y=y: rule(env[x], env[y]))
        grid = self.grid(self.reach(i) * self.one(0.3, 1.0, 2.0), ("i8", "i8", "ui8"), shape)

        def rule_of(env: Env) -> np.ndarray:
            scaled = np.rint(env[x].astype(F32) * F32(1 / grid.scales[0])).astype(np.float64)
            return np.clip(scaled + grid.zeros[0], grid.low, grid.high).astype(np.int64)

        return self.put("graph.quantize", shape, grid, [x], rule_of)

    def dequantized(self, i: int) -> int:
        value = self.values[i]
        grid = value.grid
        assert grid is not None

        def rule(env: Env) -> np.ndarray:
            scales = grid.over(grid.scales, value.shape)
            return grid.whole(env[i]).astype(F32) * np.asarray(scales).astype(F32)

        return self.put("graph.dequantize", value.shape, None, [i], rule)

    def moved(self, i: int) -> int:
        """Elements in another order, or some of them."""
        value = self.values[i]
        grid, shape, rank = value.grid, value.shape, len(value.shape)
        assert grid is not None
        kind = self.one("transpose", "slice", "reverse", "concat")
        if grid.axis is not None and kind != "transpose":
            return i
        if kind == "transpose":
            perm = [int(d) for d in self.rng.permutation(rank)] if rank < 4 else [0, 2, 1, 3]
            if grid.axis is not None:
                return i
            made = [shape[d] for d in perm]
            return self.put(
                f"graph.transpose {{perm = {perm}}}", made, grid, [i], lambda env: env[i].transpose(perm)
            )
        if kind == "slice":
            d = int(self.rng.integers(rank))
            starts, limits, strides = [0] * rank, [*shape], [1] * rank
            if shape[d] > 1:
                starts[d], strides[d] = self.one((1, 1), (0, 2), (1, 2))
            cut = tuple(map(slice, starts, limits, strides))
            made = np.empty(shape, bool)[cut].shape
            line = f"graph.slice {{limits = {limits}, starts = {starts}, strides = {strides}}}"
            return self.put(line, made, grid, [i], lambda env: env[i][cut])
        d = int(self.rng.integers(rank))
        if kind == "reverse":
            return self.put(
                f"graph.reverse {{dims = [{d}]}}", shape, grid, [i], lambda env: np.flip(env[i], d)
            )
        made = [n * 2 if k == d else n for k, n in enumerate(shape)]
        return self.put(
            f"graph.concat {{dim = {d}}}", made, grid, [i, i], lambda env: np.concatenate([env[i], env[i]], d)
        )  # fmt: skip

    def product(self, x: int) -> int:
        """A product of a value and new weights."""
        shape = self.values[x].shape
        left = self.values[x].grid
        assert left is not None
        features = int(self.one(1, 2, 3, 5, 8, 16, 17))
        facts: dict[str, Any] = {}
        if len(shape) == 4:
            groups = self.one(*[g for g in (1, 1, 1, 2, 3, shape[3]) if shape[3] % g == 0])
            features = groups * max(1, features // groups)
            size = [self.one(1, 2, 3) for _ in range(2)]
            low, high = ([self.one(0, 0, 1, 2) for _ in range(2)] for _ in range(2))
            dilation, strides = ([self.one(1, 1, 2) for _ in range(2)] for _ in range(2))
            room = zip(shape[1:3], low, high, size, dilation, strides, strict=True)
            out = [(n + lo + hi - (z - 1) * d - 1) // s + 1 for n, lo, hi, z, d, s in room]
            if min(out) < 1:
                size, low, high, dilation, strides, out = (
                    [1, 1],
                    [0, 0],
                    [0, 0],
                    [1, 1],
                    [1, 1],
                    [*shape[1:3]],
                )
            rhs, made, axis = (*size, shape[3] // groups, features), (shape[0], *out, features), 3
            facts = {
                "strides": tuple(strides),
                "low": tuple(low),
                "high": tuple(high),
                "dilation": tuple(dilation),
                "groups": groups,
            }
        else:
            *rest, k = shape
            rhs, made = (*rest[:-1], k, features), (*rest, features)
            axis = len(rhs) - 1
        taps = int(np.prod(rhs[:-1] if len(shape) == 4 else rhs[-2:-1]))
        per_feature = self.likely(0.6)
        right = self.grid(1.0, ("i8", "i8", "i8", "ui8"), rhs, axis if per_feature else None)
        if self.likely(0.6):
            right = Grid(
                right.storage,
                right.scales,
                (max(right.low, 0),) * len(right.zeros),
                right.low,
                right.high,
                right.axis,
            )
        w = self.argument(rhs, right)
        if self.likely(0.2):
            w = self.requantized(w, ("i4",), axis if per_feature else None)
        right = self.values[w].grid
        assert right is not None
        sums = self.reach(x) * self.reach(w) * np.sqrt(max(1, taps)) * 0.6
        result = self.grid(
            sums * self.one(0.3, 1.0, 1.0, 2.0),
            ("i8", "i8", "ui8"),
            made,
            len(made) - 1 if self.likely(0.1) and per_feature else None,
        )
        return self.layer(Layer(shape, rhs, made, (left, right, result), **facts), x, w)

    def draw(self) -> None:
        """A chain of 2 to 8 products."""
        count = int(self.rng.choice([2, 3, 4, 5, 6, 8], p=[0.32, 0.32, 0.18, 0.1, 0.05, 0.03]))
        n = self.one(1, 2, 3)
        shape = self.one(
            (n, self.one(3, 5, 6, 7, 9), self.one(3, 4, 7), self.one(1, 2, 3, 8, 16)),
            (self.one(*EXTENTS), self.one(*EXTENTS)),
            (n, self.one(*EXTENTS), self.one(*EXTENTS)),
        )
        v = self.argument(shape, self.grid(4.0, ("i8", "i8", "ui8"), shape))
        for _ in range(count):
            if self.likely(0.12):  # two consumers of one value
                v = self.one(*self.wide())
            if np.prod(self.values[v].shape) > MOST_ELEMENTS:
                v = self.cut(v)
            v = self.product(v)
            grid = self.values[v].grid
            assert grid is not None
            if grid.axis is not None or self.likely(0.4):
                v = self.one(self.through_floats, lambda v: self.requantized(v, ("i8", "ui8")))(v)
            elif self.likely(0.1):
                v = self.requantized(self.requantized(v, ("i16",)), ("i8",))
            v = self.moved(v) if self.likely(0.35) else v

    def wide(self) -> list[int]:
        """The values that a product may take."""
        return [
            i
            for i, v in enumerate(self.values)
            if v.grid is not None
            and v.grid.axis is None
            and v.grid.storage in ("i8", "ui8")
            and (i == 0 or self.rules[i] is not None)
        ]

    def cut(self, v: int) -> int:
        """The first of the rows of a value that is too large."""
        value = self.values[v]
        limits = [1, *value.shape[1:]]
        line = (
            f"graph.slice {{limits = {limits}, starts = {[0] * len(limits)}, strides = {[1] * len(limits)}}}"
        )
        return self.put(line, limits, value.grid, [v], lambda env: env[v][:1])


def drawn(seed: int) -> StoredChain:
    """Chain number `seed`."""
    made = StoredChain(seed)
    made.draw()
    return made
