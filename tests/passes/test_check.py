"""npu-check: its arithmetic against brute force, shortened loops against full ones, and what its findings hold."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import KERNEL_MUTATIONS
from programs import RandomProgram, programs
from subjects import example
from sums import sums
from tiering import sampled, xla_code
from xdsl.context import Context
from xdsl.dialects.func import FuncOp

import tilewright as tw
from tilewright.dialects import make_context
from tilewright.dialects.affine import Expr
from tilewright.dialects.base import encode
from tilewright.dialects.npu.handing import handed_over
from tilewright.dialects.npu.structure import KernelOp
from tilewright.dialects.text import parse_module
from tilewright.machine import Machine
from tilewright.passes.errors import PassError
from tilewright.passes.npu.check import BLAME, check, check_kernel, device, removable_flags
from tilewright.passes.npu.check.affine import cover, product_covers
from tilewright.passes.npu.check.clocks import reduced_trips
from tilewright.passes.npu.check.model import CheckedKernel
from tilewright.passes.pipeline import PIPELINE, STATES, make_pass

B1 = Machine.load("ascend-910b1")


def kernels(module: Any) -> list[KernelOp]:
    return [op for op in module.ops if isinstance(op, KernelOp)]


# -- arithmetic ------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4)), max_size=3),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 40),
)
def test_cover_against_listing(digits: list[tuple[int, int]], count: int, step: int, extent: int) -> None:
    counts = [n for _, n in digits]
    offset = Expr(0, {v: c for v, (c, _) in enumerate(digits)})
    found = cover(offset, count, step, extent, counts)
    values = [
        offset.evaluate(env) + i * step
        for env in itertools.product(*map(range, [n if c else 1 for c, n in digits]))
        for i in range(count)
    ]
    met = [v for v in values if v < extent]
    if found.full:
        assert set(met) == set(range(found.low, found.high))
    if found.once:
        assert len(met) == len(set(met))


boxes = st.lists(
    st.tuples(*[st.tuples(st.integers(0, 4), st.integers(1, 4)).map(lambda p: (p[0], p[0] + p[1]))] * 2),
    max_size=6,
)


@given(boxes, st.tuples(st.integers(1, 6), st.integers(1, 6)))
def test_product_covers_against_a_grid(found: list[Any], extent: tuple[int, int]) -> None:
    grid = np.zeros(extent, bool)
    for (a, b), (c, d) in found:
        grid[a:b, c:d] = True
    missing = product_covers(found, extent)
    assert (missing is None) == grid.all()
    if missing is not None:
        assert not grid[missing]


@given(st.integers(0, 200), st.integers(1, 6))
def test_reduced_trips_keep_phase(trips: int, period: int) -> None:
    kept = reduced_trips(trips, period)
    assert kept <= trips
    assert (trips - kept) % period == 0
    assert kept == trips or 2 * period + 1 <= kept <= 3 * period


# -- loops -----------------------------------------------------------------------------------------------------


def mlp(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w + b)


@pytest.fixture(scope="module")
def long_loops(tmp_path_factory: pytest.TempPathFactory) -> list[KernelOp]:
    """Kernels whose loops run often: of the product, of its tiles, of a vector kernel's copies, of barriers."""
    shapes = [jax.ShapeDtypeStruct(s, np.float16) for s in [(256, 2048), (2048, 1024), (1024,)]]
    product = tw.compile(mlp, *shapes).module()
    vector = tw.compile(
        lambda x: jnp.exp(x).sum(-1), jax.ShapeDtypeStruct((60000, 700), np.float32)
    ).module()
    ordered = tw.compile(
        lambda x: (jnp.sort(x, -1), jnp.cumsum(x, -1)), jax.ShapeDtypeStruct((6000, 300), np.float32)
    ).module()
    file = tmp_path_factory.mktemp("barriers") / "sums.mlir"
    file.write_text(sums(1, 40))
    barriers = tw.compile(str(file)).module()
    return [*kernels(product), *kernels(vector), *kernels(ordered), *kernels(barriers)]


