"""Convolutions and windows: pooled results of convolutions and products, Winograd's convolutions, and reductions over
any dimensions."""

from __future__ import annotations

from .products import normed
from .writer import FLOATS, Value, Writer

POOLS = {"max": ("-jnp.inf", "lax.max"), "sum": ("0.", "lax.add"), "min": ("jnp.inf", "lax.min")}


def pooled(w: Writer) -> list[str]:
    """The windows of a product's or convolution's results."""
    dtype, rank = _images(w), w.choose((1, 2, 2, 2))
    y = _convolved(w, rank, dtype, w.choose((1, 1, 2, 3, 5, 7)), w.choose((1, 1, 2)))
    y = _finished(w, y, dtype)
    for _ in range(w.choose((1, 1, 2))):
        y = _pool(w, y)
    return [y.name]


def winograd(w: Writer) -> list[str]:
    """Convolutions with windows of 3 that Winograd's algorithm computes."""
    dtype = _images(w)
    w.options["winograd"] = w.choose(("2", "4", "auto"))
    if w.options["winograd"] != "auto":  # what cannot be done so is refused
        for c in "co":
            w.extent[c] = w.extent[c] if w.small else w.choose((16, 64))
    dtype = w.choose(("float32", "float16"))
    x = _convolved(w, w.choose((1, 2, 2)), dtype, 3, 1, grouped=False)
    y = _finished(w, x, dtype)
    if w.chance(0.4):
        y = _pool(w, y)
    return [y.name]


