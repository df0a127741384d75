"""Kernels with sizes that are known only at run time."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, DictionaryAttr, IntAttr, i64
from xdsl.ir import Attribute, Operation, ParametrizedAttribute

from ...dialects.base import to_ints
from ...dialects.npu import GmType
from ...dialects.open_index import OpenIndexOp
from ...dialects.open_sizes import decode, is_open


def is_open_kernel(kernel: Operation) -> bool:
    """Whether a kernel has an open size."""
    return any(True for _ in open_numbers(kernel))


def open_numbers(op: Operation) -> Iterator[int]:
    """The open sizes of an op and of what is in it; some may come more than once."""
    seen: set[Attribute] = set()
    for inner in op.walk():
        if isinstance(inner, OpenIndexOp):
            yield inner.number
        kinds = [v.type for v in (*inner.operands, *inner.results)]
        kinds += [a.type for region in inner.regions for block in region.blocks for a in block.args]
        for attr in (*inner.properties.values(), *inner.attributes.values(), *kinds):
            if attr not in seen:
                seen.add(attr)
                yield from filter(is_open, _numbers(attr))


def _numbers(attr: Attribute) -> Iterator[int]:
    """The numbers in an attribute that may be open."""
    match attr:
        case IntAttr():
            yield decode(attr.data)
        case DenseArrayBase():
            yield from to_ints(attr) if attr.elt_type == i64 else ()
        case GmType():
            yield from (*attr.shape, *attr.strides, attr.offset)
        case ArrayAttr():
            for inner in attr.data:
                yield from _numbers(inner)
        case DictionaryAttr():
            for inner in attr.data.values():
                yield from _numbers(inner)
        case ParametrizedAttribute():
            for inner in attr.parameters:
                yield from _numbers(inner)
        case _:
            pass