@sampled(2)
@pytest.mark.parametrize("kind", sorted(KERNEL_MUTATIONS))
def test_shortened_loops_find_what_full_ones_find(long_loops: list[KernelOp], kind: str) -> None:
    rng = random.Random(kind)
    caught = tried = 0
    for kernel in long_loops:
        for mutation in KERNEL_MUTATIONS[kind]:
            for _ in range(3):
                mutant = kernel.clone()
                if mutation(mutant, rng, B1) is None:
                    continue
                short, full = ({f.kind for f in check_kernel(mutant, B1, full)[1]} for full in (False, True))
                assert short == full
                caught, tried = caught + bool(full), tried + 1
    assert tried
    assert caught or kind == "change a valid extent"


@st.composite
def pipelines(draw: st.DrawFn) -> str:
    """A kernel without flags: a nest of loops around copies through buffers of several slots each."""
    outer, inner = draw(st.integers(1, 23)), draw(st.integers(1, 23))
    stages = draw(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=3))
    total = outer * inner * 64
    allocs, body = [], []
    for n, (slots, through_vector) in enumerate(stages):
        kind = "!npu.buffer<64xf32, ub" + (f", {slots} slots>" if slots > 1 else ">")
        one = "!npu.buffer<64xf32, ub>"
        allocs.append(f"%a{n} = npu.alloc : () -> {kind}")
        at = f"%s{n}" if slots > 1 else f"%a{n}"
        if slots > 1:
            body.append(f"%s{n} = npu.slot %a{n} at [%i * {inner} + %j] : ({kind}) -> {one}")
        box = f"at [%i * {inner * 64} + %j * 64] {{sizes = [64]}}"
        body.append(f"npu.load_nd %x{n}, {at} {box} : (!npu.gm<{total}xf32>, {one})")
        if through_vector:
            allocs.append(f"%b{n} = npu.alloc : () -> {one}")
            body.append(f"npu.vexp {at}, %b{n} : ({one}, {one})")
            at = f"%b{n}"
        body.append(f"npu.store_nd {at}, %y{n} {box} : ({one}, !npu.gm<{total}xf32>)")
    arguments = "".join(f", %{v}{n}: !npu.gm<{total}xf32>" for v in "xy" for n in range(len(stages)))
    lines = "\n".join(body)
    return f"""
npu.kernel @k {{grid = [1], kind = "vector", outputs = {len(stages)}, workspaces = 0}} {{
^bb0(%core: index{arguments}):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %m = arith.constant {outer} : index
  %n = arith.constant {inner} : index
  npu.section {{core = "vector", units = 1}} {{
  ^bb1(%unit: index):
    {" ".join(a + chr(10) for a in allocs)}
    scf.for %i = %zero to %m step %one {{
      scf.for %j = %zero to %n step %one {{
        {lines}
      }}
    }}
  }}
}}
"""


@given(pipelines(), st.sampled_from(sorted(KERNEL_MUTATIONS)), st.integers(0, 1000))
def test_shortened_nests_find_what_full_ones_find(text: str, kind: str, seed: int) -> None:
    module = module_of(text)
    for stage in PIPELINE:
        if stage.name in ("npu-allocate", "npu-synchronize"):
            make_pass(stage, "ascend-910b1").apply(Context(), module)
    (kernel,) = kernels(module)
    assert not check_kernel(kernel, B1, True)[1]
    assert not check_kernel(kernel, B1)[1]
    assert not removable_flags(kernel, B1)
    rng = random.Random(seed)
    for mutation in KERNEL_MUTATIONS[kind]:
        mutant = kernel.clone()
        if mutation(mutant, rng, B1) is not None:
            short, full = ({f.kind for f in check_kernel(mutant, B1, way)[1]} for way in (False, True))
            assert short == full


def test_full_loops_are_longer(long_loops: list[KernelOp]) -> None:
    from tilewright.passes.npu.check.clocks import Clocks
    from tilewright.passes.npu.check.model import CheckedKernel

    for op in long_loops:
        kernel = CheckedKernel(op, B1)
        short, full = Clocks(kernel), Clocks(kernel, full=True)
        assert not short.run()
        assert not full.run()
        assert sum(map(len, short.trail)) < sum(map(len, full.trail))


# -- programs --------------------------------------------------------------------------------------------------


@given(programs(), st.sampled_from(["f32", "f16"]), st.sampled_from(["ascend-910b1", "ascend-310"]))
def test_random_programs_are_safe_and_minimal(program: RandomProgram, dtype: str, target: str) -> None:
    module = tw.compile(program, *program.arguments(dtype), target=target).module()
    assert not check(module, Machine.load(target), full=True)
    assert not [flag for op in kernels(module) for flag in removable_flags(op, Machine.load(target))]


