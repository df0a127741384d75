"""Cycles of hand-written npu programs, worked out by hand; deadlocks; what L2 and the host program add."""

from dataclasses import replace
from math import ceil

import pytest
from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.parser import Parser

from tilewright.backends.simulator import Copy, Launch, Repeat, Scalars, SimulationError, Transfer, simulate
from tilewright.backends.simulator.core import Event
from tilewright.dialects import make_context
from tilewright.dialects.npu.interface import NpuOp
from tilewright.dialects.npu.scatter import VScatterOp
from tilewright.dialects.npu.sorting import VSortOp
from tilewright.dialects.npu.structure import LaunchOp
from tilewright.machine import Machine, Move

LOADED = Machine.load("ascend-910b1")
PLAIN_MOVES = {
    ("gm", "ub"): (67.6, 20),
    ("gm", "l1"): (85.0, 20),
    ("ub", "gm"): (28.0, 20),
    ("l0c", "gm"): (71.5, 20),
}
B1 = replace(
    LOADED,
    issue_cycles=1,
    vector_issue_cycles=1,
    vector_slot_cycles=0,
    cross_us=0.0,
    wait_cycles={},
    cube_head_cycles=0,
    moves={
        path: Move(*path, move.pipe, *PLAIN_MOVES.get(path, (move.bytes_per_cycle, move.fixed_cycles)))
        for path, move in LOADED.moves.items()
    },
    vector=replace(LOADED.vector, streamed_cycles=14, banks=None),
    hbm_bytes_per_cycle=1.45e6 / 1850,
)
"""The 910B1 with round numbers: no cost per run, of misses, of heads and of bank conflicts."""
LOAD_256 = 20 + ceil(256 / 67.6)
STORE_256 = 20 + ceil(256 / 28)
ABS = 14 + ceil(128 / 128)


def parse(text: str) -> ModuleOp:
    module = Parser(make_context(), text, "test.mlir").parse_module()
    module.verify()
    return module


def vector_kernel(body: str, extent: int = 1 << 20, grid: int = 1, name: str = "k") -> str:
    return f"""
    npu.kernel @{name} {{grid = [{grid}], kind = "vector", outputs = 1, workspaces = 0}} {{
    ^bb0(%g: index, %x: !npu.gm<{extent}xf16>, %y: !npu.gm<{extent}xf16>):
      npu.section {{core = "vector", units = 1}} {{
      ^bb1(%u: index):
        %a = npu.alloc {{address = 0}} : () -> !npu.buffer<128xf16, ub>
        %b = npu.alloc {{address = 256}} : () -> !npu.buffer<128xf16, ub>
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        {body}
      }}
    }}"""


def program(body: str, extent: int = 1 << 20, grid: int = 1) -> ModuleOp:
    gm = f"!npu.gm<{extent}xf16>"
    return parse(
        f"""builtin.module {{
        {vector_kernel(body, extent, grid)}
        func.func @main(%x: {gm}) -> {gm} {{
          %y = npu.gm_alloc : () -> {gm}
          npu.launch @k %x, %y {{outputs = 1, workspaces = 0}} : ({gm}, {gm})
          func.return %y : {gm}
        }}
        }}"""
    )


def load(at: str, buffer: str = "%a", extent: int = 1 << 20) -> str:
    types = f"(!npu.gm<{extent}xf16>, !npu.buffer<128xf16, ub>)"
    return f"npu.load_nd %x, {buffer} at [{at}] {{sizes = [128]}} : {types}"


def store(at: str, buffer: str = "%b", extent: int = 1 << 20) -> str:
    types = f"(!npu.buffer<128xf16, ub>, !npu.gm<{extent}xf16>)"
    return f"npu.store_nd {buffer}, %y at [{at}] {{sizes = [128]}} : {types}"


def flag(kind: str, source: str, target: str, counter: str = "0", slots: int = 1, event: int = 0) -> str:
    fields = f'source = "{source}", target = "{target}", event = {event}, slots = {slots}'
    return f"npu.{kind}_flag at [{counter}] {{{fields}}}"


