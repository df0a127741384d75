"""A second, direct reading of the graph level in JAX: what the frontend's tests compare with XLA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import backend
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, ModuleOp, StringAttr
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright.dialects.dtypes import dtype_name, numpy_dtype
from tilewright.dialects.elementwise import identity
from tilewright.dialects.graph import ConstantOp, YieldOp
from tilewright.dialects.graph.interface import element_of, shape_of

Arrays = Sequence[Any]


def run(module: ModuleOp, inputs: Arrays) -> list[np.ndarray]:
    """The results of @main."""
    (function,) = module.ops
    with jax.enable_x64(True):
        arrays = [jnp.asarray(x) for x in inputs]
        return [np.asarray(x) for x in _block(function.regions[0].block, arrays, {})]


def run_stablehlo(text: str, inputs: Arrays) -> list[np.ndarray]:
    """The results of StableHLO's @main as XLA computes them on the CPU."""
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jaxlib import xla_client
    from jaxlib.mlir import ir

    with jax.enable_x64(True):
        client = backend.get_backend("cpu")
        devices = xla_client.DeviceList(tuple(client.local_devices()[:1]))
        options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
        with mlir.make_ir_context():
            module = ir.Module.parse(text)
            program = client.compile_and_load(module, executable_devices=devices, compile_options=options)
        results = program.execute_sharded([jax.device_put(np.asarray(x)) for x in inputs])
        return [np.asarray(x[0]) for x in results.disassemble_into_single_device_arrays()]


def _block(block: Block, args: Arrays, outer: dict[SSAValue, Any]) -> list[Any]:
    values = {**outer, **dict(zip(block.args, args, strict=True))}
    for op in block.ops:
        if isinstance(op, YieldOp | ReturnOp):
            return [values[v] for v in op.operands]
        operands = [values[v] for v in op.operands]
        kind = op.name.removeprefix("graph.")
        if kind in _CONTROL:
            results = _CONTROL[kind](op, operands, values)
        else:
            result = _TENSOR.get(kind, _elementwise)(op, operands)
            results = result if isinstance(result, tuple) else (result,)
        for value, result in zip(op.results, results, strict=True):
            expected = (shape_of(value), numpy_dtype(element_of(value)))
            assert (jnp.shape(result), jnp.result_type(result)) == expected, (op.name, result, expected)
            values[value] = result
    raise AssertionError("no terminator")


def _property(op: Operation, name: str) -> Any:
    attr: Attribute | None = op.properties.get(name)
    if isinstance(attr, DenseArrayBase):
        return tuple(int(v) for v in attr.get_values())
    if isinstance(attr, IntegerAttr):
        return attr.value.data
    assert isinstance(attr, StringAttr), (op.name, name)
    return attr.data


_LAX = {
    "max": lax.max,
    "min": lax.min,
    "not": lax.bitwise_not,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "shl": lax.shift_left,
    "shr_logical": lax.shift_right_logical,
    "shr_arithmetic": lax.shift_right_arithmetic,
    "popcnt": lax.population_count,
    "round_even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "round_away": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
}


def _elementwise(op: Operation, args: Arrays) -> Any:
    name = op.name.removeprefix("graph.")
    if name == "convert":
        return lax.convert_element_type(args[0], _dtype(op))
    if name == "bitcast":
        return lax.bitcast_convert_type(args[0], _dtype(op))
    return _LAX.get(name, getattr(lax, name, None))(*args)


def _dtype(op: Operation) -> np.dtype:
    return numpy_dtype(element_of(op.results[0]))


def _constant(op: Operation, args: Arrays) -> Any:
    assert isinstance(op, ConstantOp)
    return jnp.asarray(op.value.data.array())


def _iota(op: Operation, args: Arrays) -> Any:
    return lax.broadcasted_iota(_dtype(op), shape_of(op.results[0]), _property(op, "dim"))


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lax.add,
    "prod": lax.mul,
    "max": lax.max,
    "min": lax.min,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
}


def _neutral(op: Operation) -> Any:
    element = element_of(op.operands[0])
    return np.asarray(identity(_property(op, "kind"), dtype_name(element))).astype(numpy_dtype(element))


def _reduce(op: Operation, args: Arrays) -> Any:
    return lax.reduce(args[0], _neutral(op), _COMBINE[_property(op, "kind")], _property(op, "dims"))


def _reduce_window(op: Operation, args: Arrays) -> Any:
    return lax.reduce_window(
        args[0],
        _neutral(op),
        _COMBINE[_property(op, "kind")],
        _property(op, "window"),
        _property(op, "strides"),
        tuple(zip(_property(op, "low"), _property(op, "high"), strict=True)),
        window_dilation=_property(op, "dilation"),
    )


