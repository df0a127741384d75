"""Unit flags: a drain that follows the product of its sums fractal by fractal, and the next product that drain."""

from __future__ import annotations

import re
from dataclasses import replace
from math import ceil

import jax.numpy as jnp
import numpy as np
import pytest
from harness import data
from memories import outputs

import tilewright as tw
from tilewright.backends.simulator.kernel import TimedKernel
from tilewright.dialects import make_context
from tilewright.dialects.npu.structure import KernelOp
from tilewright.dialects.text import parse_module
from tilewright.machine import Machine
from tilewright.passes.npu.check import check

B1 = Machine.load("ascend-910b1")
ORDERED = replace(B1, unordered=frozenset())
"""Pipes that end each instruction before they begin the next: drains follow each other without a barrier."""
PLAIN = replace(B1, issue_cycles=1)
"""A scalar unit that issues an instruction in each cycle."""

SUMS, GM = "!npu.buffer<64x64xf32, l0c>", "!npu.gm<64x64xf32>"
LEFT, RIGHT = "!npu.buffer<64x16xf16, l0a>", "!npu.buffer<16x64xf16, l0b>"


def product(flag: bool, step: str = "0", steps: int = 1) -> str:
    """A product of one step, or a loop of them, the first of which begins the sums."""
    said = " {unit_flag}" if flag else ""
    body = f"npu.mmad %a, %b, %sums at [{'%k' if steps > 1 else step}]{said} : ({LEFT}, {RIGHT}, {SUMS})"
    if steps == 1:
        return body
    return f"%steps = arith.constant {steps} : index\nscf.for %k = %zero to %steps step %one {{\n{body}\n}}"


def drain(flag: bool) -> str:
    said = ", unit_flag" if flag else ""
    return f"npu.fixpipe %sums, %y at [0, 0] {{sizes = [64, 64]{said}}} : ({SUMS}, {GM})"


def kernel(body: str, trips: int = 1, slots: int = 1) -> str:
    """A cube section that runs `body` so many times, on sums of so many slots."""
    whole = SUMS.replace(">", f", {slots} slots>") if slots > 1 else SUMS
    alloc = f"%buffer = npu.alloc {{address = 0}} : () -> {whole}"
    slot = f"%sums = npu.slot %buffer at [%i] : ({whole}) -> {SUMS}"
    alloc, slot = (alloc, slot) if slots > 1 else (alloc.replace("%buffer", "%sums"), "")
    return f"""
npu.kernel @k {{grid = [1], kind = "cube", outputs = 1, workspaces = 0}} {{
^bb0(%core: index, %y: {GM}):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %trips = arith.constant {trips} : index
  npu.section {{core = "cube", units = 1}} {{
  ^bb1(%unit: index):
    %a1 = npu.alloc {{address = 0}} : () -> !npu.buffer<64x16xf16, l1>
    %b1 = npu.alloc {{address = 2048}} : () -> !npu.buffer<16x64xf16, l1>
    %a = npu.alloc {{address = 0}} : () -> {LEFT}
    %b = npu.alloc {{address = 0}} : () -> {RIGHT}
    {alloc}
    scf.for %i = %zero to %trips step %one {{
      {slot}
      {body}
    }}
  }}
}}"""


def findings(body: str, trips: int = 2) -> set[str]:
    """The kinds of faults, but for those of the operands, which nothing loads."""
    module = parse_module(make_context(), kernel(body, trips), "user.py")
    found = [f for f in check(module, ORDERED) if f.kind != "uninitialised" or "l0a" not in str(f)]
    return {f.kind for f in found if "l0b" not in str(f)}


@pytest.mark.parametrize("steps", [1, 3])
def test_unit_flags_order_products_and_drains(steps: int) -> None:
    assert findings(f"{product(True, steps=steps)}\n{drain(True)}") == set()
    assert findings(f"{product(False, steps=steps)}\n{drain(False)}") == {"race"}


