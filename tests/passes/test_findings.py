"""Every kind of finding, by a hand-written module that has exactly that hazard: both ops and their lines are named.

In each module a comment `// 1` stands on the line of the first op at fault, `// 2` on the line of the second.
"""

from __future__ import annotations

import re

import pytest

from tilewright.dialects import make_context
from tilewright.dialects.text import parse_module
from tilewright.machine import Machine
from tilewright.passes.npu.check import BLAME, Hazards, check

B1 = Machine.load("ascend-910b1")

BUFFER, GM = "!npu.buffer<64xf32, ub>", "!npu.gm<64xf32>"
A = f"%a = npu.alloc {{address = 0}} : () -> {BUFFER}"
ANY = (
    "func.func @main(%x: tensor<64xf32>) -> tensor<i1> { "
    "%c = stablehlo.constant dense<true> : tensor<i1> return %c : tensor<i1> }"
)
FILL = f"npu.vfill %a {{value = 0.5 : f64}} : ({BUFFER})"
LOAD = f"npu.load_nd %x, %a at [0] {{sizes = [64]}} : ({GM}, {BUFFER})"
STORE = f"npu.store_nd %a, %y at [0] {{sizes = [64]}} : ({BUFFER}, {GM})"

WIDE, PIECE = "!npu.gm<4x33554432xi8>", "!npu.buffer<65536xi8, ub>"
ROWS = f"""
func.func @main() -> {WIDE} attributes {{npu.addresses = array<i64>, npu.arena_bytes = 134217728 : i64}} {{
  %y = npu.gm_alloc {{address = 0}} : () -> {WIDE}
  npu.launch @rows %y {{outputs = 1, workspaces = 0}} : ({WIDE}) // 1
  func.return %y : {WIDE} // 2
}}
npu.kernel @rows {{grid = [512], kind = "vector", outputs = 1, workspaces = 0}} {{
^bb0(%core: index, %y: {WIDE}):
  npu.section {{core = "vector", units = 1}} {{
  ^bb1(%unit: index):
    %a = npu.alloc {{address = 0}} : () -> {PIECE}
    npu.vfill %a {{value = 1 : i8}} : ({PIECE})
    npu.barrier
    npu.store_nd %a, %y at [0, %core * 65536] {{sizes = [1, 65536]}} : ({PIECE}, {WIDE})
    npu.store_nd %a, %y at [2, %core * 65536] {{sizes = [1, 65536]}} : ({PIECE}, {WIDE})
  }}
}}"""
"""A tensor of more elements than could be followed one by one."""


def flag(verb: str, event: int = 0, pipes: str = "V MTE3") -> str:
    source, target = pipes.split()
    return f'npu.{verb}_flag at [0] {{event = {event}, slots = 1, source = "{source}", target = "{target}"}}'


def kernel(body: str, name: str = "k", grid: int = 1, y: str = GM, mark: str = "") -> str:
    """One vector section with an input %x and an output %y."""
    return f"""
npu.kernel @{name} {{grid = [{grid}], kind = "vector", outputs = 1, workspaces = 0}} {{ {mark}
^bb0(%core: index, %x: {GM}, %y: {y}):
  npu.section {{core = "vector", units = 1}} {{
  ^bb1(%unit: index):
    {body}
  }}
}}"""


COPY = kernel(f"{A}\n{LOAD}\nnpu.barrier\n{STORE}", "copy")


def main(body: str, arena: int = 4096, more: str = "") -> str:
    """A host program of one argument at address 0, and functions that it calls."""
    return f"""
func.func @main(%x: {GM}) -> {GM} attributes {{npu.addresses = array<i64: 0>, npu.arena_bytes = {arena} : i64}} {{
  {body}
}}{more}"""


def at(name: str, address: int, kind: str = GM) -> str:
    return f"%{name} = npu.gm_alloc {{address = {address}}} : () -> {kind}"


def launch(source: str, dest: str, outputs: int = 1) -> str:
    return f"npu.launch @copy %{source}, %{dest} {{outputs = {outputs}, workspaces = 0}} : ({GM}, {GM})"


def as_stage(how: str, source: str, dest: str) -> str:
    """A launch that runs as a stage of the one before it, as its properties say."""
    return launch(source, dest).replace("outputs", f"{how}, outputs")


