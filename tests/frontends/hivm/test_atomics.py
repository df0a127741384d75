"""Atomic stores of the vendor's IR: what they say themselves, what is set before them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw

TEXTS = Path(__file__).parent / "texts"
MODES = ("typed", "bytes", "step")
FIXPIPE = "    hivm.hir.fixpipe"
REST = "    hivm.hir.pipe_barrier[<PIPE_ALL>]"


GM, UB = "#hivm.address_space<gm>", "#hivm.address_space<ub>"
HEAD = (
    "hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, "
    "hivm.func_core_type = #hivm.func_core_type<AIV>"
)


def row(element: str) -> str:
    return f"memref<32x{element}, strided<[1], offset: ?>, {GM}>"


def rows(element: str, stores: str) -> str:
    """A kernel of three blocks: each brings its row of x to ub (%b), and stores it to o: to its own row (%os), or the
    first one."""
    whole, tile = f"memref<96x{element}, {GM}>", f"memref<32x{element}, {UB}>"
    return f"""// launch: grid=(3,)
module attributes {{hivm.module_core_type = #hivm.module_core_type<AIV>}} {{
  func.func @rows(%x: {whole}, %o: {whole}) attributes {{{HEAD}}} {{
    %c32 = arith.constant 32 : index
    %c0 = arith.constant 0 : index
    %c0_i64 = arith.constant 0 : i64
    %block = hivm.hir.get_block_idx -> i64
    %number = arith.index_cast %block : i64 to index
    %at = arith.muli %number, %c32 : index
    %xs = memref.subview %x[%at] [32] [1] : {whole} to {row(element)}
    %os = memref.subview %o[%at] [32] [1] : {whole} to {row(element)}
    %first = memref.subview %o[%c0] [32] [1] : {whole} to {row(element)}
    %b = hivm.hir.pointer_cast(%c0_i64) : {tile}
    hivm.hir.load ins(%xs : {row(element)}) outs(%b : {tile})
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    {stores}
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    return
  }}
}}
"""


def store(element: str, dest: str, kind: str = "") -> str:
    atomic = f" atomic = <{kind}>" if kind else ""
    return f"hivm.hir.store ins(%b : memref<32x{element}, {UB}>) outs({dest} : {row(element)}){atomic}"


def numbers(*shape: int, dtype: str = "int32") -> np.ndarray:
    return np.random.default_rng(0).integers(-100, 100, shape).astype(dtype)


@pytest.mark.parametrize(
    ("kind", "combined"), [("add", np.add), ("max", np.maximum), ("min", np.minimum)], ids=str
)
@pytest.mark.parametrize("element", ["i32", "f16"])
def test_blocks_meet(element: str, kind: str, combined: np.ufunc) -> None:
    dtype = {"i32": "int32", "f16": "float16"}[element]
    x, o = numbers(96, dtype=dtype), numbers(32, dtype=dtype)
    program = tw.compile(rows(element, store(element, "%first", kind)))
    assert [shape for shape, _ in program.inputs] == [(96,), (96,)]
    want = np.concatenate([combined.reduce([o, *x.reshape(3, 32)]), np.arange(64, dtype=dtype)])
    for mode in MODES:
        got = np.asarray(program(x, np.concatenate([o, np.arange(64, dtype=dtype)]), mode=mode))
        np.testing.assert_array_equal(got, want)


def test_what_a_block_stored_before_is_no_input() -> None:
    """All of the result is stored plainly, and added to by the block that did."""
    text = rows("i32", f"{store('i32', '%os')}\n{REST}\n{store('i32', '%os', 'add')}")
    program = tw.compile(text)
    x = numbers(96)
    assert len(program.inputs) == 1
    np.testing.assert_array_equal(np.asarray(program(x, mode="step")), 2 * x)


def test_a_mode_that_is_set_holds_until_the_next() -> None:
    stores = [
        "hivm.hir.set_atomic kind = <max>[type = i32]",
        store("i32", "%first"),
        "hivm.hir.set_atomic kind = <none>[type = i32]",
    ]
    program = tw.compile(rows("i32", "\n".join(stores)))
    x, o = numbers(96), numbers(96)
    want = np.concatenate([np.maximum.reduce([o[:32], *x.reshape(3, 32)]), o[32:]])
    np.testing.assert_array_equal(np.asarray(program(x, o, mode="step")), want)
    ends = tw.compile(rows("i32", "\n".join([*stores[::2], store("i32", "%os")])))
    np.testing.assert_array_equal(np.asarray(ends(x, mode="step")), x)


def test_sums_of_the_cube_are_added() -> None:
    """As the vendor's compiler writes it: a mode is set around the drain."""
    text = (TEXTS / "product.hivm.mlir").read_text()
    text = text.replace(FIXPIPE, f"    hivm.hir.set_atomic kind = <add>[type = f32]\n{FIXPIPE}")
    text = text.replace(REST, f"    hivm.hir.set_atomic kind = <none>[type = f32]\n{REST}")
    program = tw.compile(text)
    a, b, o = (numbers(*s, dtype=d) for s, d in (((64, 96), "f2"), ((96, 48), "f2"), ((64, 48), "f4")))
    assert len(program.inputs) == 3
    for mode in MODES:
        got = np.asarray(program(a, b, o, mode=mode))
        np.testing.assert_array_equal(got, o + a.astype("f4") @ b.astype("f4"))


def test_data_sends_additions_to_one_place() -> None:
    """The launch says nothing of that: those that meet are added."""
    lines = (TEXTS / "scattered_rows.hivm.mlir").read_text().replace(", scattered", "", 1).splitlines()
    text = "\n".join(f"{line} atomic = <add>" if "hir.store" in line else line for line in lines)
    program = tw.compile(text)
    x, o = numbers(24, dtype="float32"), numbers(7, 8, dtype="float32")
    places = np.array([2, 0, 2], np.int32)
    want = o.copy()
    np.add.at(want, places, x.reshape(3, 8))
    for mode in MODES:
        got = np.asarray(program(x, places, o.reshape(-1), mode=mode))
        np.testing.assert_array_equal(got, want.reshape(-1))


@pytest.mark.parametrize(
    ("element", "stores", "why"),
    [
        ("i32", store("i32", "%first", "xor"), "hivm.hir.store.* stores by atomic xor, which the npu level does not"),
        ("ui8", store("ui8", "%first", "add"), "npu.store_nd.* accumulates ui8 by add .* ascend-910b1 does not"),
        (
            "i32",
            "hivm.hir.set_atomic kind = <add>[type = f32]\n" + store("i32", "%first"),
            "hivm.hir.store.* stores i32 where f32 is set to be stored by atomic add",
        ),
        ("i32", "hivm.hir.set_atomic kind = <add>", "hivm.hir.set_atomic.* does not say the type of the elements"),
        (
            "i32",
            store("i32", "%first", "add") + f"\n{REST}\n" + store("i32", "%first", "max"),
            "core-race: 'npu.store_nd' .*on two cores store element",
        ),
    ],
)
def test_what_is_refused(element: str, stores: str, why: str) -> None:
    with pytest.raises(tw.CompileError, match=why):
        tw.compile(rows(element, stores))