@sampled(4)
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310"])
@pytest.mark.parametrize(
    "model", ["gpt2:forward", "resnet50:forward", "lstm:forward_f16", "digits_cnn:forward"]
)
def test_examples_are_safe_and_minimal(model: str, target: str) -> None:
    """Signals of cores that take turns may be implied by others (docs/passes/npu-synchronize.md)."""
    subject = example(model, target)
    assert not check(subject.module, Machine.load(target))
    for op in kernels(subject.module):
        forth, back = handed_over(op)
        in_turns = bool(forth and back)
        assert not [flag for flag in removable_flags(op, Machine.load(target)) if flag.target or not in_turns]


# -- findings --------------------------------------------------------------------------------------------------

TEXT = """
func.func @main(%x: !npu.gm<512xf32>) -> !npu.gm<512xf32> {
  %0 = npu.gm_alloc : () -> !npu.gm<512xf32>
  npu.launch @k %x, %0 {outputs = 1, workspaces = 0} : (!npu.gm<512xf32>, !npu.gm<512xf32>)
  func.return %0 : !npu.gm<512xf32>
}
npu.kernel @k {grid = [1], kind = "vector", outputs = 1, workspaces = 0} {
^bb0(%core: index, %x: !npu.gm<512xf32>, %y: !npu.gm<512xf32>):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %a = npu.alloc {address = 0} : () -> !npu.buffer<256xf32, ub>
    %b = npu.alloc {address = 1024} : () -> !npu.buffer<256xf32, ub>
    npu.load_nd %x, %a at [0] {sizes = [256]} : (!npu.gm<512xf32>, !npu.buffer<256xf32, ub>)
    npu.set_flag at [0] {event = 5, slots = 1, source = "MTE2", target = "MTE3"}
    npu.wait_flag at [0] {event = 5, slots = 1, source = "MTE2", target = "MTE3"}
    npu.store_nd %a, %y at [0] {sizes = [256]} : (!npu.buffer<256xf32, ub>, !npu.gm<512xf32>)
    npu.set_flag at [0] {event = 0, slots = 1, source = "MTE3", target = "MTE2"}
    npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE3", target = "MTE2"}
    npu.load_nd %x, %b at [256] {sizes = [256]} : (!npu.gm<512xf32>, !npu.buffer<256xf32, ub>)
    npu.set_flag at [0] {event = 1, slots = 1, source = "MTE2", target = "MTE3"}
    npu.wait_flag at [0] {event = 1, slots = 1, source = "MTE2", target = "MTE3"}
    npu.store_nd %b, %y at [256] {sizes = [256]} : (!npu.buffer<256xf32, ub>, !npu.gm<512xf32>)
  }
}
"""


def module_of(text: str) -> Any:
    return parse_module(make_context(), text, "user.py")


def test_a_race_names_both_ops_bytes_path_pass_and_lines() -> None:
    lines = [line for line in TEXT.splitlines() if "event = 5" not in line]
    (found,) = check(module_of("\n".join(lines)), B1)
    assert found.second is not None
    assert (found.kind, found.blame) == ("race", "npu-synchronize")
    assert (found.first.name, found.second.name) == ("npu.load_nd", "npu.store_nd")
    assert found.bytes is not None
    assert (found.bytes.space, found.bytes.start, found.bytes.end) == ("ub", 0, 1024)
    assert found.path == ("MTE3 has waited for nothing of MTE2",)
    assert "(user.py:13)" in str(found)
    assert "(user.py:14)" in str(found)


def test_an_event_that_the_machine_does_not_have() -> None:
    found = check(module_of(TEXT), replace(B1, flags=4))
    assert {f.kind for f in found} == {"event-overflow"}
    assert len(found) == 2


def test_a_buffer_in_a_space_that_the_machine_does_not_have() -> None:
    spaces = {k: v for k, v in B1.spaces.items() if k != "ub"}
    assert {f.kind for f in check(module_of(TEXT), replace(B1, spaces=spaces))} == {"out-of-bounds", "wrong-machine"}


def test_flags_that_can_go_and_what_they_cost(tmp_path: Any) -> None:
    path = tmp_path / "two.mlir"
    path.write_text(TEXT)
    (flag,) = tw.compile(path).removable_flags()
    assert (flag.kernel, flag.flag) == ("k", "MTE3 -> MTE2 event 0")
    assert flag.source is not None
    assert flag.source.endswith("two.mlir:17")
    assert flag.cycles > 0


