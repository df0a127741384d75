"""Stores that accumulate to device memory: all ways to run them have the same bits, and they cost what stores do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from npu_programs import MACHINE, parse

from tilewright.backends.interpreter import Executable
from tilewright.backends.simulator import simulate
from tilewright.backends.stepper import Race, StepFault, StepProgram

DTYPES = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i32": np.dtype(np.int32),
    "i16": np.dtype(np.int16),
    "i8": np.dtype(np.int8),
}
"""What the 910B accumulates."""

COMBINED = {"add": np.add, "max": np.maximum, "min": np.minimum}
MODES = ("typed", "bytes", "step")


def program(
    x: str,
    y: str,
    element: str,
    moves: str,
    *,
    grid: Sequence[int] = (3,),
    units: int = 1,
    width: int = 32,
    copied: bool = True,
) -> str:
    """A kernel on x and y whose section has `moves` between %b, %c (width) and them; y comes with contents where it is
    copied."""
    xs, ys = f"!npu.gm<{x}x{element}>", f"!npu.gm<{y}x{element}>"
    size = {"f32": 4, "i32": 4, "i8": 1}.get(element, 2)
    total = int(np.prod([int(n) for n in x.split("x")])), int(np.prod([int(n) for n in y.split("x")]))
    starts = [0, *(int(n) for n in np.cumsum([-(-t * size // 512) * 512 for t in (*total, total[1])]))]
    copy = f"npu.copy %y, %o : ({ys}, {ys})" if copied else ""
    indices = ", ".join(f"%g{i}: index" for i in range(len(grid)))
    return f"""
builtin.module attributes {{tilewright.target = "ascend-910b1"}} {{
npu.kernel @k {{kind = "{"mix" if units > 1 else "vector"}", grid = {list(grid)}, outputs = 1, workspaces = 0}} {{
^bb0({indices}, %x: {xs}, %y: {ys}):
  npu.section {{core = "vector", units = {units}}} {{
  ^bb1(%u: index):
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %three = arith.constant 3 : index
    %b = npu.alloc {{address = 0}} : () -> !npu.buffer<{width}x{element}, ub>
    %c = npu.alloc {{address = 1024}} : () -> !npu.buffer<{width}x{element}, ub>
    {moves}
  }}
}}
func.func @main(%x: {xs}, %y: {ys}) -> {ys} attributes {{
    npu.addresses = array<i64: 0, {starts[1]}>, npu.arena_bytes = {starts[3]} : i64}} {{
  %o = npu.gm_alloc {{address = {starts[2]}}} : () -> {ys}
  {copy}
  npu.launch @k %x, %o {{outputs = 1, updates = array<i64: 0>, workspaces = 0}} : ({xs}, {ys})
  func.return %o : {ys}
}}
}}
"""


def load(x: str, element: str, at: str, sizes: str, width: int = 32, buffer: str = "%b") -> str:
    return (
        f"npu.load_nd %x, {buffer} at {at} {{sizes = {sizes}}} : (!npu.gm<{x}x{element}>, "
        f"!npu.buffer<{width}x{element}, ub>)\nnpu.barrier"
    )


def store(y: str, element: str, at: str, sizes: str, kind: str, width: int = 32, buffer: str = "%b") -> str:
    how = f'accumulate = "{kind}", ' if kind else ""
    return (
        f"npu.store_nd {buffer}, %y at {at} {{{how}sizes = {sizes}}} : (!npu.buffer<{width}x{element}, ub>, "
        f"!npu.gm<{y}x{element}>)\nnpu.barrier"
    )


def run(text: str, x: np.ndarray, y: np.ndarray, mode: str) -> np.ndarray:
    module = parse(text)
    if mode == "step":
        return np.asarray(StepProgram(module, MACHINE)(x, y)[0])
    return np.asarray(Executable(module, MACHINE, mode)(x, y)[0])


def numbers(dtype: np.dtype, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    if dtype.kind == "i":
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-8, 8, shape))).astype(dtype)


def all_agree(text: str, x: np.ndarray, y: np.ndarray, want: np.ndarray) -> None:
    for mode in MODES:
        found = run(text, x, y, mode)
        assert found.tobytes() == want.tobytes(), mode


@pytest.mark.parametrize("kind", COMBINED)
@pytest.mark.parametrize("element", DTYPES)
def test_cores_meet_in_one_box(element: str, kind: str) -> None:
    """In the tensor's type, one core after the other: floats are rounded after each, integers wrap."""
    dtype = DTYPES[element]
    x, y = numbers(dtype, 3, 32), numbers(dtype, 40)
    moves = [load("3x32", element, "[%g0, 0]", "[1, 32]"), store("40", element, "[4]", "[32]", kind)]
    want = y.copy()
    for row in x:
        want[4:36] = COMBINED[kind](want[4:36], row)
    all_agree(program("3x32", "40", element, "\n".join(moves)), x, y, want)


