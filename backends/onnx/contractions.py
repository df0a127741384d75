"""Products and convolutions as nodes of ONNX; of quantized numbers between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from xdsl.ir import SSAValue

from ...dialects.base import integer, to_ints
from ...dialects.dtypes import is_float, itemsize, size
from ...dialects.graph import ContractOp, ConvOp
from ...dialects.quantized import quantized
from .moves import inverse, pad, reshape, spread, transpose
from .quantization import dequantized, quantized_as
from .values import Value, type_of
from .writer import OnnxWriter

_BYTES = ("i8", "ui8")


def _operands(op: ContractOp | ConvOp, w: OnnxWriter) -> tuple[Value, Value, str]:
    """The operands as numbers, and the type of their product."""
    made = quantized(op.result.type)
    dtype = made.data.expressed if made is not None else type_of(op.result)[1]
    return _number(op.lhs, w), _number(op.rhs, w), dtype


def _number(value: SSAValue, w: OnnxWriter) -> Value:
    kind, x = quantized(value.type), w.full(value)
    return x if kind is None else dequantized(x, kind.data)


def _result(op: ContractOp | ConvOp, product: Value) -> Value:
    made = quantized(op.result.type)
    return product if made is None else quantized_as(product, made.data)


def _typed(a: Value, b: Value, dtype: str) -> tuple[Value, Value]:
    """Operands in the type that a product is computed in: that of the result, but not less than an operand's, and i32
    for integers of a byte."""
    kinds = {a.dtype, b.dtype, dtype}
    if len(kinds) > 1 or (not is_float(dtype) and itemsize(dtype) < 4):
        wide = [k for k in (dtype, a.dtype, b.dtype) if is_float(k) == is_float(dtype)]
        kind = max(wide, key=itemsize)
        kind = kind if itemsize(kind) >= 4 else "f32" if is_float(dtype) else "i32"
        a, b = a.cast(kind), b.cast(kind)
    return a, b


def contract(op: ContractOp, w: OnnxWriter) -> Value:
    a, b, dtype = _operands(op, w)
    batch = [(to_ints(op.lhs_batch)), (to_ints(op.rhs_batch))]
    over = [to_ints(op.lhs_contract), to_ints(op.rhs_contract)]
    free = op.free_dims()
    rows, columns, depth = [a.shape[d] for d in free[0]], [b.shape[d] for d in free[1]], [a.shape[d] for d in over[0]]
    shape = [*(a.shape[d] for d in batch[0]), *rows, *columns]
    if not size(depth):
        return _result(op, w.expand(w.number(0, dtype), shape))
    whole = a.dtype in _BYTES and b.dtype in _BYTES and dtype == "i32"
    a, b = (a, b) if whole else _typed(a, b, dtype)
    orders = [*batch[0], *free[0], *over[0]], [*batch[1], *over[1], *free[1]]
    if is_float(a.dtype) and len(a.shape) == len(b.shape) == 2 and len(depth) == 1 and not batch[0]:
        turned = [int(list(o) != sorted(o)) for o in orders]
        if any(turned):
            return _result(op, w.node("Gemm", [a, b], shape, transA=turned[0], transB=turned[1]).cast(dtype))
    a, b = (transpose(v, o) for v, o in zip((a, b), orders, strict=True))
    made = shape
    if len(depth) != 1 or len(columns) > 1 or (batch[0] and not len(rows) == len(columns) == 1):
        lead = shape[: len(batch[0])]
        a, b = reshape(a, [*lead, size(rows), size(depth)]), reshape(b, [*lead, size(depth), size(columns)])
        made = [*lead, size(rows), size(columns)]
    product = w.node("MatMulInteger" if whole else "MatMul", [a, b], made, "i32" if whole else a.dtype)
    return _result(op, reshape(product.cast(dtype), shape))


def conv(op: ConvOp, w: OnnxWriter) -> Value:
    x, kernel, dtype = _operands(op, w)
    layouts = [to_ints(p) for p in (op.lhs_layout, op.rhs_layout, op.out_layout)]
    features, out = layouts[1], layouts[2]
    shape, _ = type_of(op.result)
    if not size(x.shape) or not size(kernel.shape):
        return _result(op, w.expand(w.number(0, dtype), shape))
    x = transpose(x, layouts[0])
    kernel = transpose(kernel, (features[1], features[0], *features[2:]))
    whole = x.dtype in _BYTES and kernel.dtype in _BYTES and dtype == "i32"
    x, kernel = (x, kernel) if whole else _typed(x, kernel, dtype)
    for i, n in enumerate(to_ints(op.lhs_dilation)):
        x = spread(x, 0, 2 + i, n - 1)
    low, high = to_ints(op.low), to_ints(op.high)
    if min(*low, *high) < 0:
        x, low, high = pad(x, 0, [0, 0, *low], [0, 0, *high]), [0] * len(low), [0] * len(high)
    made = w.node(
        "ConvInteger" if whole else "Conv",
        [x, kernel],
        [shape[d] for d in out],
        "i32" if whole else x.dtype,
        strides=list(to_ints(op.strides)),
        pads=[*low, *high],
        dilations=list(to_ints(op.rhs_dilation)),
        group=integer(op.groups),
        kernel_shape=list(kernel.shape[2:]),
    )
    return _result(op, transpose(made.cast(dtype), inverse(out)))