@xla_code()
def test_an_unsafe_program_is_refused_unless_unchecked(tmp_path: Any) -> None:
    path = tmp_path / "race.mlir"
    path.write_text("\n".join(line for line in TEXT.splitlines() if "event = 5" not in line))
    with pytest.raises(tw.CompileError, match=r"kernel @k: race: 'npu.store_nd' \(.*race.mlir:\d+\)") as refused:
        tw.compile(path)
    assert "to blame" not in str(refused.value), "no pass of ours set the flags of this file"
    program = tw.compile(path, options=tw.Options(check=False))
    result = tw.verify(path, np.ones(512, np.float32), program=program)
    assert not result.ok
    proved, met = result.hazards  # by npu-check, and where the run by steps comes to it
    assert "race" in proved and "race" in met


def test_an_index_that_cannot_be_followed() -> None:
    loop = """
npu.kernel @k {grid = [4], kind = "vector", outputs = 0, workspaces = 0} {
^bb0(%core: index):
  npu.section {core = "vector", units = 1} {
  ^bb1(%unit: index):
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    scf.for %i = %zero to %core step %one {
    }
  }
}
"""
    with pytest.raises(PassError, match="needs constant bounds"):
        check(module_of(loop), B1)


def test_every_kind_blames_a_pass() -> None:
    assert set(BLAME.values()) <= {stage.name for stage in PIPELINE}
    assert STATES[-1] == "checked"


def test_a_program_without_functions_is_checked() -> None:
    module = module_of(TEXT)
    for op in list(module.ops):
        if isinstance(op, FuncOp):
            op.detach()
            op.erase()
    assert not check(module, B1)


# -- corners ---------------------------------------------------------------------------------------------------


def section(body: str, arguments: str = "%y: !npu.gm<128xf32>", grid: int = 1, workspaces: int = 0) -> Any:
    outputs = 1 - workspaces
    return module_of(f"""
npu.kernel @k {{grid = [{grid}], kind = "vector", outputs = {outputs}, workspaces = {workspaces}}} {{
^bb0(%core: index, {arguments}):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %six = arith.constant 6 : index
  npu.section {{core = "vector", units = 1}} {{
  ^bb1(%unit: index):
    %a = npu.alloc {{address = 0}} : () -> !npu.buffer<64xf32, ub, 2 slots>
    %i = npu.alloc {{address = 512}} : () -> !npu.buffer<1xi32, ub>
    {body}
  }}
}}
""")


SLOT = "(!npu.buffer<64xf32, ub, 2 slots>) -> !npu.buffer<64xf32, ub>"
STORE = "{sizes = [64]} : (!npu.buffer<64xf32, ub>, !npu.gm<128xf32>)"
LOAD = "{sizes = [64]} : (!npu.gm<128xf32>, !npu.buffer<64xf32, ub>)"


def kinds(module: Any) -> set[str]:
    return {f.kind for op in kernels(module) for f in check_kernel(op, B1)[1]}


def test_slots_that_differ_by_core() -> None:
    """Core 0 reads the slot it wrote; core 1 reads the other one."""
    body = f"""
    %s = npu.slot %a at [%core] : {SLOT}
    %t = npu.slot %a at [0] : {SLOT}
    npu.vfill %s {{value = 0.5 : f64}} : (!npu.buffer<64xf32, ub>)
    npu.barrier
    npu.store_nd %t, %y at [%core * 64] {STORE}"""
    assert kinds(section(body, grid=2)) == {"uninitialised"}
    assert not kinds(section(body, grid=1))


def test_a_slot_chosen_by_data_may_be_any() -> None:
    body = f"""
    %n = npu.load_scalar %x at [0] {{low = 0, high = 5}} : (!npu.gm<4xi32>) -> index
    %s = npu.slot %a at [%n] : {SLOT}
    npu.vfill %s {{value = 0.5 : f64}} : (!npu.buffer<64xf32, ub>)
    npu.set_flag at [0] {{event = 0, slots = 1, source = "V", target = "MTE3"}}
    npu.wait_flag at [0] {{event = 0, slots = 1, source = "V", target = "MTE3"}}
    npu.store_nd %s, %y at [0] {STORE}
    %t = npu.slot %a at [1] : {SLOT}
    npu.vfill %t {{value = 0.5 : f64}} : (!npu.buffer<64xf32, ub>)"""
    assert kinds(section(body, "%x: !npu.gm<4xi32>, %y: !npu.gm<128xf32>")) == {"race"}


