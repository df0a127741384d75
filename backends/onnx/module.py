"""A module of the graph level, before any pass, as an ONNX model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import SymbolTable

from ...dialects import graph as ops
from ...dialects.base import integer, source_of, text, to_ints
from ...dialects.dtypes import size
from ...dialects.graph import control
from ...dialects.graph.extents import extents_of
from ...dialects.graph.interface import GraphOp
from ...dialects.module import find_main
from ...support.rules import Rules
from ...support.sentences import counted
from . import contractions, indexing, quantization, reductions
from .elementwise import elementwise
from .errors import NotInOnnx, Unsayable
from .moves import along, concat, cut, pad, reshape, reverse, spread, transpose
from .values import Value, type_of
from .writer import CALLED, LEAST_OPSET, OnnxWriter

if TYPE_CHECKING:
    import onnx

Rule = Callable[[Any, OnnxWriter], Value | Sequence[Value | None]]


# -- ops without regions ---------------------------------------------------------------------------------------


def _constant(op: ops.ConstantOp, w: OnnxWriter) -> Value:
    """One element where all are equal."""
    data = op.value.data
    hint = op.result.name_hint or "constant"
    return w.constant(data.elements().reshape(()) if data.splat else data.array(), type_of(op.result)[1], hint)


def _iota(op: ops.IotaOp, w: OnnxWriter) -> Value:
    shape, dtype = type_of(op.result)
    dim = integer(op.dim)
    return reshape(w.iota(shape[dim]).cast(dtype), [shape[dim], *(1 for _ in shape[dim + 1 :])])


def _broadcast(op: ops.BroadcastOp, w: OnnxWriter) -> Value:
    """No node but that of a Reshape, where dimensions of one element come between others."""
    x, rank = w.small(op.x), len(type_of(op.result)[0])
    if not size(x.shape) or not x.shape:
        return x
    dims = to_ints(op.dims)[len(type_of(op.x)[0]) - len(x.shape) :]
    order = sorted(range(len(dims)), key=lambda i: dims[i])
    x = transpose(x, order)
    places = dict(zip(sorted(dims), x.shape, strict=True))
    return reshape(x, [places.get(d, 1) for d in range(min(dims), rank)])


def _moved(move: Callable[[Any, Value], Value]) -> Rule:
    """The rule of an op that only moves elements: where all are one, there is nothing to move."""

    def rule(op: Any, w: OnnxWriter) -> Value:
        return w.small(op.x) if w.small(op.x).shape == () else move(op, w.full(op.x))

    return rule


def _slice(op: ops.SliceOp, x: Value) -> Value:
    return cut(x, to_ints(op.starts), to_ints(op.limits), to_ints(op.strides))


def _pad(op: ops.PadOp, w: OnnxWriter) -> Value:
    x, value = w.full(op.x), w.full(op.value)
    for d, n in enumerate(to_ints(op.interior)):
        x = spread(x, value, d, n)
    return pad(x, value, to_ints(op.low), to_ints(op.high))


def _concat(op: ops.ConcatOp, w: OnnxWriter) -> Value:
    return concat([w.full(p) for p in op.parts], integer(op.dim))


def _widen(op: ops.WidenOp, w: OnnxWriter) -> Value:
    """With zeros where nothing is defined."""
    x, none = w.full(op.x), [0] * len(type_of(op.x)[0])
    return pad(x, 0, none, [n - d for d, n in zip(x.shape, type_of(op.result)[0], strict=True)])


def _place(op: ops.PlaceOp, w: OnnxWriter) -> Value:
    """With zeros where nothing is defined."""
    x, (shape, dtype) = w.full(op.x), type_of(op.result)
    dim, start = integer(op.dim), integer(op.start)
    whole = w.expand(w.number(0, dtype), shape) if op.base is None else w.full(op.base)
    end = start + x.shape[dim]
    return concat([along(whole, dim, 0, start), x, along(whole, dim, end, shape[dim])], dim)


def _reverse(op: ops.ReverseOp, x: Value) -> Value:
    return reverse(x, [d for d in to_ints(op.dims) if x.shape[d] > 1])


_TABLE: dict[type[Any], Rule] = {
    ops.ElementwiseOp: elementwise,
    ops.ArgReduceOp: reductions.arg_reduce,
    ops.BroadcastOp: _broadcast,
    ops.ConcatOp: _concat,
    ops.ConstantOp: _constant,
    ops.ContractOp: contractions.contract,
    ops.ConvOp: contractions.conv,
    ops.CumulateOp: reductions.cumulate,
    ops.DequantizeOp: quantization.dequantize,
    ops.DynamicSliceOp: indexing.dynamic_slice,
    ops.DynamicUpdateSliceOp: indexing.dynamic_update_slice,
    ops.GatherOp: indexing.gather,
    ops.IotaOp: _iota,
    ops.PadOp: _pad,
    ops.PlaceOp: _place,
    control.ParkOp: lambda op, w: w.small(op.x),
    ops.QuantizeOp: quantization.quantize,
    ops.ReduceOp: reductions.reduce,
    ops.ReduceWindowOp: reductions.reduce_window,
    ops.RequantizeOp: quantization.requantize,
    ops.ReshapeOp: _moved(lambda op, x: reshape(x, type_of(op.result)[0])),
    ops.ReverseOp: _moved(_reverse),
    ops.ScatterOp: indexing.scatter,
    ops.SelectAndScatterOp: reductions.select_and_scatter,
    ops.SliceOp: _moved(_slice),
    ops.SortOp: reductions.sort,
    ops.StorageOp: quantization.storage,
    ops.ToHostOp: lambda op, w: w.small(op.x),
    ops.TransposeOp: _moved(lambda op, x: transpose(x, to_ints(op.perm))),
    ops.WidenOp: _widen,
}

RULES: Rules[Rule] = Rules(GraphOp, "onnx_nodes", _TABLE)
"""Ops without regions: a function of the op and the writer, which gives what stands for the results."""

WITHOUT: dict[type[Any], str] = {
    ops.ExpandOp: "is of 2:4 sparse numbers, which ONNX does not have",
    ops.HostOp: "is computed by JAX on the host",
    ops.UnpackOp: "is of pairs of numbers of 4 bits, which ONNX does not have",
    ops.ViewOp: "is of complex numbers, which ONNX does not compute with",
}
"""Ops that ONNX has no form for, and why: a clause that follows the name of the op."""


class _ModuleWriter:
    """Writes the functions of one module."""

    def __init__(self, w: OnnxWriter):
        self.w = w
        self.refused: list[tuple[Operation, str]] = []

    # -- ops -------------------------------------------------------------------------------------------------

    def block(self, block: Block) -> list[Value]:
        """Writes the ops of a block; what its last op is given."""
        for op in block.ops:
            if isinstance(op, ops.YieldOp | ReturnOp):
                return [self.w.full(v) for v in op.operands]
            self.w.at(op)
            try:
                made = self.op(op)
            except Unsayable as why:
                self.refused.append((op, str(why)))
                made = [Value(self.w, "", *self._stand_in(v)) for v in op.results]
            self.w.scope.values.update((v, x) for v, x in zip(op.results, made, strict=True) if x is not None)
        return []

    def _stand_in(self, value: SSAValue) -> tuple[tuple[int, ...], str]:
        try:
            return type_of(value)
        except Unsayable:
            return (), "f32"

    def op(self, op: Operation) -> Sequence[Value | None]:
        """What stands for the results of an op. Raises Unsayable."""
        types = [type_of(v) for v in op.results]
        for _, dtype in types:
            self.w.tensor_type(dtype)
        if not any(size(shape) for shape, _ in types):
            return [self.w.constant(np.zeros(shape), dtype) for shape, dtype in types]
        if isinstance(op, ops.WhileOp):
            return self.loop(op)
        if isinstance(op, ops.CaseOp):
            return self.case(op)
        if isinstance(op, CallOp):
            return self.call(op)
        if isinstance(op, ops.FusionOp):
            return self.run(op.body.block, [self.w.small(v) for v in op.inputs])
        rule = RULES.of(type(op))
        if rule is None:
            known = (why for cls, why in WITHOUT.items() if isinstance(op, cls))
            raise Unsayable(next(known, "is no op that ONNX has"))
        made = rule(op, self.w)
        return [made] if isinstance(made, Value) else made

    # -- control flow ----------------------------------------------------------------------------------------

    def graph(self, name: str, inputs: Sequence[Value], made: Sequence[Value]) -> onnx.GraphProto:
        """The open scope as a graph within a node."""
        made = self.own(made)
        given, results = ([self.w.info(v.name, v.dtype, v.shape) for v in side] for side in (inputs, made))
        known = [v for v in self.w.scope.infos if v.name not in {each.name for each in made}]
        return self.w.onnx.helper.make_graph(self.w.scope.nodes, name, given, results, value_info=known)

    def own(self, values: Sequence[Value]) -> list[Value]:
        """Values as outputs of the open scope: each made in it, and none twice."""
        names = {name for node in self.w.scope.nodes for name in node.output}
        found: list[Value] = []
        for value in values:
            if value.name not in names or value in found:
                value = value.apply("Identity")
            found.append(value)
        return found

    def run(self, block: Block, state: Sequence[Value]) -> list[Value]:
        """Writes a block with these arguments into the open scope."""
        self.w.scope.values.update(zip(block.args, state, strict=True))
        return self.block(block)

    def loop(self, op: ops.WhileOp) -> list[Value]:
        """A Loop of a known number of rounds, or one whose body computes whether another one follows."""
        w, start = self.w, [self.w.full(v) for v in op.inits]
        trips = None if op.trip_count is None else w.number(integer(op.trip_count), "i64")
        go = w.number(True, "i1") if trips is not None else self.run(op.condition.block, start)[0]
        with w.inner():
            state = [Value(w, w.fresh(a.name_hint or "state"), *type_of(a)) for a in op.body.block.args]
            inputs = [Value(w, w.fresh("round"), (), "i64"), Value(w, w.fresh("go"), (), "i1"), *state]
            after = self.run(op.body.block, state)
            again = inputs[1] if trips is not None else self.run(op.condition.block, after)[0]
            body = self.graph("body", inputs, [again, *after])
        w.at(op)
        return w.nodes("Loop", [trips, go, *start], [type_of(v) for v in op.results], body=body)

    def case(self, op: ops.CaseOp) -> list[Value]:
        """Ifs within each other; the last branch is that of all other numbers."""
        if len(op.branches) == 1:
            return self.run(op.branches[0].block, [])
        return self._branches(op, self.w.full(op.index), 0)

    def _branches(self, op: ops.CaseOp, index: Value, first: int) -> list[Value]:
        w = self.w

        def branch(i: int, name: str) -> onnx.GraphProto:
            with w.inner():
                deeper = i > first and i < len(op.branches) - 1
                made = self._branches(op, index, i) if deeper else self.run(op.branches[i].block, [])
                return self.graph(name, [], made)

        chosen = index.equals(first)
        graphs = {"then_branch": branch(first, "then"), "else_branch": branch(first + 1, "else")}
        w.at(op)
        return w.nodes("If", [chosen], [type_of(v) for v in op.results], **graphs)

    def call(self, op: CallOp) -> list[Value]:
        """A node of a function of the model."""
        name = text(op.callee.root_reference)
        if (CALLED, name) not in self.w.functions:
            callee = SymbolTable.lookup_symbol(op, op.callee)
            assert isinstance(callee, FuncOp)
            with self.w.apart() as scope:
                args = [Value(self.w, self.w.fresh(a.name_hint or "x"), *type_of(a)) for a in callee.body.block.args]
                made = self.own(self.run(callee.body.block, args))
                wanted = {v.name for v in made}
                scope.nodes = _live(scope.nodes, wanted)
                self.w.define(CALLED, name, args, made).value_info.extend(v for v in scope.infos if v.name in wanted)
        return self.w.call(CALLED, name, [self.w.full(v) for v in op.arguments], [type_of(v) for v in op.results])

    # -- the model -------------------------------------------------------------------------------------------

    def main(
        self, func: FuncOp, inputs: Sequence[str], outputs: Sequence[str], name: str, values: Mapping[int, np.ndarray]
    ) -> onnx.GraphProto:
        w, args, infos = self.w, list[Value](), []
        for i, (label, arg) in enumerate(zip(inputs, func.body.block.args, strict=True)):
            shape, dtype = type_of(arg)
            if i in values:
                args.append(w.constant(values[i], dtype, label))
                continue
            args.append(Value(w, w.fresh(label), shape, dtype))
            infos.append(w.info(args[-1].name, dtype, shape))
        names = [w.fresh(n) for n in outputs]
        made = self.run(func.body.block, args)
        self.check()
        w.place = w.hint = ""
        shown = self.own(made[: len(outputs)])
        shapes: list[list[int | str]] = [list(v.shape) for v in shown]
        for e in extents_of(func):  # the elements that count are the first ones
            value = shown[e.result]
            many = reshape(made[e.by], [1]).cast("i64")
            shown[e.result] = Value(w, w.fresh("slice"), value.shape, value.dtype)
            w.append("Slice", [value.name, w.ints([0]).name, many.name, w.ints([e.dim]).name], [shown[e.result].name])
            shapes[e.result][e.dim] = f"{names[e.result]}_{e.dim}"
        renamed = {v.name: n for v, n in zip(shown, names, strict=True)}
        results = [w.info(renamed[v.name], v.dtype, shape) for v, shape in zip(shown, shapes, strict=True)]
        _rename(w.scope.nodes, renamed)
        wanted = set(names)
        nodes = _live(w.scope.nodes, wanted)
        stored = [t for t in w.initializers if t.name in wanted]
        known = [v for v in w.scope.infos if v.name in wanted and v.name not in names]
        return w.onnx.helper.make_graph(nodes, name, infos, results, stored, value_info=known)

    def check(self) -> None:
        """Raises NotInOnnx where ops were refused."""
        if not self.refused:
            return
        groups: dict[str, list[Operation]] = {}
        for op, why in self.refused:
            what = f"'{text(op.op)}' (graph.host)" if isinstance(op, ops.HostOp) else f"'{op.name}'"
            groups.setdefault(f"{what} {why}", []).append(op)
        said = []
        for what, found in groups.items():
            place = source_of(found[0])
            said.append(f"{len(found)} x {what}{f' (first at {place})' if place else ''}")
        total = counted(len(self.refused), "op is", "ops are")
        raise NotInOnnx(f"{total} not in ONNX: {'; '.join(said)}")


def _rename(nodes: Sequence[onnx.NodeProto], names: dict[str, str]) -> None:
    """Calls values otherwise, in graphs within nodes, too."""
    for node in nodes:
        for side in (node.input, node.output):
            side[:] = [names.get(n, n) for n in side]
        for graph in _graphs(node):
            _rename(graph.node, names)


def _graphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def _live(nodes: Sequence[onnx.NodeProto], wanted: set[str]) -> list[onnx.NodeProto]:
    """The nodes whose outputs are wanted, in order; what they take is wanted, too."""
    kept: list[onnx.NodeProto] = []
    for node in reversed(nodes):
        if wanted & {*node.output}:
            kept.append(node)
            wanted |= {*node.input}
            for graph in _graphs(node):
                wanted |= {v.name for v in graph.output}
                inner = _live(graph.node, wanted)
                known = [v for v in graph.value_info if v.name in wanted]
                del graph.node[:], graph.value_info[:]
                graph.node.extend(inner)
                graph.value_info.extend(known)
    return kept[::-1]


def model_of(
    module: ModuleOp,
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    opset: int,
    values: Mapping[int, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """A module of the graph level, before any pass, as a model; inputs, outputs: what @main's are called, but for
    results that are extents, to which others are cut; values: those of inputs that become initializers, by number.

    Raises NotInOnnx for what ONNX has no form for, and for an opset that is too old or unknown to the package onnx."""
    import onnx
    import onnx.numpy_helper  # the writer makes tensors by it

    newest = onnx.defs.onnx_opset_version()
    if not LEAST_OPSET <= opset <= newest:
        raise NotInOnnx(f"ONNX is written in opsets from {LEAST_OPSET} to {newest}, not {opset}")
    main = find_main(module)
    assert main is not None
    writer = _ModuleWriter(OnnxWriter(opset))
    try:
        graph = writer.main(main, inputs, outputs, name, values or {})
    except Unsayable as why:  # of an input
        raise NotInOnnx(f"an input {why}") from None
    functions = [f for _, f in sorted(writer.w.functions.items())]
    opsets = writer.w.imports()
    return onnx.helper.make_model(
        graph,
        functions=functions,
        opset_imports=opsets,
        ir_version=max(10, onnx.helper.find_min_ir_version_for(opsets[:1])),
        producer_name="tilewright",
    )
