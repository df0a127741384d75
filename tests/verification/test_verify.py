"""Verification of whole programs: what a row says, what a culprit says, and that a reproducer replays."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from models import MODELS, data
from wrong_passes import CASES, Case, Mistake, corrupted
from xdsl.dialects.builtin import ModuleOp, StringAttr

import tilewright as tw
from tilewright.api.program import CompileError
from tilewright.backends.stepper import StepFault
from tilewright.dialects import make_context
from tilewright.dialects.text import parse_module
from tilewright.frontends import lower_function
from tilewright.passes.errors import PassError
from tilewright.passes.pipeline import PIPELINE, Stage
from tilewright.verification.results import Verification
from tilewright.verification.run import verify_module

TARGET = "ascend-910b1"
ON_DEVICE = (
    "npu-allocate",
    "npu-synchronize",
    "npu-plan-memory",
    "npu-schedule-host",
    "npu-join-launches",
)
"""The passes from the first that places buffers on: behind each, both memories are compared."""


def case(name: str) -> Case:
    return next(c for c in CASES if c.name == name)


def stages_of(name: str) -> Sequence[Stage]:
    found = case(name)
    return corrupted(found.stage, found.mistake)


def bisect(module: ModuleOp, inputs: Sequence[Any], stages: Sequence[Stage]) -> Verification:
    return verify_module(module, inputs, None, TARGET, stages, bisect=True)


def test_a_sum_in_parts_may_be_off_as_a_whole_one() -> None:
    """The product is cut into four; what is left after the subtraction is rounding, of the whole sum."""

    def fn(x: jax.Array, y: jax.Array, offset: jax.Array) -> tuple[jax.Array, jax.Array]:
        z = jnp.einsum("bka,bkc->bac", x, y) - offset
        return z, z - jnp.mean(z, -1, keepdims=True)

    x, y = (data(6, 2560, 32, seed=i) + 2 for i in range(2))
    found = tw.verify(fn, x, y, np.einsum("bka,bkc->bac", x, y), bisect=True)
    assert found.ok, found


def test_reductions_in_narrow_types_may_be_off_as_jax_is() -> None:
    """XLA rounds each of the 280 additions to f16, always in the same direction: 422.5 and not 428.5."""
    x = np.full((35, 8, 3), 1.53, np.float16)
    found = tw.verify(lambda x: lax.reduce(x, np.float16(0), lax.add, (0, 1)), x)
    assert found.ok, found


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
def test_a_correct_program_has_a_row_for_each_pass_and_memory(dtype: Any) -> None:
    fn, args = MODELS["mlp"]
    found = tw.verify(fn, *(x.astype(dtype) for x in args))
    assert found.ok, found
    names = [(c.stage, c.memory) for c in found.checks]
    assert names == [
        ("source", "typed"),
        *((s, "typed") for s in ("graph-simplify", "graph-strips", "graph-hoist", "graph-partition")),
        *((s, "typed") for s in ("graph-fuse", "graph-schedule", "graph-to-tile", "tile-to-npu")),
        *(
            (s, m)
            for s in (*ON_DEVICE, "run")
            for m in ("typed", "bytes")
        ),
    ]
    assert [c.stage for c in found.checks if c.exact] == [
        s for s, _ in names if s.startswith(("npu-", "tile-"))
    ]
    assert list(found.levels) == ["graph", "tile", "npu typed", "npu bytes"]
    assert found.reference == "JAX"
    assert 0 < found.tolerance < 0.1


def test_tolerance_follows_the_dtype() -> None:
    fn, args = MODELS["softmax"]
    wide = tw.verify(fn, *args, quick=True).tolerance
    narrow = tw.verify(fn, *(x.astype(jnp.float16) for x in args), quick=True).tolerance
    assert narrow > 100 * wide


def test_an_error_too_small_for_the_whole_program_is_found_alone() -> None:
    """One kernel of many rounds to f16: the result stays within what the program may be off, the kernel does not."""

    def fn(x: jax.Array, w: jax.Array) -> jax.Array:
        return ((x * 1.5) @ w).astype(jnp.float16) * 1e-3 + 1

    args = data(24, 32), data(32, 24)
    stages = stages_of("fuse-rounds-to-f16")
    module = lower_function(fn, args).module
    reference = jax.tree.leaves(jax.jit(fn)(*args))
    found = verify_module(module, args, reference, TARGET, stages)
    row = next(c for c in found.checks if c.stage == "graph-fuse")
    assert row.ratio <= 1
    assert row.isolated is not None
    assert row.isolated > 1
    assert not found.ok


def test_the_tile_holds_the_element() -> None:
    fn, args = MODELS["deep"]
    found = tw.verify(fn, *args, stages=stages_of("tile-fills-with-one"), bisect=True)
    assert found.culprit is not None
    tile = found.culprit.tile
    assert tile is not None
    for at, first, n in zip(found.culprit.element, tile.offsets, tile.sizes, strict=True):
        assert first <= at < first + n


def test_a_loop_is_followed_to_the_iteration() -> None:
    """Only from the third trip on does the subtraction matter."""

    def fn(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 5, lambda i, s: jnp.where(i > 1, s - x, s) * 0.5, x)

    found = tw.verify(fn, data(16, 24), stages=stages_of("tile-swaps-sub"), bisect=True)
    assert found.culprit is not None
    assert found.culprit.op == "graph.sub"
    assert found.culprit.stage == "graph-to-tile"
    assert found.culprit.reproducer is not None


def test_a_wrong_constant_names_the_constant() -> None:
    fn, args = MODELS["norm"]
    found = tw.verify(fn, *args, stages=stages_of("simplify-rounds-constants"), bisect=True)
    assert found.culprit is not None
    assert found.culprit.op == "graph.constant"


@pytest.mark.parametrize(
    ("level", "name"), [("tile", "npu-keeps-accumulator"), ("npu", "plan-overlaps-tensors")]
)
def test_programs_that_start_below_the_graph(level: str, name: str) -> None:
    """Their reproducer is the one launch, at the level before the pass."""
    wrong = case(name)
    fn, args = MODELS[wrong.model]
    program = tw.compile(fn, *args)
    text = program.ir("tile") if level == "tile" else _unplanned(program)
    module = parse_module(make_context(), text, "program.mlir")
    found = bisect(module, args, corrupted(wrong.stage, wrong.mistake))
    assert found.culprit is not None
    assert found.culprit.stage == wrong.stage
    assert found.culprit.kernel is not None
    assert found.culprit.reproducer is not None
    again = parse_module(make_context(), found.culprit.reproducer.source, "reproducer.mlir")
    replayed = bisect(again, found.culprit.reproducer.inputs, corrupted(wrong.stage, wrong.mistake))
    assert replayed.culprit is not None
    assert replayed.culprit.stage == wrong.stage


def _unplanned(program: tw.Program) -> str:
    """The npu level before npu-plan-memory."""
    module = program.module().clone()
    for op in module.walk():
        op.attributes.pop("npu.addresses", None)
        op.attributes.pop("npu.arena_bytes", None)
        if op.name in ("npu.gm_alloc", "npu.gm_constant"):
            op.properties.pop("address", None)
    return str(module)


def _raises(module: ModuleOp) -> None:
    if any(op.name == "tile.exp" for op in module.walk()):
        raise PassError("exp is too much for me")


def _breaks(module: ModuleOp) -> None:
    for op in module.walk():
        if op.name == "tile.reduce":
            op.properties["kind"] = StringAttr("average")


@pytest.mark.parametrize(
    ("mistake", "kind", "op", "said"),
    [(_raises, "crash", "graph.exp", "too much"), (_breaks, "invalid", "graph.reduce", "'average'")],
)
def test_a_pass_that_raises_or_leaves_invalid_ir(mistake: Mistake, kind: str, op: str, said: str) -> None:
    fn, args = MODELS["softmax"]
    found = tw.verify(fn, *args, stages=corrupted("graph-to-tile", mistake), bisect=True)
    assert not found.ok
    assert found.culprit is not None
    assert (found.culprit.stage, found.culprit.kind, found.culprit.op) == ("graph-to-tile", kind, op)
    assert said in found.culprit.problem
    assert found.culprit.reproducer is not None
    assert found.culprit.reproducer.ops == 1


def test_a_frontend_that_is_wrong() -> None:
    fn, args = MODELS["mlp"]
    module = lower_function(fn, args).module
    reference = [np.asarray(fn(*args)) + 1]
    found = verify_module(module, args, reference, TARGET, bisect=True)
    assert found.culprit is not None
    assert found.culprit.stage == "frontend"


def test_stages_that_lack_a_pass() -> None:
    fn, args = MODELS["mlp"]
    stages = [s for s in PIPELINE if s.name != "graph-fuse"]
    found = tw.verify(fn, *args, stages=stages, bisect=True)
    assert found.culprit is not None
    assert found.culprit.kind == "crash"
    assert "needs a module that is fused" in found.culprit.problem


def test_wrong_inputs_are_one_sentence() -> None:
    program = tw.compile(MODELS["mlp"][0], *MODELS["mlp"][1])
    with pytest.raises(CompileError, match="takes 3 inputs"):
        tw.verify(program.ir("tile"), data(2, 2))


def test_npu_check_is_used_where_it_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    from xdsl.passes import ModulePass

    @dataclasses.dataclass(frozen=True)
    class Checker(ModulePass):
        name = "npu-check"

        def apply(self, ctx: object, op: ModuleOp) -> None:
            raise PassError("kernel @k: two pipes race")

    monkeypatch.setattr("tilewright.verification.examine.all_passes", lambda: {"npu-check": lambda: Checker})
    fn, args = MODELS["apart"]
    found = tw.verify(fn, *args, bisect=True)
    assert found.culprit is not None
    assert (found.culprit.stage, found.culprit.kind) == ("npu-synchronize", "hazard")
    assert "two pipes race" in found.culprit.problem


def test_reproducers_are_valid_text(tmp_path: Path) -> None:
    fn, args = MODELS["chain"]
    found = tw.verify(fn, *args, stages=stages_of("plan-overlaps-argument"), bisect=True)
    assert found.culprit is not None
    reproducer = found.culprit.reproducer
    assert reproducer is not None
    for text in (reproducer.source, reproducer.before):
        module = parse_module(make_context(), text, "reproducer.mlir")
        module.verify()
        again = bisect(module, reproducer.inputs, stages_of("plan-overlaps-argument"))
        assert again.culprit is not None
        assert again.culprit.stage == "npu-plan-memory"


def test_a_host_op_keeps_its_bounds_beside_nan_and_infinity() -> None:
    rng = np.random.default_rng(993783)
    x = (np.round(64 * rng.standard_normal(992)) / 64).astype(np.float32)
    x = np.where(rng.random(992) < 0.75, x, rng.choice(np.float32([np.nan, np.inf, -np.inf, 0]), 992))

    def fn(
        y: jax.Array, place: jax.Array
    ) -> jax.Array:  # XLA folds the logarithms of constants with other last bits
        logs = jax.lax.log1p(jnp.abs(jnp.asarray(x[:, None])) + 0.5)
        return jax.lax.complex(jnp.take_along_axis(logs, place, axis=1, mode="clip"), y)

    y = np.where(rng.random((992, 1)) < 0.75, np.float32(0.5), np.float32(np.inf))
    result = tw.verify(fn, y, np.zeros((992, 1), np.int32))
    assert result.ok, result


def test_a_concatenation_in_memory_that_was_used_before() -> None:
    def fn(x: Any) -> Any:
        y = jnp.tanh(x @ x)
        z = jnp.tanh(y @ y)
        return jnp.concatenate([z.T @ z, jnp.tanh(z @ z)], 1)[:, 1:] @ jnp.ones((31, 3))

    result = tw.verify(fn, np.linspace(-1, 1, 256, dtype=np.float32).reshape(16, 16))
    assert result.ok, result


def test_results_as_long_as_data_says_are_judged_behind_a_pass_that_rounds() -> None:
    x = np.float32([1, -1, 2, -3, 4, 0, 5])
    found = tw.verify(
        lambda x: tw.compress(x > 0, x * 2.0), x, options=tw.Options(precision="mixed_float16")
    )
    assert found.ok, found


def test_a_fault_of_the_compiled_program_is_a_hazard() -> None:
    """What a run by steps reads that nothing wrote, values may not show."""
    fn, args = MODELS["apart"]
    lowered, program = lower_function(fn, args).module, tw.compile(fn, *args)

    class Faulty:
        def modules(self) -> list[ModuleOp]:
            return [program.module("npu")]

        def prepare(self) -> None:
            pass

        def run(self, memory: str) -> Sequence[Any]:
            if memory == "bytes":
                raise StepFault("uninitialised", lowered, "reads bytes that nothing wrote")
            return jax.tree.leaves(program(*args))

    found = verify_module(lowered, args, jax.tree.leaves(fn(*args)), TARGET, program=Faulty(), quick=True)
    assert not found.ok
    assert any("nothing wrote" in said for said in found.hazards)


def test_sums_of_floats_may_be_in_another_order() -> None:
    """Of a program that adds up products XLA has other last bits than the run by steps; of another one it has not."""
    for name, apart in (("deep", True), ("softmax", False)):
        fn, args = MODELS[name]
        found = tw.verify(fn, *args, quick=True)
        assert found.ok
        assert found.sums_apart is apart


@pytest.mark.parametrize("level", ["tile", "npu"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_sums_below_the_graph_may_be_in_another_order(level: str, dtype: str, tmp_path: Path) -> None:
    """No bounds are known of them: what another order makes of the results is measured."""
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(shape).astype(dtype) for shape in ((64, 300), (300, 48))]
    path = tmp_path / "product.mlir"
    path.write_text(tw.compile(lambda x, w: jax.nn.relu(x @ w) @ w.T, *args).ir(level))
    found = tw.verify(path, *args)
    assert found.ok, found
    assert found.sums_apart
    assert 0 < max(check.tolerance for check in found.checks) < 1e-2