def test_a_loop_without_iterations_stores_nothing() -> None:
    body = f"""
    %s = npu.slot %a at [0] : {SLOT}
    npu.vfill %s {{value = 0.5 : f64}} : (!npu.buffer<64xf32, ub>)
    npu.barrier
    scf.for %j = %six to %one step %one {{
      npu.store_nd %s, %y at [%j * 64] {STORE}
    }}"""
    module = section(body)
    assert not kinds(module)
    (summary, _) = check_kernel(kernels(module)[0], B1)
    assert not summary.writes


def test_two_views_of_one_workspace() -> None:
    """Store through one view, load through another: ordered by the barrier, or a race."""
    ordered = f"""
    %s = npu.slot %a at [0] : {SLOT}
    %t = npu.slot %a at [1] : {SLOT}
    %v = npu.view %y : (!npu.gm<128xf32>) -> !npu.gm<2x64xf32>
    npu.vfill %s {{value = 0.5 : f64}} : (!npu.buffer<64xf32, ub>)
    npu.barrier
    npu.store_nd %s, %y at [0] {STORE}
    npu.barrier
    npu.load_nd %v, %t at [0, 0] {{sizes = [1, 64]}} : (!npu.gm<2x64xf32>, !npu.buffer<64xf32, ub>)"""
    assert not kinds(section(ordered, workspaces=1))
    head, tail = ordered.rsplit("npu.barrier", 1)
    assert kinds(section(head + tail, workspaces=1)) == {"race"}
    elsewhere = ordered.replace("%t at [0, 0]", "%t at [1, 0]")
    assert kinds(section(elsewhere, workspaces=1)) == {"uninitialised"}


@pytest.mark.parametrize(
    ("stored", "at", "loaded", "from_"),
    [
        (
            ("64x2xf32, strides [1, 64], offset 0", "[64, 1]"),
            "[0, %core]",
            ("2x64xf32", "[1, 64]"),
            "[FROM, 0]",
        ),
        (("64x2xf32", "[64, 1]"), "[0, %core]", ("32x2x2xf32", "[32, 2, 1]"), "[0, 0, FROM]"),
    ],
)
def test_cores_that_load_what_they_stored_through_another_view(
    stored: tuple[str, str], at: str, loaded: tuple[str, str], from_: str
) -> None:
    """Dimensions in another order, or split: each core stays with its own part, or reads the other's."""
    (out, out_sizes), (back, back_sizes) = stored, loaded
    own = f"""
    %s = npu.slot %a at [0] : {SLOT}
    %t = npu.slot %a at [1] : {SLOT}
    %v = npu.view %y : (!npu.gm<128xf32>) -> !npu.gm<{out}>
    %w = npu.view %y : (!npu.gm<128xf32>) -> !npu.gm<{back}>
    npu.vfill %s {{value = 0.5 : f64}} : (!npu.buffer<64xf32, ub>)
    npu.barrier
    npu.store_nd %s, %v at {at} {{sizes = {out_sizes}}} : (!npu.buffer<64xf32, ub>, !npu.gm<{out}>)
    npu.barrier
    npu.load_nd %w, %t at {from_} {{sizes = {back_sizes}}} : (!npu.gm<{back}>, !npu.buffer<64xf32, ub>)"""
    assert not kinds(section(own.replace("FROM", "%core"), grid=2, workspaces=1))
    assert kinds(section(own.replace("FROM", "%core * -1 + 1"), grid=2, workspaces=1)) >= {"core-race"}


def test_a_core_that_loads_its_own_part_and_some_of_another_one() -> None:
    """One element of another core is enough."""
    body = f"""
    %s = npu.slot %a at [0] : {SLOT}
    %t = npu.slot %a at [1] : {SLOT}
    %v = npu.view %y : (!npu.gm<128xf32>) -> !npu.gm<64x2xf32, strides [1, 64], offset 0>
    npu.vfill %s {{value = 0.5 : f64}} : (!npu.buffer<64xf32, ub>)
    npu.barrier
    npu.store_nd %s, %v at [0, %core] {{sizes = [64, 1]}}
      : (!npu.buffer<64xf32, ub>, !npu.gm<64x2xf32, strides [1, 64], offset 0>)
    npu.barrier
    npu.load_nd %y, %t at [%core * STEP] {{sizes = [64]}} : (!npu.gm<128xf32>, !npu.buffer<64xf32, ub>)"""
    assert not kinds(section(body.replace("STEP", "64"), grid=2, workspaces=1))
    for step in (63, 32):
        assert kinds(section(body.replace("STEP", str(step)), grid=2, workspaces=1)) >= {"core-race"}


