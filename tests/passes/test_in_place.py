"""npu-check's proof for a launch that reads and writes one tensor, against all orders of cores."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.dialects import make_context
from tilewright.dialects.text import parse_module
from tilewright.machine import Machine
from tilewright.passes.npu.check import check

B1 = Machine.load("ascend-910b1")
SIZE = 96
PROGRAM = """
func.func @main(%x: !npu.gm<96xf32> {{graph.donated}}) -> !npu.gm<96xf32>
  attributes {{npu.addresses = array<i64: 0>, npu.arena_bytes = 512 : i64}} {{
  npu.launch @k %x, %x {{outputs = 1, workspaces = 0}} : (!npu.gm<96xf32>, !npu.gm<96xf32>)
  func.return %x : !npu.gm<96xf32>
}}
npu.kernel @k {{grid = [{cores}], kind = "vector", outputs = 1, workspaces = 0}} {{
^bb0(%core: index, %x: !npu.gm<96xf32>, %y: !npu.gm<96xf32>):
  %zero = arith.constant 0 : index
  %trips = arith.constant {trips} : index
  %one = arith.constant 1 : index
  npu.section {{core = "vector", units = 1}} {{
  ^bb1(%unit: index):
    %a = npu.alloc {{address = 0}} : () -> !npu.buffer<{box}xf32, ub>
    scf.for %i = %zero to %trips step %one {{
      npu.load_nd %x, %a at [{load}] {{sizes = [{box}]}} : (!npu.gm<96xf32>, !npu.buffer<{box}xf32, ub>)
      npu.barrier
      npu.store_nd %a, %y at [{store}] {{sizes = [{box}]}} : (!npu.buffer<{box}xf32, ub>, !npu.gm<96xf32>)
      npu.barrier
    }}
  }}
}}
"""


def elements(at: tuple[int, int, int], core: int, trip: int, box: int) -> set[int]:
    """What a box touches: at `core * at[0] + trip * at[1] + at[2]`."""
    first = core * at[0] + trip * at[1] + at[2]
    return {e for e in range(first, first + box) if 0 <= e < SIZE}


@st.composite
def maps(draw: st.DrawFn, cores: int, trips: int, box: int) -> tuple[int, int, int]:
    weights = sorted({0, box, -box, box * trips, box * cores, -box * trips, 1})
    return (
        draw(st.sampled_from(weights)),
        draw(st.sampled_from(weights)),
        draw(st.sampled_from([0, 0, box, 1, box * (trips - 1), box * trips * (cores - 1)])),
    )


@settings(max_examples=60)
@given(st.data(), st.integers(1, 3), st.integers(1, 4), st.sampled_from([1, 3, 8]))
def test_what_is_called_safe_is_safe(data: st.DataObject, cores: int, trips: int, box: int) -> None:
    store = (box * trips, box, 0) if data.draw(st.booleans()) else data.draw(maps(cores, trips, box))
    load = store if data.draw(st.booleans()) else data.draw(maps(cores, trips, box))
    terms = ["%core * {} + %i * {} + {}".format(*at) for at in (load, store)]
    text = PROGRAM.format(cores=cores, trips=trips, box=box, load=terms[0], store=terms[1])
    found = check(parse_module(make_context(), text, "in_place.mlir"), B1)
    steps = list(itertools.product(range(cores), range(trips)))
    early = any(
        elements(load, *step, box) & elements(store, *other, box)
        for step, other in itertools.product(steps, steps)
        if step[0] != other[0] or other[1] < step[1]
    )
    assert found or not early
    if load == store == (box * trips, box, 0):
        assert not found