def stages(*launches: str) -> str:
    """A program of launches of a kernel that copies, with two tensors besides its argument."""
    lines = [at("y", 512), at("z", 1024), *launches, f"func.return %x : {GM}"]
    return main("\n".join(lines), more=COPY)


RETURN = f"func.return %y : {GM}"

HELPER = f"""
func.func private @f(%p: {GM}, %q: {GM}) attributes {{npu.frame = array<i64: 2048, 3072>}} {{ // HERE
  %t = npu.gm_alloc {{address = 2048}} : () -> {GM} // FRAME
  npu.copy %p, %t : ({GM}, {GM})
  npu.copy %t, %q : ({GM}, {GM})
  func.return
}}"""


def call(source: str, dest: str, outputs: int = 1) -> str:
    return f"npu.call @f %{source}, %{dest} {{outputs = {outputs}}} : ({GM}, {GM})"


def updating(source: str, dest: str) -> str:
    return call(source, dest).replace("outputs = 1", "outputs = 1, updates = [0]")


def rest_of(first: int, parked: bool = False) -> str:
    """A program that stores a tensor from element 32 on, and reads it from element `first` on. parked: it waits in the
    host's memory in between."""
    view = f"!npu.gm<{64 - first}xf32, strides [1], offset {first}>"
    load = LOAD.replace("%x", "%v").replace("[64]", f"[{64 - first}]").replace(GM, view)
    half = kernel(f"{A}\n{LOAD}\nnpu.barrier\n{STORE.replace('[0]', '[32]')}", "half")
    rest = kernel(f"%v = npu.view %x : ({GM}) -> {view}\n{A}\n{load}\nnpu.barrier\n{STORE}", "rest")
    stored, back = launch("x", "z").replace("@copy", "@half"), ("w" if parked else "z")
    away = f"%h = npu.to_host %z : ({GM}) -> tensor<64xf32>\nnpu.to_device %h, %w : (tensor<64xf32>, {GM})"
    lines = [
        at("z", 512),
        at("y", 1024),
        *([at("w", 1536), stored, f"{away} // 1"] if parked else [f"{stored} // 1"]),
        launch(back, "y").replace("@copy", "@rest") + " // 2",
        RETURN,
    ]
    return main("\n".join(lines), more=half + rest)


