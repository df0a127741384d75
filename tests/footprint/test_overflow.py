"""What kernels in the text of Triton-Ascend's adapter need on chip: the bytes of the vendor's compiler, and changes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.shared import SHARED, needs

from tilewright.cli.main import main
from tilewright.footprint import FootprintError, Overflow, overflows, read
from tilewright.machine import Machine

MACHINE = Machine.load("ascend-910b3")
KERNELS = SHARED / "hivm" / "kernels"
EXACT = [
    "add_f16",
    "add_f32",
    "add_f32_odd",
    "add_i32",
    "atomic_add_f32",
    "cast_f32_bf16",
    "fits_ub_f32",
    "reduce_max_axis0_f32",
    "reduce_sum_f32",
    "scatter_rows_f16",
    "transpose_f32",
]
"""Kernels of the vector cores in which the vendor's compiler has no double buffers."""


def one(text: str, machine: Machine = MACHINE) -> Overflow:
    (found,) = overflows(read(text, "k.mlir"), machine)
    return found


def needed(found: Overflow) -> dict[str, int]:
    return {peak.space: peak.bytes for peak in found.peaks}


def add(n: int, dtype: str = "f32", more: str = "") -> str:
    """Two tensors loaded and added up, then stored."""
    kind = f"{n}x{dtype}"
    return f"""
func.func @k(%x: memref<{kind}>, %y: memref<{kind}>, %z: memref<{kind}>) {{
  %a = memref.alloc() : memref<{kind}>
  memref.copy %x, %a : memref<{kind}> to memref<{kind}>
  %s = bufferization.to_tensor %a restrict writable : memref<{kind}>
  %b = memref.alloc() : memref<{kind}>
  memref.copy %y, %b : memref<{kind}> to memref<{kind}>
  %t = bufferization.to_tensor %b restrict writable : memref<{kind}>
  %u = arith.addf %s, %t : tensor<{kind}>
  {more}
  bufferization.materialize_in_destination %u in writable %z : (tensor<{kind}>, memref<{kind}>) -> ()
  return
}}
"""


def product(m: int, k: int, n: int) -> str:
    """Sums of products over steps of k, narrowed on their way out."""
    a, b, c = f"{m}x{k}xf16", f"{k}x{n}xf16", f"{m}x{n}xf32"
    return f"""
func.func @k(%x: memref<{a}>, %y: memref<{b}>, %z: memref<{m}x{n}xf16>, %steps: index) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{c}>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<{c}>) -> tensor<{c}>
  %r = scf.for %j = %c0 to %steps step %c1 iter_args(%acc = %i) -> (tensor<{c}>) {{
    %p = memref.alloc() : memref<{a}>
    memref.copy %x, %p : memref<{a}> to memref<{a}>
    %s = bufferization.to_tensor %p restrict writable : memref<{a}>
    %q = memref.alloc() : memref<{b}>
    memref.copy %y, %q : memref<{b}> to memref<{b}>
    %t = bufferization.to_tensor %q restrict writable : memref<{b}>
    %v = linalg.matmul ins(%s, %t : tensor<{a}>, tensor<{b}>) outs(%acc : tensor<{c}>) -> tensor<{c}>
    scf.yield %v : tensor<{c}>
  }}
  %w = arith.truncf %r : tensor<{c}> to tensor<{m}x{n}xf16>
  bufferization.materialize_in_destination %w in writable %z : (tensor<{m}x{n}xf16>, memref<{m}x{n}xf16>) -> ()
  return
}}
"""


