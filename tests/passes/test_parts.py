"""Parts of tensors as npu-check keeps them: they are sets of elements, whatever the tensor's size."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilewright.passes.npu.check.parts import Part

TOTAL = 12
SETS = st.sets(st.integers(0, TOTAL - 1))


def part(elements: set[int], total: int = TOTAL) -> Part:
    return Part.of(np.array(sorted(elements), np.int64), total)


def elements(of: Part) -> set[int]:
    return {i for low, high in zip(of.starts, of.ends, strict=True) for i in range(low, high)}


@given(SETS, SETS)
def test_a_part_is_a_set_of_elements(a: set[int], b: set[int]) -> None:
    one, both = part(a), part(a) | part(b)
    assert (elements(one), elements(both)) == (a, a | b)
    assert all(e < s for p in (one, both) for e, s in zip(p.ends, p.starts[1:], strict=False))
    assert both.whole == (len(a | b) == TOTAL)
    assert both.missing() == min({*range(TOTAL + 1)} - (a | b))
    assert one.has(np.array(sorted(b), np.int64)) == (b <= a)


def test_a_part_takes_no_memory_for_what_it_is_part_of() -> None:
    far = part({0, 1, 10**15}, 10**16) | part({2}, 10**16)
    assert elements(far) == {0, 1, 2, 10**15}
    assert (far.whole, far.missing()) == (False, 3)
