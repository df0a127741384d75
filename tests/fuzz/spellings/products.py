"""Products as nets have them: perceptrons, epilogues that reduce rows, concatenations of results, operands in any
layout, gathered operands and groups, large scores that several read, quantized chains."""

from __future__ import annotations

from .writer import FLOATS, Value, Writer

ACTIVATIONS = (
    "jax.nn.relu({0})",
    "jax.nn.gelu({0}, approximate=False)",
    "jax.nn.gelu({0})",
    "jax.nn.silu({0})",
    "{0}",
)
ROWS = ((2, 5, 16, 33), (64, 197, 512))
FEATURES = ((8, 16, 20, 33), (64, 96, 192, 768, 1000))


def perceptron(w: Writer) -> list[str]:
    """Layers behind each other, with biases, gates, residuals and norms."""
    dtype = _rows(w)
    x = w.input("bsk", dtype)
    y = x
    for _ in range(w.choose((1, 2, 2, 3))):
        letter = w.new_letter(w.extent[w.choose("nm")])
        y = _layer(w, y, letter, dtype)
    if w.chance(0.4):
        y = _layer(w, y, "k", dtype)
        y = w.same(f"{x.name} + {y.name}", y, "residual")
    if w.chance(0.5):
        y = normed(w, y, y.letters[-1])
    return [y.name]


def row_epilogues(w: Writer) -> list[str]:
    """A product whose rows are reduced: norms, softmax, the loss of a classifier."""
    dtype = _rows(w)
    letters = w.choose(("bsk", "sk", "bks"))
    y = w.cast(w.contracted(w.input(letters, dtype), _weights(w, "k", "n", dtype), letters.replace("k", "n")), dtype)
    kind = w.choose(("norm", "softmax", "logsumexp", "argmax", "max", "loss"))
    axis = y.axis("n")
    if kind == "norm":
        return [normed(w, y, "n").name]
    if kind == "loss":
        labels = w.input(y.letters.replace("n", ""), "int32", "index")
        log = w.same(f"jax.nn.log_softmax({y.name}, axis={axis})", y, "softmax")
        at = w.lifted(w.same(f"jnp.clip({labels.name}, 0, {w.extent['n']} - 1)", labels), y.letters)
        picked = w.line(f"jnp.take_along_axis({log.name}, {at.name}, axis={axis})", "pick")
        return [w.line(f"-jnp.mean({picked})", "mean")]
    text = {
        "softmax": "jax.nn.softmax({0}, axis={1})",
        "logsumexp": "jax.nn.logsumexp({0}, axis={1})",
        "argmax": "jnp.argmax({0}, axis={1})",
        "max": "jnp.max({0}, axis={1}, keepdims=True)",
    }[kind]
    return [w.line(text.format(y.name, axis), kind), *[y.name] * w.chance(0.3)]


def layouts(w: Writer) -> list[str]:
    """Operands that come transposed, sliced, split or merged, some for several products."""
    dtype = _rows(w)
    first, second = w.choose((("bsk", "kn"), ("sk", "bkn"), ("bsk", "bkn"), ("sbk", "kn"), ("sk", "kn")))
    x, y = (_moved(w, letters, dtype) for letters in (first, second))
    out = "".join(dict.fromkeys(c for c in first + second if c != "k"))
    made = w.contracted(x, y, "".join(w.rng.sample(out, len(out))) if w.chance(0.4) else out)
    results = [made.name]
    if w.chance(0.5):
        again = w.contracted(_moved(w, first, dtype), y, out)
        results.append(w.same(w.choose(ACTIVATIONS).format(again.name), again).name)
    if w.chance(0.3):
        z = w.contracted(w.cast(made, dtype), y, w.choose((first, first[::-1])) if "b" not in second else first)
        results = [z.name]
    return results


def concatenated(w: Writer) -> list[str]:
    """Results of kernels of several kinds, behind each other along any axis."""
    dtype = _rows(w)
    x = w.input("bsk", dtype)
    parts: list[Value] = []
    for _ in range(w.choose((2, 3, 4))):
        letter = w.choose("nm")
        if w.chance(0.6):
            part = _layer(w, x, letter, dtype)
        else:
            part = w.input(f"bs{letter}", dtype)
            part = w.same(w.choose(ACTIVATIONS).format(part.name), part, "activation")
        parts.append(Value(part.name, "bsn"))
    axis = 2
    if w.extent["m"] == w.extent["n"]:
        axis = w.choose((0, 1, 2))
    names = ", ".join(p.name for p in parts)
    text = f"jnp.concatenate([{names}], axis={axis})"
    if w.extent["m"] == w.extent["n"] and w.chance(0.3):
        text = f"jnp.stack([{names}], axis={w.choose((0, 1, 2, 3))})"
    elif axis == 2 and w.chance(0.2):
        text = f"jnp.dstack([{names}])"
    made = w.line(text, "concatenate")
    if w.chance(0.4) and len(w.types[made].shape) == 3 and not w.is_open(w.types[made].shape[2]):
        weights = w.taken((w.types[made].shape[2], w.choose((1, 16))), dtype)
        return [w.line(f"{made} @ {weights}", "matmul")]
    return [made]


