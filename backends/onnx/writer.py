"""The nodes of an ONNX model that is being written, and the scopes that they are in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from ...dialects.base import source_of
from ...dialects.dtypes import numpy_dtype, shape_in
from ...dialects.source_places import without_folder
from .errors import Unsayable
from .values import TYPES, WIDER, Value

if TYPE_CHECKING:
    import onnx

OPSET, LEAST_OPSET = 27, 21
"""The opset that is written unless another one is asked for: the newest of the oldest release of onnx that may be
installed; and the first with blocks of scales and with types of 4 bits."""

CALLED, MATH = "tilewright", "tilewright.math"
"""The domains of a model's functions: those of the program that are called more than once, and scalar ones of many
nodes."""

@dataclass
class OnnxScope:
    """A graph, a branch, a body of a loop, or a function: its nodes so far, what is known of the types of values, and
    what was made of others already."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    infos: list[onnx.ValueInfoProto] = field(default_factory=list)
    made: dict[Any, Value] = field(default_factory=dict)
    values: dict[SSAValue, Value] = field(default_factory=dict)
    function: bool = False


class OnnxWriter:
    """Makes the nodes of one model. opset: the version of ONNX's ops."""

    def __init__(self, opset: int):
        import onnx

        self.onnx = onnx
        self.opset = opset
        self.scopes: list[OnnxScope] = [OnnxScope()]
        self.initializers: list[onnx.TensorProto] = []
        self.functions: dict[tuple[str, str], onnx.FunctionProto] = {}
        self._names: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self.place = ""
        """Where the op comes from that is being written."""
        self.hint = ""

    # -- names and types -------------------------------------------------------------------------------------

    def fresh(self, stem: str) -> str:
        """A name that no value has yet."""
        name = stem
        while name in self._names:
            self._names[stem] += 1
            name = f"{stem}_{self._names[stem]}"
        self._names[name] = 0
        return name

    def tensor_type(self, dtype: str) -> int:
        """ONNX's number of an element type. Raises Unsayable."""
        if dtype not in TYPES:
            raise Unsayable(f"has elements of {dtype}, which ONNX does not compute with")
        return self.onnx.TensorProto.DataType.Value(TYPES[dtype])

    def info(self, name: str, dtype: str, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
        return self.onnx.helper.make_tensor_value_info(name, self.tensor_type(dtype), list(shape))

    # -- values ----------------------------------------------------------------------------------------------

    @property
    def scope(self) -> OnnxScope:
        return self.scopes[-1]

    @contextmanager
    def inner(self) -> Iterator[OnnxScope]:
        """A scope within the one that is open: its values are not seen outside."""
        around = self.scope
        self.scopes.append(OnnxScope(made=dict(around.made), values=dict(around.values), function=around.function))
        try:
            yield self.scope
        finally:
            self.scopes.pop()

    @contextmanager
    def apart(self) -> Iterator[OnnxScope]:
        """The scope of a function, which sees nothing outside."""
        kept, self.scopes = (self.scopes, self.place, self.hint), [OnnxScope(function=True)]
        self.place = self.hint = ""
        try:
            yield self.scope
        finally:
            self.scopes, self.place, self.hint = kept

    def small(self, value: SSAValue) -> Value:
        """What stands for a tensor; it may have fewer elements, which are repeated."""
        return self.scope.values[value]

    def full(self, value: SSAValue) -> Value:
        """A tensor with all its elements."""
        assert isinstance(value.type, TensorType)
        return self.expand(self.small(value), shape_in(value.type))

    def expand(self, value: Value, shape: Sequence[int]) -> Value:
        """A value repeated until it has a shape."""
        if value.shape == tuple(shape):
            return value
        key, made = ("Expand", value.name, tuple(shape)), self.scope.made
        if key not in made:
            made[key] = self.node("Expand", [value, self.ints(shape)], shape)
        return made[key]

    def constant(self, array: np.ndarray, dtype: str, hint: str = "constant") -> Value:
        """A constant in an element type, called like `hint`; equal ones that are called alike are one."""
        array = np.ascontiguousarray(array, numpy_dtype(dtype)).reshape(np.shape(array))
        key = (hint, dtype, array.shape, sha256(array.tobytes()).digest())
        made = (self.scope if self.scope.function else self.scopes[0]).made
        if key not in made:
            tensor = self.onnx.numpy_helper.from_array(array, self.fresh(hint))
            if self.scope.function:
                self.append("Constant", [], [tensor.name], value=tensor)
            else:
                self.initializers.append(tensor)
            made[key] = Value(self, tensor.name, array.shape, dtype)
        return made[key]

    def number(self, value: float, dtype: str) -> Value:
        """A constant of rank 0."""
        return self.constant(np.asarray(value).astype(numpy_dtype(dtype)), dtype)

    def ints(self, values: Sequence[int]) -> Value:
        """A vector of i64, as ONNX has shapes, axes and places."""
        return self.constant(np.asarray(values, np.int64), "i64")

    def iota(self, n: int) -> Value:
        """0, 1, 2... as i64."""
        made = self.scope.made
        if ("Range", n) not in made:
            made["Range", n] = self.node("Range", [self.number(v, "i64") for v in (0, n, 1)], [n])
        return made["Range", n]

    # -- nodes -----------------------------------------------------------------------------------------------

    def node(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        shape: Sequence[int],
        dtype: str | None = None,
        **attributes: Any,
    ) -> Value:
        """The only output of a new node; dtype: that of its first input unless it is given."""
        kind = dtype or next(v.dtype for v in inputs if v is not None)
        return self.nodes(op_type, inputs, [(tuple(shape), kind)], **attributes)[0]

    def nodes(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[tuple[tuple[int, ...], str]],
        **attributes: Any,
    ) -> list[Value]:
        """The outputs of a new node. Where ONNX does not have the op in a type, it is computed in a wider one."""
        schema = _schema(op_type, self.opset)
        wider = self._wider(schema, inputs)
        given = [v if v is None else v.cast(wider.get(schema.operand(i), v.dtype)) for i, v in enumerate(inputs)]
        made = []
        for i, (shape, dtype) in enumerate(outputs):
            kind = wider.get(schema.result(i), dtype)
            hint = self.hint if kind == dtype and i == 0 else ""
            made.append(Value(self, self.fresh(hint or op_type.lower()), shape, kind))
        self.append(op_type, [v.name if v is not None else "" for v in given], [v.name for v in made], **attributes)
        self.scope.infos += [self.info(v.name, v.dtype, v.shape) for v in made]
        return [v.cast(dtype) for v, (_, dtype) in zip(made, outputs, strict=True)]

    def _wider(self, schema: _Schema, inputs: Sequence[Value | None]) -> dict[str, str]:
        """The types in which a node computes instead, by the names that its schema has for types."""
        found: dict[str, str] = {}
        for i, value in enumerate(inputs):
            kind = schema.operand(i)
            if value is None or kind not in schema.allowed or value.dtype in schema.allowed[kind]:
                continue
            self.tensor_type(value.dtype)
            fitting = [w for w in WIDER.get(value.dtype, ()) if w in schema.allowed[kind]]
            if not fitting:
                raise Unsayable(f"needs {schema.name} of {value.dtype}, which opset {self.opset} does not have")
            found[kind] = fitting[0]
        return found

    def append(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: Any):
        """Adds a node, with its place in the source."""
        count = self._counts[op_type] = self._counts.get(op_type, 0) + 1
        node = self.onnx.helper.make_node(
            op_type, inputs, outputs, name=f"{op_type}_{count}", domain=domain, doc_string=self.place, **attributes
        )
        self.scope.nodes.append(node)

    def call(
        self, domain: str, name: str, inputs: Sequence[Value], outputs: Sequence[tuple[tuple[int, ...], str]]
    ) -> list[Value]:
        """The outputs of a node that is a function of the model."""
        made = [Value(self, self.fresh(self.hint or name.lower()), *kind) for kind in outputs]
        self.append(name, [v.name for v in inputs], [v.name for v in made], domain)
        self.scope.infos += [self.info(v.name, v.dtype, v.shape) for v in made]
        return made

    def define(self, domain: str, name: str, inputs: Sequence[Value], outputs: Sequence[Value]) -> onnx.FunctionProto:
        """The open scope as a function of the model."""
        given, results = ([v.name for v in side] for side in (inputs, outputs))
        made = self.onnx.helper.make_function(domain, name, given, results, self.scope.nodes, self.imports())
        self.functions[domain, name] = made
        return made

    def formula(self, name: str, formula: Callable[..., Value], inputs: Sequence[Value]) -> Value:
        """A function of the model that works element by element; `formula` writes its nodes the first time."""
        shape, dtype = np.broadcast_shapes(*(v.shape for v in inputs)), inputs[0].dtype
        if (MATH, name) not in self.functions:
            with self.apart():
                own = [Value(self, self.fresh("x"), (), dtype) for _ in inputs]
                self.define(MATH, name, own, [formula(*own)])
        return self.call(MATH, name, inputs, [(shape, dtype)])[0]

    def imports(self) -> list[onnx.OperatorSetIdProto]:
        """The versions of the ops and the functions that there are so far."""
        domains = sorted({domain for domain, _ in self.functions})
        return [self.onnx.helper.make_opsetid(d, 1 if d else self.opset) for d in ("", *domains)]

    def at(self, op: Operation) -> None:
        """From now on nodes come from this op."""
        self.place = without_folder(source_of(op) or "")
        self.hint = (op.results[0].name_hint or "") if len(op.results) == 1 else ""


@dataclass(frozen=True)
class _Schema:
    """What types a node takes and gives: for each operand and result the schema's name of them, of which the last one
    goes on for ever; and our names of those that each stands for."""

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    allowed: Mapping[str, frozenset[str]]

    def operand(self, i: int) -> str:
        return self.operands[min(i, len(self.operands) - 1)]

    def result(self, i: int) -> str:
        return self.results[min(i, len(self.results) - 1)]


@lru_cache(None)
def _schema(op_type: str, opset: int) -> _Schema:
    """Raises Unsayable for an op that an opset does not have."""
    import onnx.defs

    known = {f"tensor({name.lower()})": ours for ours, name in TYPES.items()}
    try:
        found = onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:
        raise Unsayable(f"needs {op_type}, which opset {opset} does not have") from None
    allowed = {
        c.type_param_str: frozenset(known[t] for t in c.allowed_type_strs if t in known)
        for c in found.type_constraints
    }
    operands, results = (tuple(p.type_str for p in side) for side in (found.inputs, found.outputs))
    return _Schema(op_type, operands, results, allowed)


