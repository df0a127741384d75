"""Which initialisers decide shapes: values that stay constants where weights are arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from .reading import graphs_of
from .table import own_domain

if TYPE_CHECKING:
    import onnx

DECIDING: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "CenterCropPad": (1,),
    "ConstantOfShape": (0,),
    "Dropout": (1, 2),
    "Expand": (1,),
    "If": (0,),
    "Loop": (0, 1),
    "MaxUnpool": (2,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""Ops of ONNX's own domain, and the numbers of their inputs by whose values they decide shapes."""

OF_SHAPE = frozenset({"Shape", "Size"})


def deciding_initializers(graph: onnx.GraphProto) -> frozenset[str]:
    """The names of initialisers from which a value that decides shapes is computed. Such a value does not depend on
    what the inputs of the graph hold; on their sizes it may."""
    graphs = list(graphs_of(graph))
    known = {t.name for g in graphs for t in g.initializer}
    given = {v.name for g in graphs for v in g.input} - known
    made = {name: node for g in graphs for node in g.node for name in node.output if name}
    found: set[str] = set()
    for name in (n for g in graphs for node in g.node for n in _deciding(node)):
        cone = _cone(name, made)
        if not cone & given:
            found |= cone & known
    return frozenset(found)


def _deciding(node: onnx.NodeProto) -> Iterator[str]:
    places = DECIDING.get(node.op_type, ()) if own_domain(node.domain) == "" else ()
    yield from (node.input[i] for i in places if i < len(node.input) and node.input[i])


def _cone(name: str, made: Mapping[str, onnx.NodeProto]) -> set[str]:
    """The names that a value is computed from, itself among them; of what only the shape matters is not one."""
    found: set[str] = set()
    pending = [name]
    while pending:
        one = pending.pop()
        if one in found:
            continue
        found.add(one)
        node = made.get(one)
        if node is not None and node.op_type not in OF_SHAPE:
            pending += [n for n in node.input if n]
    return found
