"""Blocks of public nets, with random variations: each takes the value that there is and gives the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..generate import Program
from ..spellings.writer import FLOATS, Writer
from . import layers

ACTIVATIONS = ("jax.nn.relu", "jax.nn.relu6", "jax.nn.silu", "gelu_exact", "gelu_tanh", "hard_swish", "quick_gelu")
GATES = ("jax.nn.silu", "gelu_exact", "gelu_tanh", "jax.nn.sigmoid", "jax.nn.relu")
ATTENTIONS = ("attend_matmul", "attend_einsum", "attend_library", "attend_vmap", "heads_first")


@dataclass
class Stack:
    """A stack that grows: its current value, and the choices of its net. layout: of images; norm, act: as all of its
    layers have them."""

    w: Writer
    x: str = ""
    dtype: str = "float32"
    layout: str = "NHWC"
    norm: str = "batch"
    act: str = "jax.nn.relu"

    @staticmethod
    def of(seed: int) -> Stack:
        w = Writer(seed, small=False)
        w.known = dict(vars(layers))
        made = Stack(w)
        made.dtype = w.choose(FLOATS)
        made.layout = w.choose(("NHWC", "NHWC", "NCHW"))
        made.norm = w.choose(("batch", "batch", "batch", "group", "of_batch", "none"))
        made.act = w.choose(ACTIVATIONS)
        return made

    def program(self) -> Program:
        w = self.w
        main = w.finished([self.x]).main
        return Program(w.seed, False, main, dict(w.inputs), w.types, library=layers)

    # -- values --------------------------------------------------------------------------------------------

    def shape(self, name: str = "") -> tuple[int, ...]:
        return self.w.types[name or self.x].shape

    def start(self, *shape: int, dtype: str = "", kind: str = "plain") -> str:
        self.x = self.w.taken(shape, dtype or self.dtype, kind)
        return self.x

    def image(self, batch: int, size: int, channels: int) -> str:
        sides = (size, size, channels) if self.layout == "NHWC" else (channels, size, size)
        return self.start(batch, *sides)

    def weights(self, *shape: int) -> str:
        return self.w.taken(shape, self.dtype)

    def call(self, name: str, *arguments: Any, **named: Any) -> str:
        """The value of a layer; its name is `name`'s, and text arguments are values."""
        given = [str(a) for a in arguments] + [f"{k}={v!r}" for k, v in named.items()]
        self.x = self.w.line(f"{name}({', '.join(given)})", name.split(".")[-1])
        return self.x

    def add(self, other: str) -> str:
        self.x = self.w.line(f"{other} + {self.x}", "residual")
        return self.x

    def activate(self, name: str = "") -> str:
        return self.call(name or self.act, self.x)

    # -- images --------------------------------------------------------------------------------------------

    @property
    def channels(self) -> int:
        return self.shape()[-1 if self.layout == "NHWC" else 1]

    @property
    def size(self) -> int:
        return self.shape()[1 if self.layout == "NHWC" else 2]

    def conv(
        self, out: int, window: int = 3, stride: int = 1, groups: int = 1, dilation: int = 1, bias: bool = False
    ) -> str:
        c = self.channels
        place = (window, window)
        shape = (*place, c // groups, out) if self.layout == "NHWC" else (out, c // groups, *place)
        named: dict[str, Any] = {"stride": stride, "groups": groups, "dilation": dilation}
        self.call("conv", self.x, self.weights(*shape), repr(self.layout), **named)
        if bias:
            self.x = self.w.line(f"{self.x} + along({self.weights(out)}, {self.layout!r})", "bias")
        return self.x

    def normed(self) -> str:
        c = self.channels
        if self.norm == "batch":
            numbers = [self.weights(c) for _ in range(4)]
            return self.call("batch_norm", self.x, *numbers, repr(self.layout))
        if self.norm == "of_batch":
            return self.call("batch_norm_of_batch", self.x, self.weights(c), self.weights(c), repr(self.layout))
        if self.norm == "group":
            groups = next(n for n in (32, 16, 8, 3, 2, 1) if c % n == 0)
            return self.call("group_norm", self.x, self.weights(c), self.weights(c), groups, repr(self.layout))
        return self.x

    def unit(self, out: int, window: int = 3, **named: Any) -> str:
        """Convolution, norm, activation."""
        self.conv(out, window, **named)
        self.normed()
        return self.activate()

    def squeeze_excite(self, part: int = 4) -> str:
        c = self.channels
        m = max(c // part, 1)
        numbers = [self.weights(c, m), self.weights(m), self.weights(m, c), self.weights(c)]
        return self.call("squeeze_excite", self.x, *numbers, repr(self.layout))

    def pool(self, kind: str, size: int, stride: int) -> str:
        return self.call("pool", self.x, repr(kind), size, stride, repr(self.layout))

    def concat(self, *parts: str) -> str:
        return self.call("concat", f"[{', '.join(parts)}]", repr(self.layout))

    def head(self, classes: int) -> str:
        """A classifier."""
        self.call("global_pool", self.x, repr(self.layout))
        return self.linear(classes)

    # -- tokens --------------------------------------------------------------------------------------------

    def linear(self, out: int, bias: bool = True, x: str = "") -> str:
        x = x or self.x
        c = self.shape(x)[-1]
        more = [self.weights(out)] if bias else []
        if self.w.chance(0.25):
            return self.call("linear_transposed", x, self.weights(out, c), *more)
        return self.call("linear", x, self.weights(c, out), *more)

    def layer_norm(self, kind: str = "") -> str:
        c = self.shape()[-1]
        kind = kind or self.w.choose(("layer_norm", "layer_norm_wide"))
        more = [] if kind == "rms_norm" else [self.weights(c)]
        return self.call(kind, self.x, self.weights(c), *more)

    def attention(
        self, heads: int, kept: int = 0, kind: str = "", other: str = "", rotary: bool = False, bias: bool = True
    ) -> str:
        """Projections, attention of x to itself or to other tokens, and the projection of its result. kept: heads of
        keys."""
        x, c = self.x, self.shape()[-1]
        size, kept = c // heads, kept or heads
        source = other or x
        fused = not other and kept == heads and self.w.chance(0.4)
        if fused:
            self.linear(3 * c, bias)
            parts = [self.w.line(f"{p}", "split") for p in self._thirds(self.x, c)]
        else:
            parts = [
                self.linear(heads * size, bias, x),
                self.linear(kept * size, bias, source),
                self.linear(kept * size, bias, source),
            ]
        counts = (heads, kept, kept)
        q, k, v = (self.call("split_heads", p, n) for p, n in zip(parts, counts, strict=True))
        if rotary:
            q, k = self.call("rotary", q), self.call("rotary", k)
        added = ""
        if self.w.chance(0.2):
            added = self.weights(heads, self.shape(q)[1], self.shape(k)[1])
        self._attend(q, k, v, kind, added)
        self.call("merge_heads", self.x)
        return self.linear(c, bias)

    def _thirds(self, x: str, c: int) -> list[str]:
        if self.w.chance(0.5):
            return [f"{x}[..., {i * c}:{(i + 1) * c}]" for i in range(3)]
        return [f"jnp.split({x}, 3, axis=-1)[{i}]" for i in range(3)]

    def _attend(self, q: str, k: str, v: str, kind: str, bias: str) -> str:
        name = self.w.choose(ATTENTIONS)
        more = [f"bias={bias if name != 'attend_library' else f'{bias}[None]'}"] if bias else []
        return self.call(name, q, k, v, repr(kind), *more)

    def mlp(self, hidden: int, gated: bool = False, bias: bool = True) -> str:
        c, x = self.shape()[-1], self.x
        if gated:
            gate = self.linear(hidden, bias)
            gate = self.activate(self.w.choose(GATES))
            up = self.linear(hidden, bias, x)
            self.x = self.w.line(f"{gate} * {up}", "gate")
        else:
            self.linear(hidden, bias)
            self.activate(self.w.choose(ACTIVATIONS))
        return self.linear(c, bias)