def test_boxes_that_overlap_and_leave_the_tensor() -> None:
    x, y = numbers(DTYPES["f32"], 6, 32), numbers(DTYPES["f32"], 50)
    at = "[%g0 * 13 + %g1 * 7 + -10]"
    moves = [load("6x32", "f32", "[%g0 * 2 + %g1, 0]", "[1, 32]"), store("50", "f32", at, "[32]", "add")]
    want = y.copy()
    for g, h in np.ndindex(3, 2):
        first = 13 * g + 7 * h - 10
        low, high = max(first, 0), min(first + 32, 50)
        want[low:high] += x[2 * g + h, low - first : high - first]
    all_agree(program("6x32", "50", "f32", "\n".join(moves), grid=(3, 2)), x, y, want)


@pytest.mark.parametrize("inner", ["%j * 16", "0"])
def test_loops_keep_their_order(inner: str) -> None:
    """Boxes lie side by side as one loop moves and lap over as another one does, which is inside or outside of it."""
    x, y = numbers(DTYPES["f32"], 9, 32), numbers(DTYPES["f32"], 144)
    moves = f"""
    scf.for %i = %zero to %three step %one {{
      scf.for %j = %zero to %three step %one {{
        {load("9x32", "f32", "[%i * 3 + %j, 0]", "[1, 32]")}
        {store("144", "f32", f"[%i * 32 + {inner}]", "[32]", "add")}
      }}
    }}"""
    want = y.copy()
    for i, j in np.ndindex(3, 3):
        first = 32 * i + (16 * j if "j" in inner else 0)
        want[first : first + 32] += x[3 * i + j]
    all_agree(program("9x32", "144", "f32", moves, grid=(1,)), x, y, want)


def test_cores_with_boxes_of_their_own() -> None:
    """These are computed at once where memory is typed."""
    x, y = numbers(DTYPES["bf16"], 4, 32), numbers(DTYPES["bf16"], 4, 32)
    moves = [
        load("4x32", "bf16", "[%g0, 0]", "[1, 32]"),
        store("4x32", "bf16", "[%g0, 0]", "[1, 32]", "add"),
    ]
    text = program("4x32", "4x32", "bf16", "\n".join(moves), grid=(4,))
    all_agree(text, x, y, x + y)


def test_two_stores_of_a_core_meet_those_of_others() -> None:
    """What a core adds behind its own box comes before what the next one adds there."""
    x, y = numbers(DTYPES["f32"], 3, 32), numbers(DTYPES["f32"], 128)
    moves = [
        load("3x32", "f32", "[%g0, 0]", "[1, 32]"),
        store("128", "f32", "[%g0 * 32]", "[32]", "add"),
        store("128", "f32", "[%g0 * 32 + 32]", "[32]", "add"),
    ]
    want = y.copy()
    for g in range(3):
        for first in (32 * g, 32 * g + 32):
            want[first : first + 32] += x[g]
    all_agree(program("3x32", "128", "f32", "\n".join(moves)), x, y, want)


def test_what_a_core_stored_before() -> None:
    """A tensor that each core begins itself needs no contents."""
    x = numbers(DTYPES["f16"], 3, 32)
    y = np.zeros((3, 32), np.float16)
    box = "[%g0, 0]", "[1, 32]"
    moves = [
        load("3x32", "f16", *box),
        store("3x32", "f16", *box, ""),
        store("3x32", "f16", *box, "add"),
    ]
    all_agree(program("3x32", "3x32", "f16", "\n".join(moves), copied=False), x, y, x + x)


def test_denormal_sums_are_zeros() -> None:
    x = np.full((3, 32), -1.5e-38, np.float32)
    y = np.full(32, 3.1e-38, np.float32)
    moves = [load("3x32", "f32", "[%g0, 0]", "[1, 32]"), store("32", "f32", "[0]", "[32]", "add")]
    want = y.copy()
    for row in x:
        want = np.where(np.abs(want + row) < np.finfo("f4").tiny, np.float32(0), want + row)
    all_agree(program("3x32", "32", "f32", "\n".join(moves)), x, y, want)


