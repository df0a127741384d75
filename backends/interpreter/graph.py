"""Executes the graph level: whole tensors, one rule per op, whole programs under `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import SymbolTable
from xdsl.utils.exceptions import VerifyException

from ...dialects import graph as ops
from ...dialects.base import describe, integer, text, to_ints
from ...dialects.dtypes import numbers_in, numpy_dtype, shape_in, size
from ...dialects.graph import (
    CumulateOp,
    GraphOp,
    ScatterOp,
    SelectAndScatterOp,
    SortOp,
    control,
)
from ...dialects.graph.interface import element_of
from ...dialects.host_text import text_at
from ...dialects.module import find_main
from ...support.rules import Rules
from ..functions import scattering, selecting, sorting, values
from ..functions.compiling import QUICK_OPTIONS
from ..functions.products import accumulator, both_of, dot_general, expand, unpacked
from . import quantized

Rule = Callable[..., Array | Sequence[Array]]


def result_dtype(op: Operation, i: int = 0) -> np.dtype:
    type_ = op.results[i].type
    assert isinstance(type_, TensorType)
    return numpy_dtype(type_.element_type)


def result_shape(op: Operation) -> tuple[int, ...]:
    type_ = op.results[0].type
    assert isinstance(type_, TensorType)
    return shape_in(type_)


# -- one rule per op: the op and its operands in, its results out ------------------------------------------


def _elementwise(op: ops.ElementwiseOp, *operands: Array) -> Array:
    return values.apply(op.FUNCTION.name, operands, result_dtype(op))


def _constant(op: ops.ConstantOp) -> Array:
    return values.on_device(op.value.data.array())


def _iota(op: ops.IotaOp) -> Array:
    dtype = result_dtype(op)
    number = np.dtype(np.int32) if dtype == np.bool_ else dtype
    return values.convert(lax.broadcasted_iota(number, result_shape(op), integer(op.dim)), dtype)


def _same(op: control.ToHostOp | control.ParkOp, x: Array) -> Array:
    return x


def _broadcast(op: ops.BroadcastOp, x: Array) -> Array:
    return lax.broadcast_in_dim(x, result_shape(op), to_ints(op.dims))


def _transpose(op: ops.TransposeOp, x: Array) -> Array:
    return lax.transpose(x, to_ints(op.perm))


def _reshape(op: ops.ReshapeOp, x: Array) -> Array:
    return lax.reshape(x, result_shape(op))


def _view(op: ops.ViewOp, x: Array) -> Array:
    return values.side_by_side(x) if x.dtype.kind == "c" else values.joined(x)


def _slice(op: ops.SliceOp, x: Array) -> Array:
    return lax.slice(x, to_ints(op.starts), to_ints(op.limits), to_ints(op.strides))


def _pad(op: ops.PadOp, x: Array, value: Array) -> Array:
    config = list(zip(to_ints(op.low), to_ints(op.high), to_ints(op.interior), strict=True))
    return lax.pad(x, lax.reshape(value, ()), config)


def _widen(op: ops.WidenOp, x: Array) -> Array:
    """With zeros where nothing is defined."""
    return lax.pad(x, np.zeros((), x.dtype), [(0, n - d, 0) for d, n in zip(x.shape, result_shape(op), strict=True)])


def _place(op: ops.PlaceOp, x: Array, base: Array | None = None) -> Array:
    """With zeros where nothing is defined."""
    whole = np.zeros(result_shape(op), x.dtype) if base is None else base
    return lax.dynamic_update_slice_in_dim(whole, x, integer(op.start), integer(op.dim))


def _reverse(op: ops.ReverseOp, x: Array) -> Array:
    return lax.rev(x, to_ints(op.dims))


def _concat(op: ops.ConcatOp, *parts: Array) -> Array:
    return lax.concatenate(parts, integer(op.dim))


def _reduce(op: ops.ReduceOp, x: Array) -> Array:
    return values.reduce(x, text(op.kind), to_ints(op.dims))


def _arg_reduce(op: ops.ArgReduceOp, x: Array) -> Sequence[Array]:
    return values.arg_reduce(x, text(op.kind), integer(op.dim), result_dtype(op, 1))


def _reduce_window(op: ops.ReduceWindowOp, x: Array) -> Array:
    kind = text(op.kind)
    return values.convert(over_windows(op, values.widened(kind, x), kind), x.dtype)


def over_windows(op: ops.ReduceWindowOp, x: Array, kind: str) -> Array:
    """x combined by `kind` over the windows of `op`, in x's dtype."""
    # padding may be negative, which only lax.pad takes
    config = [(lo, hi, 0) for lo, hi in zip(to_ints(op.low), to_ints(op.high), strict=True)]
    start = values.neutral(kind, np.dtype(x.dtype))
    return lax.reduce_window(
        lax.pad(x, start, config),
        start,
        values.combine(kind),
        to_ints(op.window),
        to_ints(op.strides),
        [(0, 0)] * x.ndim,
        window_dilation=to_ints(op.dilation),
    )