def gathered(w: Writer) -> list[str]:
    """Rows of tables, matrices of experts at places that are computed, and ragged groups."""
    dtype = _rows(w)
    w.extent["g"] = w.choose((1, 2, 5))
    g, s, _k, n = (w.extent[c] for c in "gskn")
    kind = w.choose(("embedding", "experts", "ragged", "one_hot", "along"))
    if kind == "ragged":
        sizes = w.taken((g,), "int32", "index")
        x, y = w.input("sk", dtype), w.input("gkn", dtype)
        part = w.line(f"jnp.maximum(jnp.abs({sizes}), 1)", "sizes")
        cut = w.line(f"jnp.minimum(jnp.cumsum({part}), {s})", "sizes")
        sizes = w.line(f"jnp.diff({cut}, prepend=0)", "sizes")
        return [w.line(f"lax.ragged_dot({x.name}, {y.name}, {sizes})", "ragged_dot")]
    if kind == "experts":
        table, at = w.input("gkn", dtype), w.input("s", "int32", "index")
        chosen = w.say(f"{table.name}[jnp.abs({at.name}) % {g}]", "skn", "gather")
        return [w.contracted(w.input("sk", dtype), chosen, "sn").name]
    table, at = w.input("nk", dtype), w.input("bs", "int32", "index")
    places = f"jnp.abs({at.name}) % {n}"
    if kind == "embedding":
        x = w.say(w.choose((f"{table.name}[{places}]", f"jnp.take({table.name}, {places}, axis=0)")), "bsk", "gather")
    elif kind == "one_hot":
        hot = w.say(f"jax.nn.one_hot({places}, {n}, dtype={dtype!r})", "bsn", "one_hot")
        x = w.cast(w.contracted(hot, table, "bsk"), dtype)
    else:
        wide = w.input("bnk", dtype)
        x = w.say(f"jnp.take_along_axis({wide.name}, ({places})[:, :, None], axis=1)", "bsk", "gather")
    if w.chance(0.5):
        x = normed(w, w.same(f"{x.name} + {w.input('sk', dtype).name}", x), "k")
    return [_layer(w, x, "m", dtype).name if w.chance(0.6) else x.name]


def strips(w: Writer) -> list[str]:
    """Large scores that several products and reductions read: contrastive losses, linear attention, distances."""
    dtype = _rows(w)
    if not w.small:
        w.extent.update(s=w.choose((1, 1024, 4096)), t=w.choose((1, 2048, 4096)))
    else:
        w.extent["t"] = w.choose((1, 7, 16))
    x, y = w.input("sk", dtype), w.input("tk", dtype)
    scores = w.contracted(x, y, "st")
    kind = w.choose(("contrast", "distance", "both", "second"))
    if kind == "contrast":
        a, b = (w.line(f"jax.nn.logsumexp({scores.name}, axis={axis})", "logsumexp") for axis in (0, 1))
        return [a, b]
    if kind == "distance":
        left = w.line(f"jnp.sum({x.name} ** 2, axis=1, keepdims=True)", "sum")
        right = w.lifted(w.say(f"jnp.sum({y.name} ** 2, axis=1)", "t", "sum"), "st")
        d = w.same(f"{left} - 2 * {scores.name} + {right.name}", scores, "distance")
        return [w.line(f"{w.choose(('jnp.argmin', 'jnp.min'))}({d.name}, axis={w.choose((0, 1))})", "min")]
    p = w.same(f"jax.nn.softmax({scores.name}, axis={w.choose((0, 1))})", scores, "softmax")
    first = w.contracted(w.cast(p, dtype), w.input("tn", dtype), "sn")
    other = p if kind == "both" else w.same(f"jnp.tanh({scores.name})", scores, "tanh")
    return [first.name, w.contracted(w.cast(other, dtype), w.input("sm", dtype), "tm").name]


def quantized(w: Writer) -> list[str]:
    """Products of integers behind each other, requantized, or a perceptron that the option quantizes."""
    _rows(w)
    if w.chance(0.4) and not w.open_in("bs"):
        w.options["quantization"] = w.choose(("w8a8-dynamic", "w8a16", "w4a16"))
        dtype = w.choose(("float32", "float16"))
        x = w.input("bsk", dtype)
        for letter in ("n", "m"):
            x = w.cast(w.contracted(x, w.input(x.letters[-1] + letter, dtype), f"bs{letter}", "einsum"), dtype)
            x = w.same(w.choose(ACTIVATIONS).format(x.name), x, "activation")
        return [x.name]
    x = w.input("bsk", "int8")
    for letter in ("n", "m", "k")[: w.choose((1, 2, 3))]:
        last = x.letters[-1]
        weights = w.input(w.choose((f"{last}{letter}", f"{letter}{last}")), "int8")
        dims = (((2,), (weights.axis(last),)), ((), ()))
        text = f"lax.dot_general({x.name}, {weights.name}, {dims}, preferred_element_type=jnp.int32)"
        y = w.say(text, f"bs{letter}", "dot_general")
        if w.chance(0.6):
            y = w.same(f"{y.name} + {w.lifted(w.input(letter, 'int32'), y.letters).name}", y, "bias")
        scale = w.lifted(w.input(letter, "float32"), y.letters)
        y = w.same(f"{y.name}.astype('float32') * {scale.name}", y, "scale")
        y = w.same(w.choose((f"jax.nn.relu({y.name})", y.name, f"jax.nn.silu({y.name})")), y, "activation")
        x = w.same(f"jnp.clip(jnp.round({y.name} * 0.25), -128, 127).astype('int8')", y, "quantize")
    return [x.name if w.chance(0.5) else y.name]