def drains(kind: str, beside: str = "") -> str:
    """Products of rows of a by b, whose sums both cores accumulate to y in f16; beside: another section."""
    a, b, y = "!npu.gm<32x16xf16>", "!npu.gm<16x16xf16>", "!npu.gm<16x16xf16>"
    l1, l0a, l0b = (f"!npu.buffer<16x16xf16, {s}>" for s in ("l1", "l0a", "l0b"))
    l0c = "!npu.buffer<16x16xf32, l0c>"
    return f"""
builtin.module attributes {{tilewright.target = "ascend-910b1"}} {{
npu.kernel @k {{kind = "{"mix" if beside else "cube"}", grid = [2], outputs = 1, workspaces = 0}} {{
^bb0(%g: index, %a: {a}, %b: {b}, %y: {y}):
  npu.section {{core = "cube", units = 1}} {{
  ^bb1(%u: index):
    %l = npu.alloc {{address = 0}} : () -> {l1}
    %r = npu.alloc {{address = 512}} : () -> {l1}
    %la = npu.alloc {{address = 0}} : () -> {l0a}
    %lb = npu.alloc {{address = 0}} : () -> {l0b}
    %c = npu.alloc {{address = 0}} : () -> {l0c}
    npu.load_nd2nz %a, %l at [%g * 16, 0] {{sizes = [16, 16]}} : ({a}, {l1})
    npu.load_nd2nz %b, %r at [0, 0] {{sizes = [16, 16]}} : ({b}, {l1})
    npu.barrier
    npu.load_l0 %l, %la at [0, 0] {{sizes = [16, 16]}} : ({l1}, {l0a})
    npu.load_l0 %r, %lb at [0, 0] {{sizes = [16, 16]}} : ({l1}, {l0b})
    npu.barrier
    npu.mmad %la, %lb, %c at [0] : ({l0a}, {l0b}, {l0c})
    npu.barrier
    npu.fixpipe %c, %y at [0, 0] {{accumulate = "{kind}", relu, sizes = [16, 16]}} : ({l0c}, {y})
    npu.barrier
  }}
  {beside}
}}
func.func @main(%a: {a}, %b: {b}, %y: {y}) -> {y} attributes {{
    npu.addresses = array<i64: 0, 1024, 1536>, npu.arena_bytes = 2560 : i64}} {{
  %o = npu.gm_alloc {{address = 2048}} : () -> {y}
  npu.copy %y, %o : ({y}, {y})
  npu.launch @k %a, %b, %o {{outputs = 1, updates = array<i64: 0>, workspaces = 0}} : ({a}, {b}, {y})
  func.return %o : {y}
}}
}}
"""


@pytest.mark.parametrize("kind", COMBINED)
def test_drains_accumulate_what_they_would_store(kind: str) -> None:
    a, b, y = (numbers(DTYPES["i8"], *s).astype("f2") for s in ((32, 16), (16, 16), (16, 16)))
    module = parse(drains(kind))
    want = y.copy()
    for rows in (a[:16], a[16:]):
        product = np.maximum(rows.astype("f8") @ b.astype("f8"), 0).astype("f4").astype("f2")
        with np.errstate(over="ignore"):
            want = COMBINED[kind](want, product)
    for mode in ("typed", "bytes"):
        found = np.asarray(Executable(module, MACHINE, mode)(a, b, y)[0])
        np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(np.asarray(StepProgram(module, MACHINE)(a, b, y)[0]), want)


