"""Attention in all spellings: heads anywhere, masks of every kind, one query, shared keys, gradients; and products that
follow each other with another function than the softmax between them."""

from __future__ import annotations

from .writer import FLOATS, Value, Writer

LAYOUTS = ("bhsd", "bshd", "sbhd", "hbsd", "hsd", "shd", "bsd", "sd")
ACTIVATIONS = ("jax.nn.relu({0})", "jnp.tanh({0})", "jax.nn.gelu({0})", "{0} * {0}", "jax.nn.silu({0})")


def attention(w: Writer) -> list[str]:
    """softmax(mask(q k)) v."""
    _extents(w)
    return _attended(w)


def one_query(w: Writer) -> list[str]:
    """The same for one or a few queries, as a step of decoding has them."""
    _extents(w, rows=(1, 1, 2, 4))
    return _attended(w, decoding=True)


def dot_product_attention(w: Writer) -> list[str]:
    """`jax.nn.dot_product_attention`, which has heads behind positions."""
    _extents(w)
    dtype = w.choose(FLOATS)
    batch = "b" if w.chance(0.8) else ""
    w.extent["e"] = w.extent["d"]
    w.extent["i"] = w.times(w.extent["h"], w.extent["r"])
    q, k, v = w.input(f"{batch}sid", dtype), w.input(f"{batch}thd", dtype), w.input(f"{batch}the", dtype)
    more = [""]
    if w.extent["s"] == w.extent["t"]:
        more.append(", is_causal=True")
        if not w.open_in("s"):
            more += [", is_causal=True, local_window_size=4", ", local_window_size=(3, 2)"]
    if batch:
        lengths = w.input("b", "int32", "index").name
        more.append(f", key_value_seq_lengths=jnp.clip({lengths}, 1, {w.extent['t']})")
    shape = (*([1] if batch else []), 1, w.extent["s"], w.extent["t"])
    more.append(f", mask={w.taken(shape, 'bool')}" if w.chance(0.5) else f", bias={w.taken(shape, dtype)}")
    more.append(", scale=0.25")
    text = f"jax.nn.dot_product_attention({q.name}, {k.name}, {v.name}{w.choose(more)})"
    return [w.say(text, f"{batch}sie", "dot_product_attention").name]


def chained(w: Writer) -> list[str]:
    """f(q k) v, with two first products in a gated one."""
    _extents(w)
    dtype = w.choose(FLOATS)
    own = w.choose(LAYOUTS)
    q, k, v = _operands(w, own, dtype, grouped=False)
    scores = w.contracted(q, k, _with(q.letters, "s", "st").replace("d", ""))
    x = w.same(w.choose(ACTIVATIONS).format(scores.name), scores, "activation")
    if w.chance(0.3):
        other = w.contracted(q, w.input(k.letters, dtype), scores.letters)
        x = w.same(f"{x.name} * {other.name}", x, "gate")
    if w.chance(0.3):
        x = _masked(w, x)
    out = w.contracted(w.cast(x, dtype), v, q.letters.replace("d", "e"))
    return [out.name]


# -- attention ---------------------------------------------------------------------------------------------


def _extents(w: Writer, rows: tuple[int, ...] = ()) -> None:
    """b: batch, h: heads of keys, r: rows of queries for each, s: queries, t: keys, d, e: sizes of heads."""
    w.extents(
        b=((2, 3), (4, 8)),
        h=((2, 4), (8, 12)),
        r=((1, 1, 2), (4, 7)),
        s=(rows or (5, 16, 33), () if rows else (64, 128, 197, 512)),
        t=((5, 16, 40), (64, 128, 197, 1024)),
        d=((8, 16, 20), (32, 64, 80, 128)),
        e=((8, 16, 24), (32, 64, 128)),
    )
    if w.chance(0.6) and 1 not in (w.extent["s"], w.extent["t"]):
        w.extent["t"] = w.extent["s"]
    if w.chance(0.7) and 1 not in (w.extent["d"], w.extent["e"]):
        w.extent["e"] = w.extent["d"]
    w.open("b", "b")
    if not rows and w.extent["t"] == w.extent["s"]:
        w.open("s", "s")
        w.extent["t"] = w.extent["s"]
    else:
        w.open("t", "s")


