"""What attributes of ops of jaxlib's MLIR bindings hold, as plain values. Used from bindings.py."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from ..dialects.dtypes import name_of_numpy
from ..dialects.graph.attributes import Literal

Op = Any
"""An operation of the bindings: `ir.OpView`."""

Value = Any
"""An SSA value of the bindings: `ir.Value`; equal and hashed by identity of what it wraps."""

# -- numbers and words ---------------------------------------------------------------------------------------


def int_array(op: Op, name: str) -> tuple[int, ...]:
    """A dense integer array attribute (booleans as 0 and 1); () where it is absent."""
    found = op.attributes
    return tuple(found[name]) if name in found else ()


def int_attribute(op: Op, name: str, default: int = 0) -> int:
    """An integer attribute."""
    return op.attributes[name].value if name in op.attributes else default


def string(op: Op, name: str) -> str:
    """A string or symbol attribute; "" where it is absent."""
    return op.attributes[name].value if name in op.attributes else ""


def padding(op: Op, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The low and high halves of a `padding` attribute of `rank` pairs; zeros where it is absent."""
    if "padding" not in op.attributes:
        return (0,) * rank, (0,) * rank
    pairs = np.asarray(op.attributes["padding"]).reshape(rank, 2)
    return tuple(pairs[:, 0].tolist()), tuple(pairs[:, 1].tolist())


def called(op: Op) -> tuple[str, ...]:
    """The functions that a custom call names; () where it names none."""
    found = op.attributes.get("called_computations", ())
    return tuple(ir.FlatSymbolRefAttr(symbol).value for symbol in found)


def direction(op: Op) -> str:
    """EQ, NE, LT, LE, GT or GE: what a compare op tests."""
    return stablehlo.ComparisonDirectionAttr(op.attributes["comparison_direction"]).value


def compare_type(op: Op) -> str:
    """FLOAT, TOTALORDER, SIGNED, UNSIGNED, or "" where the op does not say."""
    if "compare_type" not in op.attributes:
        return ""
    return stablehlo.ComparisonTypeAttr(op.attributes["compare_type"]).value


def rng_algorithm(op: Op) -> str:
    """DEFAULT, THREE_FRY or PHILOX: the algorithm of a rng_bit_generator."""
    return stablehlo.RngAlgorithmAttr(op.attributes["rng_algorithm"]).value


def dot_dimensions(op: Op) -> dict[str, list[int]]:
    """A dot_general's dimension numbers under the names of graph.contract's properties."""
    d = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    return {
        "lhs_batch": d.lhs_batching_dimensions,
        "rhs_batch": d.rhs_batching_dimensions,
        "lhs_contract": d.lhs_contracting_dimensions,
        "rhs_contract": d.rhs_contracting_dimensions,
    }


def conv_dimensions(op: Op) -> dict[str, list[int]]:
    """A convolution's layouts under the names of graph.conv's properties."""
    d = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    return {
        "lhs_layout": [d.input_batch_dimension, d.input_feature_dimension, *d.input_spatial_dimensions],
        "rhs_layout": [
            d.kernel_input_feature_dimension,
            d.kernel_output_feature_dimension,
            *d.kernel_spatial_dimensions,
        ],
        "out_layout": [d.output_batch_dimension, d.output_feature_dimension, *d.output_spatial_dimensions],
    }


def gather_dimensions(op: Op) -> tuple[dict[str, list[int]], int]:
    """A gather's dimension numbers under the names of graph.gather's properties, and its index dimension."""
    d = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    return {
        "offset_dims": d.offset_dims,
        "collapsed_dims": d.collapsed_slice_dims,
        "x_batch": d.operand_batching_dims,
        "indices_batch": d.start_indices_batching_dims,
        "start_map": d.start_index_map,
    }, d.index_vector_dim


def scatter_dimensions(op: Op) -> dict[str, list[int]]:
    """A scatter's dimension numbers under StableHLO's names; index_vector_dim is one number."""
    d = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    return {
        "update_window_dims": d.update_window_dims,
        "inserted_window_dims": d.inserted_window_dims,
        "input_batching_dims": d.input_batching_dims,
        "scatter_indices_batching_dims": d.scatter_indices_batching_dims,
        "scattered_dims_to_operand_dims": d.scattered_dims_to_operand_dims,
        "index_vector_dim": [d.index_vector_dim],
    }


# -- constants -----------------------------------------------------------------------------------------------


def value_key(op: Op) -> Any:
    """What two constant ops of one value and type share; None where the bindings cannot give it."""
    try:
        attr = op.attributes["value"]
    except TypeError:  # they have no Python class for complex elements
        found = _DENSE.search(str(op))
        return None if found is None else f"{found.group()}{op.results[0].type}"
    return attr if isinstance(attr, ir.DenseElementsAttr) else None


def literal(attr: ir.DenseElementsAttr | str, shape: tuple[int, ...], dtype: np.dtype) -> Literal:
    """The tensor that an attribute, or the text of one, from `value_key` holds."""
    if 0 in shape:  # the bindings make no difference between types here
        return Literal.of(np.zeros(shape, dtype))
    if isinstance(attr, str):
        return Literal.of(_array_from_text(attr, shape, dtype))
    try:
        array = np.asarray(attr)
    except TypeError:
        array = _array_from_text(str(attr), shape, dtype)
    if attr.is_splat and array.size:
        return Literal(name_of_numpy(dtype), shape, array[(0,) * array.ndim].tobytes(), True)
    return Literal.of(array)


_DENSE = re.compile(r"dense<(.*)> : tensor<", re.DOTALL)
_PAIR = re.compile(r"\(([^,()]+),([^()]+)\)")


def _array_from_text(text: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """bf16, float8, narrow integers and complex numbers have no Python buffer; MLIR prints long ones as hexadecimal
    bytes."""
    found = _DENSE.match(text)
    body = found.group(1) if found else ""
    if body.startswith('"0x'):
        flat = np.frombuffer(bytes.fromhex(body[3:-1]), np.int8).view(dtype)
    elif dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        pairs = [[_element(w.strip(), part) for w in pair] for pair in _PAIR.findall(body)]
        flat = np.array(pairs, part).reshape(-1).view(dtype)
    else:
        words = re.sub(r"[\[\]\s]", "", body).split(",") if body else []
        flat = np.array([_element(w, dtype) for w in words], dtype)
    return np.broadcast_to(flat.reshape(()), shape) if flat.size == 1 else flat.reshape(shape)


def _element(word: str, target: np.dtype) -> Any:
    if word.startswith("0x"):
        return np.array(int(word, 16), f"u{target.itemsize}").view(target)
    return np.array(int(word) if re.fullmatch(r"-?\d+", word) else float(word)).astype(target)