def test_an_output_that_is_read_first_must_come_with_contents() -> None:
    body = f"""
    %s = npu.slot %a at [0] : {SLOT}
    npu.load_nd %y, %s at [0] {LOAD}
    npu.barrier
    npu.store_nd %s, %y at [64] {STORE}"""
    summary, found = check_kernel(kernels(section(body))[0], B1)
    assert not found
    assert summary.needs == {0}


def test_the_command_line_lists_flags(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from tilewright.cli.main import main

    path = tmp_path / "two.mlir"
    path.write_text(TEXT)
    assert main(["verify", str(path), "--flags"]) == 0
    assert "MTE3 -> MTE2 event 0" in capsys.readouterr().out
    path.write_text("\n".join(line for line in TEXT.splitlines() if "event = 0" not in line))
    assert main(["verify", str(path), "--flags", "--json"]) == 0
    assert '"removable_flags": []' in capsys.readouterr().out


def test_each_core_is_followed_where_a_load_moves_otherwise() -> None:
    """On the first core the load takes what was stored; on the others it reaches into what comes next."""
    x, w, b = np.zeros((512, 64), np.float16), np.zeros((64, 512), np.float16), np.zeros(512, np.float16)
    pins = tw.Schedule(base_m=128, base_n=128, split_m=4, split_n=1)
    machine = Machine.load("ascend-910b1")
    (op,) = kernels(tw.compile(mlp_layer, x, w, b, options=tw.Options(schedule=pins)).module())
    assert check_kernel(op, machine)[1] == []
    kernel = CheckedKernel(op, machine)
    (load,) = [t for t in kernel.transfers if t.tensor in kernel.workspaces and not t.write]
    *others, last = load.op.linear()
    moved = [*others, last + Expr.of(op.body.block.args[0], 16)]
    load.op.properties["offsets"] = encode(moved, load.op.index_operands())
    assert {f.kind for f in check_kernel(op, machine)[1]} & {"race", "uninitialised"}


def mlp_layer(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ w + b)


@pytest.mark.parametrize(
    ("shape", "rows"), [((5, 640, 1024), 1), ((3, 1, 4_000_037), 1), ((2048, 1, 300), 640), ((70, 7, 900), 37)]
)
def test_a_slab_at_a_place_that_a_number_names_is_not_followed_element_by_element(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], rows: int
) -> None:
    """The cores share the slab, also along the dimension in which it moves, and which part of the tensor it is does not
    matter."""

    def refuse(*_: Any) -> None:
        raise AssertionError("followed element by element")

    monkeypatch.setattr(device, "_exact", refuse)
    args = [jax.ShapeDtypeStruct(s, np.float16) for s in (shape, (rows, *shape[1:]))]
    update = lambda x, slab, i: jax.lax.dynamic_update_slice(x, slab, (i, 0, 0))  # noqa: E731
    tw.compile(update, *args, jax.ShapeDtypeStruct((), np.int32))


@pytest.mark.parametrize(("stride", "safe"), [(64, True), (63, False)])
def test_parts_of_cores_that_a_number_moves(stride: int, safe: bool) -> None:
    """Each core stores beside the next one, or over one of its elements."""
    body = f"""
    %n = npu.load_scalar %x at [0] {{low = 0, high = 64}} : (!npu.gm<4xi32>) -> index
    %s = npu.slot %a at [0] : {SLOT}
    npu.vfill %s {{value = 0.5 : f64}} : (!npu.buffer<64xf32, ub>)
    npu.barrier
    npu.store_nd %s, %y at [%core * {stride} + %n] {STORE.replace("128", "256")}"""
    module = section(body, "%x: !npu.gm<4xi32>, %y: !npu.gm<256xf32>", grid=3)
    assert kinds(module) == (set() if safe else {"core-race"})