CASES: dict[str, tuple[str, str]] = {
    "a load and a use without a flag": ("race", kernel(f"{A}\n{LOAD} // 1\n{STORE} // 2")),
    "a flag that nothing consumes": ("unpaired-flag", kernel(f"{flag('set')} // 1")),
    "a flag raised twice": (
        "reused-flag",
        kernel(f"{flag('set')} // 1\n{flag('set')} // 2\n{flag('wait')}\n{flag('wait')}"),
    ),
    "an event too many": ("event-overflow", kernel(f"{flag('set', 8)} // 1\n{flag('wait', 8)}")),
    "more cores than a block has": (
        "wrong-machine",
        kernel("").replace("units = 1} {", "units = 3} { // 1"),
    ),
    "a wait for nothing": ("deadlock", kernel(f"{flag('wait')} // 1")),
    "a buffer over a live one": (
        "overlap",
        kernel(f"""{A}
        %b = npu.alloc {{address = 128}} : () -> {BUFFER}
        {FILL}
        npu.pipe_barrier {{pipe = "V"}}
        npu.vfill %b {{value = 0.5 : f64}} : ({BUFFER}) // 1
        npu.barrier
        {STORE} // 2"""),
    ),
    "a buffer that nothing wrote": ("uninitialised", kernel(f"{A}\n{STORE} // 1")),
    "a buffer outside its space": (
        "out-of-bounds",
        kernel(f"%a = npu.alloc {{address = 196544}} : () -> {BUFFER} // 1"),
    ),
    "a buffer between two rows": (
        "misaligned",
        kernel(f"%a = npu.alloc {{address = 16}} : () -> {BUFFER} // 1"),
    ),
    "a tensor between two lines": (
        "misaligned",
        main(f"{at('y', 520)} // 1\n{launch('x', 'y')}\n{RETURN}", more=COPY),
    ),
    "a part of a buffer that is not there": (
        "bad-box",
        kernel(f"""{A}
        %b = npu.alloc {{address = 256}} : () -> !npu.buffer<4xf32, ub>
        {FILL}
        npu.pipe_barrier {{pipe = "V"}}
        npu.vextract %a, %b at [62] {{sizes = [4], steps = [1]}} : ({BUFFER}, !npu.buffer<4xf32, ub>) // 1"""),
    ),
    "a view beyond its tensor": (
        "bad-box",
        kernel(f"""{A}
        %v = npu.view %x : ({GM}) -> !npu.gm<64xf32, strides [1], offset 1>
        npu.load_nd %v, %a at [0] {{sizes = [64]}} : (!npu.gm<64xf32, strides [1], offset 1>, {BUFFER}) // 1"""),
    ),
    "a number read beyond its tensor": (
        "bad-box",
        kernel(f"%n = npu.load_scalar %x at [64] {{low = 0, high = 5}} : ({GM}) -> index // 1"),
    ),
    "a launch of another type": (
        "bad-call",
        main(
            f"""{at("y", 512, "!npu.gm<32xf32>")}
        npu.launch @copy %x, %y {{outputs = 1, workspaces = 0}} : ({GM}, !npu.gm<32xf32>) // 1
        func.return %x : {GM}""",
            more=COPY.replace("{ \n", "{ // 2\n", 1),
        ),
    ),
    "a launch with an argument missing": (
        "bad-call",
        main(
            f"""{at("y", 512)}
        npu.launch @copy %y {{outputs = 1, workspaces = 0}} : ({GM}) // 1
        func.return %x : {GM}""",
            more=COPY.replace("{ \n", "{ // 2\n", 1),
        ),
    ),
    "a launch with an output too many": (
        "bad-call",
        main(
            f"{at('y', 512)}\n{launch('x', 'y', 2)} // 1\nfunc.return %x : {GM}",
            more=COPY.replace("{ \n", "{ // 2\n", 1),
        ),
    ),
    "a launch of nothing": (
        "bad-call",
        main(f"{at('y', 512)}\n{launch('x', 'y')} // 1\nfunc.return %x : {GM}"),
    ),
    "a call of another type": (
        "bad-call",
        main(
            f"""{at("y", 512, "!npu.gm<32xf32>")}
        npu.call @f %x, %y {{outputs = 1}} : ({GM}, !npu.gm<32xf32>) // 1
        func.return %x : {GM}""",
            more=HELPER.replace("HERE", "2"),
        ),
    ),
    "a call with an argument missing": (
        "bad-call",
        main(
            f"{at('y', 512)}\n{call('x', 'y')}\nnpu.call @f %y {{outputs = 1}} : ({GM}) // 1\n{RETURN}",
            more=HELPER.replace("HERE", "2"),
        ),
    ),
    "two calls with other outputs": (
        "bad-call",
        main(
            f"{at('y', 512)}\n{call('x', 'y')}\n{call('y', 'y', 0)} // 1\n{RETURN}",
            more=HELPER.replace("HERE", "2"),
        ),
    ),
    "two calls with other updates": (
        "bad-call",
        main(
            f"{at('y', 512)}\n{call('x', 'y')}\n{updating('x', 'y')} // 1\n{RETURN}",
            more=HELPER.replace("HERE", "2"),
        ),
    ),
    "a call that updates what nothing wrote": (
        "device-uninitialised",
        main(f"{at('y', 512)} // 2\n{updating('x', 'y')} // 1\n{RETURN}", more=HELPER),
    ),
    "an output stored in part": (
        "uncovered",
        main(
            f"{at('y', 512)}\n{launch('x', 'y').replace('@copy', '@half')} // 1\n{RETURN} // 2",
            more=kernel(f"{A}\n{LOAD}\nnpu.barrier\n{STORE.replace('[0]', '[32]')}", "half"),
        ),
    ),
    "a view of more than was stored": ("uncovered", rest_of(31)),
    "a view of more than came back from the host": ("uncovered", rest_of(31, parked=True)),
    "two cores at one element": (
        "core-race",
        kernel(f"{A}\n{FILL}\nnpu.barrier\n{STORE.replace('[0]', '[%core * 32]')} // 1", grid=2),
    ),
    "two cores at a place that a number names": (
        "core-race",
        kernel(
            f"""{A}
        %n = npu.load_scalar %x at [0] {{low = 0, high = 64}} : ({GM}) -> index
        {FILL}
        npu.barrier
        npu.store_nd %a, %y at [%n] {{sizes = [64]}} : ({BUFFER}, !npu.gm<128xf32>) // 1""",
            grid=2,
            y="!npu.gm<128xf32>",
        ),
    ),
    "a core that loads what another one stores": (
        "core-race",
        kernel(
            f"""{A}
        {FILL}
        npu.barrier
        npu.store_nd %a, %y at [%core * 64] {{sizes = [64]}} : ({BUFFER}, !npu.gm<128xf32>) // 1
        npu.barrier
        npu.load_nd %y, %a at [0] {{sizes = [64]}} : (!npu.gm<128xf32>, {BUFFER}) // 2""",
            grid=2,
            y="!npu.gm<128xf32>",
        ),
    ),
    "a tensor over a live one": (
        "device-overlap",
        main(
            f"{at('y', 512)}\n{launch('x', 'y')}\n{at('z', 512)}\n{launch('x', 'z')} // 1\n{RETURN} // 2",
            more=COPY,
        ),
    ),
    "a tensor in the memory of a function": (
        "device-overlap",
        main(
            f"{at('y', 512)}\n{at('z', 2048)}\n{launch('x', 'z')}\n{call('x', 'y')} // 1\nfunc.return %z : {GM} // 2",
            more=HELPER + COPY,
        ),
    ),
    "a tensor over a function's constant": (
        "device-overlap",
        main(
            f"{at('y', 512)} // 2\n{call('x', 'y')}\n{RETURN}",
            more=HELPER.replace(
                "{ // HERE",
                "{\n%c = npu.gm_constant {address = 512, value = #graph.data<f32, [64], splat 1.0>}"
                f" : () -> {GM} // 1",
            ),
        ),
    ),
    "a tensor outside the arena": (
        "device-bounds",
        main(f"{at('y', 1024)} // 1\n{launch('x', 'y')}\n{RETURN}", arena=1024, more=COPY),
    ),
    "a tensor outside the frame of its function": (
        "device-bounds",
        main(
            f"{at('y', 512)}\n{call('x', 'y')}\n{RETURN}",
            more=HELPER.replace("2048, 3072", "2560, 3072").replace("FRAME", "1").replace("HERE", "2"),
        ),
    ),
    "a tensor that nothing wrote": (
        "device-uninitialised",
        main(f"{at('t', 1024)} // 2\n{at('y', 512)}\n{launch('t', 'y')} // 1\n{RETURN}", more=COPY),
    ),
    "a tensor that only a loop wrote, which may not run": (
        "device-uninitialised",
        main(f"""{at("y", 512)} // 2
        {at("flag", 1024, "!npu.gm<i1>")}
        %h = npu.to_host %x : ({GM}) -> tensor<64xf32>
        %f = npu.host_call %h {{op = "any", module = "{ANY}"}} : (tensor<64xf32>) -> tensor<i1>
        npu.to_device %f, %flag : (tensor<i1>, !npu.gm<i1>)
        npu.loop %flag : (!npu.gm<i1>) {{
        ^bb0(%s: !npu.gm<i1>):
          %n = npu.to_host %s : (!npu.gm<i1>) -> tensor<i1>
          npu.yield %n : (tensor<i1>)
        }} {{
        ^bb0(%s: !npu.gm<i1>):
          npu.copy %x, %y : ({GM}, {GM})
          npu.yield %s : (!npu.gm<i1>)
        }}
        {RETURN} // 1"""),
    ),
    "a tensor of which a kernel stores two rows of four": ("uncovered", ROWS),
    "a kernel that stores what another core of it loads": (
        "in-place",
        main(
            f"""npu.launch @crossed %x, %x {{outputs = 1, workspaces = 0}} : ({GM}, {GM}) // 1
        func.return %x : {GM}""",
            more=kernel(
                f"""%h = npu.alloc {{address = 0}} : () -> !npu.buffer<32xf32, ub>
        npu.load_nd %x, %h at [%core * -32 + 32] {{sizes = [32]}} : ({GM}, !npu.buffer<32xf32, ub>)
        npu.barrier
        npu.store_nd %h, %y at [%core * 32] {{sizes = [32]}} : (!npu.buffer<32xf32, ub>, {GM}) // 2""",
                "crossed",
                grid=2,
            ),
        ).replace(f"%x: {GM}) ->", f"%x: {GM} {{graph.donated}}) ->"),
    ),
    "an argument that is written and not donated": (
        "in-place",
        main(
            f"{at('y', 512)}\n{launch('x', 'y')}\n{launch('y', 'x')} // 1\nfunc.return %x : {GM}", more=COPY
        ),
    ),
    "two streams at one tensor": (
        "stream-race",
        main(f"""{at("y", 512)}
        npu.copy %x, %y {{stream = "compute"}} : ({GM}, {GM}) // 1
        %h = npu.to_host %y {{stream = "copy_out"}} : ({GM}) -> tensor<64xf32> // 2
        func.return %x : {GM}"""),
    ),
    "a launch that waits for no barrier": (
        "barrier-race",
        stages(launch("x", "y") + "// 1", as_stage("joined, nowait", "y", "z") + "// 2"),
    ),
    "a launch that reads ahead of its barrier what the one before writes": (
        "barrier-race",
        stages(launch("x", "y") + "// 1", as_stage("ahead = [0], joined", "y", "z") + "// 2"),
    ),
    "a launch that reads ahead of two barriers what is written before the first": (
        "barrier-race",
        stages(
            launch("x", "y") + "// 1",
            as_stage("joined", "x", "z"),
            as_stage("ahead = [0], barriers = 2, joined", "y", "z") + "// 2",
        ),
    ),
    "a launch on cores that are not there": (
        "core-bounds",
        stages(launch("x", "y"), as_stage("first_core = 24, joined, nowait", "x", "z") + "// 1"),
    ),
    "a wait for an event that nobody records": (
        "unrecorded-event",
        main(f"""npu.wait_event {{event = 3, stream = "host"}} // 1
        func.return %x : {GM}"""),
    ),
    "two streams that wait for each other": (
        "event-deadlock",
        main(f"""npu.wait_event {{event = 0, stream = "copy_in"}} // 1
        npu.record_event {{event = 1, stream = "copy_in"}}
        npu.wait_event {{event = 1, stream = "copy_out"}}
        npu.record_event {{event = 0, stream = "copy_out"}} // 2
        func.return %x : {GM}"""),
    ),
    "a number that nothing wrote": (
        "device-uninitialised",
        main(
            f"""{at("n", 512, "!npu.gm<i32>")} // 2
        %m = npu.to_host %n : (!npu.gm<i32>) -> tensor<i32> // 1
        func.return %x : {GM}"""
        ),
    ),
}