def loop(trips: int, body: str, index: str = "%i") -> str:
    end = f"%n{index[1:]}"
    head = f"{end} = arith.constant {trips} : index\nscf.for {index} = %c0 to {end} step %c1"
    return f"{head} {{\n{body}\n}}"


COMPUTE = "npu.vabs %a, %b : (!npu.buffer<128xf16, ub>, !npu.buffer<128xf16, ub>)"
SERIAL = "\n".join(
    [
        load("%i * 128"),
        flag("set", "MTE2", "V"),
        flag("wait", "MTE2", "V"),
        COMPUTE,
        flag("set", "V", "MTE3"),
        flag("wait", "V", "MTE3"),
        store("%i * 128"),
    ]
)


def cycles(module: ModuleOp, machine: Machine = B1) -> int:
    (step,) = simulate(module, machine).steps
    assert isinstance(step, Launch)
    full = simulate(module, machine, extrapolate=False).steps[0]
    assert isinstance(full, Launch)
    assert step.run == full.run
    return step.run.cycles


def test_one_instruction_starts_when_it_is_issued():
    assert cycles(program(load("0"))) == 1 + LOAD_256


def test_pipes_run_side_by_side_until_a_flag_joins_them():
    free = "\n".join([load("0"), COMPUTE])
    joined = "\n".join([load("0"), flag("set", "MTE2", "V"), flag("wait", "MTE2", "V"), COMPUTE])
    assert cycles(program(free)) == 1 + LOAD_256
    assert cycles(program(joined)) == 1 + LOAD_256 + ABS


@pytest.mark.parametrize("trips", [1, 2, 7, 100, 8000])
def test_serial_without_slots(trips: int):
    """Load, compute and store follow each other, and the next load waits for the store: nothing overlaps."""
    body = "\n".join([SERIAL, flag("set", "MTE3", "MTE2"), flag("wait", "MTE3", "MTE2")])
    assert cycles(program(loop(trips, body))) == 1 + trips * (LOAD_256 + ABS + STORE_256)


@pytest.mark.parametrize("trips", [1, 2, 7, 100, 8000])
def test_double_buffering_overlaps(trips: int):
    """With a credit for each of two slots the slowest pipe runs without a gap."""

    def credits(kind: str) -> str:
        pairs = (("V", "MTE2"), ("MTE3", "V"))
        return "\n".join(flag(kind, *pair, str(slot), 2, 2) for pair in pairs for slot in range(2))

    body = "\n".join(
        [
            flag("wait", "V", "MTE2", "%i", 2, 2),
            load("%i * 128"),
            flag("set", "MTE2", "V", "%i", 2),
            flag("wait", "MTE2", "V", "%i", 2),
            flag("wait", "MTE3", "V", "%i", 2, 2),
            COMPUTE,
            flag("set", "V", "MTE2", "%i", 2, 2),
            flag("set", "V", "MTE3", "%i", 2),
            flag("wait", "V", "MTE3", "%i", 2),
            store("%i * 128"),
            flag("set", "MTE3", "V", "%i", 2, 2),
        ]
    )
    module = program("\n".join([credits("set"), loop(trips, body), credits("wait")]))
    assert cycles(module) == 4 + 2 + LOAD_256 + ABS + trips * STORE_256


def test_barrier_joins_all_pipes():
    assert cycles(program("\n".join([load("0"), "npu.barrier", COMPUTE]))) == 1 + LOAD_256 + 1 + ABS


def test_clipped_transfer_costs_what_is_valid():
    whole, part = (cycles(program(loop(2, load("%i * 128", extent=n)), extent=n)) for n in (256, 144))
    assert whole - part == ceil(256 / 67.6) - ceil(32 / 67.6)