def test_cores_of_both_kinds_take_turns() -> None:
    """Block after block, of each first the cube core, then the vector cores."""
    tile = "!npu.buffer<8x16xf16, ub>"
    beside = f"""npu.section {{core = "vector", units = 2}} {{
  ^bb2(%v: index):
    %t = npu.alloc {{address = 0}} : () -> {tile}
    npu.load_nd %b, %t at [%v * 8, 0] {{sizes = [8, 16]}} : (!npu.gm<16x16xf16>, {tile})
    npu.barrier
    npu.store_nd %t, %y at [%v * 4, 0] {{accumulate = "add", sizes = [8, 16]}} : ({tile}, !npu.gm<16x16xf16>)
    npu.barrier
  }}"""
    rng = np.random.default_rng(0)
    a, b, y = (rng.standard_normal(s).astype("f2") for s in ((32, 16), (16, 16), (16, 16)))
    module = parse(drains("add", beside))
    want = y.copy()
    for rows in (a[:16], a[16:]):
        want += np.maximum(rows.astype("f8") @ b.astype("f8"), 0).astype("f4").astype("f2")
        want[:8] += b[:8]
        want[4:12] += b[8:]
    np.testing.assert_array_equal(np.asarray(StepProgram(module, MACHINE)(a, b, y)[0]), want)
    for mode in ("typed", "bytes"):
        found = np.asarray(Executable(module, MACHINE, mode)(a, b, y)[0])
        np.testing.assert_array_equal(found, want)


def test_a_session_shows_what_is_there() -> None:
    x, y = numbers(DTYPES["i32"], 3, 32), numbers(DTYPES["i32"], 32)
    moves = [load("3x32", "i32", "[%g0, 0]", "[1, 32]"), store("32", "i32", "[0]", "[32]", "add")]
    session = StepProgram(parse(program("3x32", "32", "i32", "\n".join(moves))), MACHINE).session([x, y])
    seen = [
        [e.reads[-1].values.copy(), e.writes[-1].ranges == e.reads[-1].ranges]
        for e in session
        if e.op.name == "npu.store_nd"
    ]
    want = y.copy()
    for row, (held, same) in zip(x, seen, strict=True):
        np.testing.assert_array_equal(held, want)
        assert same
        want = want + row


# -- faults of a run by steps ------------------------------------------------------------------------------------


def stepped(text: str, x: np.ndarray, y: np.ndarray) -> Any:
    return run(text, x, y, "step")


def test_what_nobody_wrote_is_not_accumulated_to() -> None:
    x, y = numbers(DTYPES["f32"], 3, 32), numbers(DTYPES["f32"], 32)
    moves = [load("3x32", "f32", "[%g0, 0]", "[1, 32]"), store("32", "f32", "[0]", "[32]", "add")]
    with pytest.raises(StepFault, match=r"uninitialised: 'npu.store_nd' .*reads bytes that nothing wrote"):
        stepped(program("3x32", "32", "f32", "\n".join(moves), copied=False), x, y)


@pytest.mark.parametrize(
    ("first", "second"), [("add", "max"), ("add", ""), ("", "add"), ("min", "add")], ids=str
)
def test_cores_that_store_in_two_ways_race(first: str, second: str) -> None:
    x, y = numbers(DTYPES["f32"], 3, 32), numbers(DTYPES["f32"], 128)
    moves = [
        load("3x32", "f32", "[%g0, 0]", "[1, 32]"),
        store("128", "f32", "[%g0 * 32]", "[32]", first),
        store("128", "f32", "[%g0 * 32 + 32]", "[32]", second),
    ]
    with pytest.raises(Race, match=r"race: 'npu.store_nd'"):
        stepped(program("3x32", "128", "f32", "\n".join(moves)), x, y)


def test_a_load_races_with_the_first_of_two_that_accumulated() -> None:
    """The core that loads accumulated there itself, last."""
    x, y = numbers(DTYPES["f32"], 3, 32), numbers(DTYPES["f32"], 32)
    y_ = "!npu.gm<32xf32>"
    moves = [
        load("3x32", "f32", "[%g0, 0]", "[1, 32]"),
        store("32", "f32", "[0]", "[32]", "add"),
        f"npu.load_nd %y, %c at [%g0 * 64 + -64] {{sizes = [32]}} : ({y_}, !npu.buffer<32xf32, ub>)",
    ]
    with pytest.raises(Race, match=r"race: 'npu.load_nd' .*reads device memory that 'npu.store_nd' .*still write"):
        stepped(program("3x32", "32", "f32", "\n".join(moves), grid=(2,)), x, y)


# -- time --------------------------------------------------------------------------------------------------------


def test_it_costs_what_a_store_does() -> None:
    moves = [load("3x32", "f32", "[%g0, 0]", "[1, 32]"), store("96", "f32", "[%g0 * 32]", "[32]", "add")]
    text = program("3x32", "96", "f32", "\n".join(moves))
    plain = text.replace('accumulate = "add", ', "")
    assert simulate(parse(text), MACHINE).microseconds == simulate(parse(plain), MACHINE).microseconds
