"""Kernels of the vendor's compiler, imported: they compute what they are known to, and npu-check finds nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from shared import SHARED, needs
from stored_kernels import REFERENCES, Reference

import tilewright as tw
from tilewright.api.launched import Launched
from tilewright.backends.stepper import StepFault
from tilewright.frontends.hivm import walk

TEXTS = Path(__file__).parent / "texts"
STORED = SHARED / "hivm" / "kernels"


def _exp_of_rest(x: np.ndarray) -> np.ndarray:
    return np.exp(x - x.max(-1, keepdims=True))


def random(*shapes: tuple[int, ...], dtype: str = "float32") -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-2, 2, s).astype(dtype) for s in shapes]


def _half_exp_of_rest(x: np.ndarray) -> np.ndarray:
    rows = x.reshape(2, 256)
    return (np.exp(rows - rows.max(1, keepdims=True)) / 2).reshape(-1)


OWN: dict[str, tuple[Sequence[np.ndarray], Callable[..., np.ndarray]]] = {
    "added_rows": (random((96,), (32,)), lambda x, y: y + (x * x).reshape(3, 32).sum(0)),
    "scaled_sum": (random((150,), (150,)), lambda x, y: np.float32(0.5) * x + y),
    "centred_rows": (random((32, 32)), lambda x: x - x.mean(-1, keepdims=True)),
    "shifted_row": (random((4, 64)), _exp_of_rest),
    "largest_first": (random((512,)), _half_exp_of_rest),
    "through_workspace": (random((192,)), lambda x: x.reshape(3, 2, 32)[:, ::-1].reshape(-1)),
    "doubled_columns": (random((120,)), lambda x: x + x),
    "gathered_rows": (
        [np.arange(80, dtype="f4"), np.array([7, 0, 9, 3, 2, 2, 0, 9], "i4")],
        lambda x, i: x.reshape(10, 8)[i].reshape(-1),
    ),
    "early_exit": (random((4, 64)), lambda x: x * np.float32([[2], [3], [3], [1]])),
    "picked_elements": (
        [*random((4, 40), dtype="float16"), np.random.default_rng(1).integers(0, 40, (4, 16), "i4")],
        lambda x, i: np.take_along_axis(x, i, 1),
    ),
    "product": (
        random((64, 96), (96, 48), dtype="float16"),
        lambda a, b: a.astype(np.float32) @ b.astype(np.float32),
    ),
}


@pytest.mark.parametrize("mode", ["typed", "bytes", "step"])
@pytest.mark.parametrize("name", OWN)
def test_a_kernel_of_ours_computes_what_it_says(name: str, mode: str) -> None:
    inputs, makes = OWN[name]
    target = "ascend-950pr" if name == "largest_first" else "ascend-910b1"
    program = tw.compile(TEXTS / f"{name}.hivm.mlir", target=target)
    got = np.asarray(program(*inputs, mode=mode))
    np.testing.assert_allclose(got, makes(*inputs), rtol=2e-5, atol=2e-5)


def test_places_beyond_a_row_are_reported_by_steps() -> None:
    """Which is what the chip would read behind it."""
    program = tw.compile(TEXTS / "picked_elements.hivm.mlir")
    x, places = np.ones((4, 40), "f2"), np.full((4, 16), 40, "i4")
    with pytest.raises(StepFault, match=r"out-of-bounds: 'npu.vgather' .* gathers beyond its source: place 40 of 40"):
        program(x, places, mode="step")


def working_at(address: int) -> str:
    """A kernel whose instructions work in bytes from an address on."""
    text = (TEXTS / "centred_rows.hivm.mlir").read_text()
    return text.replace("arith.constant 1056 : i64", f"arith.constant {address} : i64")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (0, "overlap: 'npu.vreduce' .*writes bytes of a source that it has not read yet, bytes 0..255 of ub"),
        (1020, "overlap: 'npu.vreduce' .*writes two results to the same bytes"),
        (512, "'npu.vreduce' .*(race|overlap|writes)"),
    ],
)
def test_what_an_instruction_works_in_is_gone(address: int, why: str) -> None:
    """The memory that the vendor's library works in is moved to its source, its result, and the rows that are next."""
    with pytest.raises(tw.CompileError, match=why):
        tw.compile(working_at(address))


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (0, "overlap: 'npu.vreduce' .*works in bytes of a source: ub bytes 0"),
        (1020, "overlap: 'npu.vreduce' .*works in bytes of its result"),
        (512, "race: 'npu.load_nd' .*while 'npu.vsub' on V may still write there: ub bytes 512"),
    ],
)
def test_a_run_by_steps_meets_what_npu_check_proves(address: int, why: str) -> None:
    program = tw.compile(working_at(address), options=tw.Options(check=False))
    with pytest.raises(StepFault, match=why):
        program(*random((32, 32)), mode="step")


