"""Step generators: elementwise functions, and ops that create, move and index data."""

from __future__ import annotations

import math

from .generate import Generator, Make, Type

UNARY_FLOAT = (
    *(
        "jnp.tanh jnp.sin jnp.cos jax.nn.sigmoid lax.erf jnp.abs jnp.negative jnp.sign jnp.floor jnp.ceil".split()
    ),
    *(
        "lax.expm1 lax.log1p jnp.sqrt lax.rsqrt lax.cbrt jnp.exp jnp.exp2 jnp.log jnp.square jnp.reciprocal".split()
    ),
    *("jnp.tan jnp.arctan jnp.sinh jnp.arcsinh jax.nn.relu jax.nn.gelu jax.nn.softplus jax.nn.silu".split()),
    *(
        "jnp.round jnp.trunc jnp.rint jnp.nan_to_num jax.nn.log_sigmoid jnp.positive lax.stop_gradient".split()
    ),
)
RARE_FLOAT = tuple(
    "lax.lgamma lax.digamma lax.erf_inv lax.erfc lax.bessel_i0e jnp.arccosh jnp.arctanh jnp.arcsin jnp.cosh".split()
)
BINARY = tuple("jnp.add jnp.subtract jnp.multiply jnp.maximum jnp.minimum".split())
BINARY_FLOAT = tuple(
    "jnp.divide jnp.arctan2 jnp.power jnp.hypot jnp.logaddexp jnp.fmod jnp.remainder jnp.copysign jnp.fmin".split()
)
COMPARE = tuple("jnp.equal jnp.not_equal jnp.less jnp.less_equal jnp.greater jnp.greater_equal".split())


def _broadcastable(a: Type, b: Type, room: int) -> bool:
    shape = []
    for x, y in zip(a.shape[::-1], b.shape[::-1], strict=False):
        if x != y and 1 not in (x, y):
            return False
        shape.append(max(x, y) if x and y else 0)
    longer = a.shape if a.rank > b.rank else b.shape
    return math.prod(shape) * math.prod(longer[: abs(a.rank - b.rank)]) <= room


def _pair(g: Generator, good=lambda t: True) -> tuple[str, str] | None:
    a = g.pick(good)
    if a is None:
        return None
    t = g.type(a)
    if g.chance(0.3):
        return a, g.value(
            t.dtype, tuple(n if g.chance(0.7) else 1 for n in t.shape[g.rng.randint(0, t.rank) :])
        )
    b = g.pick(lambda u: good(u) and _broadcastable(t, u, g.limits.elements))
    return (a, b or a) if g.chance(0.5) else (b or a, a)


def unary(g: Generator) -> str | None:
    x = g.pick(lambda t: t.floating)
    if x is None:
        return None
    name = g.choose(RARE_FLOAT if g.chance(0.08) else UNARY_FLOAT)
    if name in ("jnp.exp", "jnp.exp2", "jnp.sinh", "jnp.cosh", "lax.expm1") and g.chance(0.8):
        return f"{name}(jnp.clip({x}, -4, 3))"
    if name in ("jnp.log", "jnp.sqrt", "lax.rsqrt", "lax.log1p", "jnp.reciprocal") and g.chance(0.7):
        return f"{name}(jnp.abs({x}) + 0.5)"
    return f"{name}({x})"


def binary(g: Generator) -> str | None:
    pair = _pair(g, lambda t: t.kind != "b")
    return pair and f"{g.choose(BINARY)}({pair[0]}, {pair[1]})"


def binary_float(g: Generator) -> str | None:
    pair = _pair(g, lambda t: t.floating)
    if pair is None:
        return None
    a, b = pair
    name = g.choose(BINARY_FLOAT)
    if name == "jnp.power" and g.chance(0.8):
        return f"jnp.power(jnp.abs({a}) + 0.5, jnp.clip({b}, -3, 3))"
    if name == "jnp.divide" and g.chance(0.7):
        return f"{a} / (jnp.abs({b}) + 0.5)"
    return f"{name}({a}, {b})"