def _attended(w: Writer, decoding: bool = False) -> list[str]:
    dtype = w.choose(FLOATS)
    own = w.choose(LAYOUTS[:6] if decoding else LAYOUTS)
    grouped = "h" in own and w.extent["r"] != 1
    q, k, v = _operands(w, own, dtype, grouped)
    q = _scaled(w, q, 0.3)
    shared = [c for c in q.letters if w.extent[c] == 1 and c in k.letters and c in v.letters and c not in "d"]
    for c in shared:
        if not w.usual and w.chance(0.4):
            q, k, v = (w.dropped(x, c) for x in (q, k, v))
    order = "".join(c for c in q.letters if c not in "sd") + "st"
    if not w.usual and w.chance(0.2):
        order = "".join(w.rng.sample(order, len(order)))
    scores = w.contracted(q, k, order)
    scores = _scaled(w, scores, 0.5)
    if w.chance(0.3):
        scores = w.cast(scores, "float32")
    scores = _masked(w, scores)
    if w.chance(0.1):
        scores = w.same(f"20 * jnp.tanh({scores.name} / 20)", scores, "softcap")
    result = _weighted(w, scores, v, dtype, q.letters.replace("d", "e"))
    result = w.cast(result, dtype)
    for c in shared:
        if c not in result.letters and w.chance(0.7):
            at = w.rng.randint(0, len(result.letters))
            letters = result.letters[:at] + c + result.letters[at:]
            result = w.lifted(result, letters)
    for pair in ("hr", "he", "re", "rh"):
        if pair in result.letters and w.chance(0.5):
            return _projected(w, w.merged(result, pair), dtype)
    return [result.name]


def _operands(w: Writer, own: str, dtype: str, grouped: bool) -> tuple[Value, Value, Value]:
    """Queries, keys and values in a layout."""
    queries = _with(own, "h", "hr") if grouped else own
    keys = own.replace("s", "t")
    if w.usual:
        return w.input(queries, dtype), w.input(keys, dtype), w.input(keys.replace("d", "e"), dtype)
    if w.chance(0.25):
        extra = w.wrapped("")
        at = w.rng.randint(0, len(keys))
        queries, keys = (x[:at] + extra + x[at:] for x in (queries, keys))
    if w.chance(0.2):
        keys = "".join(w.rng.sample(keys, len(keys)))
    made: list[Value] = []
    for letters in (queries, keys, keys.replace("d", "e")):
        kind = w.choose(("plain", "plain", "merged", "projected", "transposed"))
        if kind == "merged":
            made.append(w.merged_input(letters, dtype))
        elif kind == "projected" and letters[-1] in "de" and not w.open_in(letters[-1]):
            c = w.new_letter(w.choose((1, 12, 64)))
            x, weights = w.input(letters[:-1] + c, dtype), w.input(c + letters[-1], dtype)
            made.append(w.cast(w.contracted(x, weights, letters), dtype))
        elif kind == "transposed":
            order = "".join(w.rng.sample(letters, len(letters)))
            made.append(w.permuted(w.input(order, dtype), letters))
        else:
            made.append(w.input(letters, dtype))
    q, k, v = made
    if grouped and w.chance(0.3):  # keys repeated for each row of queries
        axis = k.axis("h")
        k, v = (
            w.say(_repeated(w, x, x.axis("h")), _with(x.letters, "h", "hr"), "repeat") if axis >= 0 else x
            for x in (k, v)
        )
    return q, k, v


def _repeated(w: Writer, x: Value, axis: int) -> str:
    letters = _with(x.letters, "h", "hr")
    shape = w.shape_of(letters)
    if w.chance(0.5):
        return f"jnp.reshape(jnp.repeat({x.name}, {w.extent['r']}, axis={axis}), {shape})"
    return f"jnp.broadcast_to(jnp.expand_dims({x.name}, {axis + 1}), {shape})"


def _scaled(w: Writer, x: Value, chance: float) -> Value:
    if not w.chance(chance):
        return x
    return w.same(w.choose(("{0} * 0.125", "{0} / 8", "{0} / jnp.sqrt(jnp.asarray(20, {0}.dtype))")).format(x.name), x)