def contract(op: ops.ContractOp, lhs: Array, rhs: Array, dtype: np.dtype) -> Array:
    numbers = (
        (to_ints(op.lhs_contract), to_ints(op.rhs_contract)),
        (to_ints(op.lhs_batch), to_ints(op.rhs_batch)),
    )
    if numbers_in(element_of(op.lhs)) == 2:
        lhs, rhs = (both_of(x, dims[0]) for x, dims in zip((lhs, rhs), numbers[0], strict=True))
    return values.convert(dot_general(lhs, rhs, numbers, accumulator(lhs.dtype, dtype)), dtype)


def convolve(op: ops.ConvOp, lhs: Array, rhs: Array, dtype: np.dtype) -> Array:
    """The convolution itself, computed in `dtype`."""
    la, lb, lo = to_ints(op.lhs_layout), to_ints(op.rhs_layout), to_ints(op.out_layout)
    if dtype.kind in "iu":
        # XLA folds one of constants to the nearest integer there is, where at run time it wraps around
        lhs = lax.optimization_barrier(lhs)
    return lax.conv_general_dilated(
        lhs,
        rhs,
        to_ints(op.strides),
        list(zip(to_ints(op.low), to_ints(op.high), strict=True)),
        lhs_dilation=to_ints(op.lhs_dilation),
        rhs_dilation=to_ints(op.rhs_dilation),
        dimension_numbers=lax.ConvDimensionNumbers(la, (lb[1], lb[0], *lb[2:]), lo),
        feature_group_count=integer(op.groups),
        preferred_element_type=dtype,
    )


def conv(op: ops.ConvOp, lhs: Array, rhs: Array, dtype: np.dtype) -> Array:
    wide = acc = accumulator(lhs.dtype, dtype)
    lb = to_ints(op.rhs_layout)
    taps = size([rhs.shape[d] for d in (lb[0], *lb[2:])])
    bits = sum(8 * x.dtype.itemsize - (x.dtype.kind == "i") for x in (lhs, rhs))
    if wide.kind in "iu" and taps * 2**bits < 2**24:
        wide = np.dtype(np.float32)  # exact, and many times faster
    out = convolve(op, values.convert(lhs, wide), values.convert(rhs, wide), wide)
    # an integer wraps on its way to a narrower one, a float would be cut off at its limits
    whole = np.dtype(np.int32) if acc.kind in "iu" and wide.kind == "f" else acc
    return values.convert(values.convert(out, whole), dtype)