def line_of(text: str, mark: str) -> int | None:
    found = [i for i, line in enumerate(text.splitlines(), 1) if line.rstrip().endswith(f"// {mark}")]
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize("name", CASES)
def test_a_finding_names_its_ops_and_lines(name: str) -> None:
    kind, text = CASES[name]
    found = check(parse_module(make_context(), text, "user.py"), B1)
    assert {f.kind for f in found} == {kind}, [str(f) for f in found]
    first, second = line_of(text, "1"), line_of(text, "2")
    assert first is not None
    lines = [re.findall(r"\(user\.py:(\d+)\)", str(f)) for f in found]
    assert [str(n) for n in (first, second) if n is not None] in [
        sorted(x, key=[str(first)].count, reverse=True) for x in lines
    ]
    for f in found:
        assert f.blame == BLAME[kind]
    assert "to blame" not in str(Hazards(found)), "a person wrote it"
    assert f"; {BLAME[kind]} is to blame" in str(Hazards(found).blaming({BLAME[kind]}))


@pytest.mark.parametrize("parked", [False, True])
def test_a_view_of_what_was_stored(parked: bool) -> None:
    assert not check(parse_module(make_context(), rest_of(32, parked), "user.py"), B1)


def test_every_kind_has_a_case() -> None:
    assert {kind for kind, _ in CASES.values()} == set(BLAME)
