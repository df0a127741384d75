"""Products with 2:4 sparse right sides, on the cube and written out, bit for bit against numpy; what the rate gains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memories import outputs
from sparsity import dense_of, product_text
from tiering import examples, sampled

import tilewright as tw
from tilewright.dialects.npu import MmadOp
from tilewright.machine import Machine, MachineError


def bytes_of(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape, np.int8)


def run(text: str, target: str, *args: Any, schedule: tw.Schedule | None = None) -> tw.Program:
    """The program, whose values in both memories are those of numpy."""
    program = tw.compile(text, target=target, options=tw.Options(schedule=schedule))
    x, values, index, columns = args
    stored = (values, index) if columns else (np.swapaxes(a, -1, -2) for a in (values, index))
    dense = np.swapaxes(dense_of(*stored), -1, -2)
    wanted = x.astype(np.int32) @ dense.astype(np.int32)
    np.testing.assert_array_equal(outputs(program, [x, values, index])[0], wanted)
    return program


@examples(8)
@given(
    batch=st.sampled_from([(), (), (2,), (1, 3)]),
    m=st.integers(1, 150),
    k=st.integers(1, 60).map(lambda n: 8 * n),
    n=st.integers(1, 150),
    columns=st.booleans(),
    target=st.sampled_from(["ascend-910b1", "ascend-910b1", "ascend-310"]),
    seed=st.integers(0, 999),
)
def test_products(
    batch: tuple[int, ...], m: int, k: int, n: int, columns: bool, target: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shapes = [(n, k // each) if columns else (k // each, n) for each in (2, 8)]
    values, index = (bytes_of(rng, *batch, *shape) for shape in shapes)
    text = product_text(batch, m, k, n, columns)
    program = run(text, target, bytes_of(rng, *batch, m, k), values, index, columns)
    products = [op for op in program.module().walk() if isinstance(op, MmadOp)]
    assert products and all((op.index is not None) == (target == "ascend-910b1") for op in products)


@sampled(3)
@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize(
    "pins",
    [
        {"base_m": 16, "base_n": 16, "base_k": 32},
        {"base_m": 48, "base_n": 32, "base_k": 16, "cores": 3},
        {"base_k": 64, "step_k_a": 4, "step_k_b": 1},
        {"base_k": 64, "step_k_a": 1, "step_k_b": 3},
    ],
)
def test_pinned_schedules(pins: dict[str, int], columns: bool) -> None:
    """Several steps in a load, loads of one operand inside the other's, and ends that are cut."""
    rng = np.random.default_rng(len(pins))
    m, k, n = 70, 328, 50
    shapes = [(n, k // each) if columns else (k // each, n) for each in (2, 8)]
    values, index = (bytes_of(rng, *shape) for shape in shapes)
    schedule = tw.Schedule(**pins)
    text = product_text((), m, k, n, columns)
    run(text, "ascend-910b1", bytes_of(rng, m, k), values, index, columns, schedule=schedule)


def test_sums_are_not_cut() -> None:
    """By themselves they would be, dense; a pin that asks for it is refused."""
    text = product_text((), 16, 32768, 64)
    names = [k.name for k in tw.compile(text).report().kernels]
    assert len(names) == 1
    with pytest.raises(tw.CompileError, match="split_k=4: its sums cannot be cut"):
        tw.compile(text, options=tw.Options(schedule=tw.Schedule(split_k=4)))


def test_a_product_takes_half_the_cycles_and_five_eighths_of_the_bytes() -> None:
    """By the rate of the machine file; one row, so that loads of the right side are all there is to wait for."""
    m, k, n = 16, 4096, 4096
    sparse = tw.compile(product_text((), m, k, n)).report()
    machine = Machine.load("ascend-910b1")
    assert machine.cube_sparse == {"i8": 2}
    dense = tw.compile(
        f"""func.func @main(%x: tensor<{m}x{k}xi8>, %d: tensor<{n}x{k}xi8>) -> tensor<{m}x{n}xi32> {{
          %w = graph.transpose %d {{perm = [1, 0]}} : (tensor<{n}x{k}xi8>) -> tensor<{k}x{n}xi8>
          %y = graph.contract %x, %w {{lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}}
            : (tensor<{m}x{k}xi8>, tensor<{k}x{n}xi8>) -> tensor<{m}x{n}xi32>
          func.return %y : tensor<{m}x{n}xi32>
        }}"""
    ).report()
    own = [r.microseconds - r.kernels[0].launch_microseconds for r in (sparse, dense)]
    assert own[0] < 0.75 * own[1]


def test_an_unknown_type_of_sparse_products_is_refused(tmp_path: Any) -> None:
    file = tmp_path / "chip.toml"
    file.write_text('extends = "ascend-910b1"\nname = "chip"\n[cube.sparse]\nf64 = 2\n')
    with pytest.raises(MachineError, match=r"cube\.sparse\.f64.* has no rate in cube\.rates"):
        Machine.load(file)