def _gather(op: ops.GatherOp, x: Array, indices: Array) -> Array:
    dim = integer(op.index_dim)
    indices = lax.expand_dims(indices, [dim]) if dim == indices.ndim else jax.numpy.moveaxis(indices, dim, -1)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=to_ints(op.offset_dims),
        collapsed_slice_dims=to_ints(op.collapsed_dims),
        start_index_map=to_ints(op.start_map),
        operand_batching_dims=to_ints(op.x_batch),
        start_indices_batching_dims=tuple(d - (d > dim) for d in to_ints(op.indices_batch)),
    )
    sizes = to_ints(op.slice_sizes)
    # XLA makes one gather of a slice of one, and then clamps the sum of the two places instead of each
    limits = [values.scalar(x.shape[d] - sizes[d], indices.dtype) for d in to_ints(op.start_map)]
    last = lax.broadcast_in_dim(np.asarray(limits, indices.dtype), indices.shape, (indices.ndim - 1,))
    indices = lax.clamp(values.scalar(0, indices.dtype), indices, last)
    return lax.gather(x, indices, numbers, sizes, mode=lax.GatherScatterMode.CLIP)


def _starts(starts: Sequence[Array], x: Array, sizes: Sequence[int]) -> list[Array]:
    """Scalar starts as i32, clamped so that the box fits."""
    out = []
    for start, extent, n in zip(starts, x.shape, sizes, strict=True):
        s = lax.reshape(start, ())
        s = lax.clamp(values.scalar(0, s.dtype), s, values.scalar(extent - n, s.dtype))
        out.append(lax.convert_element_type(s, np.int32))
    return out


def _dynamic_slice(op: ops.DynamicSliceOp, x: Array, *starts: Array) -> Array:
    sizes = to_ints(op.sizes)
    return lax.dynamic_slice(x, _starts(starts, x, sizes), sizes, allow_negative_indices=False)


def _dynamic_update_slice(op: ops.DynamicUpdateSliceOp, x: Array, update: Array, *starts: Array) -> Array:
    steps = to_ints(op.strides) or (1,) * x.ndim
    spans = [max((n - 1) * s + 1, 0) for n, s in zip(update.shape, steps, strict=True)]
    if 0 in update.shape:
        return x
    at = _starts(starts, x, spans)
    if any(s > 1 for s in steps):
        spread = [(0, 0, s - 1) for s in steps]
        wide = lax.pad(update, np.zeros((), update.dtype), spread)
        mask = lax.pad(lax.full(update.shape, True), np.False_, spread)
        old = lax.dynamic_slice(x, at, spans, allow_negative_indices=False)
        update = lax.select(mask, wide, old)
    return lax.dynamic_update_slice(x, update, at, allow_negative_indices=False)


def _cumulate(op: CumulateOp, x: Array) -> Array:
    return values.cumulate(x, text(op.kind), integer(op.dim), bool(integer(op.reverse)))


def _scatter(op: ScatterOp, x: Array, index: Array, updates: Array) -> Array:
    return scattering.scatter(x, index, updates, text(op.kind))


def _select_and_scatter(op: SelectAndScatterOp, x: Array, source: Array) -> Array:
    lists = (to_ints(p) for p in (op.window, op.strides, op.low))
    place = selecting.selected(x, source.shape, text(op.select), *lists)
    kind = text(op.kind)
    made = selecting.scattered(place, values.widened(kind, source), x.shape, kind)
    return values.convert(made, source.dtype)


def _sort(op: SortOp, *xs: Array) -> list[Array]:
    return sorting.sort(xs, op.order(), integer(op.dim), op.kept())


_TABLE: dict[type[Operation], Rule] = {
    ops.ElementwiseOp: _elementwise,
    ops.ArgReduceOp: _arg_reduce,
    ops.BroadcastOp: _broadcast,
    ops.ConcatOp: _concat,
    ops.ConstantOp: _constant,
    ops.ContractOp: quantized.of_integers(contract),
    ops.ConvOp: quantized.of_integers(conv),
    ops.DynamicSliceOp: _dynamic_slice,
    ops.DynamicUpdateSliceOp: _dynamic_update_slice,
    ops.ExpandOp: lambda op, values, index: expand(values, index, integer(op.dim)),
    ops.UnpackOp: lambda op, x: values.convert(unpacked(x), numpy_dtype(element_of(op.result))),
    ops.GatherOp: _gather,
    ops.IotaOp: _iota,
    ops.PadOp: _pad,
    ops.PlaceOp: _place,
    ops.ReduceOp: _reduce,
    ops.ReduceWindowOp: _reduce_window,
    ops.ReshapeOp: _reshape,
    ops.ReverseOp: _reverse,
    ops.SliceOp: _slice,
    CumulateOp: _cumulate,
    ScatterOp: _scatter,
    SelectAndScatterOp: _select_and_scatter,
    SortOp: _sort,
    ops.TransposeOp: _transpose,
    ops.ViewOp: _view,
    ops.WidenOp: _widen,
    **quantized.RULES,
    control.ToHostOp: _same,
    control.ParkOp: _same,
}

