"""Flags that can go, by the graph of one run, against a run of the clocks without each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import RandomProgram, programs
from sums import sums
from xdsl.context import Context

import tilewright as tw
from tilewright.dialects import make_context
from tilewright.dialects.npu.structure import KernelOp
from tilewright.dialects.text import parse_module
from tilewright.machine import Machine
from tilewright.passes.npu import synchronize
from tilewright.passes.npu.check import check_kernel, removable_flags
from tilewright.passes.npu.check.clocks import Clocks
from tilewright.passes.npu.check.minimal import flag_pairs, irredundant, safe_without
from tilewright.passes.npu.check.model import GONE, CheckedKernel, CheckedNode
from tilewright.passes.npu.check.waits import WaitGraph
from tilewright.passes.pipeline import PIPELINE, make_pass

B1 = Machine.load("ascend-910b1")


def nodes_below(nodes: Sequence[CheckedNode]) -> Iterator[CheckedNode]:
    for node in nodes:
        yield node
        yield from nodes_below(node.body)


def by_running_again(graphs: Sequence[WaitGraph], flags: Iterable[int]) -> list[int]:
    """What `irredundant` says, by a run of the section without each flag."""
    sections = {id(graph.kernel): (graph.kernel, graph.sections[0]) for graph in graphs}.values()
    nodes: dict[int, list[CheckedNode]] = {flag: [] for flag in flags}
    for _, section in sections:
        for node in nodes_below(section.nodes):
            if id(node) in graphs[0].flags:
                nodes[graphs[0].flags[id(node)]].append(node)

    def unsafe() -> bool:
        return any(
            Clocks(kernel, only=section, start=start, in_order=True).unsafe()
            for kernel, section in sections
            for start in kernel.starts()
        )

    kinds = [(node, node.kind) for some in nodes.values() for node in some]
    left = list(nodes)
    before = len(left) + 1
    while len(left) < before:
        before = len(left)
        for flag in list(left):
            if safe_without(nodes[flag], unsafe):
                for node in nodes[flag]:
                    node.kind = GONE
                left.remove(flag)
    for node, kind in kinds:
        node.kind = kind
    return left


@contextmanager
def compared() -> Iterator[list[tuple[int, int]]]:
    """How many flags the sections that are compiled meanwhile ask for, and how many are left; both ways must leave the
    same."""
    counts: list[tuple[int, int]] = []

    def both(graphs: Sequence[WaitGraph], flags: Iterable[int]) -> list[int]:
        asked = list(flags)
        want = by_running_again(graphs, asked)
        assert irredundant(graphs, asked) == want
        counts.append((len(asked), len(want)))
        return want

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synchronize, "irredundant", both)
        yield counts


@given(programs(), st.sampled_from(["f32", "f16"]), st.sampled_from(["ascend-910b1", "ascend-310"]))
def test_random_programs_keep_the_same_flags(program: RandomProgram, dtype: str, target: str) -> None:
    with compared():
        tw.compile(program, *program.arguments(dtype), target=target)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.swapaxes(-1, -2)) @ v


def rows(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.nn.softmax(x * w) * x.sum(-1, keepdims=True)


def leaves(*x: jax.Array) -> list[jax.Array]:
    norm = jnp.sqrt(sum(jnp.sum(leaf * leaf) for leaf in x))
    return [leaf / jnp.maximum(1, norm) for leaf in x]


CASES: list[tuple[Callable[..., Any], list[tuple[int, ...]]]] = [
    (attention, [(2, 256, 64)] * 3),
    (lambda x, y: jax.nn.relu(x @ y), [(300, 200), (200, 500)]),
    (rows, [(9, 40_000), (40_000,)]),
    (leaves, [(64, 64)] * 12),
    (lambda x: jnp.cumsum(jnp.sort(x, -1), -1), [(600, 300)]),
]


@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310"])
@pytest.mark.parametrize(("fn", "shapes"), CASES)
def test_kernels_keep_the_same_flags(fn: Callable[..., Any], shapes: list[tuple[int, ...]], target: str) -> None:
    with compared() as counts:
        tw.compile(fn, *(jax.ShapeDtypeStruct(s, np.float16) for s in shapes), target=target)
    assert sum(asked for asked, _ in counts) > 2


@pytest.mark.parametrize(("buffers", "rounds"), [(1, 3), (5, 3), (12, 2), (3, 20)])
def test_sums_in_few_buffers_keep_the_same_flags(tmp_path: Path, buffers: int, rounds: int) -> None:
    """Barriers stand between flags where the pipes run out of events."""
    file = tmp_path / "sums.mlir"
    file.write_text(sums(buffers, rounds))
    with compared() as counts:
        tw.compile(str(file))
    assert counts


def test_flags_that_share_an_event_are_judged_by_running_again() -> None:
    """The slots of one flag reach the event of another: without one, the waits of the other may be for other sets."""
    kernel = kernel_of("""
    npu.load_nd %x, %a at [0] {sizes = [64]} : (!npu.gm<64xf32>, !npu.buffer<64xf32, ub>)
    npu.set_flag at [0] {event = 1, slots = 1, source = "MTE2", target = "V"}
    npu.wait_flag at [0] {event = 1, slots = 1, source = "MTE2", target = "V"}
    npu.vexp %a, %b : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)
    npu.set_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE2"}
    npu.wait_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE2"}
    npu.set_flag at [1] {event = 0, slots = 2, source = "MTE2", target = "V"}
    npu.wait_flag at [1] {event = 0, slots = 2, source = "MTE2", target = "V"}
    npu.set_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
    npu.wait_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
    npu.store_nd %b, %y at [0] {sizes = [64]} : (!npu.buffer<64xf32, ub>, !npu.gm<64xf32>)""")
    checked = CheckedKernel(kernel, B1)
    flags = {op: i for i, flag in enumerate(flag_pairs(checked)) for op in flag.ops}
    numbers = {id(n): flags[n.op] for n in nodes_below(checked.sections[0].nodes) if n.op in flags}
    assert WaitGraph(checked, numbers).mixed == {0, 2}
    assert [str(flag) for flag in removable_flags(kernel, B1)] == ["MTE2 -> V event 0"]


BUFFER = "!npu.buffer<64xf32, ub>"


def kernel_of(body: str, buffers: Sequence[str] = ("a", "b"), extent: int = 64) -> KernelOp:
    allocs = "\n".join(
        f"%{name} = npu.alloc {{address = {256 * i}}} : () -> {BUFFER}" for i, name in enumerate(buffers)
    )
    module = parse_module(
        make_context(),
        f"""
