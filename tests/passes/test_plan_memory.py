"""Plans of device memory: at the bound where greedy plans in two orders are not, and the same each time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.packing import PackingProblem
from tilewright.packing.greedy import fitted, plans
from tilewright.packing.problem import Buffer
from tilewright.passes.npu.plan_memory import PLACEMENTS, Life, placed

LIVES = st.lists(
    st.builds(
        lambda first, more, size: Life(first, first + more, 512 * size),
        st.integers(-1, 20),
        st.integers(0, 9),
        st.integers(1, 50),
    ),
    max_size=30,
).map(lambda lives: sorted(lives, key=lambda life: life.first))


def problem(lives: list[Life]) -> PackingProblem:
    return PackingProblem(tuple(Buffer(str(i), t.first, t.last + 1, t.size) for i, t in enumerate(lives)))


@settings(max_examples=60, deadline=None)
@given(LIVES)
def test_a_plan_is_the_first_that_fits_the_bound_or_the_lowest(lives: list[Life]) -> None:
    p, plan = problem(lives), placed(lives)
    p.check(plan.offsets)
    assert all(at % 512 == 0 for at in plan.offsets.tolist())
    in_order = fitted(p, np.argsort(p.starts, kind="stable"))
    if p.height(in_order) == p.bound:
        assert plan.offsets.tolist() == in_order.tolist() and plan.nodes == 0
    assert p.bound <= plan.height == p.height(plan.offsets) <= min(map(p.height, plans(p)), default=0)


@pytest.mark.parametrize(("seed", "searched"), [(3, True), (3, False)])
def test_the_search_begins_where_no_greedy_plan_meets_the_bound(seed: int, searched: bool) -> None:
    """Tensors that fill memory at all times: greedy plans leave gaps, the search fewer. A budget is never exceeded."""
    rng = np.random.default_rng(seed)
    lives = [
        Life(int(s), int(s + w), 512 * int(n)) for s, w, n in rng.integers([0, 0, 1], [19, 8, 60], (30, 3))
    ]
    live = [sum(t.size for t in lives if t.first <= i <= t.last) for i in range(27)]
    lives += [Life(i, i, max(live) - n) for i, n in enumerate(live) if searched and n < max(live)]
    first, second = placed(lives), placed(lives)
    assert first.offsets.tolist() == second.offsets.tolist() and first.nodes == second.nodes
    assert PLACEMENTS.nodes is not None and first.nodes <= PLACEMENTS.nodes
    assert (first.nodes > 0) == searched
    assert first.height <= first.greedy