def test_cores_share_bandwidth():
    """48 cores that load at the same time get a 48th of HBM each."""
    body = "\n".join(
        [
            "%big = npu.alloc {address = 512} : () -> !npu.buffer<8192xf16, ub>",
            "npu.load_nd %x, %big at [%g * 8192] {sizes = [8192]}"
            " : (!npu.gm<1048576xf16>, !npu.buffer<8192xf16, ub>)",
        ]
    )
    assert cycles(program(body, grid=1)) == 1 + 20 + ceil(16384 / 67.6)
    assert cycles(program(body, grid=48)) == 1 + ceil(16384 * 48 / B1.hbm_bytes_per_cycle)


def test_more_grid_points_than_cores_queue_up():
    one, three = (cycles(program(load("%g * 128"), grid=g)) for g in (48, 96 + 1))
    assert three == 3 * one


def test_deadlock_names_op_and_place():
    body = flag("wait", "MTE2", "V", event=3) + ' loc("model.py":12:3)'
    with pytest.raises(SimulationError) as error:
        simulate(program(body), B1)
    assert str(error.value) == (
        "@k: 'npu.wait_flag' (model.py:12) waits for a flag MTE2 -> V event 3 "
        "that nothing has raised: deadlock"
    )


def test_deadlock_inside_a_long_loop():
    body = "\n".join([load("%i"), flag("set", "MTE2", "V", "%i", 2), flag("wait", "MTE2", "V", "%i + 1", 2)])
    with pytest.raises(SimulationError, match="nothing has raised"):
        simulate(program(loop(1000, body)), B1)


def test_unknown_move_is_an_error_that_names_the_op():
    body = "npu.vsin %a, %b : (!npu.buffer<128xf16, ub>, !npu.buffer<128xf16, ub>)"
    machine = replace(B1, vector=replace(B1.vector, expansions={}))
    with pytest.raises(SimulationError, match=r"'npu.vsin'.*no cost on ascend-910b1"):
        simulate(program(body), machine)


MIX = """
builtin.module {
  npu.kernel @mix {grid = [2], kind = "mix", outputs = 1, workspaces = 1} {
  ^bb0(%g: index, %x: !npu.gm<64x16xf16>, %y: !npu.gm<64x16xf16>, %w: !npu.gm<64x16xf32>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %a = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l0a>
      %b = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf16, l0b>
      %c = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf32, l0c>
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %n = arith.constant TRIPS : index
      scf.for %i = %c0 to %n step %c1 {
        npu.mmad %a, %b, %c at [0]
          : (!npu.buffer<16x16xf16, l0a>, !npu.buffer<16x16xf16, l0b>, !npu.buffer<16x16xf32, l0c>)
        npu.set_flag at [0] {source = "M", target = "FIX", event = 0, slots = 1}
        npu.wait_flag at [0] {source = "M", target = "FIX", event = 0, slots = 1}
        npu.fixpipe %c, %w at [%i * 16, 0] {sizes = [16, 16]}
          : (!npu.buffer<16x16xf32, l0c>, !npu.gm<64x16xf32>)
        npu.set_cross {source = "FIX", event = 0}
        BACK
      }
    }
    npu.section {core = "vector", units = 2} {
    ^bb1(%u: index):
      %a = npu.alloc {address = 0} : () -> !npu.buffer<16x16xf32, ub>
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %n = arith.constant TRIPS : index
      scf.for %i = %c0 to %n step %c1 {
        npu.wait_cross {target = "MTE2", event = 0}
        npu.load_nd %w, %a at [%i * 16, 0] {sizes = [16, 16]}
          : (!npu.gm<64x16xf32>, !npu.buffer<16x16xf32, ub>)
        FORTH
      }
    }
  }
  func.func @main(%x: !npu.gm<64x16xf16>) -> !npu.gm<64x16xf16> {
    %y = npu.gm_alloc : () -> !npu.gm<64x16xf16>
    %w = npu.gm_alloc : () -> !npu.gm<64x16xf32>
    npu.launch @mix %x, %y, %w {outputs = 1, workspaces = 1}
      : (!npu.gm<64x16xf16>, !npu.gm<64x16xf16>, !npu.gm<64x16xf32>)
    func.return %y : !npu.gm<64x16xf16>
  }
}
"""
MMAD = 8 + 1
FIXPIPE = 20 + ceil(1024 / 71.5)
LOAD_1K = 20 + ceil(1024 / 67.6)


