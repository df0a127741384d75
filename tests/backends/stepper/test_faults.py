"""Faults that the stepping executor meets: bytes nobody wrote, bounds, races, deadlocks. Made by changing programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from npu_programs import MACHINE, matmul, parse, random
from step_campaign import Agreement, arguments, judged, subject_of
from streams import compiled as streamed
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64

import tilewright as tw
from tilewright.backends.stepper import Race, StepFault, StepProgram
from tilewright.backends.stepper.errors import OutOfBounds
from tilewright.backends.stepper.rules import check_inside
from tilewright.dialects import npu as ops
from tilewright.dialects.base import ints, to_ints
from tilewright.dialects.npu import structure

X = np.linspace(-2, 2, 64 * 100, dtype=np.float32).reshape(64, 100)
W = np.linspace(-1, 1, 100 * 80, dtype=np.float32).reshape(100, 80)


def exponential(x: Any) -> Any:
    return jnp.exp(x) * 2 + 1


def layer(x: Any, w: Any) -> Any:
    return jax.nn.softmax(x @ w)


def module_of(fn: Callable[..., Any], args: Sequence[Any], **options: Any) -> ModuleOp:
    return tw.compile(fn, *args, options=tw.Options(**options)).module().clone()


def every(module: ModuleOp, *kinds: type) -> list[Any]:
    return [op for op in module.walk() if isinstance(op, kinds)]


def drop(op: Any) -> None:
    op.detach()
    op.erase()


def fault(module: ModuleOp, *args: Any) -> StepFault:
    with pytest.raises(StepFault) as caught:
        StepProgram(module, MACHINE)(*args)
    return caught.value


def test_a_buffer_that_nothing_wrote() -> None:
    module = module_of(exponential, [X])
    drop(every(module, ops.LoadOp)[0])
    met = fault(module, X)
    assert met.kind == "uninitialised" and met.op.name == "npu.vexp" and "ub bytes 0.." in met.place
    assert met.location is not None and "test_faults.py" in met.location
    assert "'npu.vexp' (" in str(met) and "which nothing wrote" in str(met)


def test_a_device_tensor_that_nothing_wrote() -> None:
    module = module_of(lambda x: jnp.sort(jnp.exp(x), axis=0), [X], without="join")
    launches = every(module, structure.LaunchOp)
    assert len(launches) > 1
    drop(launches[0])
    met = fault(module, X)
    assert met.kind == "uninitialised" and isinstance(met.op, ops.LoadOp) and "device bytes" in met.place


def test_results_that_nothing_wrote() -> None:
    module = module_of(exponential, [X])
    for op in every(module, structure.LaunchOp):
        drop(op)
    assert fault(module, X).kind == "uninitialised"


def test_a_part_that_nothing_wrote() -> None:
    """All is stored an element further down: which bytes are missing is said."""
    module = module_of(exponential, [X])
    for store in every(module, ops.StoreNdOp):
        offsets = list(to_ints(store.properties["offsets"]))
        offsets[len(store.index_operands())] += 1
        store.properties["offsets"] = ints(offsets)
    met = fault(module, X)
    assert met.kind == "uninitialised" and ", 4 bytes from byte 0 of it on" in met.place


def test_a_buffer_outside_its_space() -> None:
    module = module_of(exponential, [X])
    alloc = every(module, ops.AllocOp)[0]
    room = MACHINE.spaces["ub"].bytes
    alloc.properties["address"] = IntegerAttr(room - 32, i64)
    met = fault(module, X)
    assert met.kind == "out-of-bounds" and "outside ub" in str(met) and f"bytes {room - 32}.." in met.place


def test_a_tensor_outside_device_memory() -> None:
    module = module_of(lambda x: jnp.sort(jnp.exp(x), axis=0), [X], without="join")
    every(module, structure.GmAllocOp)[0].properties["address"] = IntegerAttr(1 << 30, i64)
    assert fault(module, X).kind == "out-of-bounds"


def test_a_buffer_over_another_one() -> None:
    """Both are needed at one time."""
    module = module_of(lambda x, y: (x + y, x - y), [X, X])
    first, second, *_ = every(module, ops.AllocOp)
    second.properties["address"] = first.properties["address"]
    assert fault(module, X, X).kind in ("overlap", "race")


def test_a_tensor_over_another_one() -> None:
    module = module_of(lambda x, y: (x + y, x - y), [X, X], without="join")
    made = every(module, structure.GmAllocOp)
    made[1].properties["address"] = made[0].properties["address"]
    met = fault(module, X, X)
    assert met.kind in ("overlap", "race")


def test_pipes_without_a_flag_between_them() -> None:
    module = module_of(exponential, [X])
    flags = [f for f in every(module, ops.SyncOp) if f.source_pipe() == "MTE2" and f.target_pipe() == "V"]
    for flag in flags:
        drop(flag)
    met = fault(module, X)
    assert isinstance(met, Race) and met.kind == "race"
    assert (
        met.before is not None and met.before.name == "npu.load_nd" and "on MTE2 may still write" in str(met)
    )
    (got,) = StepProgram(module, MACHINE, races=False)(X)
    np.testing.assert_allclose(np.asarray(got), exponential(X), rtol=1e-6)


def test_hand_made_kernels_without_flags_race() -> None:
    x, w = random(64, 32), random(32, 64)
    assert fault(parse(matmul(64, 64, 32)), x, w).kind == "race"


def test_blocks_that_write_the_same_bytes() -> None:
    """Each block of cores stores its rows at the first ones."""
    module = module_of(exponential, [np.zeros((96, 100), np.float32)])
    kernel = every(module, structure.KernelOp)[0]
    assert np.prod(to_ints(kernel.grid)) > 1
    for store in every(module, ops.StoreNdOp):
        store.properties["offsets"] = ints([0] * len(to_ints(store.properties["offsets"])))
    met = fault(module, np.zeros((96, 100), np.float32))
    assert met.kind == "race" and "block [0]" in str(met)


def test_a_block_that_reads_what_another_one_writes() -> None:
    """The result is where an argument is, and a block stores what the next one loads."""
    x = np.ones((4096, 100), np.float32)
    module = module_of(exponential, [x])
    main = every(module, structure.LaunchOp)[0]
    main.operands[1] = main.operands[0]
    load = every(module, ops.LoadNdOp)[0]
    offsets = list(to_ints(load.properties["offsets"]))
    offsets[-1 - (len(offsets) - 1) // 2] += 8
    load.properties["offsets"] = ints(offsets)
    assert fault(module, x).kind in ("race", "overlap")


def test_flags() -> None:
    """A flag that is not set, one that is set twice, one that is left."""
    module = module_of(exponential, [X])
    drop(every(module, ops.SetFlagOp)[0])
    met = fault(module, X)
    assert met.kind == "deadlock" and "waits for a flag that nothing before it raises" in str(met)
    module = module_of(exponential, [X])
    one = every(module, ops.SetFlagOp)[0]
    block = one.parent
    assert block is not None
    block.insert_op_after(one.clone(), one)
    assert fault(module, X).kind == "reused-flag"
    module = module_of(exponential, [X])
    drop(every(module, ops.WaitFlagOp)[-1])
    assert fault(module, X).kind in ("unpaired-flag", "race", "reused-flag")


def test_cores_that_wait_for_each_other_in_vain() -> None:
    halves = [np.ones((64, 32), np.float16)] * 3
    module = module_of(lambda q, k, v: jax.nn.softmax(q @ k.T) @ v, halves)
    drop(every(module, ops.SetCrossOp)[0])
    met = fault(module, *halves)
    assert met.kind == "deadlock" and "cross-core event" in str(met)


def test_sums_that_are_not_flagged() -> None:
    made = tw.compile(layer, X.astype(np.float16), W.astype(np.float16)).module().clone()
    flagged = [op for op in every(made, ops.MmadOp) if op.unit_flag is not None]
    for op in flagged:
        del op.properties["unit_flag"]
    if flagged:
        assert fault(made, X.astype(np.float16), W.astype(np.float16)).kind == "deadlock"
    else:
        assert not [op for op in every(made, ops.FixpipeOp) if op.unit_flag is not None]


def test_data_of_the_host_is_ordered() -> None:
    """Numbers that travel with a launch, and what the host writes between launches, are no race."""
    program = tw.compile(lambda n, x: jax.lax.fori_loop(0, n, lambda i, y: y * 1.5 + i, x), np.int32(3), X)
    np.testing.assert_allclose(
        np.asarray(program(np.int32(3), X, mode="step")), np.asarray(program(np.int32(3), X))
    )


def test_streams_without_an_event_between_them() -> None:
    """No wait of a host program can go."""
    original = streamed("beside").module()
    args = arguments(original, 0)
    assert StepProgram(original, MACHINE)(*args)
    waits = len(every(original, structure.WaitEventOp))
    for number in range(waits):
        module = original.clone()
        drop(every(module, structure.WaitEventOp)[number])
        met = fault(module, *args)
        assert isinstance(met, Race) and "may still" in str(met)
    module = original.clone()
    drop(every(module, structure.RecordEventOp)[0])
    assert fault(module, *args).kind == "deadlock"
    assert waits


@pytest.mark.parametrize("source", ["random 0", "attention 0", "beside"])
def test_races_are_those_that_npu_check_proves(source: str) -> None:
    """No mutant has a fault of which npu-check says nothing, and none of order is met by npu-check alone."""
    found = Agreement()
    judged(subject_of(source, "ascend-910b1"), 8, 3, found)
    assert sum(found.counts.values()) >= 5
    assert not found.only and not found.missed, found
    assert sum(n for (_, outcome), n in found.counts.items() if outcome == "both") >= 3


def test_an_index_outside_a_tensor_takes_the_nearest_box() -> None:
    """As XLA does: programs rely on it where a tile of indices is padded."""
    table, index = X[:10], np.array([0, 12, -3, 9], np.int32)
    program = tw.compile(lambda t, i: t.at[i].get(mode="promise_in_bounds"), table, index)
    assert every(program.module(), ops.LoadIndirectOp)
    np.testing.assert_array_equal(
        np.asarray(program(table, index, mode="step")), np.asarray(program(table, index))
    )


@pytest.mark.parametrize("n", [4, 5])
@pytest.mark.parametrize("step", [-2, 1])
@pytest.mark.parametrize("spread", [-1, 2])
def test_boxes_that_leave_their_buffer(n: int, step: int, spread: int) -> None:
    """What is outside is found from each first position on, in both directions, with a window at each place."""
    for first in range(-2, n + 2):
        touched = [first + i * step + j * spread for i in range(2) for j in range(2)]
        inside = all(0 <= t < n for t in touched)
        with nullcontext() if inside else pytest.raises(OutOfBounds):
            check_inside(ModuleOp([]), [n], [first], [2], [step], [2], [spread])