npu.kernel @k {{grid = [1], kind = "vector", outputs = 1, workspaces = 0}} {{
^bb0(%core: index, %x: !npu.gm<{extent}xf32>, %y: !npu.gm<{extent}xf32>):
  npu.section {{core = "vector", units = 1}} {{
  ^bb1(%unit: index):
    {allocs}
    {body}
  }}
}}
""",
        "k.mlir",
    )
    (kernel,) = (op for op in module.ops if isinstance(op, KernelOp))
    return kernel


def visits_of(monkeypatch: pytest.MonkeyPatch, n: int) -> int:
    """How often the graph computes what a point knows, for n rounds of a load, an exponential and a store, each with
    buffers of its own."""
    total = 0

    def knows(self: WaitGraph, *args: Any) -> Any:
        nonlocal total
        total += 1
        return plain(self, *args)

    x = f"!npu.gm<{64 * n}xf32>"
    body = "\n".join(
        f"npu.load_nd %x, %a{i} at [{64 * i}] {{sizes = [64]}} : ({x}, {BUFFER})\n"
        f"npu.vexp %a{i}, %b{i} : ({BUFFER}, {BUFFER})\n"
        f"npu.vadd %b{i}, %b{max(i - 1, 0)}, %b{i} : ({BUFFER}, {BUFFER}, {BUFFER})\n"
        f"npu.store_nd %b{i}, %y at [{64 * i}] {{sizes = [64]}} : ({BUFFER}, {x})"
        for i in range(n)
    )
    kernel = kernel_of(body, [f"{name}{i}" for i in range(n) for name in "ab"], 64 * n)
    module = kernel.parent_op()
    plain = WaitGraph._knows
    with monkeypatch.context() as patch:
        patch.setattr(WaitGraph, "_knows", knows)
        (stage,) = (stage for stage in PIPELINE if stage.name == "npu-synchronize")
        make_pass(stage, "ascend-910b1").apply(Context(), module)
    assert not check_kernel(kernel, B1)[1]
    return total


def test_the_work_grows_with_the_number_of_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (visits_of(monkeypatch, n) for n in (40, 80))
    assert many <= 2.4 * few
