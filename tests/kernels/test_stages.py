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
from tiering import examples, sampled

from tilewright.dialects.dtypes import PAIR, element_type
from tilewright.dialects.graph import FusionOp
from tilewright.dialects.graph.schedules import to_schedules
from tilewright.dialects.open_sizes import OpenSize
from tilewright.dialects.sizes import Symbol, floordiv
from tilewright.frontends import lower_function
from tilewright.kernels import indexed
from tilewright.kernels import product_stages as products
from tilewright.kernels import stage as kinds
from tilewright.kernels.emit_nest import nested_kernel
from tilewright.kernels.graph import OwnAxis, StageGraph
from tilewright.kernels.nest_text import nest_text, parse_nest
from tilewright.kernels.renumber import renumbered
from tilewright.kernels.stage import (
    BoxDim,
    Fill,
    Given,
    KernelStage,
    Ref,
    Spacing,
    StageLoadBox,
    StageOp,
    StageStoreBox,
)
from tilewright.kernels.text import StageError, check, fingerprint, parse, stage_ops, text_of
from tilewright.machine import Machine
from tilewright.passes.choose.launches import launches_of
from tilewright.passes.lower.nested import NestedKernel
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
    StageLoadBox: st.builds(StageLoadBox, axes, boxes, numbers, st.none() | values, st.sampled_from([(), (1, 0, 2)])),
    StageStoreBox: st.builds(StageStoreBox, axes, boxes, st.sampled_from(TYPES), numbers),
    Given: st.builds(
        Given, st.sampled_from(["accumulator", "product0"]), st.sampled_from(["load", "drain", "given"])
    ),
    kinds.Apply: st.builds(kinds.Apply, st.sampled_from(["exp", "add", "convert"]), st.booleans()),
    kinds.Round: st.builds(kinds.Round, st.sampled_from(["even", "down"])),
    kinds.Spread: st.builds(kinds.Spread),
    kinds.Transpose: st.builds(kinds.Transpose, st.permutations(range(3)).map(tuple)),
    kinds.Extract: st.builds(
        kinds.Extract,
        extents(st.tuples(axes, numbers, numbers)),
        st.booleans(),
        st.just(()) | extents(st.tuples(axes, axes, numbers)),
    ),
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
    products.LoadHanded: st.builds(
        products.LoadHanded, axes, boxes, st.lists(st.none() | axes, max_size=3).map(tuple)
    ),
    products.DrainSums: st.builds(products.DrainSums, some, some, terms, terms),
    products.HandOn: st.builds(products.HandOn, some, some, st.booleans()),
    products.NoSums: st.builds(products.NoSums, some, some),
    products.Multiply: st.builds(products.Multiply, some, some, some),
    products.StoreSums: st.builds(products.StoreSums, *leaving, axes, boxes, numbers),
    products.HandOver: st.builds(products.HandOver, *leaving, some),
    indexed.StageScalar: st.builds(indexed.StageScalar, axes, numbers, sizes),
    indexed.LoadIndirect: st.builds(indexed.LoadIndirect, axes, boxes),
    indexed.StageGather: st.builds(indexed.StageGather),
    indexed.Count: st.builds(
        indexed.Count, sizes, st.just(()) | extents(st.tuples(axes, sizes)), st.none() | axes, numbers
    ),
    indexed.TileExtent: st.builds(indexed.TileExtent, axes),
    indexed.Cumulate: st.builds(
        indexed.Cumulate, st.sampled_from(["sum", "max"]), axes, values, st.booleans()
    ),
    indexed.Accumulate: st.builds(
        indexed.Accumulate, st.sampled_from(["sum", "max"]), extents(st.tuples(axes, sizes))
    ),
    indexed.ScatterRows: st.builds(indexed.ScatterRows, st.sampled_from(["set", "add"]), axes, axes, sizes),
    indexed.Sort: st.builds(indexed.Sort, *[extents(axes)] * 3, axes),
}