@pytest.mark.parametrize(("n", "dtype"), [(65536, "f32"), (24576, "f32"), (24577, "f32"), (1, "f32"), (99, "f16")])
def test_an_addition_needs_its_operands(n: int, dtype: str) -> None:
    """The sum is written over one of them; each is whole blocks."""
    each = -(-n * (4 if dtype == "f32" else 2) // 32) * 32
    found = one(add(n, dtype))
    assert needed(found) == {"ub": 2 * each}
    assert found.fits == (2 * each <= MACHINE.spaces["ub"].bytes)


def test_what_is_used_again_is_not_written_over() -> None:
    more = "%v = arith.mulf %s, %t : tensor<64xf32>\n  %w = arith.subf %v, %u : tensor<64xf32>"
    assert needed(one(add(64, more=more))) == {"ub": 3 * 256}


def test_the_smallest_change_is_a_shorter_tile() -> None:
    """Half of it is too long still, a quarter fits; the line of each buffer is said."""
    found = one(add(65536))
    (change,) = found.changes
    assert change.fits and change.bytes == {"ub": 2 * 16384 * 4} and change.left == 0.25
    assert change.what.startswith("16384 instead of 65536 along dimension 0 of 'memref.alloc', k.mlir:3")
    (peak,) = found.peaks
    assert [(b.bytes, b.place) for b in peak.live] == [
        (262144, "'memref.alloc', k.mlir:3"),
        (262144, "'memref.alloc', k.mlir:6"),
    ]


def test_what_fits_has_no_changes() -> None:
    found = one(add(64))
    assert found.fits and not found.changes and "fits" in str(found)


def test_sums_of_products_are_in_l0c() -> None:
    """Either side of the tile may be halved; operands are in l1, and nothing is in ub."""
    found = one(product(256, 64, 256))
    assert needed(found) == {"l1": 2 * 256 * 64 * 2, "l0c": 256 * 256 * 4}
    assert [c.left for c in found.changes if c.fits] == [0.5, 0.5]
    assert one(product(128, 64, 256)).fits
    assert "256" not in {c.what.split()[0] for c in found.changes}


def test_a_broadcast_on_the_fly_is_tried() -> None:
    """The row that is repeated takes a tile: without it the kernel fits."""
    found = one("""
func.func @k(%x: memref<256x96xf32>, %y: memref<96xf32>, %z: memref<256x96xf32>) {
  %a = memref.alloc() : memref<256x96xf32>
  memref.copy %x, %a : memref<256x96xf32> to memref<256x96xf32>
  %s = bufferization.to_tensor %a restrict writable : memref<256x96xf32>
  %b = memref.alloc() : memref<96xf32>
  memref.copy %y, %b : memref<96xf32> to memref<96xf32>
  %t = bufferization.to_tensor %b restrict writable : memref<96xf32>
  %e = tensor.empty() : tensor<256x96xf32>
  %r = linalg.broadcast ins(%t : tensor<96xf32>) outs(%e : tensor<256x96xf32>) dimensions = [0]
  %u = arith.addf %s, %r : tensor<256x96xf32>
  bufferization.materialize_in_destination %u in writable %z : (tensor<256x96xf32>, memref<256x96xf32>) -> ()
  return
}
""")
    tile = 256 * 96 * 4
    assert needed(found)["ub"] == 2 * tile + 96 * 4 and not found.fits
    best = found.changes[0]
    assert best.what.startswith("broadcast on the fly") and best.fits and best.bytes["ub"] == tile + 96 * 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("func.func private @k()", "no function"),
        ("func.func @k() { return }", "makes no tensor on chip"),
        (
            "func.func @k(%n: index) { %e = tensor.empty(%n) : tensor<?xf32>\n %c = arith.constant 0.0 : f32\n"
            "%f = linalg.fill ins(%c : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>\n"
            "%s = tensor.cast %f : tensor<?xf32> to tensor<4xf32>\n return }",
            "no tensor on chip",
        ),
        (
            "func.func @k(%x: tensor<?xf32>) { %e = math.exp %x : tensor<?xf32>\n return }",
            "a dimension that is open",
        ),
    ],
)
def test_what_it_cannot_say(text: str, says: str) -> None:
    with pytest.raises(FootprintError, match=says):
        overflows(read(text, "k.mlir"), MACHINE)


@needs(KERNELS)
@pytest.mark.parametrize("name", EXACT)
def test_as_many_bytes_as_the_vendor_needs(name: str) -> None:
    theirs = json.loads((KERNELS / f"{name}.json").read_text())["bytes"]
    assert needed(one((KERNELS / f"{name}.in.mlir").read_text())) == theirs


@needs(KERNELS)
@pytest.mark.parametrize("name", ["overflow_ub_f32", "overflow_l0c_f16"])
def test_as_many_bits_as_the_vendor_says(name: str) -> None:
    """Its message has a number of bits; the change that is found makes it fit."""
    said = json.loads((KERNELS / f"{name}.json").read_text())["errors"][0]
    found = re.search(r"(ub|cc) overflow, requires (\d+) bits", said)
    assert found is not None
    mine = one((KERNELS / f"{name}.in.mlir").read_text())
    assert needed(mine)[{"ub": "ub", "cc": "l0c"}[found[1]]] * 8 == int(found[2])
    assert mine.changes[0].fits


@needs(KERNELS)
def test_every_stored_text_is_read() -> None:
    """Those with open dimensions are refused by name, all others have bytes."""
    for path in sorted(KERNELS.glob("*.in.mlir")):
        module = read(path.read_text(), path.name)
        if "_dyn" in path.name:
            with pytest.raises(FootprintError, match="open"):
                overflows(module, MACHINE)
        elif "cumsum" not in path.name:
            assert all(found.peaks for found in overflows(module, MACHINE)), path.name


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1 where something overflows, 0 where all fits; an error names the line."""
    path = tmp_path / "k.mlir"
    path.write_text(add(65536))
    assert main(["explain-overflow", str(path), "--target", "ascend-910b3"]) == 1
    said = capsys.readouterr().out
    assert "ub: overflows by 327,680 bytes: 524,288 of 196,608" in said and "fits: 16384 instead of 65536" in said
    path.write_text(add(64))
    assert main(["explain-overflow", str(path)]) == 0
    capsys.readouterr()
    path.write_text(add(64).replace("arith.addf %s, %t", "arith.addf %s, %nothing"))
    assert main(["explain-overflow", str(path)]) == 1
    assert re.search(r"k.mlir:9:\d+: .*%nothing", capsys.readouterr().err)