def mix(trips: int, forth: str = "", back: str = "") -> ModuleOp:
    return parse(MIX.replace("TRIPS", str(trips)).replace("FORTH", forth).replace("BACK", back))


@pytest.mark.parametrize("trips", [1, 3])
def test_mix_kernel_hands_over_between_cores(trips: int):
    """The cube core runs ahead; each vector core loads what the fixpipe of the same step stored."""
    assert FIXPIPE < LOAD_1K
    assert cycles(mix(trips)) == 1 + MMAD + FIXPIPE + trips * LOAD_1K


@pytest.mark.parametrize("trips", [1, 3])
def test_mix_kernel_that_waits_both_ways(trips: int):
    forth = 'npu.set_cross {source = "MTE2", event = 1}'
    back = 'npu.wait_cross {target = "M", event = 1}'
    assert cycles(mix(trips, forth, back)) == 1 + trips * (MMAD + FIXPIPE + LOAD_1K)


@pytest.mark.parametrize("trips", [1, 3])
def test_a_signal_to_the_other_cores_takes_its_time(trips: int):
    """Each way once a trip where both wait for each other; where the cube core runs ahead, once in all."""
    later = replace(B1, cross_us=1.0)
    forth = 'npu.set_cross {source = "MTE2", event = 1}'
    back = 'npu.wait_cross {target = "M", event = 1}'
    both, ahead = (mix(trips, *args) for args in ((forth, back), ()))
    signals = 2 * trips * 1850
    assert cycles(both, later) == cycles(both) + signals
    assert cycles(ahead, later) == cycles(ahead) + 1850


def test_cross_core_deadlock():
    with pytest.raises(SimulationError, match=r"@mix: 'npu.wait_cross' .* event 1 .* deadlock"):
        simulate(mix(2, back='npu.wait_cross {target = "M", event = 1}'), B1)


def test_workspace_stays_in_l2():
    (step,) = simulate(mix(4), B1).steps
    assert isinstance(step, Launch)
    assert step.run.hbm_bytes == 0
    assert step.run.l2_bytes == 2 * 4 * (1024 + 2 * 1024)


def launches(host: str, body: str = SERIAL) -> ModuleOp:
    gm = "!npu.gm<1048576xf16>"
    launch = f"{{outputs = 1, workspaces = 0}} : ({gm}, {gm})"
    host = host.replace("LAUNCH", launch).replace("GM", gm)
    return parse(
        f"""builtin.module {{
        {vector_kernel(loop(8192, body))}
        func.func @main(%x: {gm}) -> {gm} {{
          %y = npu.gm_alloc : () -> {gm}
          %z = npu.gm_alloc : () -> {gm}
          %n = npu.gm_alloc : () -> !npu.gm<i32>
          {host}
          func.return %y : {gm}
        }}
        }}"""
    )


def test_first_touch_comes_from_hbm_then_from_l2():
    steps = simulate(launches("npu.launch @k %x, %y LAUNCH\nnpu.launch @k %x, %z LAUNCH"), B1).steps
    first, second = (step.run for step in steps if isinstance(step, Launch))
    assert (first.hbm_bytes, first.l2_bytes) == (2 << 20, 2 << 20)
    assert (second.hbm_bytes, second.l2_bytes) == (0, 4 << 20)


def test_views_are_the_tensor_they_show():
    host = """npu.launch @k %x, %y LAUNCH
    %v = npu.view %y : (GM) -> GM
    npu.launch @k %v, %z LAUNCH"""
    steps = simulate(launches(host), B1).steps
    assert [step.run.hbm_bytes for step in steps if isinstance(step, Launch)] == [2 << 20, 0]


def test_tensor_larger_than_l2_always_comes_from_hbm():
    small = replace(B1, l2_bytes=1 << 20)
    steps = simulate(launches("npu.launch @k %x, %y LAUNCH\nnpu.launch @k %x, %z LAUNCH"), small).steps
    assert [step.run.hbm_bytes for step in steps if isinstance(step, Launch)] == [4 << 20, 4 << 20]