RULES: Rules[Rule] = Rules(GraphOp, "evaluate", _TABLE)
"""Ops without regions: a function of the op and its operands."""


# -- programs ----------------------------------------------------------------------------------------------

Env = dict[SSAValue, Any]


class GraphRunner:
    """Runs blocks of tensor ops. `rules` may be extended with ops of other levels that work on tensors."""

    def __init__(self, rules: dict[type[Operation], Rule] | None = None):
        self.rules = RULES if rules is None else Rules(GraphOp, "evaluate", {**_TABLE, **rules})

    def block(self, block: Block, env: Env) -> list[Array]:
        """Run a block's ops; returns what its last op (yield or return) is given."""
        for op in block.ops:
            if isinstance(op, (control.YieldOp, func.ReturnOp)):
                return [env[v] for v in op.operands]
            self.op(op, env)
        return []

    def op(self, op: Operation, env: Env) -> None:
        special = _CONTROL.get(type(op))
        if special is not None:
            results: Any = getattr(self, special)(op, env)
        elif (rule := self.rules.of(type(op))) is not None:
            results = rule(op, *(env[v] for v in op.operands))
        else:
            raise VerifyException(f"{describe(op)} cannot be executed at the graph level")
        results = [results] if not isinstance(results, (list, tuple)) else results
        for v, x in zip(op.results, results, strict=True):
            env[v] = x

    def fusion(self, op: control.FusionOp, env: Env) -> list[Array]:
        inner: Env = dict(zip(op.body.block.args, (env[v] for v in op.inputs), strict=True))
        return self.block(op.body.block, inner)

    def walks(self, op: Operation) -> bool:
        """Whether Python follows the rounds of a loop, or the branch that is taken."""
        return needs_host(op)

    def loop(self, op: control.WhileOp, env: Env) -> list[Array]:
        """Runs a loop; subclasses may carry more than its state."""
        start = [env[v] for v in op.inits]
        known = None if op.trip_count is None else integer(op.trip_count)

        def run(block: Block, state: Sequence[Array]) -> list[Array]:
            return self.block(block, {**env, **dict(zip(block.args, state, strict=True))})

        def test(state: Sequence[Array]) -> Array:
            return lax.reshape(run(op.condition.block, state)[0], ())

        if self.walks(op):
            trips, state = 0, start
            while (trips < known) if known is not None else bool(test(state)):
                state, trips = run(op.body.block, state), trips + 1
            return state
        if known is None:
            return lax.while_loop(test, lambda state: run(op.body.block, state), start)
        _, end = lax.while_loop(
            lambda carry: lax.lt(carry[0], np.int32(known)),
            lambda carry: (carry[0] + np.int32(1), run(op.body.block, carry[1])),
            (np.int32(0), start),
        )
        return end

    def case(self, op: control.CaseOp, env: Env) -> list[Array]:
        last = len(op.branches) - 1
        index = lax.convert_element_type(lax.reshape(env[op.index], ()), np.int32)
        if self.walks(op):
            number = int(index)
            return self.block(op.branches[number if 0 <= number <= last else last].block, dict(env))
        known = lax.bitwise_and(lax.ge(index, np.int32(0)), lax.le(index, np.int32(last)))
        index = lax.select(known, index, np.int32(last))
        return lax.switch(index, [lambda b=r.block: self.block(b, dict(env)) for r in op.branches])

    def call(self, op: func.CallOp, env: Env) -> list[Array]:
        body = called(op).body.block
        return self.block(body, dict(zip(body.args, (env[v] for v in op.arguments), strict=True)))

    def host(self, op: control.HostOp, env: Env) -> list[Array]:
        from ..functions.host import run_text

        return run_text(text_at(op.module, {}), [env[v] for v in op.inputs], op)


