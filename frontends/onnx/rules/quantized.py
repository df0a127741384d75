"""Quantised tensors: what they stand for, and products of what is stored for them.

A stored number is taken to a float as `convert, sub, mul`, which is how the compiler finds products of 8-bit numbers;
QLinear ops multiply these numbers themselves, as signed ones, and take out of the sums what zero points add.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..node import Node
from ..table import rule, rule_of
from ..values import dtype_named, dtype_of, is_float, is_known
from .contractions import integer_matmul, signed, sums
from .shapes import convert
from .windows import check_groups, check_weights, per_channel, windows_of

MICROSOFT = "com.microsoft"


def uniform(value: Any) -> np.ndarray | None:
    """The one number that all elements of a known value are, as f32; None where it is not known, or they differ."""
    if not is_known(value):
        return None
    flat = np.asarray(value).astype(np.float32).reshape(-1)
    return flat[0].reshape(()) if flat.size and (flat == flat[0]).all() else None


def zero_of(node: Node, i: int, dtype: Any) -> Any:
    """The zero point that is input `i`, in another type; None where it is left out, or known to be 0."""
    value = node.input(i)
    if value is None:
        return None
    number = uniform(value)
    if number is not None:
        return None if number == 0 else number.astype(dtype)
    return (value if node.xp is np else node.traced(value)[0]).astype(dtype)


def spread(node: Node, value: Any, x: Any) -> Any:
    """Scales or zero points so that they broadcast against x: one, one for each index of an axis, or one for each block
    of it."""
    if all(isinstance(n, int) and n == 1 for n in value.shape):
        return value.reshape(())
    block, rank = node.get("block_size", 0), x.ndim
    if not block and value.ndim == 1:
        dims: list[Any] = [1] * rank
        dims[node.place(node.get("axis", 1), rank) if rank > 1 else 0] = value.shape[0]
        return value.reshape(dims)
    if not block or value.ndim != rank:
        raise node.unsupported(f"scales of rank {value.ndim} need a block size and an operand of this rank")
    axis = node.place(node.get("axis", 1), rank) if rank > 1 else 0
    repeated = [*value.shape[: axis + 1], block, *value.shape[axis + 1 :]]
    whole = [*value.shape[:axis], value.shape[axis] * block, *value.shape[axis + 1 :]]
    made = node.xp.broadcast_to(node.xp.expand_dims(value, axis + 1), repeated).reshape(whole)
    index: list[Any] = [slice(None)] * rank
    index[axis] = slice(0, x.shape[axis])
    return made[tuple(index)]


# -- to and from what is stored ----------------------------------------------------------------------------


def saturated(node: Node, y: Any, zero: Any, dtype: Any) -> Any:
    """Numbers in units of their scale as what is stored for them."""
    import jax.numpy as jnp

    bits, kind = bits_of(dtype)
    if kind not in "iu":
        return convert(node, y if zero is None else y + zero.astype(y.dtype), np.dtype(dtype))
    if bits > 8 and is_float(y) and y.dtype.itemsize < 4:
        y = y.astype(np.float32)  # narrower floats do not hold all integers of the type
    y = (node.xp if is_known(y) else jnp).round(y)
    if zero is not None:
        y = y + zero.astype(y.dtype)
    low, high = (0, (1 << bits) - 1) if kind == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return (
        (node.xp if is_known(y) else jnp)
        .clip(y, np.asarray(low, y.dtype), np.asarray(high, y.dtype))
        .astype(dtype)
    )


def bits_of(dtype: Any) -> tuple[int, str]:
    """The bits of a stored type, and `i`, `u` or `f`."""
    name = np.dtype(dtype).name
    if name.startswith("float"):
        return np.dtype(dtype).itemsize * 8, "f"
    return int(name.lstrip("uint")), "u" if name.startswith("u") else "i"


@rule("QuantizeLinear", folds=True)
@rule("QuantizeLinear", domain=MICROSOFT, folds=True)
def _quantize_linear(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    named = node.get("output_dtype", 0)
    dtype = dtype_of(zero) if zero is not None else dtype_named(named) if named else np.dtype(np.uint8)
    _stored_on_devices(node, dtype)
    kind = dtype_named(node.get("precision")) if node.get("precision", 0) else dtype_of(scale)
    if kind.name not in ("float32", "float16", "bfloat16"):
        kind = dtype_of(x) if is_float(x) else np.dtype(np.float32)
    y = x.astype(kind) / spread(node, scale.astype(kind), x)
    point = zero_of(node, 2, np.float32)
    return saturated(node, y, None if point is None else spread(node, point, x), dtype)


@rule("DequantizeLinear", folds=True)
@rule("DequantizeLinear", domain=MICROSOFT, folds=True)
def _dequantize_linear(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    import jax.numpy as jnp

    named, bits = node.get("output_dtype", 0), bits_of(dtype_of(x))[0]
    own = (
        dtype_of(scale)
        if dtype_of(scale).name in ("float32", "float16", "bfloat16")
        else np.dtype(np.float32)
    )
    dtype = dtype_named(named) if named else own
    wide = (
        bits > 8 or own != dtype
    )  # what is stored in 8 bits is exact in any float type, less a zero point, too
    kind = np.dtype(np.float32) if wide else dtype
    if is_known(x) and bits <= 8 and "float6" not in dtype_of(x).name:
        # products of it are products of bytes; a constant that is converted at once would become one of floats
        x = jnp.asarray(x.reshape(-1)).reshape(x.shape)
    y = x.astype(kind)
    point = zero_of(node, 2, kind)
    if point is not None:
        y = y - spread(node, point, x)
    return (y * spread(node, scale.astype(kind), x)).astype(dtype)


def _stored_on_devices(node: Node, dtype: np.dtype[Any]) -> None:
    if dtype.name.startswith("float6"):
        raise node.unsupported(f"no device has {dtype.name}")


@rule("DynamicQuantizeLinear")
def _dynamic_quantize_linear(node: Node, x: Any) -> Any:
    return dynamically_quantized(node, x)


def dynamically_quantized(node: Node, x: Any) -> tuple[Any, Any, Any]:
    """x in unsigned bytes, with the scale and the zero point that its least and largest number and 0 need."""
    import jax.numpy as jnp

    low = jnp.min(x, initial=0)
    scale = (jnp.max(x, initial=0) - low) / 255
    divisor = jnp.where(scale == 0, 1, scale).astype(x.dtype)
    zero = saturated(node, -low / divisor, None, np.uint8)
    return saturated(node, x / divisor, zero.astype(np.float32), np.uint8), scale, zero


# -- products of stored numbers ----------------------------------------------------------------------------


def rows(value: Any, rank: int) -> Any:
    """Scales or zero points of the rows of a matrix, so that they broadcast against it."""
    if value is None or value.ndim == 0 or (value.ndim == 1 and value.shape[0] == 1):
        return None if value is None else value.reshape(())
    return value[:, None] if value.ndim == 1 and rank > 1 else value


@rule("QLinearMatMul")
def _qlinear_matmul(
    node: Node,
    a: Any,
    a_scale: Any,
    a_zero: Any,
    b: Any,
    b_scale: Any,
    b_zero: Any,
    scale: Any,
    zero: Any,
) -> Any:
    import jax.numpy as jnp

    if bits_of(a.dtype)[1] == "f" or bits_of(b.dtype)[1] == "f":
        total = jnp.matmul(*_multiplied(a, b), preferred_element_type=jnp.float32)
    else:
        total = integer_matmul(a, node.inputs[3], node.inputs[2], node.inputs[5])
    factors = [rows(a_scale, a.ndim), _scalar(b_scale), _scalar(scale)]
    left, right, below = (f.astype(np.float32) for f in factors)
    y = total.astype(np.float32) * (left * right / below)
    return saturated(node, y, zero_of(node, 7, np.float32), zero.dtype)


def _multiplied(a: Any, b: Any) -> tuple[Any, Any]:
    """Both operands of a product in one type."""
    return (a, b) if a.dtype == b.dtype else (a.astype(np.float32), b.astype(np.float32))


def _scalar(value: Any) -> Any:
    """A value of one element as a scalar; others as they are."""
    return value.reshape(()) if value.shape == (1,) else value


@rule("QLinearConv")
@rule("QLinearConv", domain=MICROSOFT)
def _qlinear_conv(
    node: Node,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    scale: Any,
    zero: Any,
    bias: Any = None,
) -> Any:
    import jax.numpy as jnp

    last = bool(node.get("channels_last", 0))
    x_zero, w, w_zero = (node.inputs[i] for i in (2, 3, 5))  # as constants, where they are known
    total = integer_conv(node, jnp.moveaxis(x, -1, 1) if last else x, w, x_zero, w_zero)
    if bias is not None:
        total = total + per_channel(bias, x.ndim)
    factor = x_scale.reshape(()) * per_channel(w_scale, x.ndim) / scale.reshape(())
    point = zero_of(node, 7, np.float32)
    point = None if point is None else point.reshape(())
    made = saturated(node, total.astype(np.float32) * factor, point, zero.dtype)
    return jnp.moveaxis(made, 1, -1) if last else made


def integer_conv(node: Node, x: Any, w: Any, x_zero: Any, w_zero: Any) -> Any:
    """The i32 sums of (x - x_zero) (w - w_zero) of a convolution of bytes: of signed ones, which the cube multiplies. x
    is padded with its zero point, so that what zero points add is the same everywhere. What follows from known weights
    is a constant."""
    import jax
    import jax.numpy as jnp

    rank, groups = x.ndim, node.get("group", 1)
    check_weights(node, x, w)
    check_groups(node, x.shape[1], w.shape[0], w.shape[1])
    (x, x_zero), (w, w_zero) = signed(x, x_zero), signed(w, w_zero)
    windows = windows_of(node, x, w.shape[2:])
    filler = jnp.zeros((), jnp.int8) if x_zero is None else x_zero.reshape(()).astype(jnp.int8)
    padded = jax.lax.pad(x, filler, [(0, 0, 0)] * 2 + [(low, high, 0) for low, high in windows.padding])

    def product(kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(
            padded,
            kernel,
            windows.strides,
            [(0, 0)] * (rank - 2),
            rhs_dilation=windows.dilations,
            feature_group_count=groups,
            preferred_element_type=jnp.int32,
        )

    total = product(w)
    if x_zero is not None:
        wide = w.astype(np.int32)
        if w_zero is not None:
            wide = wide - (w_zero if w_zero.ndim == 0 else w_zero.reshape(-1, *[1] * (rank - 1)))
        total = total - per_channel(sums(wide, tuple(range(1, rank))), rank) * x_zero.reshape(())
    if w_zero is not None:
        over = product(jnp.ones((groups, *w.shape[1:]), np.int8))
        if groups > 1:
            over = jnp.repeat(over, w.shape[0] // groups, axis=1)
        total = total - over * per_channel(w_zero, rank)
    return total


# -- functions of what is stored ---------------------------------------------------------------------------


def _number(node: Node, i: int) -> Any:
    """The numbers that inputs `i`, with their scale and zero point behind it, stand for."""
    x, scale = node.traced(*node.inputs[i : i + 2])
    point, x = zero_of(node, i + 2, np.float32), x.astype(np.float32)
    return (x if point is None else x - point.reshape(())) * scale.reshape(()).astype(np.float32)


def _stored(node: Node, y: Any, i: int, dtype: Any) -> Any:
    """Numbers as what is stored for them by the scale that is input `i` and the zero point behind it."""
    (scale,) = node.traced(node.inputs[i])
    point = zero_of(node, i + 1, np.float32)
    return saturated(node, y / scale.reshape(()), None if point is None else point.reshape(()), dtype)


@rule("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def _qlinear_pair(node: Node, a: Any, *others: Any) -> Any:
    left, right = _number(node, 0), _number(node, 3)
    return _stored(node, left + right if node.op == "QLinearAdd" else left * right, 6, a.dtype)


STANDARD = {
    "QLinearSigmoid": "Sigmoid",
    "QLinearLeakyRelu": "LeakyRelu",
    "QLinearSoftmax": "Softmax",
    "QLinearAveragePool": "AveragePool",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
}
"""Ops of com.microsoft that compute what ONNX's ops do of the numbers that bytes stand for."""


