"""Plans of device memory: at the bound where greedy plans in two orders are not, and the same each time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.api.sources import entry_of
from tilewright.dialects import make_context
from tilewright.dialects.graph.donation import donate
from tilewright.dialects.npu.places import arena_of
from tilewright.dialects.text import parse_module
from tilewright.machine import Machine
from tilewright.packing import PackingProblem
from tilewright.packing.greedy import fitted, plans
from tilewright.packing.problem import Buffer
from tilewright.passes.errors import PassError
from tilewright.passes.npu.plan_memory import (
    ADDRESSABLE,
    PLACEMENTS,
    Life,
    NpuPlanMemoryPass,
    most_at_once,
    placed,
)

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


GIB = 1 << 28
"""Elements of f32 in a gibibyte. ascend-310 has eight of them."""

MACHINE = Machine.load("ascend-310")


def chain(arguments: list[int], *steps: tuple[list[str], int]) -> str:
    """A program of launches: arguments %a0, ... and tensors %t0, ... of some gibibytes, each made of others."""
    sizes = {f"%a{i}": n for i, n in enumerate(arguments)} | {f"%t{i}": n for i, (_, n) in enumerate(steps)}
    kinds = {name: f"!npu.gm<{n * GIB}xf32>" for name, n in sizes.items()}
    lines, kernels = [], []
    for i, (used, _) in enumerate(steps):
        types = [kinds[v] for v in (*used, f"%t{i}")]
        lines.append(f"  %t{i} = npu.gm_alloc : () -> {types[-1]}")
        operands = ", ".join([*used, f"%t{i}"])
        lines.append(f"  npu.launch @k{i} {operands} {{outputs = 1, workspaces = 0}} : ({', '.join(types)})")
        given = ", ".join(f"%v{n}: {kind}" for n, kind in enumerate(types))
        kernels.append(
            f'npu.kernel @k{i} {{grid = [1], kind = "vector", outputs = 1, workspaces = 0}} {{\n'
            f"^bb0(%i: index, {given}):\n}}"
        )
    result = f"%t{len(steps) - 1}"
    head = ", ".join(f"%a{i}: {kinds[f'%a{i}']}" for i in range(len(arguments)))
    body = "\n".join([*lines, f"  func.return {result} : {kinds[result]}"])
    return "\n".join([f"func.func @main({head}) -> {kinds[result]} {{", body, "}", *kernels])


def planned(text: str, *donated: int) -> int:
    """The bytes that a program takes with some arguments donated."""
    module = parse_module(make_context(), text, "user.mlir")
    func = entry_of(module)
    donate(func, [i in donated for i in range(len(func.body.block.args))])
    NpuPlanMemoryPass(MACHINE.name).run_for(module, MACHINE)
    return arena_of(func) or 0


def refused(text: str, *donated: int) -> str:
    with pytest.raises(PassError) as error:
        planned(text, *donated)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_argument_that_helps_is_named() -> None:
    """%a1 is needed to the end: to donate it is of no use."""
    text = chain([4, 2], (["%a0"], 2), (["%t0", "%a1"], 4))
    assert refused(text).endswith("; it fits if argument 0 of @main is donated")
    assert planned(text, 0) == 8 << 30
    assert refused(text, 1).endswith("; it fits if argument 0 of @main is donated")


def test_arguments_that_help_together_are_named() -> None:
    text = chain([3, 3, 1], (["%a0"], 1), (["%t0", "%a1"], 2), (["%t1", "%a2"], 5))
    said = refused(text)
    assert said.endswith("it fits if the arguments 0, 1 of @main are donated")
    assert planned(text, 0, 1) == 8 << 30
    assert refused(text, 0) and refused(text, 1) and refused(text, 2)


def test_what_nothing_helps_says_how_much_is_too_much() -> None:
    said = refused(chain([1], (["%a0"], 5), (["%t0"], 6)))
    assert "needs 12884901888 bytes" in said and "12884901888 are needed at 'npu.launch'" in said
    assert said.endswith(
        "these are 4294967296 bytes too many at one time: a smaller batch or narrower types need less"
    )
    assert "user.mlir:" in said


def test_only_the_largest_are_listed() -> None:
    said = refused(chain([1, 2, 1, 1, 1, 1, 1], (["%a0", "%a1"], 2)))
    assert said.count("!npu.gm<") == 5 and "; 3 smaller ones; " in said


def test_sums_beyond_64_bits_are_counted() -> None:
    lives = [Life(0, 1, 1 << 63), Life(1, 2, 1 << 63), Life(3, 4, 5)]
    assert most_at_once(lives) == 1 << 64 and most_at_once([]) == 0
    assert ADDRESSABLE < 1 << 62


def timed(tensors: list[tuple[int, int, int]]) -> str:
    """A program of a launch for each time, of tensors (start, end, gibibytes); the last one is the result."""
    kinds = [f"!npu.gm<{n * GIB}xf32>" for _, _, n in tensors]
    lines, kernels = [], []
    for t in range(max(end for _, end, _ in tensors)):
        old = [i for i, (start, end, _) in enumerate(tensors) if start < t < end]
        new = [i for i, (start, _, _) in enumerate(tensors) if start == t]
        lines += [f"  %t{i} = npu.gm_alloc : () -> {kinds[i]}" for i in new]
        operands, types = (
            ", ".join(f"%t{i}" for i in old + new),
            ", ".join(kinds[i] for i in old + new),
        )
        facts = f"outputs = {len(new)}, workspaces = 0"
        lines.append(f"  npu.launch @k{t} {operands} {{{facts}}} : ({types})")
        given = ", ".join(f"%v{i}: {kinds[i]}" for i in old + new)
        kernels.append(
            f'npu.kernel @k{t} {{grid = [1], kind = "vector", {facts}}} {{\n^bb0(%i: index, {given}):\n}}'
        )
    head = f"func.func @main() -> {kinds[-1]} {{"
    return "\n".join([head, *lines, f"  func.return %t{len(kinds) - 1} : {kinds[-1]}", "}", *kernels])


def test_a_program_that_only_gaps_keep_out_says_so() -> None:
    """Eight gibibytes are live at most, and no plan has fewer than nine (tests/packing has a smaller such case)."""
    text = timed([(1, 4, 3), (0, 3, 2), (2, 3, 2), (2, 5, 1), (0, 1, 6), (1, 2, 3), (3, 4, 4), (4, 5, 7)])
    said = refused(text)
    assert "needs 9663676416 bytes" in said and ": 8589934592 are needed at 'npu.launch'" in said
    assert said.endswith(
        "these alone would fit, but the plan has gaps between them: a smaller batch or narrower types need less"
    )
