"""ONNX files and protos: read, checked, external data found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...support.files import read_plain, real_path
from ..errors import FrontendError
from .errors import OnnxError
from .table import own_domain
from .values import dtype_named

if TYPE_CHECKING:
    import onnx

OLDEST, NEWEST = 1, 28
"""Opsets of the default domain that are read."""

Dim: TypeAlias = "int | str | None"
"""A size, the name of an open one, or None: open, and without a name."""


@dataclass(frozen=True)
class ModelInput:
    """An input of a model. dtype: None for what is no tensor; dims: None where not even the rank is said."""

    name: str
    dtype: np.dtype[Any] | None
    dims: tuple[Dim, ...] | None
    kind: str = "tensor"


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """A model that has been checked. where: what messages call it; folder: that of its external data; opsets:
    by domain, "" for ONNX's own."""

    proto: onnx.ModelProto
    where: str
    folder: Path
    opsets: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def graph(self) -> onnx.GraphProto:
        """The graph of the model."""
        return self.proto.graph

    @cached_property
    def functions(self) -> dict[tuple[str, str, str], onnx.FunctionProto]:
        """The model's functions by domain, name and overload."""
        return {(own_domain(f.domain), f.name, f.overload): f for f in self.proto.functions}

    @cached_property
    def initializers(self) -> dict[str, np.ndarray]:
        """The values of initialisers by name."""
        found = {t.name: self.array(t) for t in self.graph.initializer}
        for sparse in self.graph.sparse_initializer:
            found[sparse.values.name] = dense(sparse, self.array)
        return found

    @cached_property
    def elements(self) -> int:
        """How many elements its tensors have."""
        return sum(prod(t.dims) for t in _tensors(self.proto))

    @cached_property
    def nodes(self) -> int:
        """How many nodes it has, with those within others."""
        return sum(1 for _ in _nodes(self.proto))

    def array(self, tensor: onnx.TensorProto) -> np.ndarray:
        """The value of a tensor. Raises OnnxError where it cannot be read."""
        from onnx import numpy_helper

        with self.reading(f"the tensor {tensor.name!r}"):
            _check_size(tensor)
            return numpy_helper.to_array(tensor, base_dir=str(self.folder))

    @cached_property
    def inputs(self) -> tuple[ModelInput, ...]:
        """The inputs that are no initialisers."""
        known = {t.name for t in self.graph.initializer}
        return tuple(_input_of(v) for v in self.graph.input if v.name not in known)

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return [v.name for v in self.graph.output]

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Raises OnnxError for what goes wrong while a part of the model is read."""
        with _as_error(f"{self.where}: {what}"):
            yield


def is_model(source: Any) -> bool:
    """Whether a source is an ONNX model: a proto, or a path that ends in `.onnx`."""
    if isinstance(source, OnnxModel) or type(source).__name__ == "ModelProto":
        return True
    is_path = isinstance(source, Path) or (isinstance(source, str) and "\n" not in source)
    return is_path and str(source).endswith(".onnx")


def read_model(source: onnx.ModelProto | OnnxModel | str | Path) -> OnnxModel:
    """Reads a model: an `onnx.ModelProto`, or the path of one.

    Raises OnnxError: there is no such file, it is no valid model, it is of an opset that is not read, or its external
    data is missing or outside of its folder.
    """
    if isinstance(source, OnnxModel):
        return source
    onnx = import_onnx()
    if isinstance(source, str | Path):
        path = Path(source)
        where, folder, proto = str(source), real_path(path).parent, _load(onnx, path)
    elif not isinstance(source, onnx.ModelProto):
        raise OnnxError(f"a model is a path or an onnx.ModelProto, not a value of type {type(source).__name__}")
    else:
        where, folder, proto = source.graph.name or "the model", Path.cwd(), source
    _check_text(proto, where)
    external = _check_external(proto, where, folder)
    _check(onnx, proto, where, external)
    _check_functions(proto, where)
    opsets = _opsets(proto, where)
    return OnnxModel(proto, where, folder, opsets)


def import_onnx() -> Any:
    """The package onnx. Raises OnnxError where it is not installed."""
    try:
        import onnx
        import onnx.checker
        import onnx.numpy_helper
    except ImportError:
        raise OnnxError("ONNX models need the package onnx: pip install 'tilewright[onnx]'") from None
    return onnx


def _load(onnx: Any, path: Path) -> onnx.ModelProto:
    try:
        content = read_plain(path)
    except FileNotFoundError:
        raise OnnxError(f"{path}: no such file") from None
    except OSError as error:
        raise OnnxError(f"{path}: {error.strerror or error}") from None
    with _as_error(f"{path}: not an ONNX model"):
        return onnx.load_model_from_string(content)


@contextmanager
def _as_error(what: str) -> Iterator[None]:
    """Raises OnnxError, which begins with `what`, for whatever a library says of bytes that it cannot take."""
    try:
        yield
    except FrontendError:
        raise
    except Exception as error:  # protobuf, numpy and onnx each have errors of their own
        said = " ".join(str(error).split())
        raise OnnxError(f"{what}: {said[:300] or type(error).__name__}") from None


LARGEST_TENSOR = 1 << 34
"""Elements of the largest tensor that is read."""

LARGEST_SPARSE = 1 << 28
"""Elements of the largest sparse tensor that is read, zeros included."""


def _check_size(tensor: onnx.TensorProto) -> None:
    """Raises ValueError for a tensor whose shape is not one, or does not fit what there is of it."""
    if any(n < 0 for n in tensor.dims):
        raise ValueError(f"its shape is {list(tensor.dims)}")
    count = 1
    for n in tensor.dims:
        count *= n
    if count > LARGEST_TENSOR or any(n > LARGEST_TENSOR for n in tensor.dims):
        raise ValueError(f"its shape {list(tensor.dims)} is too large")


def dense(sparse: onnx.SparseTensorProto, array: Callable[[onnx.TensorProto], np.ndarray]) -> np.ndarray:
    """A sparse tensor with its zeros."""
    values, places = array(sparse.values), array(sparse.indices)
    if prod(sparse.dims) > LARGEST_SPARSE or min(sparse.dims, default=0) < 0:
        raise ValueError(f"its shape is {list(sparse.dims)}")
    made = np.zeros(tuple(sparse.dims), values.dtype)
    if places.ndim == 1:
        made.reshape(-1)[places] = values
    else:
        made[tuple(places.T)] = values
    return made


def _check(onnx: Any, proto: onnx.ModelProto, where: str, external: bool) -> None:
    """Raises OnnxError where ONNX's own checker does. It wants types and shapes of outputs, which follow from the
    nodes, and looks for external data in the working directory: it is given a model without."""
    bare = [v.type for v in proto.graph.output if v.type.WhichOneof("value") in (None, "tensor_type")]
    bare = [t for t in bare if not (t.tensor_type.elem_type and t.tensor_type.HasField("shape"))]
    if bare or external:
        proto = _complete(onnx, proto)
    with _as_error(f"{where}: not a valid ONNX model"):
        onnx.checker.check_model(proto)


def _complete(onnx: Any, proto: onnx.ModelProto) -> onnx.ModelProto:
    """A model with types of its outputs and without external data, for the checker alone."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    for value in made.graph.output:
        if value.type.WhichOneof("value") in (None, "tensor_type"):
            kind = value.type.tensor_type
            kind.elem_type = kind.elem_type or onnx.TensorProto.FLOAT
            kind.shape.SetInParent()
    for tensor in _tensors(made):
        if tensor.data_location == tensor.EXTERNAL:
            kind, name = tensor.data_type, tensor.name
            tensor.Clear()
            tensor.data_type, tensor.name = kind, name
            tensor.dims.append(0)
    return made