def test_l2_evicts_the_least_recently_used():
    small = replace(B1, l2_bytes=5 << 20)
    host = "npu.launch @k %x, %y LAUNCH\nnpu.launch @k %y, %z LAUNCH\nnpu.launch @k %x, %z LAUNCH"
    steps = simulate(launches(host), small).steps
    assert [step.run.hbm_bytes for step in steps if isinstance(step, Launch)] == [2 << 20, 0, 2 << 20]


def test_tensors_at_the_same_address_displace_each_other():
    gm = "!npu.gm<1048576xf16>"
    launch = f"{{outputs = 1, workspaces = 0}} : ({gm}, {gm})"
    module = parse(
        f"""builtin.module {{
        {vector_kernel(loop(8192, SERIAL))}
        func.func @main(%x: {gm}) -> {gm} attributes {{npu.addresses = array<i64: 0>}} {{
          %y = npu.gm_alloc {{address = 2097152}} : () -> {gm}
          %z = npu.gm_alloc {{address = 1048576}} : () -> {gm}
          npu.launch @k %x, %y {launch}
          npu.launch @k %x, %z {launch}
          npu.launch @k %x, %y {launch}
          func.return %y : {gm}
        }}
        }}"""
    )
    runs = [step.run for step in simulate(module, B1).steps if isinstance(step, Launch)]
    assert [run.hbm_bytes for run in runs] == [2 << 20, 0, 2 << 20]


def test_host_loop_with_known_trips_repeats_its_body():
    host = """npu.loop %x {trip_count = 10} : (GM) {
      npu.yield %z : (GM)
    } {
      npu.launch @k %x, %y LAUNCH
      npu.yield %x : (GM)
    }"""
    simulation = simulate(launches(host), B1)
    cold, warm = simulation.steps
    assert isinstance(cold, Repeat) and isinstance(warm, Repeat)
    assert (cold.times, warm.times) == (1, 9)
    assert simulation.assumed_trips == ()
    assert simulation.microseconds == pytest.approx(cold.microseconds + warm.microseconds)
    assert sum(times for _, times in simulation.flat()) == 10


def test_host_loop_with_unknown_trips_counts_once_and_says_so():
    host = """npu.loop %x : (GM) {
      %more = npu.scalars : () -> tensor<i1> {
        %a = graph.constant {value = #graph.data<i1, [], (1)>} : () -> tensor<i1>
        %b = graph.not %a : tensor<i1>
        graph.yield %b : (tensor<i1>)
      }
      npu.yield %more : (tensor<i1>)
    } {
      npu.launch @k %x, %y LAUNCH
      npu.yield %x : (GM)
    }"""
    simulation = simulate(launches(host), B1)
    assert simulation.assumed_trips == ("'npu.loop'",)
    numbers = [step for step, _ in simulation.flat() if isinstance(step, Scalars)]
    assert [step.operations for step in numbers] == [1, 1]
    assert numbers[0].microseconds == B1.host.scalar_us
    assert sum(isinstance(step, Launch) for step, _ in simulation.flat()) == 1


def test_loop_state_that_is_elsewhere_is_copied():
    host = """npu.loop %x {trip_count = 2} : (GM) {
      npu.yield %z : (GM)
    } {
      npu.launch @k %x, %y LAUNCH
      npu.yield %y : (GM)
    }"""
    copies = [step for step, _ in simulate(launches(host), B1).flat() if isinstance(step, Copy)]
    assert len(copies) == 2 and all(copy.bytes == 2 << 20 and copy.hbm_bytes == 0 for copy in copies)


def test_a_number_goes_along_with_a_command():
    """It crosses neither HBM nor the link: it takes what a launch of one core does."""
    host = """%i = npu.to_host %n : (!npu.gm<i32>) -> tensor<i32>
    npu.to_device %i, %n : (tensor<i32>, !npu.gm<i32>)"""
    (copy,) = [step for step, _ in simulate(launches(host), B1).flat() if isinstance(step, Copy)]
    assert (copy.bytes, copy.hbm_bytes, copy.cycles) == (4, 0, 0)
    assert copy.microseconds == B1.launch_microseconds(1)


