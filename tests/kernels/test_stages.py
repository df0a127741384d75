"""Stages as data: their text reads back as the same graph, for kernels that are built of it as well; what is wrong in a
text is one sentence."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples, sampled

from tilewright.dialects.dtypes import PAIR, element_type
from tilewright.dialects.graph import FusionOp
from tilewright.dialects.graph.schedules import to_schedules
from tilewright.dialects.open_sizes import OpenSize
from tilewright.dialects.sizes import Symbol, floordiv
from tilewright.frontends import lower_function
from tilewright.kernels import product_stages as products
from tilewright.kernels import stage as kinds
from tilewright.kernels.graph import StageGraph
from tilewright.kernels.stage import (
    BoxDim,
    Fill,
    Given,
    LoadBox,
    Ref,
    Spacing,
    Stage,
    StageOp,
    StoreBox,
)
from tilewright.kernels.text import StageError, check, fingerprint, parse, stage_ops, text_of
from tilewright.machine import Machine
from tilewright.passes.choose.launches import launches_of
from tilewright.passes.lower.fusion_stages import FusionStages
from tilewright.passes.pipeline import PIPELINE, run_stage

TYPES = [element_type(name) for name in ("f32", "f16", "bf16", "i8", "ui8", "i1", "i32", "i64")]
N = Symbol("n", 1, 100)


# -- random graphs -------------------------------------------------------------------------------------------

numbers = st.integers(0, 5000)
axes = st.integers(0, 3)
sizes = numbers | st.builds(
    lambda k, c: OpenSize.of(floordiv(kinds.Expr.of(N) * k, kinds.Expr(2)) + c), axes, axes
)
values = st.floats(width=64) | st.integers(-(2**63), 2**64 - 1)
boxes = st.lists(
    st.builds(BoxDim, sizes, numbers, st.none() | axes, st.integers(1, 9), st.integers(-9, 9)), max_size=3
).map(tuple)


def extents(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(strategy, min_size=1, max_size=3).map(tuple)


leaving = st.none() | st.floats(), numbers, st.booleans()
some = st.lists(axes, max_size=3).map(tuple)
terms = st.lists(st.tuples(axes, st.integers(1, 9)), max_size=2).map(tuple)
places = st.builds(
    products.PlaceRead, axes, extents(sizes), extents(st.tuples(numbers, terms)), st.integers(0, 9)
)
operand = extents(
    st.builds(
        products.OperandDim,
        sizes,
        numbers,
        terms,
        st.integers(-9, 9),
        st.integers(1, 8),
        st.booleans(),
        st.none() | places,
        terms,
    )
)

OPS: dict[type[StageOp], st.SearchStrategy[StageOp]] = {
    kinds.Fill: st.builds(kinds.Fill, values),
    kinds.Iota: st.builds(kinds.Iota, axes, numbers, numbers),
    LoadBox: st.builds(LoadBox, axes, boxes, numbers, st.none() | values, st.sampled_from([(), (1, 0, 2)])),
    StoreBox: st.builds(StoreBox, axes, boxes, st.sampled_from(TYPES), numbers),
    Given: st.builds(
        Given, st.sampled_from(["accumulator", "product0"]), st.sampled_from(["load", "drain", "given"])
    ),
    kinds.Apply: st.builds(kinds.Apply, st.sampled_from(["exp", "add", "convert"])),
    kinds.Round: st.builds(kinds.Round, st.sampled_from(["even", "down"])),
    kinds.Spread: st.builds(kinds.Spread),
    kinds.Transpose: st.builds(kinds.Transpose, st.permutations(range(3)).map(tuple)),
    kinds.Extract: st.builds(kinds.Extract, extents(st.tuples(axes, numbers, numbers)), st.booleans()),
    kinds.Unpack: st.builds(kinds.Unpack),
    kinds.Mask: st.builds(kinds.Mask, extents(st.tuples(axes, sizes)), values),
    kinds.Reduce: st.builds(kinds.Reduce, st.sampled_from(["sum", "max"]), extents(st.tuples(axes, sizes))),
    kinds.ReduceWindows: st.builds(kinds.ReduceWindows, st.sampled_from(["sum", "max"]), extents(axes)),
    kinds.ArgReduce: st.builds(kinds.ArgReduce, st.sampled_from(["max", "min"]), axes, sizes),
    products.ReadPlace: st.builds(products.ReadPlace, places),
    products.LoadOperand: st.builds(products.LoadOperand, axes, operand, numbers),
    products.MoveOperand: st.builds(
        products.MoveOperand, st.sampled_from(["l0a", "l0b"]), operand, some, some, st.booleans()
    ),
    products.LoadRow: st.builds(products.LoadRow, axes, boxes, numbers),
    products.MoveRow: st.builds(products.MoveRow, st.sampled_from(["bt", "fb"]), some),
    products.NoSums: st.builds(products.NoSums, some, some),
    products.Multiply: st.builds(products.Multiply, some, some, some),
    products.StoreSums: st.builds(products.StoreSums, *leaving, axes, boxes, numbers),
    products.HandOver: st.builds(products.HandOver, *leaving, some),
}


@st.composite
def graphs(draw: st.DrawFn) -> StageGraph:
    found, refs = StageGraph(), list[Ref]()
    for _ in range(draw(st.integers(0, 6))):
        op = draw(st.one_of(*OPS.values()))
        least, most = op.takes
        count = draw(st.integers(least, least + 2 if most is None else most))
        if count and not refs:
            continue
        operands = [draw(st.sampled_from(refs)) for _ in range(count)]
        elements = (
            draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=2)) if op.kind != "store" else []
        )
        spans = frozenset(draw(st.sets(axes))) | {d.axis for d in op.dims if d.axis is not None}
        spacing = draw(
            st.none()
            | st.builds(Spacing, axes, st.integers(1, 4))
            | st.builds(Spacing, axes, st.integers(-4, -1), st.just(False), st.integers(1, 99))
            | st.just(Spacing(1, pairs=True))
        )
        pooled = draw(st.frozensets(axes, max_size=2))
        refs += [(len(found), j) for j, _ in enumerate(elements)]
        found.append(Stage(op, elements, spans - op.reduces, operands, spacing, pooled))
    return found


def test_every_op_is_tried() -> None:
    assert set(OPS) == set(stage_ops().values())


@given(graphs())
@examples(300)
def test_text_reads_back(graph: StageGraph) -> None:
    text = text_of(graph)
    again = parse(text, {"n": N})
    assert text_of(again) == text and fingerprint(again) == fingerprint(graph)
    for a, b in zip(again, graph, strict=True):
        assert (a.kind, a.function, a.moves, a.reduces, a.axes) == (
            b.kind,
            b.function,
            b.moves,
            b.reduces,
            b.axes,
        )


def test_fingerprints_tell_bits_apart_and_no_locations() -> None:
    f32 = element_type("f32")

    def of(value: float | int) -> str:
        return fingerprint(StageGraph([Stage(Fill(value), [f32], frozenset())]))

    nan = float("nan")
    assert len({of(v) for v in (0.0, -0.0, 0, 1.0, 1, nan, -nan, float("inf"), float("-inf"))}) == 9
    stage = Stage(Fill(1.0), [f32], frozenset())
    assert dataclasses.replace(stage, location=None) == stage
    assert fingerprint(StageGraph([Stage(Fill(1.0), [PAIR], frozenset())])) != of(1.0)


# -- kernels -------------------------------------------------------------------------------------------------


def struct(*shape: int, dtype: str = "float16") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


PROGRAMS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "softmax": (lambda x: jax.nn.softmax(x), [struct(33, 257)]),
    "long rows": (lambda x: jax.nn.softmax(x), [struct(3, 300_000)]),
    "arg": (lambda x: (jnp.argmax(x, 1), jnp.sum(x, 0)), [struct(37, 130, dtype="float32")]),
    "strided": (lambda x: x[:, ::2] + x[:, 1::2] * jnp.arange(64, dtype=x.dtype), [struct(40, 128)]),
    "padded": (lambda x: jnp.pad(x, 3, constant_values=2) * 2, [struct(17, 40)]),
    "transposed": (lambda x, y: x.T + y, [struct(70, 40), struct(40, 70)]),
    "epilogue": (lambda x, w, b: jax.nn.gelu(x @ w + b), [struct(64, 96), struct(96, 80), struct(80)]),
    "rows": (lambda x, w: jax.nn.standardize(x @ w), [struct(64, 32), struct(32, 48)]),
    "pooled": (
        lambda x, w: (x @ w).reshape(24, 4, 48).max(1),
        [struct(96, 32), struct(32, 48)],
    ),
    "bits": (lambda x: (x > 1) & (jnp.abs(x) < 2), [struct(19, 33, dtype="int32")]),
}


def fusions(fn: Callable[..., Any], args: Any, target: str) -> Iterator[FusionOp]:
    module = lower_function(fn, args).module
    for stage in PIPELINE:
        run_stage(stage, module, target)
        if stage.name == "graph-schedule":
            break
    yield from (op for op in module.walk() if isinstance(op, FusionOp) and not op.on_host)


@sampled(4)
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310p3", "ascend-950pr"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_are_built_of_what_is_read(name: str, target: str) -> None:
    """The tile op of a kernel whose stages were printed and read is the same one."""
    fn, args = PROGRAMS[name]
    machine, seen = Machine.load(target), 0
    for fusion in fusions(fn, args, target):
        schedules = to_schedules(fusion.schedule)
        for plan, schedule in zip(launches_of(fusion, machine), schedules, strict=False):
            kernel, other = (plan.kernel(plan.stem, schedule) for _ in range(2))
            if not isinstance(kernel, FusionStages):
                continue
            seen += 1
            read = parse(text_of(kernel.stages))
            assert list(read) == list(kernel.stages)
            assert isinstance(other, FusionStages)
            for before, after in zip(other.stages, read, strict=True):
                before.op, before.spacing, before.operands = after.op, after.spacing, after.operands
            assert str(other.build("k", schedule)) == str(kernel.build("k", schedule))
    assert seen


# -- what is wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%0 = exp : f32", "line 2: there is no stage exp; there are fill"),
        ("%0 = fill {value = 1.0, by = 2} : f32", "line 2: fill has no by; it has value"),
        ("%0 = fill : f32", "line 2: fill has no value"),
        ("%0 = fill {value = 1.0} : f99", "line 2: there is no element type f99"),
        ("%0 = fill {value = 1.0}", "line 2: fill has results, or element types, but not both"),
        ("%1 = fill {value = 1.0} : f32", "line 2: results of stage 0 are called %0"),
        ('%0 = apply(%0) {of = "exp"} : f32', "stage 0 (apply) reads %0, which is not before it"),
        ('%0 = fill {value = 1.0} : f32 %1 = apply(%0#1) {of = "exp"} : f32', "and %0 has 1 results"),
        ('%0 = reduce {by = "sum", axes = [(0, 3)]} : f32', "stage 0 (reduce) has 0 operands, and takes 1"),
        ("%0 = fill {value = <m>} : f32", "line 2: "),
        ("%0 = fill {value = ", "cannot be read"),
        ("%0 = load {input = 0, box = [3 by 1 at 0]} : f32", "moves along an axis that it does not span"),
    ],
)
def test_what_is_wrong_is_one_sentence(line: str, said: str) -> None:
    with pytest.raises(StageError) as caught:
        parse(f"stages {{\n  {line}\n}}")
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_graph_is_checked() -> None:
    f32 = element_type("f32")
    fill = Stage(Fill(1.0), [f32], frozenset())
    reduced = Stage(kinds.Reduce("sum", ((0, 4),)), [f32], frozenset({0}), [(0, 0)])
    with pytest.raises(StageError, match="spans an axis that it reduces"):
        check(StageGraph([fill, reduced]))
    with pytest.raises(StageError, match="has 1 operands, and takes 0"):
        check(StageGraph([fill, Stage(Fill(1.0), [f32], frozenset(), [(0, 0)])]))
    with pytest.raises(StageError, match="must have a result"):
        check(StageGraph([Stage(Fill(1.0), [], frozenset())]))