SCATTERED = (TEXTS / "scattered_rows.hivm.mlir").read_text()


@pytest.mark.parametrize("mode", ["typed", "bytes", "step"])
def test_rows_go_where_data_says(mode: str) -> None:
    x, i, o = np.arange(24, dtype="f4"), np.array([6, 0, 3], "i4"), np.full(56, -1, "f4")
    wanted = o.reshape(7, 8).copy()
    wanted[i] = x.reshape(3, 8)
    got = np.asarray(tw.compile(SCATTERED)(x, i, o, mode=mode))
    np.testing.assert_array_equal(got.reshape(7, 8), wanted)


def test_stores_that_data_places_are_taken_to_be_apart_only_where_the_launch_says_so() -> None:
    """npu-check believes it then; a run by steps meets two cores at one place."""
    unsaid = SCATTERED.replace(", scattered", "", 1)
    with pytest.raises(tw.CompileError, match=r"stores element .* from two cores; .*says `scattered`"):
        tw.compile(unsaid)
    x, i, o = np.arange(24, dtype="f4"), np.array([6, 0, 6], "i4"), np.zeros(56, "f4")
    with pytest.raises(StepFault, match=r"race: 'npu.store_nd' .*may still write"):
        tw.compile(SCATTERED)(x, i, o, mode="step")


def test_data_that_decides_places_stays_within_its_tensor() -> None:
    """What lies outside, which the vendor's chip would take, is the nearest that does not."""
    x, o = np.arange(24, dtype="f4"), np.zeros(56, "f4")
    got = np.asarray(tw.compile(SCATTERED)(x, np.array([-3, 5, 100], "i4"), o)).reshape(7, 8)
    np.testing.assert_array_equal(got[[0, 5, 6]], x.reshape(3, 8))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (", o=56", "", r"hivm.hir.store.* what data decides of %o: say in the launch .*as in o=4096"),
        ("%m = arith.muli %n, %c8_i32", "%m = arith.muli %n, %n", ""),
        (
            "index_cast %m : i32 to index",
            "index_cast %m : i32 to index\n%z = arith.remsi %start, %c8 : index",
            r"arith.remsi.* has no counterpart",
        ),
    ],
)
def test_what_data_may_decide(old: str, new: str, why: str) -> None:
    """Numbers are computed as the kernel says; of indices, sums and multiples."""
    text = SCATTERED.replace(old, new, 1)
    if not why:
        x, o = np.arange(24, dtype="f4"), np.zeros(56, "f4")
        got = np.asarray(tw.compile(text)(x, np.array([3, 0, 6], "i4"), o))
        for start, row in zip((9, 0, 36), x.reshape(3, 8), strict=True):
            np.testing.assert_array_equal(got[start : start + 8], row)
        return
    with pytest.raises(tw.CompileError, match=why):
        tw.compile(text)


ENTRY = "hacc.entry, hivm.func_core_type = #hivm.func_core_type<AIV>"
UB, GM = "#hivm.address_space<ub>", "#hivm.address_space<gm>"


