"""The JAX functions of measured kernels. Operations are known by name; spaces stand for underscores."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from .expressed import NUMPY

Function = Callable[..., Any]


def product(transposed_a: bool, transposed_b: bool, out: str, fractals: bool, after: Function) -> Function:
    """A matrix product (batched where the inputs are) to `out`, then `after` of it and of the other inputs;
    `fractals`: b is stored as n/c0 blocks of k x c0."""

    def function(a: Any, b: Any, *others: Any) -> Any:
        import jax.numpy as jnp

        left = "...km" if transposed_a else "...mk"
        right, result = ("...jkc", "...mjc") if fractals else ("...nk" if transposed_b else "...kn", "...mn")
        kept = "int32" if a.dtype == "int8" else _dtype(out)
        y = jnp.einsum(f"{left},{right}->{result}", a, b, preferred_element_type=kept)
        return after(y, *others).astype(_dtype(out))

    return function


def product_after_conversion(out: str) -> Function:
    """A matrix product whose b is brought into fractals first, n filled up to whole ones."""

    def function(a: Any, b: Any) -> Any:
        import jax
        import jax.numpy as jnp

        c0 = 32 if b.dtype == "int8" else 16
        k, n = b.shape
        whole = jnp.pad(b, ((0, 0), (0, -n % c0))).reshape(k, -1, c0).transpose(1, 0, 2)
        stored = jax.lax.optimization_barrier(whole)
        kept = "int32" if a.dtype == "int8" else _dtype(out)
        return jnp.einsum("mk,jkc->mjc", a, stored, preferred_element_type=kept).astype(_dtype(out))

    return function


def product_in_parts(
    parts: int, transposed_a: bool, transposed_b: bool, kept: str, out: str | None
) -> Function:
    """The partial sums over equal parts of k, [parts, m, n] of type `kept`; their sum as `out`, unless that is None."""

    def function(a: Any, b: Any) -> Any:
        import jax.numpy as jnp

        def cut(x: Any, axis: int) -> Any:
            shape = x.shape
            return x.reshape(*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :])

        a, b = cut(a, 0 if transposed_a else 1), cut(b, 1 if transposed_b else 0)
        left, right = "skm" if transposed_a else "msk", "nsk" if transposed_b else "skn"
        y = jnp.einsum(f"{left},{right}->smn", a, b, preferred_element_type=_dtype(kept))
        return y if out is None else jnp.sum(y, axis=0).astype(_dtype(out))

    return function


def grouped_quantised(out: str, fractals: bool) -> Function:
    """Products of groups of i8 rows with i8 weights, scaled by row and column, with a GELU; `fractals` as above."""

    def function(a: Any, b: Any, rows: Any, columns: Any) -> Any:
        import jax.numpy as jnp

        how = "gmk,gjkc->gmjc" if fractals else "gmk,gkn->gmn"
        y = jnp.einsum(how, a, b, preferred_element_type="int32").astype("float32")
        rows = rows[:, :, None, None] if fractals else rows[:, :, None]
        return gelu(y * columns[:, None] * rows).astype(_dtype(out))

    return function


def quantised(transposed_b: bool, out: str) -> Function:
    """A product of i8 matrices, scaled by row and column."""

    def function(a: Any, b: Any, rows: Any, columns: Any) -> Any:
        import jax.numpy as jnp

        y = jnp.einsum("mk,nk->mn" if transposed_b else "mk,kn->mn", a, b, preferred_element_type="int32")
        return (y.astype("float32") * columns * rows[:, None]).astype(_dtype(out))

    return function


def attention(causal: bool) -> Function:
    """softmax(q k^T / sqrt(head size)) v; heads first."""

    def function(q: Any, k: Any, v: Any) -> Any:
        import jax
        import jax.numpy as jnp

        scores = jnp.einsum("hqd,hkd->hqk", q, k, preferred_element_type="float32") * q.shape[-1] ** -0.5
        if causal:
            seen = jnp.arange(q.shape[1])[:, None] >= jnp.arange(k.shape[1])[None]
            scores = jnp.where(seen, scores, -1e30)
        shares = jax.nn.softmax(scores, axis=-1).astype(q.dtype)
        return jnp.einsum("hqk,hkd->hqd", shares, v, preferred_element_type="float32").astype(q.dtype)

    return function


def convolution(strides: Sequence[int], dilation: Sequence[int], padding: Sequence[int]) -> Function:
    """A convolution of two dimensions, channels innermost; `padding` on both sides of each dimension."""

    def function(x: Any, kernel: Any) -> Any:
        import jax

        return jax.lax.conv_general_dilated(
            x,
            kernel,
            tuple(strides),
            [(p, p) for p in padding],
            rhs_dilation=tuple(dilation),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    return function


def gelu(x: Any) -> Any:
    """The GELU of the measured kernels: x / (1 + exp(-1.595769 (x + 0.044715 x^3))), eight instructions."""
    import jax.numpy as jnp

    return x / (1 + jnp.exp(-1.595769 * (x + 0.044715 * (x * x * x))))


def _dtype(name: str) -> Any:
    import jax.numpy as jnp

    return jnp.dtype(NUMPY[name])


OF_NUMPY = {
    "add": ("add", 2),
    "sub": ("subtract", 2),
    "mul": ("multiply", 2),
    "div": ("divide", 2),
    "max": ("maximum", 2),
    "min": ("minimum", 2),
    "maximum": ("maximum", 2),
    "minimum": ("minimum", 2),
    "pow": ("power", 2),
    "mod": ("remainder", 2),
    "floor mod": ("remainder", 2),
    "fmod": ("fmod", 2),
    "floor div": ("floor_divide", 2),
    "and": ("bitwise_and", 2),
    "or": ("bitwise_or", 2),
    "xor": ("bitwise_xor", 2),
    "not": ("bitwise_not", 1),
    "compare": ("less", 2),
    "select": ("where", 3),
    "where": ("where", 3),
    "exp": ("exp", 1),
    "ln": ("log", 1),
    "log": ("log", 1),
    "abs": ("abs", 1),
    "neg": ("negative", 1),
    "sign": ("sign", 1),
    "sqrt": ("sqrt", 1),
    "reciprocal": ("reciprocal", 1),
    "tanh": ("tanh", 1),
    "sin": ("sin", 1),
    "cos": ("cos", 1),
    "floor": ("floor", 1),
    "ceil": ("ceil", 1),
    "round": ("round", 1),
    "square": ("square", 1),
    "cumsum": ("cumsum", 1),
    "cumprod": ("cumprod", 1),
    "sort": ("sort", 1),
    "argmax": ("argmax", 1),
    "argmin": ("argmin", 1),
}
"""Operations that jax.numpy has: (its name, inputs)."""

OF_NN = ("sigmoid", "silu", "elu", "leaky relu", "softplus", "softmax", "log softmax")
OF_LAX = ("rsqrt", "erf")
ALONG_AN_AXIS = (
    "softmax",
    "log softmax",
    "layer norm",
    "rms norm",
    "cumsum",
    "cumprod",
    "sort",
    "argmax",
    "argmin",
)
"""Operations along an axis, which is the last one where the record names none."""

DIVISIONS = ("div", "mod", "fmod", "floor mod", "floor div")

SYNONYMS = {
    "layernorm": "layer norm",
    "rmsnorm": "rms norm",
    "swish": "silu",
    "leakyrelu": "leaky relu",
    "logsoftmax": "log softmax",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "realdiv": "div",
    "real div": "div",
    "power": "pow",
    "logistic": "sigmoid",
    "negative": "neg",
    "muls": "mul scalar",
    "adds": "add scalar",
    "integer div": "divide by a constant",
    "eltwise add": "add",
}


def stage(name: str, axes: Sequence[int]) -> tuple[Function, int] | None:
    """(function, inputs) of one operation by its name; None for one that is not known. `axes`: those that an
    operation along an axis works on."""
    import jax
    import jax.numpy as jnp

    name = re.sub(r"\s*\(.*", "", name).strip()
    name = SYNONYMS.get(name, name)
    own: dict[str, tuple[Function, int]] = {
        "gelu": (gelu, 1),
        "relu": (jax.nn.relu, 1),
        "mul scalar": (lambda x: x * 3, 1),
        "add scalar": (lambda x: x + 3, 1),
        "axpy": (lambda x, y: 3 * x + y, 2),
        "swiglu": (lambda x, gate: jax.nn.silu(gate) * x, 2),
        "divide by a constant": (lambda x: x // 7, 1),
        "layer norm": (lambda x: _normed(x, tuple(axes), centred=True), 1),
        "rms norm": (lambda x: _normed(x, tuple(axes), centred=False), 1),
    }
    if name in own:
        return own[name]
    repeated = re.fullmatch(r"(\d+) element-?wise(?: ops?)?", name)
    if repeated:
        return (lambda x: _several(x, int(repeated[1])), 1)
    found: Function
    if name in OF_NUMPY:
        attribute, arity = OF_NUMPY[name]
        found = getattr(jnp, attribute)
    elif name in OF_NN or name in OF_LAX:
        arity, found = 1, _of_floats(getattr(jax.nn if name in OF_NN else jax.lax, name.replace(" ", "_")))
    else:
        return None
    if name in ALONG_AN_AXIS:
        return (lambda x: found(x, axis=axes[-1]), arity)
    return found, arity


def chain(op: str, axes: Sequence[int] = (-1,), divides_in_f32: bool = False) -> tuple[Function, int] | None:
    """(function, inputs) of operations joined by `+`, each on the result of the one before and inputs of its own;
    None where one is not known. `divides_in_f32`: divisions convert what is narrower and their result back."""
    parts = [part.strip() for part in re.sub(r"\(.*\)", "", op).split("+")]
    stages = [stage(part, axes) for part in parts]
    known = [s for s in stages if s is not None]
    if len(known) < len(stages) or not known:
        return None
    if divides_in_f32:
        wide = [SYNONYMS.get(part, part) in DIVISIONS for part in parts]
        known = [(_in_f32(f) if w else f, arity) for (f, arity), w in zip(known, wide, strict=True)]

    def function(first: Any, *others: Any) -> Any:
        left = list(others)
        for f, arity in known:
            first = f(first, *left[: arity - 1])
            del left[: arity - 1]
        return first

    return function, 1 + sum(arity - 1 for _, arity in known)


def _in_f32(function: Function) -> Function:
    """The function of halves, computed in f32."""

    def widened(*arrays: Any) -> Any:
        import jax.numpy as jnp

        dtype = arrays[0].dtype
        if not jnp.issubdtype(dtype, jnp.floating):
            return function(*arrays)
        return function(*(a.astype("float32") for a in arrays)).astype(dtype)

    return widened


def _of_floats(function: Function) -> Function:
    """The function, which no chip computes of whole numbers other than by converting them first."""

    def checked(x: Any, **options: Any) -> Any:
        import jax.numpy as jnp

        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise TypeError(f"{getattr(function, '__name__', 'it')} of {x.dtype}")
        return function(x, **options)

    return checked


def triangle(which: str) -> Function:
    """The upper (triu) or lower (tril) triangle of a matrix, zero elsewhere."""

    def function(x: Any) -> Any:
        import jax.numpy as jnp

        return getattr(jnp, which)(x)

    return function


def _several(x: Any, count: int) -> Any:
    for _ in range(count):
        x = x * 1.01 + 0.01
    return x


def _normed(x: Any, axes: tuple[int, ...], centred: bool) -> Any:
    import jax
    import jax.numpy as jnp

    y = x - jnp.mean(x, axis=axes, keepdims=True) if centred else x
    return y * jax.lax.rsqrt(jnp.mean(y * y, axis=axes, keepdims=True) + 1e-5)


def reduction(op: str, kind: str, axes: Sequence[int]) -> tuple[Function, int]:
    """(function, inputs) of a reduction over axes, alone or of the gradient of a weighted SwiGLU."""
    over = tuple(axes)

    def plain(x: Any) -> Any:
        import jax.numpy as jnp

        return getattr(jnp, kind)(x, axis=over)

    def swiglu(x: Any, gate: Any, weight: Any) -> Any:
        """Gradients of weight * x * sigmoid-gated gate with respect to gate, weight, and a row's scale."""
        import jax
        import jax.numpy as jnp

        sigmoid = jax.nn.sigmoid(gate)
        smooth = gate * sigmoid
        of_gate = x * weight * sigmoid * (1 + gate * (1 - sigmoid))
        return of_gate, x * smooth, jnp.sum(x * weight * smooth, axis=over)

    return (swiglu, 3) if "swiglu" in op else (plain, 1)