own_axes = st.lists(
    st.builds(
        OwnAxis, st.sampled_from(["kept", "border"]), sizes, st.none() | axes, numbers, st.integers(-9, 9)
    ),
    max_size=2,
).map(lambda found: dict(enumerate(found, start=4)))


@st.composite
def graphs(draw: st.DrawFn) -> StageGraph:
    found, refs, scalars = StageGraph(), list[Ref](), list[Ref]()
    found.own = draw(own_axes)
    spanned = axes | st.sampled_from(sorted(found.own)) if found.own else axes
    for _ in range(draw(st.integers(0, 6))):
        op = draw(st.one_of(*OPS.values()))
        least, most = op.takes
        count = draw(st.integers(least, least + 2 if most is None else most))
        if (count and not refs) or (op.scalars and not scalars):
            continue
        operands = [draw(st.sampled_from(scalars if n in op.scalars else refs)) for n in range(count)]
        if isinstance(op, StageLoadBox | StageStoreBox) and op.box and scalars and draw(st.booleans()):
            op = dataclasses.replace(op, box=(dataclasses.replace(op.box[0], plus=count), *op.box[1:]))
            operands.append(draw(st.sampled_from(scalars)))
        elements = (
            draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=2)) if op.kind != "store" else []
        )
        spans = frozenset(draw(st.sets(spanned))) | {d.axis for d in op.dims if d.axis is not None}
        spacing = draw(
            st.none()
            | st.builds(Spacing, axes, st.integers(1, 4))
            | st.builds(Spacing, axes, st.integers(-4, -1), st.just(False), st.integers(1, 99))
            | st.just(Spacing(1, pairs=True))
        )
        pooled, shape = draw(st.frozensets(axes, max_size=2)), draw(st.lists(spanned, max_size=3))
        made = scalars if op.kind == "scalar" else refs
        made += [(len(found), j) for j, _ in enumerate(elements)]
        found.append(
            KernelStage(op, elements, spans - op.reduces, operands, spacing, pooled, tile_axes=tuple(shape))
        )
    return found


def test_every_op_is_tried() -> None:
    ours = {
        op for op in stage_ops().values() if op.__module__.startswith("tilewright.")
    }  # plugins have others
    assert set(OPS) == ours


@given(graphs())
@examples(300)
def test_text_reads_back(graph: StageGraph) -> None:
    text = text_of(graph)
    again = parse(text, {"n": N})
    assert text_of(again) == text and fingerprint(again) == fingerprint(graph)
    assert dict(again.own) == dict(graph.own)
    for a, b in zip(again, graph, strict=True):
        assert (a.kind, a.function, a.moves, a.reduces, a.axes, a.tile_axes, a.op.carries) == (
            b.kind,
            b.function,
            b.moves,
            b.reduces,
            b.axes,
            b.tile_axes,
            b.op.carries,
        )


@examples(60)
@given(graphs(), st.permutations(range(12)))
def test_other_numbers_of_axes_and_back(graph: StageGraph, numbers: list[int]) -> None:
    """A stage with other numbers does the same along other axes; with the first ones again it is what it was."""
    for stage in graph:
        whole = dataclasses.replace(stage, tile_axes=stage.tile_axes or tuple(range(12)))
        other = renumbered(whole, numbers, stage.operands)
        for before, after in (
            (whole.axes, other.axes),
            (whole.moves, other.moves),
            (whole.reduces, other.reduces),
            (whole.pooled, other.pooled),
            (whole.op.carries, other.op.carries),
        ):
            assert {numbers[a] for a in before} == after
        again = renumbered(other, [numbers.index(a) for a in range(12)], stage.operands)
        assert (again.op, again.axes, again.spacing) == (stage.op, stage.axes, stage.spacing)
        assert again.tile_axes in (whole.tile_axes, ())


