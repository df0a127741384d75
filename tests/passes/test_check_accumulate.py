"""npu-check on stores that accumulate: they read and write; those of one kind need no order among each other."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.parser import Parser

from tilewright.dialects import make_context
from tilewright.dialects.npu.structure import KernelOp, LaunchOp
from tilewright.machine import Machine
from tilewright.passes.npu.check import KernelSummary, check, check_kernel
from tilewright.passes.npu.synchronize import NpuSynchronizePass

B1 = Machine.load("ascend-910b1")
Y = "!npu.gm<128xf32>"
FILL = "npu.vfill %a {value = 0.5 : f64} : (!npu.buffer<64xf32, ub>)"
BARRIER = "npu.barrier"


def store(at: str, kind: str = "add", buffer: str = "%a") -> str:
    how = f'accumulate = "{kind}", ' if kind else ""
    return f"npu.store_nd {buffer}, %y at [{at}] {{{how}sizes = [64]}} : (!npu.buffer<64xf32, ub>, {Y})"


def load(at: str) -> str:
    return f"npu.load_nd %y, %b at [{at}] {{sizes = [64]}} : ({Y}, !npu.buffer<64xf32, ub>)"


def section(*body: str, grid: int = 1, units: int = 1, workspaces: int = 0) -> ModuleOp:
    lines = "\n    ".join((FILL, BARRIER, *body))
    kind = "vector" if units == 1 else "mix"
    module = Parser(
        make_context(),
        f"""
npu.kernel @k {{grid = [{grid}], kind = "{kind}", outputs = {1 - workspaces}, workspaces = {workspaces}}} {{
^bb0(%core: index, %y: {Y}):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %six = arith.constant 6 : index
  npu.section {{core = "vector", units = {units}}} {{
  ^bb1(%unit: index):
    %a = npu.alloc {{address = 0}} : () -> !npu.buffer<64xf32, ub>
    %b = npu.alloc {{address = 256}} : () -> !npu.buffer<64xf32, ub>
    {lines}
  }}
}}
""",
    ).parse_module()
    module.verify()
    return module


def checked(module: ModuleOp) -> tuple[KernelSummary, set[str]]:
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    summary, found = check_kernel(kernel, B1)
    return summary, {f.kind for f in found}


@pytest.mark.parametrize("at", ["0", "%core * 32", "%core * 64"])
def test_cores_that_accumulate_alike_may_meet(at: str) -> None:
    summary, found = checked(section(store(at), grid=2))
    assert not found
    assert summary.reads == summary.writes == summary.needs == {0}


def test_units_and_iterations_may_meet() -> None:
    loop = f"scf.for %j = %zero to %six step %one {{\n{store('%j * 8')}\n}}"
    assert not checked(section(loop, grid=3, units=2))[1]


def test_neighbours_on_one_pipe_need_no_barrier() -> None:
    """Of a kind; between two kinds, and beside a plain store, they do."""
    assert not checked(section(store("0"), store("32")))[1]
    for first, second in (("add", "max"), ("", "add"), ("min", "")):
        unordered = section(store("0", first), store("32", second))
        assert checked(unordered)[1] == {"race"}
        ordered = section(store("0", first), 'npu.pipe_barrier {pipe = "MTE3"}', store("32", second))
        assert not checked(ordered)[1]


@pytest.mark.parametrize(("first", "second"), [("add", "max"), ("", "add"), ("add", "")])
def test_cores_that_store_in_two_ways_race(first: str, second: str) -> None:
    stores = store("%core * 64", first), BARRIER, store("%core * -64 + 64", second)
    assert checked(section(*stores, grid=2))[1] == {"core-race"}
    apart = store("%core * 64", first), BARRIER, store("%core * 64", second)
    assert not checked(section(*apart, grid=2))[1]


def test_one_way_of_a_core_hides_no_other() -> None:
    """What a core stores plainly and adds to meets what another one adds, whatever it did there last."""
    own = store("%core * 64", ""), BARRIER, store("%core * 64")
    assert not checked(section(*own, grid=2))[1]
    for more in (store("0"), store("%core * -64 + 64")):
        assert checked(section(*own, BARRIER, more, grid=2))[1] == {"core-race"}


def test_a_load_needs_order() -> None:
    assert checked(section(store("0"), load("32")))[1] == {"race"}
    assert checked(section(load("32"), store("0")))[1] == {"race"}
    assert not checked(section(store("0"), BARRIER, load("32")))[1]


@pytest.mark.parametrize("at", ["0", "%core * 64", "%core * 32"])
def test_a_load_meets_what_other_cores_add(at: str) -> None:
    """Also where all move alike, and where the core that loads added there last."""
    assert checked(section(store("0"), BARRIER, load(at), grid=2))[1] == {"core-race"}
    assert checked(section(store("%core * 64"), BARRIER, load("%core * 64"), grid=2))[1] == set()


def test_what_is_accumulated_to_comes_with_contents() -> None:
    """From the launch, or from a store of the core before."""
    assert checked(section(store("0")))[0].needs == {0}
    assert checked(section(store("0", ""), BARRIER, store("0")))[0].needs == set()
    assert checked(section(store("0", ""), BARRIER, store("32")))[0].needs == {0}


def test_a_workspace_has_no_contents() -> None:
    assert "uninitialised" in checked(section(store("0"), workspaces=1))[1]
    assert not checked(section(store("0", ""), BARRIER, store("0"), workspaces=1))[1]


HOST = f"""
func.func @main(%y: {Y}) -> {Y} attributes {{npu.addresses = array<i64: 0>, npu.arena_bytes = 1024 : i64}} {{
  %o = npu.gm_alloc {{address = 512}} : () -> {Y}
  npu.copy %y, %o : ({Y}, {Y})
  npu.launch @k %o {{outputs = 1, updates = array<i64: 0>, workspaces = 0}} : ({Y})
  func.return %o : {Y}
}}
"""


def program(*body: str) -> ModuleOp:
    module = section(*body, grid=2)
    for op in Parser(make_context(), HOST).parse_module().body.block.ops:
        module.body.block.add_op(op.clone())
    return module


def test_a_program_brings_the_contents() -> None:
    module = program(store("0"), BARRIER)
    assert not list(check(module, B1))
    copy = next(op for op in module.walk() if op.name == "npu.copy")
    copy.detach()
    copy.erase()
    (found,) = check(module, B1)
    assert found.kind == "device-uninitialised" and isinstance(found.first, LaunchOp)


@pytest.mark.parametrize(("kind", "barriers"), [("add", 0), ("max", 1)])
def test_barriers_stand_between_two_kinds_only(kind: str, barriers: int) -> None:
    """npu-synchronize puts what npu-check needs: one core adds, and adds or takes the larger of both."""
    module = section(store("0"), store("32", kind))
    for op in [op for op in module.walk() if op.name == "npu.barrier"]:
        op.detach()
        op.erase()
    module.attributes["tilewright.target"] = StringAttr("ascend-910b1")
    NpuSynchronizePass().apply(make_context(), module)
    assert sum(op.name == "npu.pipe_barrier" and op.pipe.data == "MTE3" for op in module.walk()) == barriers
