"""If, Loop and Scan, and sequences and optionals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import onnx
import onnx_models
import pytest
from onnx_models import check, outputs, parsed
from tiering import sampled

from tilewright.frontends.onnx import OnnxFunction, read_model
from tilewright.frontends.onnx.errors import OnnxError, ValueNeeded


def same(text: str, want: Any, *arrays: Any, opset: int = 21) -> None:
    """Compares the model of a text with values that are known."""
    onnx_models.same(parsed(text, opset), want, *arrays)


def primitives(text: str, *arrays: Any) -> set[str]:
    """What a model is made of."""
    with jax.enable_x64(True):
        made = jax.make_jaxpr(OnnxFunction(read_model(parsed(text))))(*arrays)
    return {e.primitive.name for e in made.eqns}


X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


# -- If ----------------------------------------------------------------------------------------------------

CHOICE = """
f (bool c, float[2,3] x) => (float[2,3] y) {
  z = Mul(x, x)
  y = If (c) <then_branch = t () => (float[2,3] a) {a = Add(z, x)},
              else_branch = e () => (float[2,3] b) {b = Neg(z)}>
}"""


@pytest.mark.parametrize("c", [True, False])
def test_if_runs_a_branch_that_sees_outer_values(c: bool) -> None:
    same(CHOICE, X * X + X if c else -X * X, np.asarray(c), X)


def test_if_computed_is_cond() -> None:
    assert "cond" in primitives(CHOICE, np.asarray(True), X)


KINDS = """
f (bool c, float[2,3] x) => (float[A,B] y) {
  y = If (c) <then_branch = t () => (float[3,2] a) {a = Transpose(x)},
              else_branch = e () => (float[2,3] b) {b = Neg(x)}>
}"""


def test_if_with_branches_of_two_shapes_needs_its_condition() -> None:
    same(KINDS, X.T, np.asarray(True), X)
    same(KINDS, -X, np.asarray(False), X)
    with pytest.raises(ValueNeeded, match=r"by the value of c") as error, jax.enable_x64(True):
        jax.eval_shape(OnnxFunction(read_model(parsed(KINDS))), np.asarray(True), X)
    assert error.value.inputs == {"c"}


def test_if_of_a_shape_is_known() -> None:
    text = """
    f (float[2,3] x) => (float[A,B] y) {
      s = Shape(x)
      two = Constant<value_int=2>()
      zero = Constant<value_int=0>()
      n = Gather(s, zero)
      c = Equal(n, two)
      y = If (c) <then_branch = t () => (float[3,2] a) {a = Transpose(x)},
                  else_branch = e () => (float[2,3] b) {b = Neg(x)}>
    }"""
    same(text, X.T, X)


# -- Loop --------------------------------------------------------------------------------------------------


def loop(
    body: str, trips: str = "m", go: str = "go", before: str = "", inputs: str = "int64 m, bool go"
) -> str:
    """A model of a loop that carries a, which begins as x, and collects r."""
    return f"""
    f ({inputs}, float[2] x) => (float[2] y, float[N,2] r) {{
      {before}
      y, r = Loop ({trips}, {go}, x) <body = b (int64 i, bool c, float[2] a) => (bool d, float[2] e, float[2] s) {{
        {body}
      }}>
    }}"""


DOUBLED = "d = Identity(c) e = Add(a, a) s = Sub(e, x)"
V = np.array([1.0, -3.0], np.float32)


def counted(trips: int) -> tuple[np.ndarray, np.ndarray]:
    values = [V * 2.0 ** np.float32(k + 1) for k in range(trips)]
    return (values[-1] if trips else V).astype(np.float32), np.array(
        [v - V for v in values], np.float32
    ).reshape(-1, 2)


@pytest.mark.parametrize("trips", [0, 1, 3, 7])
def test_loop_of_known_trips(trips: int) -> None:
    before = f"m = Constant<value_int={trips}>() go = Constant<value = bool {{1}}>()"
    text = loop(DOUBLED, before=before, inputs="float[2] unused")
    same(text, counted(trips), V, V)
    assert ("scan" in primitives(text, V, V)) == (trips > 4)


@pytest.mark.parametrize("trips", [0, 2, 6])
def test_loop_without_a_condition_ignores_that_of_its_body(trips: int) -> None:
    before = f"m = Constant<value_int={trips}>() no = Constant<value = bool {{0}}>()"
    body = "d = Identity(no) e = Add(a, a) s = Sub(e, x)"
    same(loop(body, go="", before=before, inputs="float[2] unused"), counted(trips), V, V)


def test_loop_that_does_not_begin() -> None:
    before = "m = Constant<value_int=9>() go = Constant<value = bool {0}>()"
    same(loop(DOUBLED, before=before, inputs="float[2] unused"), counted(0), V, V)


@pytest.mark.parametrize("trips", [0, -1, 1, 5])
@pytest.mark.parametrize("go", [True, False])
@pytest.mark.parametrize("body", [DOUBLED, "d = Not(c) e = Add(a, a) s = Sub(e, x)"])
def test_loop_whose_condition_is_computed(trips: int, go: bool, body: str) -> None:
    """What is collected is as long as the trip count at most, and nothing of none."""
    text = loop(body, before=f"m = Constant<value_int={trips}>()", inputs="bool go")
    count = min(trips, 1) if "Not" in body else trips
    final, collected = counted(max(count, 0) if go else 0)
    with jax.enable_x64(True):
        got = OnnxFunction(read_model(parsed(text)))(np.asarray(go), V)
    np.testing.assert_array_equal(got[0], final)
    np.testing.assert_array_equal(got[1], collected)


def test_loop_that_collects_only_and_does_not_begin() -> None:
    text = """
    f (bool go, float[2] x) => (float[N,2] r) {
      m = Constant<value_int=0>()
      r = Loop (m, go) <body = b (int64 i, bool c) => (bool d, float[2] s) { d = Identity(c) s = Neg(x) }>
    }"""
    same(text, np.zeros((0, 2), np.float32), np.asarray(True), V)


def test_loop_of_trips_that_are_an_input_needs_them() -> None:
    same(loop(DOUBLED), counted(5), np.asarray(5), np.asarray(True), V)


@pytest.mark.parametrize("most", [5, 1 << 62])
def test_loop_that_ends_by_its_counter_is_a_scan(most: int) -> None:
    before = f"m = Constant<value_int={most}>() go = Constant<value = bool {{1}}>()"
    body = "last = Constant<value_int=5>() d = Less(i, last) e = Add(a, a) s = Sub(e, x)"
    text = loop(body, before=before, inputs="float[2] unused")
    same(text, counted(min(most, 6)), V, V)
    assert "scan" in primitives(text, V, V)


def test_loop_that_ends_by_what_it_computes() -> None:
    text = """
    f (float[2] x) => (float[2] y) {
      m = Constant<value_int=9223372036854775807>()
      go = Constant<value = bool {1}>()
      limit = Constant<value_float=50.0>()
      y = Loop (m, go, x) <body = b (int64 i, bool c, float[2] a) => (bool d, float[2] e) {
        zero = Constant<value_int=0>() e = Add(a, a) t = Gather(e, zero) d = Less(t, limit)
      }>
    }"""
    got = outputs(parsed(text), V)
    np.testing.assert_array_equal(got[0], V * 64)


WHILE = """
f (float[2] x) => (float[2] y, float[N,2] r) {{
  {trips}
  go = Constant<value = bool {{1}}>()
  limit = Constant<value_float=50.0>()
  zero = Constant<value_int=0>()
  y, r = Loop ({m}, go, x) <body = b (int64 i, bool c, float[2] a) => (bool d, float[2] e, float[2] s) {{
    e = Add(a, a) t = Gather(e, zero) d = Less(t, limit) s = Sub(e, x)
  }}>
}}"""


@pytest.mark.parametrize("most", [3, 9])
def test_loop_that_ends_by_what_it_computes_collects_no_more_than_its_trips(most: int) -> None:
    text = WHILE.format(trips=f"m = Constant<value_int={most}>()", m="m")
    assert "while" in primitives(text, V)
    final, collected = outputs(parsed(text), V)
    count = min(most, 6)
    want = counted(count)
    np.testing.assert_array_equal(final, want[0])
    assert collected.shape == (most, 2)  # as long as the bound, where JAX runs it
    np.testing.assert_array_equal(collected[:count], want[1])
    with jax.enable_x64(True):
        np.testing.assert_array_equal(OnnxFunction(read_model(parsed(text)))(V)[1], want[1])


def test_loop_that_collects_without_a_bound_is_refused() -> None:
    with pytest.raises(OnnxError, match="it collects values, and how many at most is not known"):
        outputs(parsed(WHILE.format(trips="", m="")), V)


def test_loop_whose_carried_value_grows() -> None:
    text = """
    f (float[2] x) => (float[N] y, float[M] r) {
      m = Constant<value_int=6>()
      go = Constant<value = bool {1}>()
      y, r = Loop (m, go, x) <body = b (int64 i, bool c, float[K] a) => (bool d, float[L] e, float s) {
        d = Identity(c) e = Concat<axis=0>(a, x) zero = Constant<value_int=0>() s = Gather(a, zero)
      }>
    }"""
    same(text, (np.tile(V, 7), np.full(6, V[0])), V)


def test_loop_whose_counter_decides_shapes() -> None:
    text = """
    f (int64 m, bool go, float[8] x) => (float t) {
      z = Constant<value_float=0.0>()
      t = Loop (m, go, z) <body = b (int64 i, bool c, float a) => (bool d, float e) {
        d = Identity(c) one = Constant<value_ints=[1]>() zero = Constant<value_ints=[0]>()
        k = Reshape(i, one) n = Add(k, one) part = Slice(x, zero, n)
        row = Constant<value_ints=[1, -1]>() wide = Reshape(part, row) size = Size(part)
        f = Cast<to=1>(size) e = Add(a, f)
      }>
    }"""
    same(text, np.float32(21), np.asarray(6), np.asarray(True), np.zeros(8, np.float32))


def test_loop_of_known_values_is_known() -> None:
    text = """
    f (float[32] x) => (float[A,B] y) {
      m = Constant<value_int=5>()
      go = Constant<value = bool {1}>()
      one = Constant<value_ints=[1]>()
      two = Constant<value_ints=[2]>()
      s = Loop (m, go, one) <body = b (int64 i, bool c, int64[1] a) => (bool d, int64[1] e) {
        d = Identity(c) e = Mul(a, two)
      }>
      minus = Constant<value_ints=[-1]>()
      shape = Concat<axis=0>(s, minus)
      y = Reshape(x, shape)
    }"""
    x = np.arange(32, dtype=np.float32)
    same(text, x.reshape(32, 1), x)


def test_loop_in_a_loop() -> None:
    text = """
    f (float[2] x) => (float[2] y) {
      m = Constant<value_int=6>()
      go = Constant<value = bool {1}>()
      y = Loop (m, go, x) <body = b (int64 i, bool c, float[2] a) => (bool d, float[2] e) {
        d = Identity(c)
        e = Loop (m, go, a) <body = b2 (int64 j, bool c2, float[2] a2) => (bool d2, float[2] e2) {
          d2 = Identity(c2) f = Cast<to=1>(i) e1 = Add(a2, x) e2 = Add(e1, f)
        }>
      }>
    }"""
    same(text, V + 36 * V + 6 * 15, V)


def test_loop_of_a_sequence() -> None:
    text = """
    f (int64 m, bool go, float[2] x) => (float[N] y) {
      s = SequenceEmpty()
      t = Loop (m, go, s) <body = b (int64 i, bool c, seq(float[K]) a) => (bool d, seq(float[K]) e) {
        d = Identity(c) e = SequenceInsert(a, x)
      }>
      y = ConcatFromSequence<axis=0>(t)
    }"""
    same(text, np.tile(V, 6), np.asarray(6), np.asarray(True), V)


def test_loop_has_derivatives() -> None:
    before = "m = Constant<value_int=6>() go = Constant<value = bool {1}>()"
    fn = OnnxFunction(read_model(parsed(loop(DOUBLED, before=before, inputs="float[2] unused"))))
    with jax.enable_x64(True):
        got = jax.grad(lambda v: fn(v, v)[0].sum())(V)
    np.testing.assert_array_equal(got, [64, 64])


def test_loop_that_never_ends_is_refused() -> None:
    text = loop(DOUBLED, trips="", go="", inputs="float[2] unused")
    with pytest.raises(OnnxError, match="neither a trip count nor a condition"):
        outputs(parsed(text), V, V)


def test_loop_that_changes_a_type_is_refused() -> None:
    text = """
    f (bool go, float[2] x) => (float[2] y) {
      y = Loop (, go, x) <body = b (int64 i, bool c, float[N] a) => (bool d, float[N] e) {
        zero = Constant<value_int=0>() t = Gather(a, zero) l = Constant<value_float=0.0>() d = Less(t, l)
        e = Concat<axis=0>(a, a)
      }>
    }"""
    with pytest.raises(OnnxError, match=r"carried value 0 changes from float32\[2\] to float32\[4\]"):
        outputs(parsed(text), np.asarray(True), V)


# -- Scan --------------------------------------------------------------------------------------------------

SCAN = """
f (float[2] x, float[{a}] u, float[{b}] w) => (float[2] y, float[N,M] r, float[O,P] t) {{
  y, r, t = Scan <num_scan_inputs=2, {attributes}
    body = b (float[2] a, float[2] p, float[2] q) => (float[2] e, float[2] k, float[2] l) {{
      g = Mul(p, q) e = Add(a, g) k = Sub(e, x) l = Identity(p) }}> (x, u, w)
}}"""


@sampled(2)
@pytest.mark.parametrize("opset", [9, 11, 16, 25])
@pytest.mark.parametrize("directions", [(0, 0, 0, 0), (1, 0, 0, 1), (0, 1, 1, 0)])
@pytest.mark.parametrize("axes", [(0, 0, 0, 0), (1, 0, 1, 0), (0, -1, 0, -1)])
@pytest.mark.parametrize("steps", [1, 7])
def test_scan(opset: int, directions: tuple[int, ...], axes: tuple[int, ...], steps: int) -> None:
    if opset < 11:
        axes = tuple(a % 2 for a in axes)  # they are not negative there
    rng = np.random.default_rng(steps)
    rows = [rng.normal(size=(steps, 2)).astype(np.float32) for _ in range(2)]
    a, k, t = V, [], []
    for i in range(steps):
        p, q = (r[steps - 1 - i] if d else r[i] for r, d in zip(rows, directions[:2], strict=True))
        a = a + p * q
        k.append(a - V)
        t.append(p)
    want = [
        np.moveaxis(np.array(c[::-1] if d else c), 0, x)
        for c, d, x in zip((k, t), directions[2:], axes[2:], strict=True)
    ]
    given = [np.moveaxis(r, 0, x) for r, x in zip(rows, axes[:2], strict=True)]
    attributes = "".join(
        f"{n}=[{v[0]}, {v[1]}], "
        for n, v in {
            "scan_input_axes": axes[:2],
            "scan_output_axes": axes[2:],
            "scan_input_directions": directions[:2],
            "scan_output_directions": directions[2:],
        }.items()
        if any(v)
    )
    shapes = {"a": "A,B", "b": "C,D"}
    same(SCAN.format(attributes=attributes, **shapes), (a, *want), V, *given, opset=opset)


def test_scan_of_nothing() -> None:
    none = np.zeros((0, 2), np.float32)
    same(SCAN.format(attributes="", a="A,B", b="C,D"), (V, none, none), V, none, none)


def test_scan_of_computed_values_is_a_scan() -> None:
    rows = np.ones((7, 2), np.float32)
    assert "scan" in primitives(SCAN.format(attributes="", a="A,B", b="C,D"), V, rows, rows)


@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize("lengths", [None, (3, 1, 4, 0)])
def test_scan_of_a_batch(backward: int, lengths: tuple[int, ...] | None) -> None:
    text = f"""
    f ({"int64[4] n, " if lengths else ""}float[4,2] x, float[4,4,2] u) => (float[4,2] y, float[4,4,2] r) {{
      y, r = Scan <num_scan_inputs=1, directions=[{backward}],
        body = b (float[2] a, float[2] p) => (float[2] e, float[2] k) {{ e = Add(a, p) k = Mul(e, p) }}>
        ({"n" if lengths else ""}, x, u)
    }}"""
    rng = np.random.default_rng(1)
    x, u = rng.normal(size=(4, 2)).astype(np.float32), rng.normal(size=(4, 4, 2)).astype(np.float32)
    y, r = x.copy(), np.zeros_like(u)
    for example in range(4):
        n = 4 if lengths is None else lengths[example]
        for i in range(n):
            p = u[example, n - 1 - i if backward else i]
            y[example] += p
            r[example, i] = y[example] * p
    same(text, (y, r), *([np.array(lengths)] if lengths else []), x, u, opset=8)


# -- sequences ---------------------------------------------------------------------------------------------


def sequence(use: str, result: str = "float[N]", opset: int = 21) -> Callable[..., None]:
    text = f"""
    f (float[2] x, float[3] z) => ({result} y) {{
      n = Neg(x)
      s = SequenceConstruct(x, z, n)
      {use}
    }}"""
    return lambda want: same(text, want, V, W, opset=opset)


W = np.array([5, 6, 7], np.float32)


@pytest.mark.parametrize(("p", "want"), [(0, V), (1, W), (2, -V), (-1, -V), (-3, V)])
def test_sequence_at(p: int, want: np.ndarray) -> None:
    sequence(f"p = Constant<value_int={p}>() y = SequenceAt(s, p)")(want)


@pytest.mark.parametrize("p", [3, -4])
def test_sequence_at_no_position_is_refused(p: int) -> None:
    with pytest.raises(OnnxError, match="is none in a sequence of 3"):
        sequence(f"p = Constant<value_int={p}>() y = SequenceAt(s, p)")(V)


@pytest.mark.parametrize(
    ("p", "want"), [(0, (W, V, W, -V)), (3, (V, W, -V, W)), (-1, (V, W, W, -V)), (None, (V, W, -V, W))]
)
def test_sequence_insert(p: int | None, want: tuple[np.ndarray, ...]) -> None:
    before, where = ("", "") if p is None else (f"p = Constant<value_int={p}>()", ", p")
    sequence(f"{before} t = SequenceInsert(s, z{where}) y = ConcatFromSequence<axis=0>(t)")(
        np.concatenate(want)
    )


@pytest.mark.parametrize(("p", "want"), [(0, (W, -V)), (-1, (V, W)), (1, (V, -V)), (None, (V, W))])
def test_sequence_erase(p: int | None, want: tuple[np.ndarray, ...]) -> None:
    before, where = ("", "") if p is None else (f"p = Constant<value_int={p}>()", ", p")
    sequence(f"{before} t = SequenceErase(s{where}) y = ConcatFromSequence<axis=-1>(t)")(np.concatenate(want))


def test_sequence_length() -> None:
    sequence("y = SequenceLength(s)", "int64")(np.int64(3))


def test_sequence_map() -> None:
    use = """t, l = SequenceMap <body = b (float[K] a, float[2] c) => (float[L] e, float[2] g) {
      e = Concat<axis=0>(a, c) g = Add(c, x) }> (s, n)
      q = ConcatFromSequence<axis=0>(t) r = ConcatFromSequence<axis=0, new_axis=1>(l)
      minus = Constant<value_ints=[-1]>() f = Reshape(r, minus) y = Concat<axis=0>(q, f)"""
    sequence(use)(np.concatenate([V, -V, W, -V, -V, -V, np.zeros(6, np.float32)]))


@pytest.mark.parametrize("opset", [11, 24])
@pytest.mark.parametrize("split", [None, 1, 2, 3, 5, 9, [1, 4], [5, 0]])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("keep", [0, 1])
def test_split_to_sequence(opset: int, split: Any, axis: int, keep: int) -> None:
    x = np.arange(25, dtype=np.int32).reshape(5, 5)
    given = "" if split is None else ", n"
    value = f"int64[2] {{{split[0]}, {split[1]}}}" if isinstance(split, list) else f"int64 {{{split}}}"
    text = f"""
    f (int32[5,5] x) => (seq(int32[N,M]) y) {{
      {"" if split is None else f"n = Constant<value = {value}>()"}
      y = SplitToSequence<axis={axis}, keepdims={keep}>(x{given})
    }}"""
    parts = split if isinstance(split, list) else [min(split or 1, 5 - k) for k in range(0, 5, split or 1)]
    want = np.split(x, np.cumsum(parts)[:-1], axis)
    if split is None and not keep:
        want = [part.squeeze(axis) for part in want]
    same(text, tuple(want), x, opset=opset)


def test_split_to_sequence_must_add_up() -> None:
    text = """
    f (float[2] x) => (seq(float[N]) y) { n = Constant<value_ints=[1, 2]>() y = SplitToSequence(x, n) }"""
    with pytest.raises(OnnxError, match="its parts are 3 elements of 2"):
        outputs(parsed(text), V)


def test_optional() -> None:
    text = """
    f (float[2] x) => (float[2] y, bool h, bool n) {
      o = Optional(x) h = OptionalHasElement(o) y = OptionalGetElement(o) n = OptionalHasElement()
    }"""
    same(text, (V, np.asarray(True), np.asarray(False)), V)


def test_optional_without_an_element_is_refused() -> None:
    node = onnx.helper.make_node(
        "Optional", [], ["o"], type=onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [2])
    )
    get = onnx.helper.make_node("OptionalGetElement", ["o"], ["y"])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])
    graph = onnx.helper.make_graph([node, get], "g", [], [y])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(OnnxError, match="the optional has no element"):
        outputs(made)


def test_loop_as_the_reference_has_it() -> None:
    before = "m = Constant<value_int=7>() go = Constant<value = bool {1}>()"
    text = loop(DOUBLED, before=before, inputs="float[2] unused").replace("float[2] s)", "float[1,2] s)")
    text = text.replace(
        "s = Sub(e, x)", "zero = Constant<value_ints=[0]>() u = Sub(e, x) s = Unsqueeze(u, zero)"
    )
    made = parsed(text)
    made.graph.output[1].type.tensor_type.ClearField("shape")
    got = outputs(made, V, V)
    want = onnx.reference.ReferenceEvaluator(made).run(None, {"unused": V, "x": V})
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1].reshape(-1, 2), want[1])
    assert got[1].shape == (7, 1, 2)  # the reference joins them where ONNX says it puts them one on the other


def test_scan_as_the_reference_has_it() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(5, 2)).astype(np.float32) for _ in range(2)]
    check(parsed(SCAN.format(attributes="", a="5,2", b="5,2")), V, *rows)


def test_loop_of_a_sequence_that_ends_by_what_it_computes_is_refused() -> None:
    text = """
    f (float[2] x) => (int64 n) {
      m = Constant<value_int=6>()
      go = Constant<value = bool {1}>()
      s = SequenceEmpty()
      t = Loop (m, go, s) <body = b (int64 i, bool c, seq(float[K]) a) => (bool d, seq(float[K]) e) {
        zero = Constant<value_int=0>() v = Gather(x, zero) d = Cast<to=9>(v) e = SequenceInsert(a, x)
      }>
      n = SequenceLength(t)
    }"""
    with pytest.raises(
        OnnxError, match="its values are sequences or change shape, and how often it runs is computed"
    ):
        outputs(parsed(text), V)


def test_scan_of_a_batch_whose_state_grows_is_refused() -> None:
    text = """
    f (float[4,2] x, float[4,4,2] u) => (float[4,N] y) {
      y = Scan <num_scan_inputs=1, body = b (float[N] a, float[2] p) => (float[M] e) {
        e = Concat<axis=0>(a, p) }> (, x, u)
    }"""
    with pytest.raises(OnnxError, match="its states change shape or type"):
        outputs(parsed(text, 8), np.zeros((4, 2), np.float32), np.zeros((4, 4, 2), np.float32))


def test_scan_whose_state_grows_is_run_step_by_step() -> None:
    text = """
    f (float[2] x, float[6,2] u) => (float[N] y) {
      y = Scan <num_scan_inputs=1, body = b (float[N] a, float[2] p) => (float[M] e) {
        e = Concat<axis=0>(a, p) }> (x, u)
    }"""
    u = np.arange(12, dtype=np.float32).reshape(6, 2)
    same(text, np.concatenate([V, u.reshape(-1)]), V, u)


def test_if_of_sequences() -> None:
    text = """
    f (bool c, float[2] x) => (float[2] y) {
      s = If (c) <then_branch = t () => (seq(float[2]) a) {n = Neg(x) a = SequenceConstruct(x, n)},
                  else_branch = e () => (seq(float[2]) b) {m = Neg(x) b = SequenceConstruct(m, x)}>
      one = Constant<value_int=1>()
      y = SequenceAt(s, one)
    }"""
    same(text, -V, np.asarray(True), V)
    same(text, V, np.asarray(False), V)
    assert "cond" in primitives(text, np.asarray(True), V)


def test_if_in_a_loop_that_runs_as_often_as_an_input_says() -> None:
    text = """
    f (int64 m, float[2] x) => (float[2] y) {
      go = Constant<value = bool {1}>()
      y = Loop (m, go, x) <body = b (int64 i, bool c, float[2] a) => (bool d, float[2] e) {
        d = Identity(c) zero = Constant<value_int=0>() two = Constant<value_int=2>() r = Mod(i, two)
        even = Equal(r, zero)
        e = If (even) <then_branch = t () => (float[2] p) {p = Add(a, x)},
                       else_branch = g () => (float[2] q) {q = Mul(a, x)}>
      }>
    }"""
    want = V
    for i in range(5):
        want = want * V if i % 2 else want + V
    same(text, want, np.asarray(5), V)
    assert "while" in primitives(text, np.asarray(5), V)


@pytest.mark.parametrize("most", [400, 1 << 62])
def test_loop_of_many_iterations_on_known_values(most: int) -> None:
    text = f"""
    f (float[2] x) => (int64 n, float[2] y) {{
      m = Constant<value_int={most}>()
      go = Constant<value = bool {{1}}>()
      zero = Constant<value_int=0>()
      n = Loop (m, go, zero) <body = b (int64 i, bool c, int64 a) => (bool d, int64 e) {{
        limit = Constant<value_int=300>() d = Less(i, limit) e = Add(a, i)
      }}>
      y = Neg(x)
    }}"""
    same(text, (np.int64(300 * 301 // 2), -V), V)
