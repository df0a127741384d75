"""How boxes fall along a dimension, against all of their positions."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.dialects.affine import Expr
from tilewright.passes.npu.check.affine import cover


@settings(max_examples=300)
@given(
    st.integers(-3, 6),
    st.lists(st.tuples(st.integers(-6, 6).filter(bool), st.integers(1, 4)), max_size=2),
    st.integers(1, 4),
    st.sampled_from([1, 1, 2, -1, 3]),
    st.integers(1, 20),
)
def test_what_is_claimed_holds(
    constant: int, variables: list[tuple[int, int]], count: int, step: int, extent: int
) -> None:
    """No two positions that are the same where `once`, no gap where `full`, and none outside the ends."""
    offset: Expr[int] = Expr(constant, {v: c for v, (c, _) in enumerate(variables)})
    found = cover(offset, count, step, extent, [n for _, n in variables])
    starts = [
        constant + sum(c * i for (c, _), i in zip(variables, at, strict=True))
        for at in product(*(range(n) for _, n in variables))
    ]
    positions = [p for s in starts for i in range(count) if 0 <= (p := s + i * step) < extent]
    if positions:
        assert found.low <= min(positions) and max(positions) < found.high
    if found.once:
        assert len(set(positions)) == len(positions)
    if found.full:
        assert {*range(found.low, found.high)} == {*positions}