def _opsets(proto: onnx.ModelProto, where: str) -> dict[str, int]:
    opsets = {own_domain(o.domain): o.version for o in proto.opset_import}
    own = opsets.get("", NEWEST)
    if not OLDEST <= own <= NEWEST:
        raise OnnxError(f"{where} is of opset {own}: opsets {OLDEST} to {NEWEST} are read")
    return opsets


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and those within its nodes."""
    yield graph
    for node in graph.node:
        for inner in _inner(node):
            yield from graphs_of(inner)


def _inner(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs of a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The graph, those within its nodes, and those within the nodes of functions."""
    yield from graphs_of(proto.graph)
    for function in proto.functions:
        for node in function.node:
            for inner in _inner(node):
                yield from graphs_of(inner)


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for each in (*_graphs(proto), *proto.functions):
        yield from each.node


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    sparse: list[onnx.SparseTensorProto] = []
    for graph in _graphs(proto):
        yield from graph.initializer
        sparse += graph.sparse_initializer
    for node in _nodes(proto):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            sparse += [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
            sparse += attribute.sparse_tensors
    for each in sparse:
        yield each.values
        yield each.indices


def _check_text(proto: onnx.ModelProto, where: str) -> None:
    """Raises OnnxError for a name that is no UTF-8: protobuf gives it as bytes."""
    names: list[Any] = []
    for graph in _graphs(proto):
        values = (*graph.input, *graph.output, *graph.value_info)
        dims = [d.dim_param for v in values for d in v.type.tensor_type.shape.dim]
        names += [graph.name, *(v.name for v in values), *(t.name for t in graph.initializer), *dims]
    for function in proto.functions:
        names += [function.name, function.domain, *function.input, *function.output]
    for node in _nodes(proto):
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        names += [a.name for a in node.attribute]
    if any(isinstance(name, bytes) for name in names):
        raise OnnxError(f"{where}: not an ONNX model: a name in it is not UTF-8")


def _check_external(proto: onnx.ModelProto, where: str, folder: Path) -> bool:
    """Whether there is external data. Raises OnnxError where it is missing, or outside of the model's folder."""
    found = [t for t in _tensors(proto) if t.data_location == t.EXTERNAL]
    for tensor in found:
        place = next((e.value for e in tensor.external_data if e.key == "location"), "")
        path = real_path(folder / place)
        if not place or real_path(folder) not in path.parents:
            raise OnnxError(
                f"{where}: the data of {tensor.name!r} is in {place!r}, outside of the model's folder"
            )
        if not path.is_file():
            raise OnnxError(
                f"{where}: the data of {tensor.name!r} is in {place!r}, and there is no such file"
            )
    return bool(found)


MOST_EXPANDED = 1 << 17
"""Nodes of a model whose functions are in the places of their calls."""


def _check_functions(proto: onnx.ModelProto, where: str) -> None:
    """Raises OnnxError where functions stand for too many nodes: each that calls another one twice doubles them. None
    calls itself, which the checker has seen to."""
    known = {(f.domain, f.name, f.overload): f for f in proto.functions}
    counts: dict[tuple[str, str, str], int] = {}

    def count(nodes: Iterable[onnx.NodeProto]) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type, node.overload)
            total += of(key) if key in known else 1
            total += sum(count(graph.node) for graph in _inner(node))
        return total

    def of(key: tuple[str, str, str]) -> int:
        if key not in counts:
            counts[key] = count(known[key].node)
        return counts[key]

    total = count(proto.graph.node)
    if total > MOST_EXPANDED:
        raise OnnxError(
            f"{where}: with its functions in the places of their calls it has {total:,} nodes, more than "
            f"{MOST_EXPANDED:,}: make them fewer"
        )


def _input_of(value: onnx.ValueInfoProto) -> ModelInput:
    kind = value.type.WhichOneof("value") or "tensor_type"
    if kind != "tensor_type":
        return ModelInput(value.name, None, None, kind.removesuffix("_type"))
    tensor = value.type.tensor_type
    with _as_error(f"the input {value.name!r}"):
        dtype = dtype_named(tensor.elem_type)
    if not tensor.HasField("shape"):
        return ModelInput(value.name, dtype, None)
    dims = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim)
    return ModelInput(value.name, dtype, dims)
