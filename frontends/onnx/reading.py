"""ONNX files and protos: read, checked, functions inlined, external data found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...support.files import read_plain
from ..errors import FrontendError
from .errors import OnnxError
from .table import DEFAULT_DOMAINS
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
    """A model that has been checked. where: what messages call it; folder: that of its external data; proto: with
    functions inlined; opsets: by domain, "" for ONNX's own."""

    proto: onnx.ModelProto
    where: str
    folder: Path
    opsets: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def graph(self) -> onnx.GraphProto:
        """The graph of the model."""
        return self.proto.graph

    @cached_property
    def initializers(self) -> dict[str, np.ndarray]:
        """The values of initialisers by name."""
        found = {t.name: self.array(t) for t in self.graph.initializer}
        for sparse in self.graph.sparse_initializer:
            found[sparse.values.name] = dense(sparse, self.array)
        return found

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
        where, folder, proto = str(source), path.resolve().parent, _load(onnx, path)
    else:
        where, folder, proto = source.graph.name or "the model", Path.cwd(), source
    _check_text(proto, where)
    external = _check_external(proto, where, folder)
    _check(onnx, proto, where, Path(source) if external and isinstance(source, str | Path) else None)
    opsets = _opsets(proto, where)
    return OnnxModel(_inlined(proto, where), where, folder, opsets)


def import_onnx() -> Any:
    """The package onnx. Raises OnnxError where it is not installed."""
    try:
        import onnx
        import onnx.checker
        import onnx.inliner
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
"""Bytes of the largest tensor that is read."""


def _check_size(tensor: onnx.TensorProto) -> None:
    """Raises ValueError for a tensor whose shape is not one, or does not fit what there is of it."""
    if any(n < 0 for n in tensor.dims):
        raise ValueError(f"its shape is {list(tensor.dims)}")
    count = 1
    for n in tensor.dims:
        count *= n
    if count > LARGEST_TENSOR:
        raise ValueError(f"its shape {list(tensor.dims)} is too large")


def dense(sparse: onnx.SparseTensorProto, array: Callable[[onnx.TensorProto], np.ndarray]) -> np.ndarray:
    """A sparse tensor with its zeros."""
    values, places = array(sparse.values), array(sparse.indices)
    made = np.zeros(tuple(sparse.dims), values.dtype)
    if places.ndim == 1:
        made.reshape(-1)[places] = values
    else:
        made[tuple(places.T)] = values
    return made


def _check(onnx: Any, proto: onnx.ModelProto, where: str, path: Path | None) -> None:
    """Raises OnnxError where ONNX's own checker does. It wants shapes of outputs, which follow from the nodes. path: of
    a model with external data, which the checker looks for."""
    bare = [v.type.tensor_type for v in proto.graph.output if v.type.HasField("tensor_type")]
    bare = [t for t in bare if not t.HasField("shape")]
    for tensor in bare:
        tensor.shape.SetInParent()
    try:
        with _as_error(f"{where}: not a valid ONNX model"):
            onnx.checker.check_model(proto if path is None else str(path))
    finally:
        for tensor in bare:
            tensor.ClearField("shape")


def _opsets(proto: onnx.ModelProto, where: str) -> dict[str, int]:
    opsets = {"" if o.domain in DEFAULT_DOMAINS else o.domain: o.version for o in proto.opset_import}
    own = opsets.get("", NEWEST)
    if not OLDEST <= own <= NEWEST:
        raise OnnxError(f"{where} is of opset {own}: opsets {OLDEST} to {NEWEST} are read")
    return opsets


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and those within its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs_of(attribute.g)
            for inner in attribute.graphs:
                yield from graphs_of(inner)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    for one in graphs_of(graph):
        yield from one.initializer
        for node in one.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def _check_text(proto: onnx.ModelProto, where: str) -> None:
    """Raises OnnxError for a name that is no UTF-8: protobuf gives it as bytes."""
    for graph in graphs_of(proto.graph):
        values = (*graph.input, *graph.output, *graph.value_info)
        dims = [d.dim_param for v in values for d in v.type.tensor_type.shape.dim]
        names = [graph.name, *(v.name for v in values), *(t.name for t in graph.initializer), *dims]
        for node in graph.node:
            names += [node.name, node.op_type, node.domain, *node.input, *node.output]
            names += [a.name for a in node.attribute]
        if any(isinstance(name, bytes) for name in names):
            raise OnnxError(f"{where}: not an ONNX model: a name in it is not UTF-8")


def _check_external(proto: onnx.ModelProto, where: str, folder: Path) -> bool:
    """Whether there is external data. Raises OnnxError where it is missing, or outside of the model's folder."""
    found = [t for t in _tensors(proto.graph) if t.data_location == t.EXTERNAL]
    for tensor in found:
        place = next((e.value for e in tensor.external_data if e.key == "location"), "")
        path = (folder / place).resolve()
        if not place or folder.resolve() not in path.parents:
            raise OnnxError(
                f"{where}: the data of {tensor.name!r} is in {place!r}, outside of the model's folder"
            )
        if not path.is_file():
            raise OnnxError(
                f"{where}: the data of {tensor.name!r} is in {place!r}, and there is no such file"
            )
    return bool(found)


def _inlined(proto: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """The model without calls of its own functions."""
    if not proto.functions:
        return proto
    onnx = import_onnx()
    with _as_error(f"{where}: its functions cannot be inlined"):
        return onnx.inliner.inline_local_functions(proto)


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