def reductions(w: Writer) -> list[str]:
    """Norms, softmaxes and statistics over any dimensions of images."""
    dtype = _images(w)
    letters = w.choose(("bhwc", "bchw", "bhc", "hc", "c"))
    x = w.permuted(w.input("".join(w.rng.sample(letters, len(letters))), dtype), letters)
    over = "".join(w.rng.sample(letters, w.rng.randint(1, len(letters))))
    kind = w.choose(("norm", "norm", "group", "softmax", "statistic", "two"))
    axes = tuple(sorted(x.axis(c) for c in over))
    if kind == "softmax":
        axis = axes[0] if len(axes) == 1 else axes
        return [w.same(f"jax.nn.{w.choose(('softmax', 'log_softmax'))}({x.name}, axis={axis})", x, "softmax").name]
    if kind == "statistic":
        name = w.choose(("jnp.sum", "jnp.max", "jnp.var", "jnp.std", "jnp.prod", "jax.nn.logsumexp", "jnp.mean"))
        return [w.line(f"{name}({x.name}, axis={axes}, keepdims={w.chance(0.5)})", "reduce")]
    if kind == "group" and "c" in letters and not w.open_in("c"):
        groups = w.choose([n for n in (1, 2, 4, 32) if w.extent["c"] % n == 0])
        w.extent.update(u=groups, q=w.extent["c"] // groups)
        split = letters.replace("c", "uq")
        x = w.say(f"jnp.reshape({x.name}, {w.shape_of(split)})", split, "split")
        y = normed(w, x, "".join(c for c in split if c in "hwq"))
        return [w.line(f"jnp.reshape({y.name}, {w.shape_of(letters)})", "merge")]
    y = normed(w, x, over)
    if kind == "two":
        y = normed(w, w.same(f"jax.nn.silu({y.name})", y, "activation"), letters[-1])
    return [y.name]


# -- parts -------------------------------------------------------------------------------------------------


def _images(w: Writer) -> str:
    """b: batch, h, w: image, c, o: channels. Gives a dtype."""
    w.extents(
        b=((2, 3), (4, 8)),
        h=((6, 8, 13), (28, 56)),
        w=((6, 8, 11), (28, 56)),
        c=((3, 8, 16), (32, 64, 96)),
        o=((4, 8, 16), (32, 64, 128)),
    )
    w.open("b", "b")
    return w.choose(FLOATS)


def _convolved(w: Writer, rank: int, dtype: str, window: int, stride: int, grouped: bool = True) -> Value:
    places = "hw"[:rank]
    last = w.chance(0.6)
    data = f"b{places}c" if last else f"bc{places}"
    x = w.input(data, dtype)
    c, o = w.extent["c"], w.extent["o"]
    if window == 1 and last and w.chance(0.5):
        return w.contracted(x, w.input("co", dtype), f"b{places}o")
    kind = w.choose(("full", "full", "depthwise", "grouped")) if grouped else "full"
    groups = {"full": 1, "depthwise": c, "grouped": 2 if c % 2 == 0 and o % 2 == 0 else 1}[kind]
    if kind == "depthwise":
        w.extent["o"] = o = c
    order = w.choose((f"{places}io", f"oi{places}"))
    sides = {"i": c // groups, "o": o, **dict.fromkeys(places, window)}
    weights = w.taken(tuple(sides[p] for p in order), dtype)
    spec = (data.replace("b", "N").replace("c", "C").upper(), order.upper(), data.replace("b", "N").upper())
    dilation = w.choose((1, 1, 1, 2)) if window > 1 and grouped else 1
    padding = w.choose(("'SAME'", "'SAME'", "'VALID'"))
    if any(w.extent[p] < (window - 1) * dilation + 1 for p in places):
        padding = "'SAME'"
    text = (
        f"lax.conv_general_dilated({x.name}, {weights}, {(stride,) * rank}, {padding}, dimension_numbers={spec}, "
        f"rhs_dilation={(dilation,) * rank}, feature_group_count={groups})"
    )
    made = w.say(text, data.replace("c", "o"), "conv")
    for axis, p in enumerate(made.letters):
        if p in places:
            w.extent[p] = w.types[made.name].shape[axis]
    return made


def _finished(w: Writer, y: Value, dtype: str) -> Value:
    """With a bias or the scale and shift of a norm, and an activation."""
    if w.chance(0.7):
        y = w.same(f"{y.name} + {w.lifted(w.input('o', dtype), y.letters).name}", y, "bias")
    if w.chance(0.3):
        y = w.same(f"{y.name} * {w.lifted(w.input('o', dtype), y.letters).name}", y, "scale")
    text = w.choose(("jax.nn.relu({0})", "jnp.clip({0}, 0, 6)", "jax.nn.silu({0})", "{0}"))
    return w.same(text.format(y.name), y, "activation")


def _pool(w: Writer, y: Value) -> Value:
    """A pool: windows, the tiles of a reshape, or all of an image."""
    places = [c for c in y.letters if c in "hw"]
    kind = w.choose(("windows", "windows", "tiles", "global"))
    if kind == "global":
        axes = tuple(y.axis(c) for c in places)
        rest = "".join(c for c in y.letters if c not in places)
        name = w.choose(("jnp.mean", "jnp.max"))
        if w.chance(0.4):
            for c in places:
                w.extent[c] = 1
            return w.same(f"{name}({y.name}, axis={axes}, keepdims=True)", y, "global pool")
        return w.say(f"{name}({y.name}, axis={axes})", rest, "global pool")
    if kind == "tiles" and places and all(w.extent[c] % 2 == 0 for c in places):
        shape: list[int] = []
        axes = []
        for c in y.letters:
            if c in places:
                axes.append(len(shape) + 1)
                w.extent[c] //= 2
                shape += [w.extent[c], 2]
            else:
                shape.append(w.extent[c])
        text = f"jnp.reshape({y.name}, {tuple(shape)}).{w.choose(('max', 'mean'))}({tuple(axes)})"
        return w.same(text, y, "tiles")
    size, stride = w.choose(((2, 2), (3, 2), (3, 1), (2, 1)))
    window = tuple(size if c in places else 1 for c in y.letters)
    steps = tuple(stride if c in places else 1 for c in y.letters)
    start, body = POOLS[w.choose(tuple(POOLS))]
    dtype = w.dtype_of(y)
    padding = "'SAME'" if any(w.extent[c] < size for c in places) else w.choose(("'SAME'", "'VALID'"))
    text = f"lax.reduce_window({y.name}, jnp.asarray({start}, {dtype!r}), {body}, {window}, {steps}, {padding})"
    made = w.same(text, y, "pool")
    for c in places:
        w.extent[c] = w.types[made.name].shape[made.axis(c)]
    return made