@rule(*STANDARD, domain=MICROSOFT)
def _qlinear_unary(node: Node, x: Any, *others: Any) -> Any:
    import jax.numpy as jnp

    numbers, last = _number(node, 0), bool(node.get("channels_last", 0))
    own = {k: v for k, v in node.attributes.items() if k not in ("channels_last", "opset")}
    if last:
        numbers = jnp.moveaxis(numbers, -1, 1)
    if node.op == "QLinearSoftmax":
        own = {"axis": -1, **own}
    made = standard(node, STANDARD[node.op], numbers, own, node.get("opset", STANDARD_VERSION))
    return _stored(node, jnp.moveaxis(made, 1, -1) if last else made, 3, x.dtype)


@rule("QLinearReduceMean", domain=MICROSOFT)
def _qlinear_reduce_mean(node: Node, x: Any, *others: Any) -> Any:
    import jax.numpy as jnp

    axes = node.get("axes")
    made = jnp.mean(
        _number(node, 0), None if axes is None else tuple(axes), keepdims=bool(node.get("keepdims", 1))
    )
    return _stored(node, made, 3, x.dtype)


@rule("QLinearConcat", domain=MICROSOFT)
def _qlinear_concat(node: Node, scale: Any, zero: Any, *parts: Any) -> Any:
    import jax.numpy as jnp

    numbers = [_number(node, 2 + i) for i in range(0, len(parts), 3)]
    return _stored(node, jnp.concatenate(numbers, node.get("axis", 0)), 0, zero.dtype)


STANDARD_VERSION = 22
"""The opset by which ops of com.microsoft use rules of ONNX's own."""


def standard(
    node: Node, op: str, x: Any, attributes: Any, version: int = STANDARD_VERSION, *more: Any
) -> Any:
    """What ONNX's own op of this name makes of inputs."""
    found = rule_of("", op)
    if found is None:
        raise node.unsupported(f"{op} has no rule")
    inner = replace(node, op=op, version=version, attributes=attributes, inputs=(x, *more))
    return found.build(inner, x, *more)
