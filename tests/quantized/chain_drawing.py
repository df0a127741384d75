"""Draws programs of `chain_programs.py`: chains of 2 to 8 products, with what nets have between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from chain_programs import FLOAT_MODES, PRODUCTS, STATIC, TARGETS, WHOLE, ChainProgram, Choice, Step

EXTENTS = (1, 2, 3, 5, 7, 8, 13, 16, 17, 31)
MOST_ELEMENTS = 3_000
FEATURES_FIRST = ("left",)


class Drawing:
    """A program in the making."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(5000 + seed)
        self.dtype = np.float16 if self.rng.random() < 0.2 else np.float32
        self.steps: list[Step] = []
        self.shapes: list[tuple[int, ...]] = []
        self.params: dict[str, np.ndarray] = {}

    # -- parts -----------------------------------------------------------------------------------------------

    def one(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def likely(self, chance: float) -> bool:
        return bool(self.rng.random() < chance)

    def put(self, kind: str, args: Sequence[int], shape: Sequence[int], param: str = "", **facts: Any) -> int:
        self.steps.append(Step(kind, tuple(args), param, facts))
        self.shapes.append(tuple(int(n) for n in shape))
        return len(self.steps) - 1

    def numbers(self, *shape: int, over: float = 1.0) -> np.ndarray:
        return (self.rng.standard_normal(shape) / over).astype(self.dtype)

    def parameter(self, array: np.ndarray) -> str:
        name = f"p{len(self.params)}"
        self.params[name] = array
        return name

    def weights(self, shape: tuple[int, ...], summed: int) -> str:
        """The name of weights: new ones, or others of the same shape."""
        same = [n for n, p in self.params.items() if p.shape == shape and n.startswith("w")]
        if same and self.likely(0.3):
            return self.one(*same)
        w = self.numbers(*shape, over=np.sqrt(max(1, summed)))
        if self.likely(0.1):
            w[..., 0] = 0
        if self.likely(0.1):
            w = (w * 2.0 ** self.rng.uniform(-6, 3, shape[-1])).astype(self.dtype)
        name = f"w{len(self.params)}"
        self.params[name] = w
        return name

    # -- steps -----------------------------------------------------------------------------------------------

    def product(self, v: int) -> tuple[int, tuple[int, ...]]:
        """A product of a value, and its feature dimensions."""
        shape, out = self.shapes[v], int(self.one(1, 2, 3, 5, 8, 16, 17, 20))
        if len(shape) == 4:
            return self.conv(v)
        if len(shape) == 3:
            b, t, k = shape
            kind = self.one("dot", "dot", "batched", "heads")
            if kind == "heads":
                h, c = self.one(1, 2, 3), self.one(2, 4, 5)
                return self.put("heads", [v], (b, t, h, c), self.weights((k, h, c), k)), (2, 3)
            wide = (b, k, out) if kind == "batched" else (k, out)
            return self.put(kind, [v], (b, t, out), self.weights(wide, k)), (2,)
        n, k = shape
        kind = self.one("dot", "dot", "transposed", "left")
        if kind == "left":
            return self.put("left", [v], (out, k), self.weights((out, n), n)), (0,)
        wide = (out, k) if kind == "transposed" else (k, out)
        return self.put(kind, [v], (n, out), self.weights(wide, k)), (1,)

    def conv(self, v: int) -> tuple[int, tuple[int, ...]]:
        n, h, w, c = self.shapes[v]
        size = [self.one(1, 2, 3) if extent >= 3 else 1 for extent in (h, w)]
        dilation = [self.one(1, 1, 2) if extent >= 5 else 1 for extent in (h, w)]
        strides = [self.one(1, 1, 1, 2) if extent >= 4 else 1 for extent in (h, w)]
        spans = [(z - 1) * d + 1 for z, d in zip(size, dilation, strict=True)]
        pads = [
            (span // 2, (span - 1) // 2) if self.likely(0.6) else self.one((0, 0), (0, 1), (1, 0))
            for span in spans
        ]
        groups = self.one(*[g for g in (1, 1, 1, 2, 3, c) if c % g == 0])
        features = groups * self.one(*[f for f in (1, 2, 3, 4, 8, 16, 17) if f * groups <= 24] or [1])
        extents = [
            (e + lo + hi - span) // s + 1
            for e, (lo, hi), span, s in zip((h, w), pads, spans, strides, strict=True)
        ]
        name = self.weights((*size, c // groups, features), size[0] * size[1] * c // groups)
        facts: dict[str, Any] = {"strides": strides, "pads": pads, "dilation": dilation, "groups": groups}
        return self.put("conv", [v], (n, *extents, features), name, **facts), (3,)

    def affine(self, v: int, dims: tuple[int, ...]) -> int:
        """A bias, a batch norm, or another mixture of factors and numbers that are added."""
        kinds = self.one(
            ["plus"], ["plus"], ["times", "plus"], ["times", "plus"], ["minus", "times", "plus"], ["times"],
            ["scaled", "plus"], ["plus", "scaled"], ["divided", "minus"], ["less"], ["less", "times", "less"],
            ["minus"],
        )  # fmt: skip
        shape = self.shapes[v]
        for kind in kinds:
            if kind == "scaled":
                v = self.put(kind, [v], shape, by=self.one(0.5, -0.25, 2.0, 0.125))
                continue
            along = dims if self.likely(0.8) else dims[-1:]
            p = self.numbers(*(shape[d] for d in along))
            if kind == "divided":
                p = (np.where(np.abs(p) < 0.25, self.dtype(0.5), p)).astype(self.dtype)
            elif kind == "times" and self.likely(0.3):
                p.reshape(-1)[:: self.one(2, 3)] = 0
            elif kind in ("plus", "minus") and self.likely(0.1):
                p = (p * 100).astype(self.dtype)
            v = self.put(kind, [v], shape, self.parameter(p), dims=along)
        return v

    def activation(self, v: int) -> int:
        kind = self.one(
            "relu", "relu", "relu", "relu6", "clip", "none", "tanh" if self.likely(0.3) else "relu"
        )
        if kind == "none":
            return v
        facts = {"low": self.one(-1.0, 0.0, -0.5), "high": self.one(0.75, 2.0)} if kind == "clip" else {}
        return self.put(kind, [v], self.shapes[v], **facts)

    def joined(self, v: int) -> int:
        """A residual or a concatenation with an earlier value of the same shape."""
        shape = self.shapes[v]
        same = [
            i for i, s in enumerate(self.shapes) if s == shape and i != v and self.steps[i].kind != "input"
        ]
        if not same:
            return v
        other = self.one(*same)
        if self.likely(0.7):
            return self.put("add", self.one([v, other], [other, v]), shape)
        dim = len(shape) - 1
        return self.put(
            "concat", [v, other], [n * 2 if d == dim else n for d, n in enumerate(shape)], dim=dim
        )

    def block(self, v: int) -> int:
        """Two products of one value that are added, or one and the value: a residual."""
        shape = self.shapes[v]
        features = shape[-1] if self.likely(0.5) else self.one(1, 4, 7, 16)
        sides = [self.same(v, features)]
        sides += [v] if features == shape[-1] and self.likely(0.7) else [self.same(v, features)]
        v = self.put("add", self.one(sides, sides[::-1]), self.shapes[sides[0]])
        return self.put("relu", [v], self.shapes[v]) if self.likely(0.6) else v

    def same(self, v: int, features: int) -> int:
        """A product whose result has the shape of a value but for its features."""
        *rest, k = self.shapes[v]
        if len(rest) < 3:
            made = self.put("dot", [v], (*rest, features), self.weights((k, features), k))
        else:
            size = self.one(1, 3)
            name = self.weights((size, size, k, features), size * size * k)
            pads = [((size - 1) // 2, size // 2)] * 2
            facts: dict[str, Any] = {"strides": [1, 1], "pads": pads, "dilation": [1, 1], "groups": 1}
            made = self.put("conv", [v], (*rest, features), name, **facts)
        return self.affine(made, (len(rest),)) if self.likely(0.7) else made

    def branch(self) -> None:
        """A result of elementwise work on the input of a convolution, which then has two consumers."""
        inputs = [s.args[0] for s in self.steps if s.kind == "conv"]
        if inputs:
            v = self.one(*inputs)
            self.one(self.activation, self.joined, self.rearranged, lambda v: self.affine(v, (3,)))(v)

    def rearranged(self, v: int) -> int:
        """A pool, or a move of elements."""
        shape = self.shapes[v]
        kinds = ["reverse", "slice", "transpose"]
        if len(shape) == 4:
            kinds += ["largest"] * 4 + ["average", "mean", "flat", "flat"]
        elif len(shape) == 3:
            kinds += ["flat"]
        match self.one(*kinds):
            case "largest" | "average" as kind if min(shape[1:3]) >= 2:
                size, stride = self.one(2, 2, 3) if min(shape[1:3]) >= 3 else 2, self.one(1, 2, 2)
                pads = [
                    self.one((0, 0), (0, 0), (1, 0), (1, 1)) if kind == "largest" else (0, 0)
                    for _ in range(2)
                ]
                extents = [
                    (e + lo + hi - size) // stride + 1 for e, (lo, hi) in zip(shape[1:3], pads, strict=True)
                ]
                return self.put(
                    kind, [v], (shape[0], *extents, shape[3]), size=size, stride=stride, pads=pads
                )
            case "mean":
                return self.put("mean", [v], (shape[0], shape[3]))
            case "flat":
                flat = (shape[0], int(np.prod(shape[1:])))
                return self.put("reshape", [v], flat, to=flat)
            case "reverse":
                return self.put("reverse", [v], shape, dim=int(self.rng.integers(len(shape))))
            case "transpose" if len(shape) > 1:
                perm = [int(d) for d in self.rng.permutation(len(shape))]
                if len(shape) == 4:
                    perm = self.one([0, 2, 1, 3], [0, 1, 2, 3], [0, 2, 1, 3])
                if perm == list(range(len(shape))):
                    return v  # JAX makes nothing of it, so it would be a move in the model only
                return self.put("transpose", [v], [shape[d] for d in perm], perm=perm)
            case "slice":
                parts = [(0, n, 1) for n in shape]
                d = int(self.rng.integers(len(shape)))
                if shape[d] == 1:
                    return v  # all of it, of which JAX makes nothing either
                parts[d] = self.one((1, shape[d], 1), (0, shape[d] - 1, 1), (0, shape[d], 2))
                return self.put("slice", [v], [len(range(*p)) for p in parts], parts=parts)
        return v

    def program(self, target: str) -> ChainProgram:
        rng = self.rng
        count = int(rng.choice([2, 3, 4, 5, 6, 8], p=[0.32, 0.32, 0.18, 0.1, 0.05, 0.03]))
        n = self.one(1, 2, 3)
        if self.likely(0.6):
            shape = (n, *(self.one(3, 4, 5, 6, 7, 9) for _ in range(2)), self.one(1, 2, 3, 4, 6, 8, 16))
        elif self.likely(0.5):
            shape = (n, self.one(*EXTENTS), self.one(*EXTENTS))
        else:
            shape = (self.one(*EXTENTS), self.one(*EXTENTS))
        v = self.put("input", [], shape)
        while sum(s.kind in PRODUCTS for s in self.steps) < count:
            if self.likely(0.12):  # two consumers of one value
                v = self.one(*range(len(self.steps)))
            if np.prod(self.shapes[v]) > MOST_ELEMENTS:
                v = self.put(
                    "slice",
                    [v],
                    (1, *self.shapes[v][1:]),
                    parts=[(0, 1, 1), *((0, k, 1) for k in self.shapes[v][1:])],
                )
            if self.likely(0.3):
                v = self.block(v)
                continue
            v, dims = self.product(v)
            v = self.affine(v, dims) if self.likely(0.7) else v
            v = self.joined(v) if self.likely(0.15) else v
            v = self.activation(v) if self.likely(0.7) else v
            v = self.joined(v) if self.likely(0.1) else v
            v = self.rearranged(v) if self.likely(0.35) else v
        if self.likely(0.25):
            self.branch()
        x = self.numbers(*shape)
        if self.likely(0.3):
            x = np.abs(x)
        made = ChainProgram(tuple(self.steps), tuple(self.shapes), self.params, x, target)
        return self.configured(made)

    # -- the configuration -----------------------------------------------------------------------------------

    def configured(self, program: ChainProgram) -> ChainProgram:
        """The program with a mode for each product, scales and zero points of inputs, and pins."""
        allowed = [
            m for m in FLOAT_MODES if m != "bf16" or program.target in ("ascend-910b1", "ascend-950pr")
        ]
        kind = self.rng.random()
        modes = (
            STATIC[:1]
            if kind < 0.45
            else STATIC
            if kind < 0.6
            else WHOLE
            if kind < 0.8
            else (*WHOLE, *allowed)
        )
        values, common = program.floats(), dict[int, tuple[float, int]]()
        choices, pins = {}, {}
        for at, name in program.products.items():
            step = program.steps[at]
            source = step.args[0]
            if source not in common or self.likely(0.15):
                common[source] = self.grid(values[source], step.kind == "conv")
            scale, zero = common[source]
            if step.kind == "conv" and zero and self.likely(0.7):
                zero = 0
            choices[name] = Choice(self.one(*modes), scale, zero)
            if self.likely(0.1):
                pins[name] = self.one(*modes)
        default = self.one("origin", "f16", "w8a8")
        return ChainProgram(
            program.steps, program.shapes, program.params, program.x, program.target, default, pins, choices
        )

    def grid(self, x: np.ndarray, image: bool) -> tuple[float, int]:
        """A scale and a zero point for numbers: well chosen, or so that many are saturated, or few are told apart."""
        top = max(float(np.abs(x).max(initial=0)), 1e-3)
        scale = (
            top / 127 * 2.0 ** (self.rng.uniform(-0.5, 0.5) if self.likely(0.7) else self.rng.uniform(-4, 4))
        )
        if self.likely(0.5):  # 10 bits of mantissa, as calibration gives them
            scale = float((np.float32(scale).view(np.uint32) & 0x7FFFE000).view(np.float32))
        zero = (
            self.one(-128, 127, int(self.rng.integers(-128, 128)), -128, 3)
            if self.likely(0.3 if image else 0.6)
            else 0
        )
        return scale, zero


def drawn(seed: int, target: str | None = None) -> ChainProgram:
    """Program number `seed`."""
    return Drawing(seed).program(target or TARGETS[seed % len(TARGETS)])