def _masked(w: Writer, x: Value) -> Value:
    """Scores with a mask, or as they are."""
    dtype = w.dtype_of(x)
    low = w.choose((f"jnp.finfo({dtype!r}).min", "-jnp.inf", "-1e4"))
    s, t = w.extent["s"], w.extent["t"]
    rows, keys = f"jnp.arange({s})", f"jnp.arange({t})"
    kind = w.choose(("", "", "causal", "window", "bias", "padding", "lengths", "tril"))
    if kind == "":
        return x
    if kind == "bias":
        letters = "".join(c for c in x.letters if c in "st" or w.chance(0.4))
        bias = w.lifted(w.input(letters, dtype), x.letters)
        return w.same(f"{x.name} + {bias.name}", x, "bias")
    if kind == "padding":
        seen = w.input("bt" if "b" in x.letters else "t", "bool")
    elif kind == "lengths" and "b" in x.letters:
        seen = w.say(f"{keys}[None, :] < {w.input('b', 'int32').name}[:, None]", "bt", "lengths")
    elif kind == "window":
        seen = w.say(f"abs({rows}[:, None] - {keys}[None, :]) <= {w.choose((0, 3, 20))}", "st", "window")
    elif kind == "tril" and s == t:
        seen = w.say(f"jnp.tril(jnp.ones(({s}, {t}), bool))", "st", "tril")
    else:
        seen = w.say(w.choose((f"{rows}[:, None] >= {keys}[None, :]", f"{keys} <= {rows}[:, None]")), "st", "causal")
    seen = w.lifted(seen, x.letters)
    return w.same(
        w.choose(
            (
                f"jnp.where({seen.name}, {x.name}, {low})",
                f"{x.name} + jnp.where({seen.name}, 0, -1e4).astype({dtype!r})",
                f"jnp.where(~{seen.name}, {low}, {x.name})",
            )
        ),
        x,
        "mask",
    )


def _weighted(w: Writer, x: Value, v: Value, dtype: str, out: str) -> Value:
    """softmax(x) v."""
    axis = w.choose((x.axis("t"), x.axis("t") - len(x.letters)))
    kind = w.choose(("softmax", "softmax", "kept", "lifted", "late", "log"))
    if kind in ("softmax", "log"):
        text = f"jax.nn.softmax({x.name}, axis={axis})"
        if kind == "log":
            text = f"jnp.exp({x.name} - jax.nn.logsumexp({x.name}, axis={axis}, keepdims=True))"
        weights = w.same(text, x, "softmax")
        return w.contracted(w.cast(weights, dtype), v, out)
    top = w.line(f"jnp.max({x.name}, axis={axis}, keepdims=True)", "max")
    e = w.same(f"jnp.exp({x.name} - {top})", x, "exp")
    if kind == "late":
        rest = x.letters.replace("t", "")
        total = w.say(f"jnp.sum({e.name}, axis={axis})", rest, "sum")
        result = w.contracted(w.cast(e, dtype), v, out)
        total = w.lifted(total, out)
        return w.same(f"{result.name} / {total.name}", result, "divide")
    if kind == "kept":
        weights = w.same(f"{e.name} / {e.name}.sum({axis}, keepdims=True)", x, "divide")
    else:
        total = w.lifted(w.say(f"jnp.sum({e.name}, {axis})", x.letters.replace("t", ""), "sum"), x.letters)
        weights = w.same(f"{e.name} / {total.name}", x, "divide")
    return w.contracted(w.cast(weights, dtype), v, out)


def _projected(w: Writer, name: str, dtype: str) -> list[str]:
    """The result, or a product of it: what merges heads is seldom the end."""
    size = w.types[name].shape[-1]
    if w.chance(0.5) or w.is_open(size):
        return [name]
    weights = w.taken((size, w.choose((1, 16, 48))), dtype)
    return [w.line(f"{name} @ {weights}", "matmul")]


def _with(letters: str, old: str, new: str) -> str:
    """Letters with others in the place of one; those alone where there is none."""
    return letters.replace(old, new) if old in letters else letters