def test_fingerprints_tell_bits_apart_and_no_locations() -> None:
    f32 = element_type("f32")

    def of(value: float | int) -> str:
        return fingerprint(StageGraph([KernelStage(Fill(value), [f32], frozenset())]))

    nan = float("nan")
    assert len({of(v) for v in (0.0, -0.0, 0, 1.0, 1, nan, -nan, float("inf"), float("-inf"))}) == 9
    stage = KernelStage(Fill(1.0), [f32], frozenset())
    assert dataclasses.replace(stage, location=None) == stage
    assert fingerprint(StageGraph([KernelStage(Fill(1.0), [PAIR], frozenset())])) != of(1.0)


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
    "rows of a table": (
        lambda x, i: jnp.take(x, i, axis=0, mode="clip"),
        [struct(101, 37), struct(53, dtype="int32")],
    ),
    "in batches": (
        lambda x, i: jax.vmap(lambda a, b: a[b])(x, i),
        [struct(6, 40, 48), struct(6, 19, dtype="int32")],
    ),
    "picked": (
        lambda x, i: jnp.take_along_axis(x, i, axis=0, mode="clip"),
        [struct(40, 70), struct(9, 70, dtype="int32")],
    ),
    "running": (lambda x: jax.lax.cumsum(x, 1, reverse=True), [struct(3, 300_000)]),
    "windows": (
        lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 9, 5), (1, 2, 1), "SAME"),
        [struct(3, 57, 61, dtype="bfloat16")],
    ),
    "sorted": (lambda x: jax.lax.top_k(x, 5), [struct(33, 301)]),
    "scattered": (
        lambda x, i, u: x.at[i].add(u),
        [struct(101, 37), struct(5300, dtype="int32"), struct(5300, 37)],
    ),
    "moved": (
        lambda x, u, i, j: jax.lax.dynamic_update_slice(x, u, (i, j)),
        [struct(64, 257), struct(13, 40), struct(dtype="int32"), struct(dtype="int32")],
    ),
    "selected": (
        jax.grad(
            lambda x: jax.lax.reduce_window(
                x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"
            ).sum()
        ),
        [struct(2, 23, 31, 17, dtype="float32")],
    ),
    "attention": (
        lambda q, k, v: jax.nn.softmax((q @ k.T).astype("float32") * 0.125, -1).astype(v.dtype) @ v,
        [struct(300, 64), struct(777, 64), struct(777, 64)],
    ),
    "one row": (
        lambda q, k, v: jnp.einsum(
            "hk,hkd->hd", jax.nn.softmax(jnp.einsum("hd,hkd->hk", q, k).astype("float32"), -1).astype(v.dtype), v
        ),
        [struct(8, 64), struct(8, 1000, 64), struct(8, 1000, 64)],
    ),
    "back to back": (
        lambda x, a, b: jax.nn.relu(x @ a) @ b,
        [struct(4096, 64), struct(64, 256), struct(256, 64)],
    ),
    "gated": (
        lambda x, a, b, c: (jax.nn.silu(x @ a) * (x @ b)) @ c,
        [struct(4096, 64), struct(64, 256), struct(64, 256), struct(256, 64)],
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
            kernel, seen = plan.kernel(plan.stem, schedule), seen + 1
            for stages in kernel.stage_graphs().values():
                assert list(parse(text_of(stages))) == list(stages)
            if not isinstance(kernel, NestedKernel):
                assert kernel.unstaged
                continue
            read = [each._replace(nest=parse_nest(nest_text(each.nest))) for each in kernel.sections(schedule)]
            for before, after in zip(kernel.sections(schedule), read, strict=True):
                assert nest_text(after.nest) == nest_text(before.nest)
                assert list(after.nest.stages) == list(before.nest.stages)
            made = nested_kernel("k", kernel.frame(schedule), read)
            assert str(made) == str(kernel.build("k", schedule))
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
        ('%0 = reduce {by = "sum", axes = [(0, 3)]} : f32', "stage 0 (reduce) has 0 operands, and takes one"),
        ("%0 = fill {value = <m>} : f32", "line 2: "),
        ("%0 = fill {value = ", "cannot be read"),
        ("%0 = load {input = 0, box = [3 by 1 at 0]} : f32", "moves along an axis that it does not span"),
        (
            "%0 = load {input = 0, box = [2 by 3 at 2, 3 by 1 at 0]} : f32 as [0, 1]",
            "moves along an axis that it does not span",
        ),
        (
            "%0 = load {input = 0, box = [3 by 1 plus 0]} : f32",
            "stage 0 (load) has 0 operands, and takes one",
        ),
        (
            "%0 = fill {value = 1.0} : i32 %1 = load(%0) {input = 0, box = [3 by 1 plus 0]} : f32",
            "stage 1 (load) reads %0, which is no scalar",
        ),
        (
            '%0 = scalar {input = 1, low = 0, high = 9} : i32 %1 = apply(%0) {of = "exp"} : f32',
            "stage 1 (apply) reads %0, which is a scalar",
        ),
        (
            "%0 = fill {value = 1.0} : f32 %1 = gather(%0) : f32",
            "stage 1 (gather) has 1 operands, and takes two",
        ),
        ('axis 2 {what = "kept"} axis 4 {what = "kept"}', "axis 4 is called 3"),
        ('axis 2 {what = "border", of = 2}', "axis 2 goes along 2, which is none of the domain's"),
        ("axis 2 {least = 3}", "line 2: axis has no what"),
        (
            'axis 2 {what = "kept"} %0 = fill {value = 1.0} : f32 over [3]',
            "stage 0 (fill) has an axis that there is not",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(line: str, said: str) -> None:
    with pytest.raises(StageError) as caught:
        parse(f"stages {{\n  {line}\n}}")
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_graph_is_checked() -> None:
    f32 = element_type("f32")
    fill = KernelStage(Fill(1.0), [f32], frozenset())
    reduced = KernelStage(kinds.Reduce("sum", ((0, 4),)), [f32], frozenset({0}), [(0, 0)])
    with pytest.raises(StageError, match="spans an axis that it reduces"):
        check(StageGraph([fill, reduced]))
    with pytest.raises(StageError, match="has operands, and takes none"):
        check(StageGraph([fill, KernelStage(Fill(1.0), [f32], frozenset(), [(0, 0)])]))
    with pytest.raises(StageError, match="must have a result"):
        check(StageGraph([KernelStage(Fill(1.0), [], frozenset())]))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            "for 4 { %0 = fill {value = 1.0} : f32 } %1 = apply(%0) {of = 'exp'} : f32",
            "stage 1 (apply) reads %0, which is made in another loop",
        ),
        (
            "for 4 carries [%1 to %1] { %0 = fill {value = 1.0} : f32 %1 = apply(%0) {of = 'exp'} : f32 }",
            "for 4 carries [%1 to %1]: %1 is not there before the loop",
        ),
        (
            "%0 = fill {value = 1.0} : f32 for 4 carries [%0 to %1] { } %1 = apply(%0) {of = 'exp'} : f32",
            "for 4 carries [%0 to %1]: %1 is not there at the end of a turn",
        ),
        (
            "%0 = fill {value = 1.0} : f32 for 4 carries [%0 to %1] { %1 = apply(%0) {of = 'exp'} : f16 }",
            "for 4 carries [%0 to %1]: %1 has elements of another type",
        ),
        ("for 4 by lanes { }", "line 1: there is no lanes that takes turns; there are cores, units, loop"),
        ("for 4 along [(0, 1)] { %1 = fill {value = 1.0} : f32 }", "results of stage 0 are called %0"),
        ("for 4 along { }", "cannot be read"),
    ],
)
def test_nests_that_are_none(lines: str, said: str) -> None:
    with pytest.raises(StageError) as raised:
        parse_nest("nest { " + lines.replace("'", '"') + " }")
    assert said in str(raised.value)


def test_what_a_loop_of_one_turn_makes_is_there_behind_it() -> None:
    text = "nest {\n  for 1 along [(0, 0, 64)] {\n    %0 = fill {value = 1.0} : f32\n  }\n"
    text += '  %1 = apply(%0) {of = "exp"} : f32\n}'
    assert nest_text(parse_nest(text)) == text
