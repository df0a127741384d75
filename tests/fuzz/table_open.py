"""Step generators for programs with open dimensions: those of the other tables, and some that use sizes themselves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from . import table_arrays, table_compute, table_control
from .generate import Generator, Make, Type
from .open_dims import Open

if TYPE_CHECKING:
    from .open_programs import OpenGenerator


def _own(g: Generator) -> OpenGenerator:
    return cast("OpenGenerator", g)


def _open(t: Type) -> bool:
    return any(isinstance(n, Open) for n in t.shape)


def _pick(g: Generator, low: int = 1) -> str | None:
    """A value, rather one with open dimensions."""
    return (g.chance(0.9) and g.pick(lambda t: _open(t) and t.rank >= low)) or g.pick(lambda t: t.rank >= low)


def broadcast(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank < 4)
    if x is None:
        return None
    own, t = _own(g), g.type(x)
    out, dims = [], []
    for n in t.shape:
        if g.chance(0.3) and len(out) + t.rank - len(dims) < 4:
            out.append(own.dim() if g.chance(0.6) else g.choose([1, 2, 3]))
        dims.append(len(out))
        out.append(own.dim() if n == 1 and g.chance(0.5) else n)
    if len(out) < 4 and g.chance(0.4):
        out.append(own.dim() if g.chance(0.6) else g.choose([1, 2, 7]))
    return f"lax.broadcast_in_dim({x}, {tuple(out)}, {tuple(dims)})"


def reshape(g: Generator) -> str | None:
    x = _pick(g)
    if x is None:
        return None
    shape = list(g.type(x).shape)
    d = g.rng.randrange(len(shape))
    merged = [*shape[:d], f"({shape[d]})*({shape[d + 1]})", *shape[d + 2 :]] if d + 1 < len(shape) else [-1]
    k = g.choose([2, 4, 8])
    split = [f"({shape[d]})//{k}", k]
    if g.chance(0.5):
        split.reverse()
    if not isinstance(shape[d], Open):
        factors = [i for i in range(1, shape[d] + 1) if shape[d] % i == 0]
        k = g.choose(factors) if factors else 1
        split = [k, shape[d] // k]
    options = [[-1], [shape[0], -1], [-1, shape[-1]], merged, [*shape[:d], 1, *shape[d:]]]
    options.append([*shape[:d], *split, *shape[d + 1 :]])
    return f"jnp.reshape({x}, ({', '.join(map(str, g.choose(options)))},))"


def slice_(g: Generator) -> str | None:
    x = _pick(g)
    if x is None:
        return None
    parts: list[str] = []
    for n in g.type(x).shape:
        k = g.rng.randint(0, min(int(n), 3))
        some = [":", ":", f"{k}:", "::2", "::3", "1::2", f":-{max(k, 1)}" if int(n) > k else ":"]
        if isinstance(n, Open):
            some += [f":({n})//2", f"({n})//2:", f"({n}) - {k}:", f"{k}:({n}) - 1:2"]
        parts.append(g.choose(some))
    return f"{x}[{', '.join(parts)}]"


def rows(g: Generator) -> str | None:
    """Single positions: the first, the last, one that follows from a size."""
    x = _pick(g)
    if x is None:
        return None
    parts = [
        g.choose([":", ":", ":", "0", "-1", "None, :", f"({n}) // 2" if int(n) > 0 else ":"])
        for n in g.type(x).shape
    ]
    return f"{x}[{', '.join(parts)}]"


def pad_up(g: Generator) -> str | None:
    """Up to a multiple, or by a size."""
    x = _pick(g)
    if x is None:
        return None
    config = ", ".join(
        g.choose(["(0, 0)", "(0, 1)", "(2, 0)", f"(0, -({n}) % {g.choose([2, 4, 8, 16])})"])
        for n in g.type(x).shape
    )
    return f"jnp.pad({x}, ({config},))"


def join(g: Generator) -> str | None:
    x = _pick(g)
    if x is None:
        return None
    t, own = g.type(x), _own(g)
    d = g.rng.randrange(t.rank)
    others = [(*t.shape[:d], own.dim() if g.chance(0.5) else own.fixed(8), *t.shape[d + 1 :])]
    others += [t.shape] * g.chance(0.3)
    parts = [x, *(g.value(t.dtype, shape) for shape in others)]
    g.rng.shuffle(parts)
    return f"jnp.concatenate([{', '.join(parts)}], {d})"


def counts(g: Generator) -> str | None:
    """Sizes as numbers that are computed with."""
    x = _pick(g, 0)
    if x is None:
        return None
    t, n = g.type(x), str(_own(g).dim())
    if t.floating:
        return g.choose(
            [f"{x} / ({n})", f"{x} * ({n})", f"{x} - 1 / ({n})", f"jnp.sum({x}) / jnp.sqrt({n} + 1.0)"]
        )
    if t.integral:
        return g.choose([f"{x} + ({n})", f"{x} % ({n})", f"jnp.minimum({x}, {n})"])
    return None


def positions(g: Generator) -> str | None:
    n = _own(g).dim()
    kind = g.choose(["int32", "float32", "int32"])
    return g.choose(
        [
            f"jnp.arange({n}, dtype={kind!r})",
            f"lax.broadcasted_iota(jnp.dtype({kind!r}), ({n}, {g.choose([1, 3, 8])}), {g.rng.randint(0, 1)})",
            f"jnp.arange({n})[:, None] >= jnp.arange({_own(g).dim()})[None, :]",
            f"jnp.eye({n}, dtype={kind!r})",
        ]
    )


def masked(g: Generator) -> str | None:
    """Elements before a position that follows from a size."""
    x = _pick(g)
    if x is None or g.type(x).kind == "b":
        return None
    t = g.type(x)
    d = g.rng.randrange(t.rank)
    at = f"lax.broadcasted_iota('int32', {t.shape}, {d})"
    return f"jnp.where({at} < ({t.shape[d]}) - {g.choose([0, 1, 2])}, {x}, {g.choose([0, 1])})"


def product(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank >= 1 and (t.floating or t.integral) and _open(t))
    if x is None:
        return None
    t, own = g.type(x), _own(g)
    columns = own.dim() if g.chance(0.4) else own.fixed(33)
    batch = t.shape[:-2] if g.chance(0.4) else ()
    y = g.value(t.dtype, (*batch, t.shape[-1], columns))
    scale = " * 0.2" if t.floating else ""
    if t.rank > 1 and g.chance(0.25):
        return f"jnp.einsum('...sd,...td->...st', {x}, {x}){scale}"
    return f"jnp.matmul({x}, {y}){scale}"


def attention(g: Generator) -> str | None:
    x = g.pick(lambda t: 2 <= t.rank <= 3 and t.dtype in ("float32", "float16") and _open(t))
    if x is None:
        return None
    scores = f"jnp.einsum('...sd,...td->...st', {x}, {x}) * 0.2"
    if g.chance(0.5):
        n = g.type(x).shape[-2]
        scores = f"jnp.where(jnp.tril(jnp.ones(({n}, {n}), bool)), {scores}, -1e4)"
    return f"jax.nn.softmax({scores}, axis=-1) @ {x}"


def normed(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0 and t.dtype in ("float32", "float16", "bfloat16"))
    if x is None:
        return None
    d = g.rng.randrange(g.type(x).rank)
    return g.choose(
        [
            f"jax.nn.softmax({x}, axis={d})",
            f"({x} - jnp.mean({x}, {d}, keepdims=True)) * lax.rsqrt(jnp.var({x}, {d}, keepdims=True) + 0.1)",
            f"{x} - jnp.max({x}, {d}, keepdims=True)",
            f"jax.nn.logsumexp({x}, axis={d})",
        ]
    )


def conv(g: Generator) -> str | None:
    """A convolution with an open batch, or open rows."""
    own, spatial = _own(g), g.choose([1, 2, 2])
    dtype = g.dtype([d for d in g.dtypes if d in ("float32", "float16", "bfloat16", "int8", "int32")])
    groups = g.choose([1, 1, 1, 2])
    cin, cout = groups * g.choose([1, 2, 3, 8]), groups * g.choose([1, 2, 3, 8])
    window = [g.choose([1, 2, 3]) for _ in range(spatial)]
    rows_ = [own.dim() if g.chance(0.4) else g.choose([4, 5, 7, 8]) for _ in window]
    batch = own.dim() if g.chance(0.7) else g.choose([1, 2])
    letters = "DHW"[-spatial:]
    x = g.value(dtype, (batch, *rows_, cin))
    w = g.new(Type((*window, cin // groups, cout), dtype), "plain")
    pads = str([(g.rng.randint(0, 2), g.rng.randint(0, 2)) for _ in window])
    padding = g.choose(["'SAME'", "'VALID'", pads])
    strides = tuple(g.choose([1, 1, 2]) for _ in window)
    dilation = tuple(g.choose([1, 1, 1, 2]) for _ in window)
    text = (
        f"lax.conv_general_dilated({x}, {w}, {strides}, {padding}, None, {dilation}, "
        f"('N{letters}C', '{letters}IO', 'N{letters}C'), {groups})"
    )
    scale = 1 / math.sqrt(cin // groups * math.prod(window))
    return f"{text} * {scale:.3f}" if Type((), dtype).floating else text


def part(g: Generator) -> str | None:
    """lax.dynamic_slice and its update, of whole, half and fixed extents."""
    x = _pick(g)
    if x is None:
        return None
    t = g.type(x)
    sizes = [
        n if g.chance(0.4) else (f"({n}) - 1" if isinstance(n, Open) and int(n) > 1 and g.chance(0.5) else 1)
        for n in t.shape
    ]
    starts = ", ".join(g.value("int32", (), "index") for _ in t.shape)
    text = f"lax.dynamic_slice({x}, ({starts},), ({', '.join(map(str, sizes))},))"
    if g.chance(0.4):
        return f"lax.dynamic_update_slice({x}, {text} + {text}, ({starts},))" if t.kind != "b" else None
    return text


def rolled(g: Generator) -> str | None:
    x = _pick(g)
    if x is None:
        return None
    t = g.type(x)
    d = g.rng.randrange(t.rank)
    n = t.shape[d]
    options = [
        f"jnp.roll({x}, {g.choose([1, -1, 2])}, {d})",
        f"jnp.flip({x}, {d})",
        f"jnp.diff({x}, axis={d})",
    ]
    options += [f"jnp.repeat({x}, 2, axis={d})", f"jnp.take({x}, jnp.arange({n}) // 2, axis={d})"]
    options += [f"jnp.stack([{x}, {x}], {d})", f"jnp.roll({x}, ({n}) // 2, {d})"]
    if t.rank > 1:
        options += [
            f"jnp.{g.choose(['tril', 'triu'])}({x}, {g.choose([-1, 0, 1])})",
            f"jnp.swapaxes({x}, 0, {d})",
        ]
    return g.choose(options)


OWN: tuple[tuple[str, float, Make], ...] = (
    ("broadcast", 4, broadcast),
    ("reshape", 4, reshape),
    ("slice", 4, slice_),
    ("rows", 2, rows),
    ("pad_up", 2, pad_up),
    ("join", 3, join),
    ("counts", 3, counts),
    ("positions", 2, positions),
    ("masked", 2, masked),
    ("product", 4, product),
    ("attention", 1.5, attention),
    ("normed", 3, normed),
    ("conv_open", 2, conv),
    ("part", 2, part),
    ("rolled", 3, rolled),
)

RARE = {"sort": 0.3, "top_k": 0.2, "random": 0.2, "linalg": 0.1, "complex": 0.2, "conv": 0.5, "while": 0.7}
"""Weights of generators of the other tables that differ here: what is mostly compiled for one size at a time."""

_NAMES = {name for name, _, _ in OWN}

TABLE: tuple[tuple[str, float, Make], ...] = (
    *OWN,
    *(
        (name, RARE.get(name, 0.7 * weight), make)
        for table in (table_arrays.TABLE, table_compute.TABLE, table_control.TABLE)
        for name, weight, make in table
        if name not in _NAMES
    ),
)
"""All of them."""
