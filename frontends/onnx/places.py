"""Where the nodes of a model are, which the frames say that they are traced from."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from ...dialects.base import NODE
from ...support.sentences import visible
from .node import Node

if TYPE_CHECKING:
    import onnx

_STACK, _FRAME = "pkg.torch.onnx.stack_trace", re.compile(r'File "([^"]+)", line (\d{1,9})\b')
_LIBRARY = "/site-packages/"


@dataclass(frozen=True)
class NodePlace:
    """Where a node is: the file, the line or the number of the node, and its name; is_whole: whether what it is made of
    is at its place, too. A line of Python has no name."""

    file: str
    line: int
    name: str
    is_whole: bool = False


def exported_from(node: onnx.NodeProto) -> tuple[str, int] | None:
    """The file and the line that an exporter noted at a node: PyTorch's has the stack, whose innermost line outside of
    libraries is the user's. None where there is none."""
    stack = next((p.value for p in node.metadata_props if p.key == _STACK), "")
    frames = [(file, int(line)) for file, line in _FRAME.findall(stack) if _LIBRARY not in file]
    return frames[-1] if frames else None


def title(node: onnx.NodeProto) -> str:
    """What messages call a node: its op, and its name or else what it gives."""
    name = node.name or next((n for n in node.output if n), "")
    return f"{node.op_type} {name!r}" if name else node.op_type


def shown_name(node: onnx.NodeProto) -> str:
    """The name of a node, or its title where it has none; what cannot be printed is spelt."""
    return visible(node.name or title(node), lines="")


@lru_cache(maxsize=4096)
def _code(file: str, line: int, name: str) -> CodeType:
    return _call.__code__.replace(co_filename=file, co_firstlineno=line, co_name=name, co_qualname=name)


def _call(build: Callable[..., Any], node: Node, inputs: Sequence[Any]) -> Any: return build(node, *inputs)  # fmt: skip


def located(place: NodePlace, op: str) -> Callable[[Callable[..., Any], Node, Sequence[Any]], Any]:
    """Calls a rule from a frame at a place, in a function that has the node's name or else that of its op: what JAX
    traces there has both."""
    return FunctionType(_code(place.file, place.line, f"{NODE}{place.name}" if place.name else op), {})
