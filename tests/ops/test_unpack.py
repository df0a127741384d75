"""Numbers of pairs at the npu level, in both memories, beside what joins their kernel or reads them otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from memories import outputs
from tiering import MEMORIES

import tilewright as tw

RNG = np.random.default_rng(3)


def numbers(pairs: np.ndarray) -> np.ndarray:
    lower, upper = pairs.astype(np.int64) & 15, pairs.astype(np.int64) >> 4 & 15
    both = np.stack([lower, upper], -1)
    return np.where(both < 8, both, both - 16).reshape(*pairs.shape[:-1], 2 * pairs.shape[-1])


def run(folder: Path, arguments: str, result: str, body: str, *args: np.ndarray) -> np.ndarray:
    """What a module computes; both memories agree."""
    path = folder / "module.mlir"
    path.write_text(
        f"builtin.module {{\n  func.func @main({arguments}) -> {result} {{\n{body}"
        f"    func.return %y : {result}\n  }}\n}}\n"
    )
    program = tw.compile(path)
    return outputs(program, args, MEMORIES)[0]


def pairs(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape).astype(np.int8)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 3), (3, 17), (130, 33), (2, 40_001), (0, 4), (4, 0)])
def test_all_numbers_come_out(m: int, n: int, tmp_path: Path) -> None:
    x, wide = pairs(m, n), f"tensor<{m}x{2 * n}xf16>"
    kind = f"tensor<{m}x{n}x!graph.i4x2>"
    got = run(tmp_path, f"%x: {kind}", wide, f"    %y = graph.unpack %x : ({kind}) -> {wide}\n", x)
    np.testing.assert_array_equal(got, numbers(x))


@pytest.mark.parametrize(("m", "n"), [(3, 5), (2, 100_003), (257, 3)])
def test_rows_are_added_up(m: int, n: int, tmp_path: Path) -> None:
    """A long row is read in pieces, of whole pairs."""
    x, kind = pairs(m, n), f"tensor<{m}x{n}x!graph.i4x2>"
    body = (
        f"    %a = graph.unpack %x : ({kind}) -> tensor<{m}x{2 * n}xf16>\n"
        f"    %b = graph.convert %a : (tensor<{m}x{2 * n}xf16>) -> tensor<{m}x{2 * n}xf32>\n"
        f'    %y = graph.reduce %b {{kind = "sum", dims = [1]}} : (tensor<{m}x{2 * n}xf32>) -> tensor<{m}xf32>\n'
    )
    got = run(tmp_path, f"%x: {kind}", f"tensor<{m}xf32>", body, x)
    np.testing.assert_array_equal(got, numbers(x).sum(1))


def test_columns_are_scaled_and_transposed(tmp_path: Path) -> None:
    """Beside a tensor whose rows are its columns, and one with a number for each row."""
    x, z, s = pairs(37, 9), RNG.integers(-9, 10, (18, 37)).astype(np.float16), np.arange(37, dtype=np.float16)
    body = (
        "    %a = graph.unpack %x : (tensor<37x9x!graph.i4x2>) -> tensor<37x18xf16>\n"
        "    %b = graph.broadcast %s {dims = [0]} : (tensor<37xf16>) -> tensor<37x18xf16>\n"
        "    %c = graph.mul %a, %b : tensor<37x18xf16>\n"
        "    %t = graph.transpose %c {perm = [1, 0]} : (tensor<37x18xf16>) -> tensor<18x37xf16>\n"
        "    %y = graph.add %t, %z : tensor<18x37xf16>\n"
    )
    arguments = "%x: tensor<37x9x!graph.i4x2>, %z: tensor<18x37xf16>, %s: tensor<37xf16>"
    got = run(tmp_path, arguments, "tensor<18x37xf16>", body, x, z, s)
    np.testing.assert_array_equal(got, (numbers(x) * s[:, None]).T + z)


def test_numbers_are_added_to_a_product(tmp_path: Path) -> None:
    """The kernel of a product has no part that unpacks."""
    x, a, b = pairs(24, 20), RNG.integers(-4, 5, (24, 16)), RNG.integers(-4, 5, (16, 40))
    body = (
        "    %p = graph.contract %a, %b {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0]} "
        ": (tensor<24x16xf16>, tensor<16x40xf16>) -> tensor<24x40xf16>\n"
        "    %n = graph.unpack %x : (tensor<24x20x!graph.i4x2>) -> tensor<24x40xf16>\n"
        "    %y = graph.add %p, %n : tensor<24x40xf16>\n"
    )
    arguments = "%x: tensor<24x20x!graph.i4x2>, %a: tensor<24x16xf16>, %b: tensor<16x40xf16>"
    got = run(tmp_path, arguments, "tensor<24x40xf16>", body, x, a.astype(np.float16), b.astype(np.float16))
    np.testing.assert_array_equal(got, a @ b + numbers(x))


def test_a_pinned_tile_has_whole_pairs(tmp_path: Path) -> None:
    path = tmp_path / "module.mlir"
    path.write_text(
        "builtin.module {\n  func.func @main(%x: tensor<64x!graph.i4x2>) -> tensor<128xf16> {\n"
        "    %y = graph.unpack %x : (tensor<64x!graph.i4x2>) -> tensor<128xf16>\n"
        "    func.return %y : tensor<128xf16>\n  }\n}\n"
    )
    with pytest.raises(tw.CompileError, match="a tile of 7 along axis 0, where numbers are loaded in pairs"):
        tw.compile(path, options=tw.Options(schedule={"unpack_0": tw.Schedule(tile=(7,))}))
    program = tw.compile(path, options=tw.Options(schedule={"unpack_0": tw.Schedule(tile=(6,))}))
    x = pairs(64)
    np.testing.assert_array_equal(np.asarray(program(x)), numbers(x))