def _arg_reduce(op: Operation, args: Arrays) -> Any:
    largest, dim = _property(op, "kind") == "max", _property(op, "dim")
    index = (lax.argmax if largest else lax.argmin)(args[0], dim, jnp.int32)
    value = jnp.take_along_axis(args[0], jnp.expand_dims(index, dim), axis=dim)
    return jnp.squeeze(value, dim), index


def _contract(op: Operation, args: Arrays) -> Any:
    names = ("lhs_contract", "rhs_contract", "lhs_batch", "rhs_batch")
    a, b, c, d = (_property(op, n) for n in names)
    return lax.dot_general(*args, ((a, b), (c, d)), preferred_element_type=_dtype(op))


def _conv(op: Operation, args: Arrays) -> Any:
    # graph: rhs is [input, output, spatial...]; lax wants [output, input, spatial...].
    i, o, *spatial = _property(op, "rhs_layout")
    return lax.conv_general_dilated(
        *args,
        _property(op, "strides"),
        tuple(zip(_property(op, "low"), _property(op, "high"), strict=True)),
        _property(op, "lhs_dilation"),
        _property(op, "rhs_dilation"),
        lax.ConvDimensionNumbers(_property(op, "lhs_layout"), (o, i, *spatial), _property(op, "out_layout")),
        feature_group_count=_property(op, "groups"),
        preferred_element_type=_dtype(op),
    )


def _gather(op: Operation, args: Arrays) -> Any:
    names = ("offset_dims", "collapsed_dims", "start_map", "x_batch", "indices_batch")
    numbers = lax.GatherDimensionNumbers(*(_property(op, n) for n in names))
    # lax wants the index dimension last.
    indices, index_dim = args[1], _property(op, "index_dim")
    last = indices[..., None] if index_dim == indices.ndim else jnp.moveaxis(indices, index_dim, -1)
    return lax.gather(args[0], last, numbers, _property(op, "slice_sizes"), mode="clip")


_TENSOR: dict[str, Callable[[Operation, Arrays], Any]] = {
    "constant": _constant,
    "iota": _iota,
    "broadcast": lambda op, a: lax.broadcast_in_dim(a[0], shape_of(op.results[0]), _property(op, "dims")),
    "reshape": lambda op, a: lax.reshape(a[0], shape_of(op.results[0])),
    "transpose": lambda op, a: lax.transpose(a[0], _property(op, "perm")),
    "slice": lambda op, a: lax.slice(a[0], *(_property(op, n) for n in ("starts", "limits", "strides"))),
    "pad": lambda op, a: lax.pad(
        a[0], a[1], tuple(zip(*(_property(op, n) for n in ("low", "high", "interior")), strict=True))
    ),
    "reverse": lambda op, a: lax.rev(a[0], _property(op, "dims")),
    "concat": lambda op, a: lax.concatenate(a, _property(op, "dim")),
    "reduce": _reduce,
    "reduce_window": _reduce_window,
    "arg_reduce": _arg_reduce,
    "contract": _contract,
    "conv": _conv,
    "gather": _gather,
    "dynamic_slice": lambda op, a: lax.dynamic_slice(a[0], a[1:], _property(op, "sizes")),
    "dynamic_update_slice": lambda op, a: _update(op, a),
}


def _update(op: Operation, args: Arrays) -> Any:
    x, update, *starts = args
    if "strides" not in op.properties:
        return lax.dynamic_update_slice(x, update, starts)
    places = []
    for start, step, n, extent in zip(starts, _property(op, "strides"), update.shape, x.shape, strict=True):
        first = jnp.clip(start, 0, extent - max((n - 1) * step + 1, 0))
        places.append(first + step * jnp.arange(n))
    return x.at[jnp.ix_(*places)].set(update)


def _while(op: Operation, args: Arrays, values: dict[SSAValue, Any]) -> Arrays:
    trips = 0
    while bool(_block(op.regions[0].block, args, values)[0]):
        args = _block(op.regions[1].block, args, values)
        trips += 1
    if "trip_count" in op.properties:
        assert trips == _property(op, "trip_count"), (trips, "trips")
    return args


def _case(op: Operation, args: Arrays, values: dict[SSAValue, Any]) -> Arrays:
    index, last = int(args[0]), len(op.regions) - 1
    return _block(op.regions[index if 0 <= index <= last else last].block, [], values)


def _host(op: Operation, args: Arrays, values: dict[SSAValue, Any]) -> Arrays:
    return [jnp.asarray(x) for x in run_stablehlo(_property(op, "module"), args)]


_CONTROL: dict[str, Callable[[Operation, Arrays, dict[SSAValue, Any]], Arrays]] = {
    "while": _while,
    "case": _case,
    "host": _host,
}