@pytest.mark.parametrize(
    ("arguments", "body", "why"),
    [
        (
            "",
            [f"%a = memref.alloca() : memref<16x16x8x32x8x16x8x32xi16, {UB}>", "return"],
            "'memref.alloca' .*is an array of 2,147,483,648 numbers of the core's program, of which 65,536 may be",
        ),
        ("", ["cf.br ^again", "^again: cf.br ^again"], r"'cf.br' .*is beyond the 10,000 ops of a block"),
        (
            f"%x: memref<?x256xf16, {GM}>, %y: memref<?x256xf16, {UB}>",
            [f"hivm.hir.load ins(%x : memref<?x256xf16, {GM}>) outs(%y : memref<?x256xf16, {UB}>)", "return"],
            "'hivm.hir.load' .*works on an array with open sizes, which the launch has to say, as in x=4096",
        ),
        (
            "%n: i1",
            ["cf.cond_br %n, ^one, ^two", "^one: return", "^two: return"],
            "takes %n of type i1: give --launch",
        ),
    ],
    ids=["a large stack", "an endless loop", "open sizes", "a branch on what is not said"],
)
def test_what_cannot_be_followed_is_one_sentence(
    arguments: str, body: Sequence[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bounded time and memory."""
    monkeypatch.setattr(walk, "MOST_WALKED", 10_000)
    lines = ["// launch: grid=(1,)", f"func.func @k({arguments}) attributes {{{ENTRY}}} {{"]
    lines += ["hivm.hir.set_mask_norm", *body, "}", ""]
    with pytest.raises(tw.CompileError, match=why):
        tw.compile("\n".join(lines))


def compared(program: tw.Program, reference: Reference, mode: str) -> None:
    """Runs a program and compares what it gives with what is known."""
    inputs = reference.inputs(np.random.default_rng(0))
    wanted = reference.results(*inputs)
    got = program(*[x.reshape(-1) for x in inputs], mode=mode)
    got = got if isinstance(got, tuple | list) else [got]
    for one, want in zip(got, wanted, strict=True):
        wide = want.astype(np.float64).reshape(-1)
        off = np.abs(np.asarray(one).astype(np.float64).reshape(-1) - wide).max()
        assert off <= reference.off * np.abs(wide).max()


def stored(name: str) -> str:
    """The text of a stored kernel with its launch."""
    return f"// launch: {REFERENCES[name].launch}\n" + (STORED / f"{name}.hivm.mlir").read_text()


@needs(STORED)
@pytest.mark.parametrize("name", REFERENCES)
def test_a_stored_kernel_computes_what_it_is_known_to(name: str) -> None:
    """It is compiled with npu-check, which finds nothing: the vendor's flags and barriers are proven."""
    reference = REFERENCES[name]
    compared(tw.compile(stored(name), target=reference.target), reference, "step")


@needs(STORED)
@pytest.mark.parametrize(
    "name", ["add_f32", "atomic_add_f32", "layernorm_256x1024_f32", "softmax_f32", "matmul_512_f16"]
)
def test_all_modes_agree(name: str) -> None:
    program = tw.compile(stored(name))
    for mode in ("typed", "bytes"):
        compared(program, REFERENCES[name], mode)


@needs(STORED)
@pytest.mark.parametrize(
    ("name", "launch", "why"),
    [
        ("hf_matmul_f16", "grid=(20,)", r"hivm.hir.matmul.*:69\) has no counterpart"),
        ("a5_matmul_f16", "grid=(2,2), 512, 512, 512", r"hivm.hir.fixpipe.*:99\) .* drains to two cores"),
    ],
)
def test_what_is_refused_is_said_in_one_sentence(name: str, launch: str, why: str) -> None:
    text = f"// launch: {launch}\n"
    target = "ascend-950pr" if name.startswith("a5") else "ascend-910b1"
    with pytest.raises(tw.CompileError, match=why):
        tw.compile(text + (STORED / f"{name}.hivm.mlir").read_text(), target=target)


@pytest.mark.parametrize(
    ("launch", "why"),
    [
        ("n=150", "grid"),
        ("grid=(0,), n=150", "one to three positive numbers"),
        ("grid=(1,2,3,4), n=150", "one to three positive numbers"),
        ("grid=(3,), n=many", "no number"),
        ("grid=(3,), ,", "is no number"),
        ("grid=(3", "is no launch"),
        ("grid=(3,), m=1", "takes no number m: its numbers are n, a"),
    ],
)
def test_a_launch_that_says_nothing_is_refused(launch: str, why: str) -> None:
    with pytest.raises(tw.CompileError, match=why):
        tw.compile(Launched(TEXTS / "scaled_sum.hivm.mlir", launch))


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ("o=(5,24)", r"takes %x, memref<\?x\?xf32.*: the launch says its open sizes, as in x=\(8,8\)"),
        ("x=5, o=(5,24)", r"as in x=\(8,8\)"),
        ("x=(5,24,1), o=(5,24)", r"as in x=\(8,8\)"),
        ("x=(5,many), o=(5,24)", r"x=\(5,many\): open sizes are whole numbers"),
        ("x=(5,24), o=(5,24), z=(1,1)", "takes no number z"),
    ],
)
def test_open_sizes_are_said(sizes: str, why: str) -> None:
    with pytest.raises(tw.CompileError, match=why):
        tw.compile(Launched(TEXTS / "doubled_columns.hivm.mlir", f"grid=(2,), {sizes}"))


def test_vector_functions_are_of_chips_that_keep_their_order() -> None:
    with pytest.raises(tw.CompileError, match=r"func.call.*:57\) runs on .* ascend-950pr, not ascend-910b1"):
        tw.compile(TEXTS / "largest_first.hivm.mlir")