# -- parts -------------------------------------------------------------------------------------------------


def _rows(w: Writer) -> str:
    """Extents of rows and columns: b, s, and features k, n, m. Gives a dtype."""
    w.extents(b=((2, 3), (4, 8)), s=ROWS, k=FEATURES, n=FEATURES, m=FEATURES)
    if w.chance(0.3):
        w.extent["m"] = w.extent["n"]
    w.open("b", "b")
    w.open("s", "s")
    return w.choose(FLOATS)


def _weights(w: Writer, k: str, n: str, dtype: str) -> Value:
    letters = w.choose((k + n, k + n, n + k))
    x = w.input(letters, dtype)
    return w.permuted(x, k + n) if w.chance(0.6) else x


def _layer(w: Writer, x: Value, letter: str, dtype: str) -> Value:
    """A layer from the last letter of x to another one."""
    last = x.letters[-1]
    if last == letter:
        last = w.new_letter(w.extent[letter])
        x = Value(x.name, x.letters[:-1] + last)
    out = x.letters[:-1] + letter
    y = w.cast(w.contracted(x, _weights(w, last, letter, dtype), out), dtype)
    if w.chance(0.6):
        y = w.same(f"{y.name} + {w.lifted(w.input(letter, dtype), out).name}", y, "bias")
    if w.chance(0.2):
        gate = w.cast(w.contracted(x, _weights(w, last, letter, dtype), out), dtype)
        return w.same(f"{w.choose(ACTIVATIONS).format(gate.name)} * {y.name}", y, "gate")
    return w.same(w.choose(ACTIVATIONS).format(y.name), y, "activation")


def _moved(w: Writer, letters: str, dtype: str) -> Value:
    """An operand in a layout that a layout op makes."""
    kind = w.choose(("plain", "transposed", "merged", "wide", "lifted", "computed"))
    if kind == "transposed":
        return w.permuted(w.input("".join(w.rng.sample(letters, len(letters))), dtype), letters)
    if kind == "merged":
        return w.merged_input(letters, dtype)
    if kind == "wide":  # a part of a wider tensor
        shape = w.shape_of(letters)
        wide = w.taken((*shape[:-1], 3 * shape[-1] + 1), dtype) if not w.is_open(shape[-1]) else ""
        start = w.choose((0, 1, 1 + shape[-1]))
        if wide:
            return w.say(f"{wide}[..., {start}:{start + shape[-1]}]", letters, "slice")
    if kind == "lifted":
        x = w.input(w.wrapped(letters), dtype)
        return w.dropped(x, next(c for c in x.letters if c not in letters))
    x = w.input(letters, dtype)
    return w.same(w.choose(ACTIVATIONS).format(x.name), x, "activation") if kind == "computed" else x


def normed(w: Writer, x: Value, letters: str) -> Value:
    """A norm over dimensions, in one of its spellings."""
    axes = tuple(x.axis(c) for c in letters)
    axis = f"{axes[0]}" if len(axes) == 1 else f"{axes}"
    kept = w.chance(0.6)
    dtype = w.dtype_of(x)
    x = w.cast(x, "float32") if w.chance(0.4) else x
    rest = "".join(c for c in x.letters if c not in letters)

    def reduced(text: str) -> Value:
        if kept:
            return w.same(text.format(f"axis={axis}, keepdims=True"), x, "reduce")
        return w.lifted(w.say(text.format(f"axis={axis}"), rest, "reduce"), x.letters)

    centred = x
    if w.chance(0.6):
        centred = w.same(f"{x.name} - {reduced(f'jnp.mean({x.name}, {{}})').name}", x, "centre")
    square = w.choose((f"jnp.square({centred.name})", f"{centred.name} ** 2", f"{centred.name} * {centred.name}"))
    variance = reduced(f"jnp.mean({square}, {{}})")
    if w.chance(0.2):
        variance = reduced(f"jnp.var({x.name}, {{}})")
    root = w.choose(("{0} * lax.rsqrt({1} + 1e-5)", "{0} / jnp.sqrt({1} + 1e-5)"))
    y = w.same(root.format(centred.name, variance.name), x, "norm")
    y = w.cast(y, dtype)
    if w.chance(0.7):
        scale = w.lifted(w.input(letters[-1], dtype), y.letters)
        y = w.same(f"{y.name} * {scale.name}", y, "scale")
    return y
