"""Step generators: reductions, windows, products, sorting and indexed access."""

from __future__ import annotations

import math

from .generate import Generator, Make, Type


def _axes(g: Generator, t: Type, low: int = 1) -> tuple[int, ...]:
    return tuple(sorted(g.rng.sample(range(t.rank), g.rng.randint(min(low, t.rank), t.rank))))


def reduce(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0)
    if x is None:
        return None
    t = g.type(x)
    axes = _axes(g, t)
    keep = f", keepdims={g.chance(0.3)}"
    if t.kind == "b" or g.chance(0.06):
        return f"jnp.{g.choose(['any', 'all'])}({x}, axis={axes}{keep})"
    if t.kind == "c":
        return f"jnp.{g.choose(['sum', 'mean'])}({x}, axis={axes}{keep})"
    names = (
        ["sum", "max", "min", "sum", "prod"] if t.integral else ["mean", "max", "min", "sum", "mean", "var"]
    )
    name = g.choose(names)
    if t.floating and g.chance(0.1):
        return f"jnp.prod(jnp.tanh({x}) + 1, axis={axes}{keep})"
    if t.floating and g.chance(0.15):
        return g.choose([f"jax.nn.softmax({x}, axis={axes})", f"jax.nn.logsumexp({x}, axis={axes}{keep})"])
    return f"jnp.{name}({x}, axis={axes}{keep})"


def _neutral(body: str, t: Type) -> str:
    """The text of the scalar that changes nothing."""
    ends = {"lax.max": ("-np.inf", "min"), "lax.min": ("np.inf", "max")}
    if body in ends:
        value = ends[body][0] if t.floating else f"jnp.iinfo({t.dtype!r}).{ends[body][1]}"
    else:
        value = {"lax.mul": "1", "lax.bitwise_and": "True" if t.kind == "b" else "-1"}.get(body, "0")
    if value == "-1" and t.kind == "u":
        value = f"jnp.iinfo({t.dtype!r}).max"
    return f"np.array({value}, {t.dtype!r})"


def lax_reduce(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0 and t.kind != "c")
    if x is None:
        return None
    t = g.type(x)
    axes = _axes(g, t, 0)
    if t.integral:
        body = g.choose(
            ["lax.bitwise_xor", "lax.bitwise_and", "lax.bitwise_or", "lax.add", "lax.max", "lax.mul"]
        )
    elif t.kind == "b":
        body = g.choose(["lax.bitwise_xor", "lax.bitwise_and", "lax.bitwise_or"])
    else:
        body = g.choose(["lax.max", "lax.min", "lax.add"])
    # how often the start value takes part is open, so it is the neutral one
    if g.chance(0.25) and t.kind in "fiu":
        other = g.value(t.dtype, t.shape)
        inits = f"{_neutral('lax.max', t)}, {_neutral('lax.min', t)}"
        both = "lambda a, b: (lax.max(a[0], b[0]), lax.min(a[1], b[1]))"
        return f"lax.reduce(({x}, {other}), ({inits}), {both}, {axes})"
    init = _neutral(body, t)
    return f"lax.reduce({x}, {init}, {body}, {axes})"


def argmax(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0 and t.kind in "fiub" and 0 not in t.shape)
    if x is None:
        return None
    d = g.rng.randrange(g.type(x).rank)
    return f"jnp.{g.choose(['argmax', 'argmin'])}({x}, axis={d}, keepdims={g.chance(0.3)})"


def cumulative(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0 and t.kind in "fiu")
    if x is None:
        return None
    t = g.type(x)
    d, rev = g.rng.randrange(t.rank), g.chance(0.4)
    name = g.choose(["cumsum", "cummax", "cummin", "cumsum", "cumprod", "cumlogsumexp"])
    if name == "cumlogsumexp" and not t.floating:
        name = "cumsum"
    if name == "cumprod" and t.floating:
        return f"lax.cumprod(jnp.tanh({x}), {d}, {rev})"
    return f"lax.{name}({x}, {d}, {rev})"


def reduce_window(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0 and t.kind in "fiu")
    if x is None:
        return None
    t = g.type(x)
    window = [g.choose([1, 1, 2, 3]) for _ in t.shape]
    strides = [g.choose([1, 1, 2, 3]) for _ in t.shape]
    padding = g.choose(
        ["'SAME'", "'VALID'", str([(g.rng.randint(0, 2), g.rng.randint(0, 2)) for _ in t.shape])]
    )
    base = [g.choose([1, 1, 1, 1, 2]) for _ in t.shape]
    dilation = [g.choose([1, 1, 1, 2]) for _ in t.shape]
    body = g.choose(["lax.max", "lax.min", "lax.add", "lax.add", "lax.max"] + ["lax.mul"] * t.integral)
    init = _neutral(body, t)
    if g.chance(0.1):
        init = init.replace("np.array", "jnp.array")
    return (
        f"lax.reduce_window({x}, {init}, {body}, {tuple(window)}, {tuple(strides)}, {padding}, "
        f"{tuple(base)}, {tuple(dilation)})"
    )