def affine(g: Generator) -> str | None:
    x = g.pick(lambda t: t.floating)
    return x and g.choose(
        [f"{x} * 0.5 + 1", f"1 - {x}", f"{x} ** 2", f"{x} * jax.nn.sigmoid({x})", f"{x} * {x} - {x}"]
    )


def compare(g: Generator) -> str | None:
    pair = _pair(g, lambda t: t.kind != "c")
    return pair and f"{g.choose(COMPARE)}({pair[0]}, {pair[1]})"


def predicate(g: Generator) -> str | None:
    x = g.pick(lambda t: t.kind in "fiu")
    return (
        x and f"{g.choose(['jnp.isfinite', 'jnp.isnan', 'jnp.isinf', 'jnp.signbit', 'jnp.logical_not'])}({x})"
    )


def select(g: Generator) -> str | None:
    a = g.pick()
    if a is None:
        return None
    t = g.type(a)
    b = g.value(t.dtype, t.shape)
    if g.chance(0.5):
        return f"jnp.where({g.value('bool', t.shape if g.chance(0.7) else ())}, {a}, {b})"
    if g.chance(0.5) and t.kind not in "bc":
        low, high = (g.value(t.dtype, t.shape if g.chance(0.5) else ()) for _ in "ab")
        return f"lax.clamp({low}, {a}, {high})"
    return f"lax.select_n({g.value('int32', t.shape, 'index')} % 3, {a}, {b}, {g.value(t.dtype, t.shape)})"


def integers(g: Generator) -> str | None:
    x = g.pick(lambda t: t.integral)
    if x is None:
        return None
    t = g.type(x)
    y = g.value(t.dtype, t.shape, "special" if g.chance(0.4) else None)
    pairs = "lax.div lax.rem jnp.floor_divide jnp.remainder jnp.power lax.mul jnp.bitwise_and jnp.bitwise_or"
    pairs += " jnp.bitwise_xor"
    ones = "jnp.abs jnp.negative jnp.sign jnp.bitwise_not lax.population_count lax.clz jnp.square"
    if g.chance(0.3):
        return f"{g.choose(ones.split())}({x})"
    # XLA stops the process where it divides constants by 0 while it compiles: the barrier hides them
    return f"{g.choose(pairs.split())}({x}, lax.optimization_barrier({y}))"


def shift(g: Generator) -> str | None:
    x = g.pick(lambda t: t.integral)
    if x is None:
        return None
    t = g.type(x)
    name = g.choose(["lax.shift_left", "lax.shift_right_logical", "lax.shift_right_arithmetic"])
    return f"{name}({x}, {g.value(t.dtype, t.shape, g.choose(['plain', 'special', 'index']))})"


def bits(g: Generator) -> str | None:
    x = g.pick(lambda t: t.integral)
    if x is None:
        return None
    families = (("int8", "uint8"), ("int16",), ("int32", "uint32"), ("int64", "uint64"))
    own = next(f for f in families if g.type(x).dtype in f or g.type(x).dtype == "uint16")
    others = [d for d in (own if g.chance(0.7) else ("int8", "uint8", "int16")) if d in g.dtypes]
    return f"lax.bitcast_convert_type({x}, {g.choose(others)!r})" if others else None


def logic(g: Generator) -> str | None:
    pair = _pair(g, lambda t: t.kind == "b")
    name = g.choose(
        ["jnp.logical_and", "jnp.logical_or", "jnp.logical_xor", "jnp.maximum", "jnp.add", "jnp.multiply"]
    )
    return pair and f"{name}({pair[0]}, {pair[1]})"


