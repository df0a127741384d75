"""ONNX models as files, with large tensors in a file beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ...support.files import FilePath, drafted, together, write_whole

if TYPE_CHECKING:
    import onnx

MOST_BYTES = (1 << 31) - (1 << 20)
"""Of the tensors of a file that has them itself: protobuf reads no more than 2 GiB, of which nodes need some."""

LEAST_BYTES, PAGE = 1024, 4096
"""Tensors from so many bytes on go into the file beside a model, each to a multiple of a page, so that it is mapped."""

DATA = ".data"
"""What the name of the file beside a model has behind the model's."""


def save(model: onnx.ModelProto, path: FilePath, external: bool = False) -> bool:
    """Writes a model; its tensors to a file beside it where that is asked for, or they are too many bytes for one file:
    then the result is true, and the model has places in the stead of bytes. Raises OSError; nothing is half written."""
    large = [t for t in tensors_of(model) if len(t.raw_data) >= LEAST_BYTES]
    if not external and sum(len(t.raw_data) for t in large) <= MOST_BYTES:
        write_whole(path, model.SerializeToString(deterministic=True))
        return False
    with together():
        with drafted(f"{path}{DATA}") as stream:
            for tensor in large:
                _move(tensor, stream, f"{path}{DATA}")
        write_whole(path, model.SerializeToString(deterministic=True))
    return True


def _move(tensor: onnx.TensorProto, stream: IO[bytes], path: str) -> None:
    """Brings the bytes of a tensor to the end of a stream, which becomes the file at `path`."""
    from onnx import TensorProto
    from onnx.external_data_helper import set_external_data

    stream.write(bytes(-stream.tell() % PAGE))
    set_external_data(tensor, Path(path).name, stream.tell(), len(tensor.raw_data))
    stream.write(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The initializers, and the constants of functions."""
    yield from model.graph.initializer
    for function in model.functions:
        for node in function.node:
            if node.op_type == "Constant":
                yield node.attribute[0].t