def test_branch_counts_the_longest():
    host = """%i = npu.to_host %n : (!npu.gm<i32>) -> tensor<i32>
    npu.branch %i, %y : (tensor<i32>, GM) {
      npu.yield %y : (GM)
    } {
      npu.launch @k %x, %y LAUNCH
      npu.yield %y : (GM)
    }"""
    simulation = simulate(launches(host), B1)
    assert simulation.assumed_branches == ("'npu.branch'",)
    (read,) = [step for step, _ in simulation.flat() if isinstance(step, Transfer)]
    assert read.control and read.microseconds == pytest.approx(
        B1.host.call_us + 4 / B1.host.pcie_bytes_per_us
    )
    assert sum(isinstance(step, Launch) for step, _ in simulation.flat()) == 1


def test_missing_main():
    with pytest.raises(SimulationError, match="no function @main"):
        simulate(parse("builtin.module {}"), B1)


def test_missing_kernel():
    module = launches("npu.launch @k %x, %y LAUNCH")
    (launch,) = (op for op in module.walk() if isinstance(op, LaunchOp))
    launch.properties["callee"] = SymbolRefAttr("other")  # the verifier refuses it, too
    with pytest.raises(SimulationError, match="launches @other, which does not exist"):
        simulate(module, B1)


def test_an_event_later_takes_as_long() -> None:
    """Sections that start later have the events of one that starts at once."""
    later = Event(None, 2, 3, 7, (1,)).later(10)  # pyright: ignore[reportArgumentType]
    assert (later.start, later.end, later.variant, later.env) == (13, 17, 2, (1,))


def cycles_alone(kind: type[NpuOp], text: str) -> int:
    """Cycles of the one instruction of a class in a text whose operands are those of a `test.op`."""
    context = make_context()
    context.allow_unregistered = True
    (op,) = (op for op in Parser(context, text).parse_module().walk() if isinstance(op, kind))
    op.verify()
    return op.cost(B1, [0]).cycles


def test_a_scatter_pays_for_a_type_that_the_unit_lacks() -> None:
    """bf16 is as wide as f16, but each row is converted to f32 and back."""
    cost = {}
    for dtype in ("f16", "bf16"):
        tile, rows = f"!npu.buffer<64x256x{dtype}, ub>", f"!npu.buffer<32x256x{dtype}, ub>"
        text = f"""%t, %i, %u = "test.op"() : () -> ({tile}, !npu.buffer<32xi32, ub>, {rows})
        npu.vscatter %t, %i, %u, %t at [0] {{kind = "sum"}} : ({tile}, !npu.buffer<32xi32, ub>, {rows}, {tile})"""
        cost[dtype] = cycles_alone(VScatterOp, text)
    assert cost["bf16"] > 1.2 * cost["f16"]


def test_a_sort_pays_for_lists_merges_and_gathers_of_each_key() -> None:
    """500 numbers are 16 lists of 32, which two merges make one list; of the second key the first one's places
    are looked up. Two elements a cycle are sorted and merged in f32, one in i32, and five gathered."""
    keys = ["!npu.buffer<4x500xf32, ub>", "!npu.buffer<4x500xi32, ub>"]
    firsts = ["!npu.buffer<4x10xf32, ub>", "!npu.buffer<4x10xi32, ub>"]
    types = ", ".join([*keys, *firsts, "!npu.buffer<4x2000xui32, ub>"])
    text = f"""%a, %b, %c, %d, %w = "test.op"() : () -> ({types})
    npu.vsort %a, %b, %c, %d, %w {{descending = [0, 0], keys = [0, 1], total = [0, 0]}} : ({types})"""
    lanes = 4 * 16 * 32
    passes = 3 * (14 + lanes // 2) + 3 * (14 + lanes)
    gathers = 2 * (14 + 40 // 5) + 14 + ceil(lanes / 5)
    assert cycles_alone(VSortOp, text) == passes + gathers