def convert(g: Generator) -> str | None:
    x = g.pick()
    if x is None:
        return None
    dtype = g.dtype()
    if g.type(x).kind == "c" and dtype not in ("complex64", "complex128"):
        return f"{g.choose(['jnp.real', 'jnp.imag', 'jnp.abs', 'jnp.angle'])}({x})"
    if g.type(x).floating and g.chance(0.15):
        return f"lax.reduce_precision({x}, {g.rng.randint(3, 8)}, {g.rng.randint(2, 12)})"
    return f"lax.convert_element_type({x}, jnp.dtype({dtype!r}))"


def complex_(g: Generator) -> str | None:
    x = g.pick(lambda t: t.dtype in ("float32", "float64"))
    z = g.pick(lambda t: t.kind == "c")
    if z is not None and g.chance(0.6):
        return f"{g.choose(['jnp.conj', 'jnp.real', 'jnp.imag', 'jnp.abs', 'jnp.exp', 'jnp.square'])}({z})"
    return x and f"lax.complex({x}, {g.value(g.type(x).dtype, g.type(x).shape)})"


# -- layout --------------------------------------------------------------------------------------------------


def broadcast(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank < 5)
    if x is None:
        return None
    t = g.type(x)
    out, dims = [], []
    for n in t.shape:
        while g.chance(0.25) and len(out) + t.rank - len(dims) < 5:
            out.append(g.choose([1, 2, 3, 5]))
        dims.append(len(out))
        out.append(g.choose([1, 2, 4, 7]) if n == 1 and g.chance(0.5) else n)
    while g.chance(0.4) and len(out) < 5:
        out.append(g.choose([1, 2, 3, 13, 64]))
    return f"lax.broadcast_in_dim({x}, {tuple(out)}, {tuple(dims)})"


def reshape(g: Generator) -> str | None:
    x = g.pick()
    if x is None:
        return None
    t = g.type(x)
    if t.size == 0:
        return f"jnp.reshape({x}, {tuple(g.rng.sample(t.shape, t.rank))})"
    factors, n = [], t.size
    for p in (2, 3, 5, 7, 13, 17, 31):
        while n % p == 0:
            factors.append(p)
            n //= p
    factors += [n] * (n > 1)
    if g.chance(0.5):
        g.rng.shuffle(factors)
    out = [1] * g.rng.randint(1, 5)
    at = 0
    for f in factors:
        at = g.rng.randint(at, len(out) - 1) if g.chance(0.5) else g.rng.randrange(len(out))
        out[at] *= f
    if g.chance(0.3) and t.rank > 1:
        d = g.rng.randrange(t.rank - 1)
        out = [*t.shape[:d], t.shape[d] * t.shape[d + 1], *t.shape[d + 2 :]]
    return f"jnp.reshape({x}, {tuple(out)})"


def transpose(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 1)
    return x and f"jnp.transpose({x}, {tuple(g.rng.sample(range(g.type(x).rank), g.type(x).rank))})"


def slice_(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0)
    if x is None:
        return None
    starts, limits, strides = [], [], []
    for n in g.type(x).shape:
        whole = g.chance(0.4)
        starts.append(0 if whole else g.rng.randint(0, n))
        limits.append(n if whole else g.rng.randint(starts[-1], n))
        if limits[-1] == starts[-1] and n and g.chance(0.9):
            starts[-1], limits[-1] = max(0, starts[-1] - 2), min(n, limits[-1] + 1)
        strides.append(g.choose([1, 1, 2, 3, 7]))
    return f"lax.slice({x}, {tuple(starts)}, {tuple(limits)}, {tuple(strides)})"


def index(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0 and t.size > 0)
    if x is None:
        return None
    parts = []
    for n in g.type(x).shape:
        parts.append(
            g.choose(
                [
                    ":",
                    ":",
                    "::-1",
                    f"{g.rng.randrange(n)}",
                    f"-{g.rng.randint(1, n)}:",
                    "None",
                    "::2",
                    f":{n}:3",
                ]
            )
        )
    return f"{x}[{', '.join(parts)}]"