def test_both_need_the_flag() -> None:
    assert "deadlock" in findings(f"{product(False)}\n{drain(True)}")
    assert findings(f"{product(True)}\n{drain(False)}") == {"race", "deadlock", "unpaired-flag"}


def test_what_waits_for_ever() -> None:
    """A second drain of the same sums; a second product before they are drained; sums that nothing drains."""
    assert findings(f"{product(True)}\n{drain(True)}\n{drain(True)}") == {"deadlock"}
    assert findings(f"{product(True)}\n{product(True)}\n{drain(True)}") == {"deadlock"}
    assert findings(f"{product(True)}\n{product(True, '1')}\n{drain(True)}") == set()
    assert findings(f"{drain(True)}\n{product(True)}") >= {"deadlock", "unpaired-flag"}
    assert findings(product(True), 1) == {"unpaired-flag"}


@pytest.mark.parametrize("trips", [1, 2, 7, 500])
@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("steps", [1, 5])
def test_times_of_products_and_drains_that_follow_each_other(trips: int, slots: int, steps: int) -> None:
    """The first fractal leaves when it is there, the last one when the product is over, and the next product follows;
    a loop that is taken in one step ends when it does trip by trip."""
    text = kernel(f"{product(True, steps=steps)}\n{drain(True)}", trips, slots)
    op = parse_module(make_context(), text, "t.mlir").body.block.first_op
    assert isinstance(op, KernelOp)
    runs = [TimedKernel(op, PLAIN, extrapolate).run((0.0,)) for extrapolate in (True, False)]
    assert runs[0].cycles == runs[1].cycles
    pieces = 64 * 64 * 4 // 512
    made = PLAIN.cube_fixed_cycles + 4 * 4
    left = PLAIN.moves["l0c", "gm"].cycles(64 * 64 * 4, 64)
    issued = cube = fixpipe = 0
    products, drains = [[(0, 0)] * slots for _ in range(2)]
    for trip in range(trips):
        for _ in range(steps):
            issued += 1
            first, last = drains[trip % slots]
            begun = max(cube, issued, first)
            cube = max(begun + made, last + ceil(made / pieces))
            products[trip % slots] = (begun + ceil(made / pieces), cube)
        issued += 1
        first, last = products[trip % slots]
        begun = max(fixpipe, issued, first)
        fixpipe = max(begun + left, last + ceil(left / pieces))
        drains[trip % slots] = (begun + ceil(left / pieces), fixpipe)
    assert runs[0].cycles == max(cube, fixpipe)


@pytest.mark.parametrize("shape", [(17, 31, 5), (130, 300, 257), (512, 64, 640)])
def test_values_do_not_depend_on_them(shape: tuple[int, int, int]) -> None:
    """The same numbers with fewer flags, no later."""
    m, k, n = shape
    args = data("f16", (m, k)), data("f16", (k, n)), data("f32", (n,))

    def layer(x, w, b):
        return jnp.maximum(jnp.dot(x, w, preferred_element_type=jnp.float32) + b, 0.0)

    found = [tw.compile(layer, *args, options=tw.Options(without=out)) for out in ((), "unit-flags")]
    for one, other in zip(*(outputs(p, args) for p in found), strict=True):
        np.testing.assert_array_equal(one, other)
    flagged, plain = (p.ir("npu") for p in found)
    between = re.compile(r'source = "(M|FIX)", target = "(M|FIX)"')
    assert "unit_flag" in flagged
    assert not between.search(flagged)
    assert "unit_flag" not in plain
    assert between.search(plain)
    assert found[0].report().microseconds <= found[1].report().microseconds


def test_a_chip_without_them() -> None:
    """Its sums go to the vector unit of the same core, which has no such flags."""
    x = np.ones((32, 32), np.float16)
    assert "unit_flag" not in tw.compile(lambda a: a @ a, x, target="ascend-310").ir("npu")