class GraphWalker(GraphRunner):
    """A runner with rules that XLA cannot trace: Python follows loops and branches."""

    def walks(self, op: Operation) -> bool:
        return True


_CONTROL: dict[type[Operation], str] = {
    control.CaseOp: "case",
    control.FusionOp: "fusion",
    control.HostOp: "host",
    control.WhileOp: "loop",
    func.CallOp: "call",
}
"""The method of a runner that runs each op with regions, or that calls something."""


def needs_host(op: Operation) -> bool:
    """Whether an op, one inside it or one in a function that it calls, calls the host."""
    pending, seen = [op], set[Operation]()
    while pending:
        for inner in pending.pop().walk():
            if isinstance(inner, control.HostOp):
                return True
            if isinstance(inner, func.CallOp) and (callee := called(inner)) not in seen:
                seen.add(callee)
                pending.append(callee)
    return False


def called(op: func.CallOp) -> func.FuncOp:
    """The function that an op calls. Raises VerifyException."""
    found = SymbolTable.lookup_symbol(op, op.callee)
    if not isinstance(found, func.FuncOp) or not found.body.blocks:
        raise VerifyException(f"{describe(op)} calls {op.callee}, which does not exist")
    return found


def main_of(module: ModuleOp) -> func.FuncOp:
    """The function @main of a module. Raises VerifyException where it has none."""
    main = find_main(module)
    if main is None:
        raise VerifyException("the module has no func.func @main")
    return main


def run_graph(module: ModuleOp, *arrays: Any) -> list[Array]:
    """The results of `@main` of a graph-level module."""
    main = main_of(module)
    runner = GraphRunner()
    with jax.enable_x64(True):
        args = [values.on_device(a) for a in arrays]
        if not needs_host(main):
            whole = jax.jit(
                lambda *xs: runner.block(main.body.block, _bound(main, xs)), compiler_options=QUICK_OPTIONS
            )
            return list(whole(*args))
        return _run_in_stretches(runner, main, args)


def _bound(main: func.FuncOp, arrays: Sequence[Array]) -> Env:
    return dict(zip(main.body.block.args, arrays, strict=True))


def _run_in_stretches(runner: GraphRunner, main: func.FuncOp, args: Sequence[Array]) -> list[Array]:
    """Run `main` with its host ops one by one and what lies between them compiled."""
    env = _bound(main, args)
    pending: list[Operation] = []

    def finish() -> None:
        inside, block = set(pending), main.body.block
        results = [r for op in pending for r in op.results]
        made = [r for r in results if any(_user(use.operation, block) not in inside for use in r.uses)]
        needed = list(dict.fromkeys(v for op in pending for v in _operands(op) if v in env))

        def stretch(*xs: Array) -> list[Array]:
            local = dict(zip(needed, xs, strict=True))
            for op in pending:
                runner.op(op, local)
            return [local[r] for r in made]

        function = jax.jit(stretch, compiler_options=QUICK_OPTIONS)
        env.update(zip(made, function(*(env[v] for v in needed)), strict=True))
        pending.clear()

    for op in main.body.block.ops:
        if isinstance(op, func.ReturnOp) or needs_host(op):
            finish()
            if isinstance(op, func.ReturnOp):
                return [env[v] for v in op.operands]
            runner.op(op, env)
        else:
            pending.append(op)
    return []


def _operands(op: Operation) -> list[SSAValue]:
    """All values that an op and the ops inside it use."""
    return [v for inner in op.walk() for v in inner.operands]


def _user(operation: Operation, block: Block) -> Operation:
    """The op of `block` that is or contains `operation`."""
    while operation.parent_block() is not block:
        parent = operation.parent_op()
        assert parent is not None
        operation = parent
    return operation