def rev(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0)
    if x is None:
        return None
    dims = [d for d in range(g.type(x).rank) if g.chance(0.5)]
    return f"lax.rev({x}, {tuple(dims)})"


def pad(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0)
    if x is None:
        return None
    t = g.type(x)
    config = [(g.rng.randint(-2, 3), g.rng.randint(-2, 3), g.choose([0, 0, 0, 1, 2])) for _ in t.shape]
    return f"lax.pad({x}, {g.value(t.dtype, ())}, {config})"


def jnp_pad(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0 and 0 not in t.shape)
    if x is None:
        return None
    config = [(g.rng.randint(0, 2), g.rng.randint(0, 2)) for _ in g.type(x).shape]
    return f"jnp.pad({x}, {config}, mode={g.choose(['edge', 'reflect', 'wrap', 'symmetric', 'constant'])!r})"


def concat(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0)
    if x is None:
        return None
    t = g.type(x)
    d = g.rng.randrange(t.rank)
    parts = [x]
    for _ in range(g.rng.randint(1, 3)):
        other = g.pick(
            lambda u: (
                u.dtype == t.dtype
                and u.rank == t.rank
                and all(a == b or i == d for i, (a, b) in enumerate(zip(u.shape, t.shape, strict=True)))
            )
        )
        fresh = (*t.shape[:d], g.choose([0, 1, 2, 3, 7]), *t.shape[d + 1 :])
        parts.append(other if other and g.chance(0.7) else g.value(t.dtype, fresh))
    g.rng.shuffle(parts)
    return f"lax.concatenate([{', '.join(parts)}], {d})"


def stack(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank < 5)
    if x is None:
        return None
    t = g.type(x)
    return f"jnp.stack([{x}, {g.value(t.dtype, t.shape)}], {g.rng.randint(0, t.rank)})"


def iota(g: Generator) -> str | None:
    shape = g.shape(low=1)
    dtype = g.choose([d for d in g.dtypes if d != "bool"])
    return f"lax.broadcasted_iota(jnp.dtype({dtype!r}), {shape}, {g.rng.randrange(len(shape))})"


def arrange(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0)
    if x is None:
        return None
    t = g.type(x)
    d, n = g.rng.randrange(t.rank), g.rng.randint(-3, 5)
    options = [
        f"jnp.roll({x}, {n}, {d})",
        f"jnp.repeat({x}, {g.rng.randint(1, 3)}, axis={d})",
        f"jnp.expand_dims({x}, {d})",
    ]
    options += [
        f"jnp.tile({x}, {tuple(g.rng.randint(1, 2) for _ in t.shape)})",
        f"jnp.squeeze({x})",
        f"jnp.diff({x}, axis={d})",
    ]
    if t.rank > 1:
        options += [f"jnp.{g.choose(['tril', 'triu'])}({x}, {n})", f"jnp.diagonal({x})", f"jnp.rot90({x})"]
        options += [f"jnp.swapaxes({x}, 0, {d})", f"jnp.trace({x})"]
    return g.choose(options)


TABLE: tuple[tuple[str, float, Make], ...] = (
    ("unary", 8, unary),
    ("binary", 8, binary),
    ("binary_float", 4, binary_float),
    ("affine", 3, affine),
    ("compare", 3, compare),
    ("predicate", 1, predicate),
    ("select", 4, select),
    ("integers", 4, integers),
    ("shift", 1.5, shift),
    ("bits", 0.7, bits),
    ("logic", 1.5, logic),
    ("convert", 4, convert),
    ("complex", 0.5, complex_),
    ("broadcast", 3, broadcast),
    ("reshape", 4, reshape),
    ("transpose", 3, transpose),
    ("slice", 3, slice_),
    ("index", 2, index),
    ("rev", 1.5, rev),
    ("pad", 3, pad),
    ("jnp_pad", 1, jnp_pad),
    ("concat", 3, concat),
    ("stack", 1, stack),
    ("iota", 1.5, iota),
    ("arrange", 2, arrange),
)
