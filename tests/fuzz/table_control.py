"""Step generators: loops, branches, calls, and JAX's transformations of random functions."""

from __future__ import annotations

from collections.abc import Sequence

from .generate import Block, Generator, Make, Type

Made = tuple[str, Sequence[Block]] | None

INT, BOOL = Type((), "int32"), Type((), "bool")


def _some(g: Generator, most: int = 3, smooth: bool = False) -> list[str]:
    """One to three visible values that a loop can carry."""
    fitting = [
        v for v in g.scope if not smooth or g.type(v).dtype in ("float32", "float16", "bfloat16", "float64")
    ]
    return g.rng.sample(fitting, min(len(fitting), g.rng.randint(1, most)))


def _names(values: Sequence[str]) -> str:
    return f"({', '.join(values)},)" if values else "()"


def call(g: Generator) -> Made:
    args = _some(g)
    if g.depth >= g.limits.depth or not args:
        return None
    f, types = g.function([g.type(v) for v in args], g.rng.randint(1, 2))
    wrap = g.choose(["jax.jit", "jax.jit", "jax.checkpoint"])
    if g.chance(0.3) and types == [g.type(v) for v in args]:
        return f"{wrap}({f.name})(*{wrap}({f.name})({', '.join(args)}))", [f]
    return f"{wrap}({f.name})({', '.join(args)})", [f]


def cond(g: Generator) -> Made:
    args = _some(g)
    if g.depth >= g.limits.depth or not args:
        return None
    types = [g.type(v) for v in args]
    first, results = g.function(types, g.rng.randint(1, 2))
    others = [g.function(types, results)[0] for _ in range(g.choose([1, 1, 2]))]
    blocks = [first, *others]
    if len(blocks) == 2:
        return f"lax.cond({g.value('bool', ())}, {first.name}, {others[0].name}, {', '.join(args)})", blocks
    branches = ", ".join(b.name for b in blocks)
    return f"lax.switch({g.value('int32', (), 'index')}, [{branches}], {', '.join(args)})", blocks


def fori(g: Generator) -> Made:
    args = _some(g)
    if g.depth >= g.limits.depth or not args:
        return None
    types = [g.type(v) for v in args]
    f, _ = g.function([INT, *types], types)
    body = f"lambda i, c: {f.name}(i, *c)"
    low, high = g.choose([(0, 0), (0, 1), (0, 3), (-2, 2), (1, 4), (3, 1), (0, 7)])
    if g.chance(0.35):
        return (
            f"lax.fori_loop({low}, jnp.clip({g.value('int32', (), 'index')}, -2, 5), {body}, {_names(args)})",
            [f],
        )
    return f"lax.fori_loop({low}, {high}, {body}, {_names(args)})", [f]


def while_(g: Generator) -> Made:
    """A while loop with a random condition that ends after a few trips at the latest."""
    args = _some(g)
    if g.depth >= g.limits.depth or not args:
        return None
    types = [g.type(v) for v in args]
    test, _ = g.function([INT, *types], [BOOL], g.rng.randint(0, 2), single=True)
    body, _ = g.function([INT, *types], types)
    go = f"lambda c: (c[0] < {g.rng.randint(0, 5)}) & {test.name}(*c)"
    return (
        f"lax.while_loop({go}, lambda c: (c[0] + 1, *{body.name}(*c)), (jnp.int32(0), {', '.join(args)}))",
        [test, body],
    )


def scan(g: Generator) -> Made:
    carried = _some(g, 2, g.smooth)
    if g.depth >= g.limits.depth or not carried:
        return None
    types = [g.type(v) for v in carried]
    x = g.pick(lambda t: t.rank > 0 and t.shape[0] <= 8) if g.chance(0.7) else None
    inputs = [Type(g.type(x).shape[1:], g.type(x).dtype)] if x else []
    before = g.smooth
    f, _ = g.function([*types, *inputs], types)
    out, _ = g.function([*types, *inputs], 1, g.rng.randint(0, 2))
    g.smooth = before
    length = "" if x else f", length={g.choose([0, 1, 3, 5])}"
    options = f"{length}, reverse={g.chance(0.3)}, unroll={g.choose([1, 1, 1, 2])}"
    args = "*c, x" if x else "*c"
    body = f"lambda c, x: ({f.name}({args}), {out.name}({args}))"
    return f"lax.scan({body}, {_names(carried)}, {x}{options})", [f, out]


def map_(g: Generator) -> Made:
    x = g.pick(lambda t: t.rank > 0 and t.shape[0] <= 8)
    if g.depth >= g.limits.depth or x is None:
        return None
    f, _ = g.function([Type(g.type(x).shape[1:], g.type(x).dtype)], 1)
    return f"lax.map({f.name}, {x})", [f]


def associative_scan(g: Generator) -> Made:
    x = g.pick(lambda t: t.rank > 0 and t.kind in "fiu" and t.shape[0] > 0)
    return x and (f"lax.associative_scan({g.choose(['jnp.add', 'jnp.maximum', 'jnp.minimum'])}, {x})", ())


def gradient(g: Generator) -> Made:
    """The gradient of a random function's sum."""
    args = _some(g, 2, True)
    if g.depth >= g.limits.depth or not args:
        return None
    f, types = g.function([g.type(v) for v in args], 1, g.rng.randint(1, 6), single=True, smooth=True)
    if not types[0].floating:
        return None
    way = g.choose(["jax.grad", "jax.grad", "jax.value_and_grad"])
    total = f"lambda *a: jnp.sum({f.name}(*a).astype('float32'))"
    return f"{way}({total}, argnums={tuple(range(len(args)))})({', '.join(args)})", [f]


def jvp(g: Generator) -> Made:
    args = _some(g, 2, True)
    if g.depth >= g.limits.depth or not args:
        return None
    types = [g.type(v) for v in args]
    f, results = g.function(types, 1, g.rng.randint(1, 6), single=True, smooth=True)
    if g.chance(0.5):
        tangents = [g.value(t.dtype, t.shape) for t in types]
        return f"jax.jvp({f.name}, {_names(args)}, {_names(tangents)})", [f]
    if not results[0].floating:
        return None
    return f"jax.vjp({f.name}, {', '.join(args)})[1]({g.value(results[0].dtype, results[0].shape)})", [f]


def vmap(g: Generator) -> Made:
    x = g.pick(lambda t: t.rank > 0 and t.shape[0] > 0)
    if g.depth >= g.limits.depth or x is None:
        return None
    t = g.type(x)
    axis = g.rng.randrange(t.rank)
    if t.shape[axis] == 0:
        return None
    row = Type((*t.shape[:axis], *t.shape[axis + 1 :]), t.dtype)
    whole = g.pick(lambda u: u.kind in "fiu")
    params = [row] + ([g.type(whole)] if whole else [])
    f, results = g.function(params, 1, single=True)
    out = g.rng.randint(0, results[0].rank)
    if whole:
        return f"jax.vmap({f.name}, in_axes=({axis}, None), out_axes={out})({x}, {whole})", [f]
    return f"jax.vmap({f.name}, in_axes={axis}, out_axes={out})({x})", [f]


TABLE: tuple[tuple[str, float, Make], ...] = (
    ("call", 1.5, call),
    ("cond", 2, cond),
    ("fori", 2, fori),
    ("while", 2, while_),
    ("scan", 2, scan),
    ("map", 0.7, map_),
    ("associative_scan", 0.5, associative_scan),
    ("gradient", 2.5, gradient),
    ("jvp", 1.5, jvp),
    ("vmap", 1.5, vmap),
)