def pool(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank >= 2 and t.floating and t.size > 0)
    if x is None:
        return None
    rank = g.type(x).rank
    window, strides = ([g.choose([1, 2, 2, 3]) for _ in range(rank)] for _ in "ab")
    pads = g.choose(["'SAME'", "'VALID'"])
    if g.chance(0.5):
        return f"lax.reduce_window({x}, -jnp.inf, lax.max, {tuple(window)}, {tuple(strides)}, {pads})"
    return f"lax.reduce_window({x}, 0.0, lax.add, {tuple(window)}, {tuple(strides)}, {pads}) / {math.prod(window)}"


# -- products ------------------------------------------------------------------------------------------------


def dot_general(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0 and (t.kind in "fc" or t.integral))
    if x is None:
        return None
    t = g.type(x)
    dims = g.rng.sample(range(t.rank), t.rank)
    contract = dims[: g.rng.randint(0 if g.chance(0.1) else 1, min(2, t.rank))]
    batch = dims[len(contract) : len(contract) + g.rng.randint(0, min(2, t.rank - len(contract)))]
    free = t.rank - len(contract) - len(batch)
    sizes = [t.shape[d] for d in (*contract, *batch)]
    own = [
        g.choose([1, 2, 3, 7, 16, 33]) for _ in range(g.rng.randint(0, max(0, min(2, 5 - free - len(batch)))))
    ]
    every = [*sizes, *own]
    order = g.rng.sample(range(len(every)), len(every))
    shape = tuple(every[i] for i in order)
    where = {source: at for at, source in enumerate(order)}
    rhs_contract = [where[i] for i in range(len(contract))]
    rhs_batch = [where[len(contract) + i] for i in range(len(batch))]
    if math.prod(shape) > g.limits.elements:
        return None
    y = g.value(t.dtype, shape)
    numbers = f"(({contract}, {rhs_contract}), ({batch}, {rhs_batch}))"
    result = ""
    if g.chance(0.3):
        wide = {"int8": "int32", "float16": "float32", "bfloat16": "float32", "uint8": "int32"}
        result = f", preferred_element_type=jnp.dtype({wide.get(t.dtype, t.dtype)!r})"
    text = f"lax.dot_general({x}, {y}, {numbers}{result})"
    k = math.prod(t.shape[d] for d in contract)
    return f"{text} * {1 / math.sqrt(max(k, 1)):.3f}" if t.floating and g.chance(0.7) else text


def matmul(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank >= 1 and (t.floating or t.integral))
    if x is None:
        return None
    t = g.type(x)
    other = (
        g.dtype([d for d in g.dtypes if d not in ("bool", "complex64", "complex128")])
        if g.chance(0.2)
        else t.dtype
    )
    batch = t.shape[:-2] if g.chance(0.5) else ()
    n = g.choose([1, 3, 16, 20, 64])
    shape = (
        (*batch, t.shape[-1], n)
        if t.shape[-1] * n * math.prod(batch) <= g.limits.elements
        else (t.shape[-1],)
    )
    return f"jnp.matmul({x}, {g.value(other, shape)})"


