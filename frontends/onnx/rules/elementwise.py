"""Functions of single elements. Those that the compiler has a row for are that row's function."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from ....dialects.elementwise import value_of
from ..node import Node
from ..table import add_rules, rule
from ..values import dtype_named, dtype_of, each_size, equal, is_float, is_sizes, larger, quotient, smaller

ROWS: dict[str, tuple[str, str]] = {
    "Abs": ("abs", "abs"),
    "Exp": ("exp", ""),
    "Log": ("log", ""),
    "Sqrt": ("sqrt", "sqrt"),
    "Tanh": ("tanh", ""),
    "Sigmoid": ("logistic", ""),
    "Sin": ("sin", ""),
    "Cos": ("cos", ""),
    "Tan": ("tan", ""),
    "Erf": ("erf", ""),
    "Floor": ("floor", "floor"),
    "Ceil": ("ceil", "ceil"),
    "Round": ("round_even", ""),
    "Neg": ("neg", "negative"),
    "Sign": ("sign", "sign"),
}
"""ONNX ops of one operand: the row of `dialects/elementwise.py` that computes each, and the function of numpy that does
so for known values; empty where these are not folded."""


def _of_row(row: str, known: str) -> Callable[..., Any]:
    def build(node: Node, x: Any) -> Any:
        return (getattr(np, known) if node.xp is np else value_of(row))(x)

    return build


for _op, (_row, _known) in ROWS.items():
    add_rules([_op], _of_row(_row, _known), folds=bool(_known))


LIBRARY = {
    "Acos": "arccos",
    "Acosh": "arccosh",
    "Asin": "arcsin",
    "Asinh": "arcsinh",
    "Atan": "arctan",
    "Atanh": "arctanh",
    "Cosh": "cosh",
    "Sinh": "sinh",
    "Reciprocal": "reciprocal",
    "IsNaN": "isnan",
    "Not": "logical_not",
    "BitwiseNot": "bitwise_not",
}
"""ONNX ops of one operand that are functions of `jax.numpy`."""

PAIRS = {
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
}
"""ONNX ops of two operands that are functions of `jax.numpy`."""


def _of_library(name: str) -> Callable[..., Any]:
    def build(node: Node, *operands: Any) -> Any:
        return getattr(node.xp, name)(*operands)

    return build


for _op, _function in {**LIBRARY, **PAIRS}.items():
    add_rules([_op], _of_library(_function), folds=True)


@rule("Div", folds=True)
def _div(node: Node, x: Any, y: Any) -> Any:
    if is_float(x) or dtype_of(x).kind == "c":
        return node.xp.divide(x, y)
    if node.xp is np and (is_sizes(x) or is_sizes(y)):
        _require_not_negative(x, y)
        return each_size(quotient, x, y)
    if node.xp is np:
        down = np.floor_divide(x, y)
        return (down + ((np.remainder(x, y) != 0) & ((x < 0) != (y < 0)))).astype(x.dtype)
    import jax

    return jax.lax.div(*node.xp.broadcast_arrays(x, y))


def _require_not_negative(x: Any, y: Any) -> None:
    """Raises NotImplementedError where a size may be negative, or a divisor 0: a quotient is rounded down there."""
    if not ((x >= 0).all() and (y > 0).all()):
        raise NotImplementedError("division of negative sizes")


@rule("Mod", folds=True)
def _mod(node: Node, x: Any, y: Any) -> Any:
    truncated = bool(node.get("fmod", 0))
    if node.xp is np and (is_sizes(x) or is_sizes(y)):
        _require_not_negative(x, y)
        truncated = False
    return (node.xp.fmod if truncated else node.xp.remainder)(x, y)


@rule("Equal", folds=True)
def _equal(node: Node, x: Any, y: Any) -> Any:
    if node.xp is np and (is_sizes(x) or is_sizes(y)):
        return each_size(equal, x, y)
    return node.xp.equal(x, y)


@rule("Pow")
def _pow(node: Node, x: Any, y: Any) -> Any:
    import jax.numpy as jnp

    if is_float(x) == is_float(y):
        kind = jnp.promote_types(x.dtype, y.dtype)
        return jnp.power(x.astype(kind), y.astype(kind)).astype(x.dtype)
    if is_float(x):
        return jnp.power(x, y.astype(x.dtype))
    return jnp.power(x.astype(y.dtype), y).astype(x.dtype)


@rule("Max", folds=True)
def _max(node: Node, *operands: Any) -> Any:
    if node.xp is np and any(map(is_sizes, operands)):
        return reduce(partial(each_size, larger), operands)
    return reduce(node.xp.maximum, operands)


@rule("Min", folds=True)
def _min(node: Node, *operands: Any) -> Any:
    if node.xp is np and any(map(is_sizes, operands)):
        return reduce(partial(each_size, smaller), operands)
    return reduce(node.xp.minimum, operands)


@rule("Sum")
def _sum(node: Node, *operands: Any) -> Any:
    return reduce(node.xp.add, operands)


@rule("Mean")
def _mean(node: Node, *operands: Any) -> Any:
    return reduce(node.xp.add, operands) / np.asarray(len(operands), operands[0].dtype)


@rule("Where", folds=True)
def _where(node: Node, condition: Any, x: Any, y: Any) -> Any:
    return node.xp.where(condition, x, y)


@rule("IsInf")
def _is_inf(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    found = jnp.isinf(x)
    if not node.get("detect_positive", 1):
        found &= x < 0
    if not node.get("detect_negative", 1):
        found &= x > 0
    return found


@rule("BitShift")
def _bit_shift(node: Node, x: Any, y: Any) -> Any:
    import jax.numpy as jnp

    bits = x.dtype.itemsize * 8
    if node.get("direction") == "LEFT":
        return jnp.where(y < bits, jnp.left_shift(x, y), jnp.zeros((), x.dtype))
    far = (
        jnp.right_shift(x, jnp.asarray(bits - 1, x.dtype))
        if dtype_of(x).kind == "i"
        else jnp.zeros((), x.dtype)
    )
    return jnp.where((y >= 0) & (y < bits), jnp.right_shift(x, y), far)


@rule("BitCast")
def _bit_cast(node: Node, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    dtype = dtype_named(node.get("to"))
    if dtype.kind == "b":
        return x.astype(bool)
    return jax.lax.bitcast_convert_type(x.astype(jnp.uint8) if x.dtype == bool else x, dtype)


@rule("Clip")
def _clip(node: Node, x: Any, low: Any = None, high: Any = None) -> Any:
    import jax.numpy as jnp

    low = node.get("min") if low is None else low
    high = node.get("max") if high is None else high
    if low is not None:
        x = jnp.maximum(x, jnp.asarray(low, x.dtype))
    if high is not None:
        x = jnp.minimum(x, jnp.asarray(high, x.dtype))
    return x


# -- activations -------------------------------------------------------------------------------------------


@rule("Relu")
def _relu(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.maximum(x, jnp.zeros((), x.dtype))


def leaky_relu(x: Any, alpha: float) -> Any:
    """x, of which what is below 0 is multiplied."""
    import jax.numpy as jnp

    return jnp.where(x < 0, x * _like(x, alpha), x)


@rule("LeakyRelu")
def _leaky_relu(node: Node, x: Any) -> Any:
    return leaky_relu(x, node.get("alpha", 0.01))


@rule("PRelu")
def _prelu(node: Node, x: Any, slope: Any) -> Any:
    import jax.numpy as jnp

    if node.version < 7 and slope.ndim == 1 and x.ndim > 1:  # of channels, before there was broadcasting
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    return jnp.where(x < 0, x * slope, x)


def elu(x: Any, alpha: float) -> Any:
    """x, in place of what is below 0 a multiple of exp(x) - 1."""
    import jax.numpy as jnp

    return jnp.where(x < 0, _like(x, alpha) * (jnp.exp(jnp.minimum(x, 0)) - 1), x)


@rule("Elu")
def _elu(node: Node, x: Any) -> Any:
    return elu(x, node.get("alpha", 1.0))


@rule("Celu")
def _celu(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    alpha = _like(x, node.get("alpha", 1.0))
    return jnp.maximum(x, 0) + jnp.minimum(alpha * (jnp.exp(jnp.minimum(x, 0) / alpha) - 1), 0)


@rule("Selu")
def _selu(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    # the defaults are those of the op's definition
    alpha, gamma = (
        _like(x, node.get(n, d))
        for n, d in (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875))
    )
    return gamma * jnp.where(x > 0, x, alpha * (jnp.exp(jnp.minimum(x, 0)) - 1))


def hard_sigmoid(x: Any, alpha: float, beta: float) -> Any:
    """alpha x + beta, not below 0 and not above 1."""
    import jax.numpy as jnp

    return jnp.clip(x * _like(x, alpha) + _like(x, beta), 0, 1)


@rule("HardSigmoid")
def _hard_sigmoid(node: Node, x: Any) -> Any:
    return hard_sigmoid(x, node.get("alpha", 0.2), node.get("beta", 0.5))


@rule("HardSwish")
def _hard_swish(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    return x * jnp.clip(x / 6 + _like(x, 0.5), 0, 1)


def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""
    import jax.numpy as jnp

    return jnp.logaddexp(x, jnp.zeros((), x.dtype))


@rule("Softplus")
def _softplus(node: Node, x: Any) -> Any:
    return softplus(x)


def softsign(x: Any) -> Any:
    """x / (1 + |x|)."""
    import jax.numpy as jnp

    return x / (1 + jnp.abs(x))


@rule("Softsign")
def _softsign(node: Node, x: Any) -> Any:
    return softsign(x)


@rule("ThresholdedRelu")
def _thresholded_relu(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.where(x > _like(x, node.get("alpha", 1.0)), x, 0)


@rule("Shrink")
def _shrink(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    limit, bias = node.get("lambd", 0.5), node.get("bias", 0.0)
    if is_float(x):
        limit, bias = _like(x, limit), _like(x, bias)
        low, high, above, below = x < -limit, x > limit, x + bias, x - bias
    else:  # of integers, the formula in real numbers, cut off
        low, high = less_than(x, math.ceil(-limit)), ~less_than(x, math.floor(limit) + 1)
        above, below = plus_cut_off(x, bias), plus_cut_off(x, -bias)
    return jnp.where(low, above, jnp.where(high, below, jnp.zeros((), x.dtype)))


def less_than(x: Any, bound: int) -> Any:
    """Whether integers are less than a number, which need not be one of their type."""
    import jax.numpy as jnp

    info = jnp.iinfo(x.dtype)
    if info.min < bound <= info.max:
        return x < np.asarray(bound, x.dtype)
    return jnp.full(x.shape, bound > info.max)


def plus_cut_off(x: Any, number: float) -> Any:
    """The sum of integers and a real number without its fraction; it wraps as sums of integers do."""
    whole = math.floor(number)
    made = x + np.asarray(whole % (1 << 64), np.uint64).astype(x.dtype)
    return made if whole == number else made + less_than(x, -whole).astype(x.dtype)


@rule("Mish")
def _mish(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    return x * jnp.tanh(softplus(x))


@rule("Swish")
def _swish(node: Node, x: Any) -> Any:
    return x * value_of("logistic")(x * _like(x, node.get("alpha", 1.0)))


@rule("Gelu")
def _gelu(node: Node, x: Any) -> Any:
    import jax

    return jax.nn.gelu(x, approximate=node.get("approximate", "none") == "tanh")


def _like(x: Any, number: float) -> Any:
    """A number in the type of an array."""
    return np.asarray(number, x.dtype)
