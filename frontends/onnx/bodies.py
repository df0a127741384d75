"""Ops that are defined by others, by ONNX or by functions of the model: their bodies, for the types of their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .values import dtype_of

if TYPE_CHECKING:
    import onnx

    from .walk import NodeScope


class ScopedAttribute(NamedTuple):
    """An attribute, and the scope that graphs in it see; None for a default, whose graphs see nothing."""

    proto: onnx.AttributeProto
    scope: NodeScope | None = None


@dataclass(frozen=True, eq=False)
class OpBody:
    """function: the nodes that an op stands for. attributes: what their references to attributes mean: those of the
    node, and the defaults of the op."""

    function: onnx.FunctionProto
    attributes: Mapping[str, ScopedAttribute]


def body_of_function(function: onnx.FunctionProto, given: Mapping[str, ScopedAttribute]) -> OpBody:
    """The body of a call of a model's function, for the attributes that the call gives."""
    defaults = {a.name: ScopedAttribute(a) for a in function.attribute_proto}
    return OpBody(function, {**defaults, **given})


def body_of(
    node: onnx.NodeProto,
    domain: str,
    opsets: Mapping[str, int],
    inputs: Sequence[Any],
    given: Mapping[str, ScopedAttribute],
) -> OpBody | None:
    """The body of a node's op, for inputs that are values or None, and for the attributes that it is given; None where
    ONNX defines the op by no others."""
    import onnx

    try:
        schema: Any = onnx.defs.get_schema(
            node.op_type, opsets.get(domain, 1), domain
        )  # its stubs lack bodies
    except onnx.defs.SchemaError:
        return None
    made = onnx.FunctionProto()
    version = opsets.get("", onnx.defs.onnx_opset_version())
    if schema.has_context_dependent_function:
        types = [_type_of(v).SerializeToString() for v in inputs]
        # nodes name the inputs that they have, so that the body has these; those left out have no name
        content = schema.get_context_dependent_function(_settled(node, given).SerializeToString(), types)
    elif schema.has_function:
        content = schema.function_body.SerializeToString()
    else:
        return None
    made.ParseFromString(content if isinstance(content, bytes) else content.SerializeToString())
    if not made.node:
        return None
    if not made.opset_import:
        made.opset_import.append(onnx.helper.make_opsetid("", version))
    defaults = {
        name: ScopedAttribute(a.default_value)
        for name, a in schema.attributes.items()
        if a.default_value.type != a.default_value.UNDEFINED
    }
    return OpBody(made, {**defaults, **given})


def _settled(node: onnx.NodeProto, given: Mapping[str, ScopedAttribute]) -> onnx.NodeProto:
    """The node with attributes in place of references to them."""
    import onnx

    if not any(a.ref_attr_name for a in node.attribute):
        return node
    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for name, attribute in given.items():
        made.attribute.add().CopyFrom(attribute.proto)
        made.attribute[-1].name = name
    return made


def _type_of(value: Any) -> onnx.TypeProto:
    import onnx
    from onnx import helper

    if value is None:
        return onnx.TypeProto()
    if isinstance(value, list):
        inner = _type_of(value[0]) if value else helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
        return helper.make_sequence_type_proto(inner)
    element = helper.np_dtype_to_tensor_dtype(dtype_of(value))
    return helper.make_tensor_type_proto(element, [n if isinstance(n, int) else str(n) for n in value.shape])