def conv(g: Generator) -> str | None:
    spatial = g.choose([1, 1, 2, 2, 2, 3])
    dtype = g.dtype([d for d in g.dtypes if d not in ("bool", "complex64", "complex128")])
    groups = g.choose([1, 1, 1, 2, 3])
    cin, cout = groups * g.choose([1, 1, 2, 3, 5, 16]), groups * g.choose([1, 1, 2, 3, 8])
    batch_groups = g.choose([1] * 9 + [2]) if groups == 1 else 1
    n = batch_groups * g.choose([1, 1, 2, 3])
    sizes = [g.choose([1, 3, 5, 7, 8, 13]) for _ in range(spatial)]
    window = [g.choose([1, 2, 3, 3]) for _ in range(spatial)]
    lhs_order, rhs_order, out_order = (g.rng.sample(range(spatial + 2), spatial + 2) for _ in "abc")
    if g.chance(0.5):
        lhs_order = rhs_order = out_order = list(range(spatial + 2))

    def laid(sizes, order):
        shape = [0] * len(order)
        for size, d in zip(sizes, order, strict=True):
            shape[d] = size
        return tuple(shape)

    cout *= batch_groups
    lhs, rhs = laid([n, cin, *sizes], lhs_order), laid([cout, cin // groups, *window], rhs_order)
    if max(math.prod(lhs), math.prod(rhs)) > 2 * g.limits.elements:
        return None
    # zeros of padding times infinity: see docs/numerics.md
    x, w = g.value(dtype, lhs), g.new(Type(rhs, dtype), "plain")
    low = -2 if g.chance(0.2) else 0
    edges = [(g.rng.randint(low, 2), g.rng.randint(low, 2)) for _ in window]
    if min(map(min, edges)) < 0:  # XLA computes a wrong last row where some are positive, see docs/fuzzing.md
        edges = [(min(a, 0), min(b, 0)) for a, b in edges]
    padding = g.choose(["'SAME'", "'VALID'", str(edges)])
    dilated = [g.choose([1, 1, 1, 2, 3]) for _ in window]
    if max(dilated) > 1 and padding[0] == "'":
        padding = str([(1, 1)] * spatial)
    text = (
        f"lax.conv_general_dilated({x}, {w}, {tuple(g.choose([1, 1, 2, 3]) for _ in window)}, {padding}, "
        f"{tuple(dilated)}, {tuple(g.choose([1, 1, 2]) for _ in window)}, "
        f"lax.ConvDimensionNumbers({tuple(lhs_order)}, {tuple(rhs_order)}, {tuple(out_order)}), "
        f"{groups}, {batch_groups})"
    )
    scale = 1 / math.sqrt(max(cin // groups * math.prod(window), 1))
    return f"{text} * {scale:.3f}" if Type((), dtype).floating else text


# -- order ---------------------------------------------------------------------------------------------------


def sort(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0 and t.kind in "fiub")
    if x is None:
        return None
    t = g.type(x)
    d = g.rng.randrange(t.rank)
    other = g.value(g.dtype(), t.shape)
    return g.choose(
        [
            f"lax.sort({x}, dimension={d}, is_stable={g.chance(0.5)})",
            f"jnp.sort({x}, axis={d}, descending={g.chance(0.5)})",
            f"jnp.argsort({x}, axis={d})",
            f"lax.sort(({x}, {other}), dimension={d}, num_keys=1, is_stable=True)",
            f"lax.sort(({other}, {x}), dimension={d}, num_keys=2)",
        ]
    )


def top_k(g: Generator) -> str | None:
    """A NaN with a sign would come last, and nothing says which sign a computed NaN has."""
    x = g.pick(lambda t: t.rank > 0 and t.kind in "fiu" and t.shape[-1] > 0)
    if not x:
        return None
    one = f"jnp.where(jnp.isnan({x}), jnp.nan, {x})" if g.type(x).kind == "f" else x
    return f"lax.top_k({one}, {g.rng.randint(1, g.type(x).shape[-1])})"


# -- indexed access --------------------------------------------------------------------------------------------


def _positions(g: Generator, shape: tuple[int, ...]) -> str:
    return g.value(
        g.choose(["int32", "int32", "int32", "int8", "uint8", "uint32"] + ["int64"] * g.x64), shape, "index"
    )


def take(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0 and t.size > 0)
    if x is None:
        return None
    t = g.type(x)
    d = g.rng.randrange(t.rank)
    at = _positions(g, g.shape(16))
    mode = g.choose(["clip", "wrap", "fill"])
    if g.chance(0.3):
        at = _positions(g, tuple(g.choose([1, 3, 5]) if i == d else n for i, n in enumerate(t.shape)))
        how = g.choose(["clip", "fill"])
        return f"jnp.take_along_axis({x}, {at}.astype('int32'), axis={d}, mode={how!r})"
    if g.chance(0.3) and t.rank > 1:
        return f"{x}[{at}, ..., {at}]"
    if g.chance(0.2):
        return f"{x}.at[{at}].get(mode={mode!r}, fill_value=0)"
    return f"jnp.take({x}, {at}, axis={d}, mode={mode!r})"


def gather(g: Generator) -> str | None:
    """lax.gather with any dimension numbers."""
    x = g.pick(lambda t: t.rank > 0 and t.size > 0)
    if x is None:
        return None
    t = g.type(x)
    operand_batch: list[int] = []
    index_batch: list[int] = []
    lead = [g.choose([1, 2, 3, 5]) for _ in range(g.rng.randint(0, 2))]
    if g.chance(0.3):
        d = g.rng.randrange(t.rank)
        operand_batch, index_batch = [d], [len(lead)]
        lead.append(t.shape[d])
    mapped = [d for d in g.rng.sample(range(t.rank), t.rank) if d not in operand_batch and g.chance(0.6)]
    sizes = [1 if d in operand_batch else g.rng.randint(1, n) for d, n in enumerate(t.shape)]
    collapsed = [d for d in range(t.rank) if d not in operand_batch and g.chance(0.4)]
    for d in collapsed:
        sizes[d] = 1
    offsets = t.rank - len(collapsed) - len(operand_batch)
    total = offsets + len(lead)
    offset_dims = sorted(g.rng.sample(range(total), offsets))
    at = _positions(g, (*lead, len(mapped)))
    mode = g.choose(["CLIP", "FILL_OR_DROP", "CLIP"])
    return (
        f"lax.gather({x}, {at}, lax.GatherDimensionNumbers({tuple(offset_dims)}, {tuple(collapsed)}, {tuple(mapped)}, "
        f"{tuple(operand_batch)}, {tuple(index_batch)}), {tuple(sizes)}, mode=lax.GatherScatterMode.{mode})"
    )


def scatter(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0 and t.kind in "fiub")
    if x is None:
        return None
    t = g.type(x)
    n = g.choose([(), (1,), (4,), (7,), (2, 3)])
    at = _positions(g, n)
    update = g.value(t.dtype, (*n, *t.shape[1:]) if g.chance(0.7) else ())
    name = g.choose(["set", "add", "max", "min", "multiply"]) if t.kind in "fiu" else "set"
    mode = g.choose(["drop", "clip"])
    if g.smooth and name == "multiply":
        name = "add"
    if name == "set":  # equal positions: which one wins is open
        at = f"jnp.arange({max(math.prod(n), 1)}).reshape({n}) + {g.rng.randint(-2, 3)}"
    return f"{x}.at[{at}].{name}({update}, mode={mode!r})"


def dynamic(g: Generator) -> str | None:
    x = g.pick(lambda t: t.rank > 0)
    if x is None:
        return None
    t = g.type(x)
    sizes = [g.rng.randint(0 if g.chance(0.05) else min(n, 1), n) for n in t.shape]
    kind = g.choose(["int32"] * 4 + ["int8", "uint32"] + ["int64"] * g.x64)
    # XLA writes outside the array where an extent is no int8
    if max(map(g.reach, t.shape)) > 127 and kind == "int8":
        kind = "int32"
    starts = [g.value(kind, (), "index") for _ in t.shape]
    spread = f"({', '.join(starts)},)"
    if g.chance(0.5):
        return f"lax.dynamic_slice({x}, {spread}, {tuple(sizes)})"
    return f"lax.dynamic_update_slice({x}, {g.value(t.dtype, tuple(sizes))}, {spread})"


# -- the host's --------------------------------------------------------------------------------------------------


def random_bits(g: Generator) -> str | None:
    shape = g.shape(256)
    key = f"jax.random.key({g.rng.randrange(1000)})"
    if g.chance(0.5):
        key = f"jax.random.fold_in({key}, {g.value('int32', (), 'index')})"
    return g.choose(
        [
            f"jax.random.uniform({key}, {shape})",
            f"jax.random.bits({key}, {shape}, 'uint32')",
            f"jax.random.randint({key}, {shape}, -5, 9)",
            f"jax.random.bernoulli({key}, 0.3, {shape})",
        ]
    )


def linalg(g: Generator) -> str | None:
    x = g.pick(
        lambda t: t.rank == 2 and t.dtype in ("float32", "float64") and 0 < t.shape[0] <= 8 and t.size > 0
    )
    if x is None:
        return None
    n = g.type(x).shape[0]
    square = f"jnp.matmul(jnp.tanh({x}), jnp.tanh({x}).T) + 4 * jnp.eye({n}, dtype={g.type(x).dtype!r})"
    return g.choose(
        [
            f"jnp.linalg.cholesky({square})",
            f"jax.scipy.linalg.solve_triangular(jnp.tril({square}), {x}, lower=True)",
            f"jnp.fft.fft({x}, axis=-1)",
            f"jnp.fft.rfft({x}, axis=0)",
        ]
    )


TABLE: tuple[tuple[str, float, Make], ...] = (
    ("reduce", 6, reduce),
    ("lax_reduce", 2, lax_reduce),
    ("argmax", 1.5, argmax),
    ("cumulative", 2, cumulative),
    ("reduce_window", 2, reduce_window),
    ("pool", 1, pool),
    ("dot_general", 3, dot_general),
    ("matmul", 2, matmul),
    ("conv", 2, conv),
    ("sort", 1.5, sort),
    ("top_k", 0.7, top_k),
    ("take", 2, take),
    ("gather", 2, gather),
    ("scatter", 2, scatter),
    ("dynamic", 2.5, dynamic),
    ("random", 0.7, random_bits),
    ("linalg", 0.4, linalg),
)
