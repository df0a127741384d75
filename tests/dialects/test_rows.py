"""A row as one of two operands of an elementwise instruction: what it costs."""

from __future__ import annotations

import pytest
from xdsl.dialects import test
from xdsl.dialects.builtin import f16, f32
from xdsl.ir import Attribute

from tilewright.dialects.npu import BufferType
from tilewright.dialects.npu.vector import ELEMENTWISE
from tilewright.machine import Machine

MACHINE = Machine.load("ascend-910b1")


def cycles(shape: tuple[int, ...], other: tuple[int, ...], element: Attribute = f32) -> int:
    """Of a subtraction of `other` from a tile."""
    types = [BufferType.of(each, element, "ub") for each in (shape, other, shape)]
    sources = test.TestOp(result_types=types).results
    op = ELEMENTWISE["sub"].create(operands=sources)
    op.verify()
    return op.cost(MACHINE, ()).cycles


@pytest.mark.parametrize(
    ("shape", "element", "repeats", "instructions"),
    [
        ((128, 64), f32, 128, 1),
        ((128, 32), f32, 128, 1),  # half of each repeat is empty
        ((128, 65), f32, 256, 2),  # what is beyond one repeat takes another instruction
        ((3, 640), f32, 30, 3),  # or each row one
        ((1, 128, 128), f16, 128, 1),
    ],
)
def test_cycles(shape: tuple[int, ...], element: Attribute, repeats: int, instructions: int) -> None:
    """A cycle for a repeat and, as the sources meet in every other one, half of one more; each instruction begins."""
    assert MACHINE.vector.banks is not None
    row = (*(1 for _ in shape[:-1]), shape[-1])
    expected = (
        repeats * (1 + MACHINE.vector.banks.read_cycles / 2) + instructions * MACHINE.vector.streamed_cycles
    )
    assert cycles(shape, row, element) == expected


def test_of_one_element_and_of_all() -> None:
    """A scalar operand and a whole tile cost what they did: no more repeats than there are lanes for."""
    whole = 128 * 64 // 64 + MACHINE.vector.streamed_cycles
    assert cycles((128, 64), (1, 1)) == cycles((128, 64), (128, 64)) == whole