def largest(count: int) -> Function:
    """The largest `count` of each row, with their places."""

    def function(x: Any) -> Any:
        import jax

        return jax.lax.top_k(x, count)

    return function


def transposed(order: Sequence[int]) -> Function:
    """The axes in another order."""

    def function(x: Any) -> Any:
        import jax.numpy as jnp

        return jnp.transpose(x, tuple(order))

    return function


def joined(axis: int) -> Function:
    """Arrays one after the other along an axis."""

    def function(*arrays: Any) -> Any:
        import jax.numpy as jnp

        return jnp.concatenate(arrays, axis=axis)

    return function


def rows_at() -> Function:
    """The rows of a table at given places."""

    def function(table: Any, places: Any) -> Any:
        import jax.numpy as jnp

        return jnp.take(table, places, axis=0, mode="clip")

    return function


def converted(out: str) -> Function:
    """Another element type."""

    def function(x: Any) -> Any:
        return x.astype(_dtype(out))

    return function


def to_fractals(c0: int) -> Function:
    """Rows of a matrix in blocks of `c0` columns, each block's rows together."""

    def function(x: Any) -> Any:
        import jax.numpy as jnp

        return jnp.transpose(x.reshape(x.shape[0], x.shape[1] // c0, c0), (1, 0, 2))

    return function
