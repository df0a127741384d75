"""Versions for ranges of sizes: one lowering for all sizes in it, right at each, in both memories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import export
from memories import outputs
from tiering import examples, sampled, xla_code
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tilewright.api.sizes.shared import SharedExecutables
from tilewright.api.sizes.templates import SizedProgram, range_of
from tilewright.api.sources import entry_of
from tilewright.dialects import npu
from tilewright.dialects.affine import Expr, Symbol
from tilewright.dialects.open_sizes import OpenSize, size_of, typical_sizes
from tilewright.dialects.sizes import Constraint, floordiv, symbols_of
from tilewright.passes.instantiation import Instantiation
from tilewright.passes.templates import NoTemplate, Template, check_template

Sizes = dict[str, int]


def mlp(x: Any, w: Any, c: Any) -> Any:
    return jax.nn.gelu(x @ w + c)


def norm(x: Any, g: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * g


def cnn(x: Any, w: Any, v: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    y = jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers))
    y = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return y.reshape(y.shape[0], -1) @ v


def attention(x: Any, w: Any) -> Any:
    q, k, v = jnp.split(x @ w, 3, axis=-1)
    return jax.nn.softmax(jnp.einsum("bsd,btd->bst", q, k) / 4, axis=-1) @ v


def counted(x: Any) -> Any:
    return jax.lax.scan(lambda c, row: (c * 0.5 + row, c), jnp.zeros(x.shape[1:]), x)[0]


def gradient_of_choices(x: Any, y: Any) -> Any:
    def chosen(x: Any) -> Any:
        return jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).sum()

    return jax.grad(chosen)(x)


def centred(x: Any) -> Any:
    return x - x.mean(0)


def filled_up(x: Any) -> Any:
    half = x.shape[0] // 2
    y = jnp.tril(x[:half], 0)
    return jnp.pad(y, ((2, 0), (0, 0), (0, -half % 16)))


def rare_windows(x: Any) -> Any:
    few = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3), (1, 3), ((0, 0), (2, 0)))
    return jax.lax.reduce_window(few, 0.0, jax.lax.add, (2, 3), (1, 1), "VALID")


CASES: dict[str, tuple[Callable[..., Any], list[Any], list[Sizes], bool]] = {
    "elementwise": (lambda x, y: jax.nn.relu(x * y) + 1, ["b, 37", "b, 37"], [{"b": 60}, {"b": 33}], True),
    "rows and columns": (lambda x: x.T + 1, ["b, s"], [{"b": 30, "s": 100}, {"b": 17, "s": 65}], True),
    "a product": (mlp, ["b, 48", "48, 80", "80"], [{"b": 64}, {"b": 41}], True),
    "three sizes": (
        lambda a, b: jnp.einsum("ij,jk->ik", a, b),
        ["i, j", "j, k"],
        [{"i": 16, "j": 32, "k": 64}, {"i": 9, "j": 17, "k": 33}],
        True,
    ),
    "a norm of rows": (norm, ["b, s, 40", "40"], [{"b": 4, "s": 60}, {"b": 3, "s": 33}], True),
    "softmax of rows": (lambda x: jax.nn.softmax(x), ["b, 50"], [{"b": 12}, {"b": 9}], True),
    "windows": (cnn, ["b, 8, 8, 1", "3, 3, 1, 8", "128, 10"], [{"b": 8}, {"b": 5}], True),
    "a table": (lambda t, i: t[i], ["50, 24", ("b, s", "int32")], [{"b": 4, "s": 16}, {"b": 3, "s": 9}], True),
    "sums into a table": (
        gradient_of_choices,
        ["b, 50", ("b", "int32")],
        [{"b": 16}, {"b": 11}],
        True,
    ),
    "an iota": (lambda x: x * jnp.arange(x.shape[0])[:, None], ["b, 8"], [{"b": 20}, {"b": 31}], True),
    "a loop over an open axis": (counted, ["s, 24"], [{"s": 16}, {"s": 9}], True),
    "a mask": (lambda x: jnp.where(jnp.tril(jnp.ones_like(x)) > 0, x, -1e9), ["s, s"], [{"s": 50}], True),
    "the last row": (lambda x: x[:, -1], ["b, s, 8"], [{"b": 4, "s": 64}, {"b": 3, "s": 50}], True),
    "a part": (lambda x: x[1:, :-1] * 2, ["b, s"], [{"b": 16, "s": 64}, {"b": 9, "s": 50}], True),
    "parts side by side": (
        lambda x, y: jnp.concatenate([x, y], 1),
        ["b, s", "b, 7"],
        [{"b": 16, "s": 64}, {"b": 9, "s": 50}],
        True,
    ),
    "a frame": (lambda x: jnp.pad(x, ((0, 1), (2, 0))), ["b, s"], [{"b": 16, "s": 9}], True),
    "a frame that may be none": (filled_up, ["b, 5, 9"], [{"b": 17}, {"b": 16}, {"b": 33}, {"b": 64}], False),
    "windows that may be none": (rare_windows, ["3, b"], [{"b": 9}, {"b": 8}, {"b": 65}], False),
    "integers": (lambda x: x * 3 // 2, [("b, 5", "int32")], [{"b": 7}, {"b": 5}], True),
    "half precision": (lambda x, w: x @ w, [("b, 32", "float16"), ("32, 16", "float16")], [{"b": 11}], True),
    "sums over an open axis": (centred, ["b, 30"], [{"b": 64}, {"b": 50}], True),
    "softmax over an open axis": (lambda x: jax.nn.softmax(x, 0), ["b, 30"], [{"b": 64}, {"b": 33}], True),
    "the largest": (lambda x: x.max(), ["b, s"], [{"b": 6, "s": 50}, {"b": 5, "s": 33}], True),
    "which is the largest": (lambda x: jnp.argmin(x, 1), ["b, s"], [{"b": 6, "s": 50}], True),
    "a product over an open axis": (lambda x, y: x.T @ y, ["b, 20", "b, 12"], [{"b": 40}, {"b": 37}], True),
    "attention of open length": (attention, ["b, s, 16", "16, 48"], [{"b": 2, "s": 20}, {"b": 3, "s": 33}], True),
    "numbers that wrap around": (
        lambda x: x * jax.lax.integer_pow(jax.lax.optimization_barrier(jnp.int8(45)), 2) + x.shape[0],
        [("b, 5", "int8")],
        [{"b": 100}],
        True,
    ),
    "rounds that are none": (
        lambda x: jax.lax.scan(lambda c, _: (c, c), x, None, length=0)[1],
        ["b, s"],
        [{"b": 16, "s": 1}],
        True,
    ),
    "windows of integers": (
        lambda x, w: jax.lax.conv_general_dilated(
            x, w, (1, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=2
        ),
        [("b, b, 7, 16", "int32"), ("2, 3, 8, 2", "int32")],
        [{"b": 6}],
        True,
    ),
    "a number in a loop and behind it": (
        lambda x: jax.lax.while_loop(lambda c: c < 1, lambda c: c + 1, x[0, 0]) + jax.lax.select_n(x % 3, x, -x, x),
        [("b, 13", "int32")],
        [{"b": 5}],
        True,
    ),
    "a sort": (lambda x: jnp.sort(x, 1), ["b, s"], [{"b": 3, "s": 20}], True),
    "what the host does": (lambda x: jnp.linalg.cholesky(x @ x.T + 9 * jnp.eye(5)), ["5, b"], [{"b": 7}], True),
}


def arguments(specs: Sequence[Any], sizes: Sizes | None = None) -> list[Any]:
    """Types with symbols, or arrays of given sizes."""
    scope, rng = export.SymbolicScope(), np.random.default_rng(0)
    made: list[Any] = []
    for spec in specs:
        text, dtype = (spec, "float32") if isinstance(spec, str) else spec
        if sizes is None:
            made.append(jax.ShapeDtypeStruct(export.symbolic_shape(text, scope=scope), dtype))
            continue
        shape = [sizes.get(n.strip()) or int(n) for n in text.split(",")]
        array = rng.integers(0, 50, shape) if dtype.startswith("int") else rng.standard_normal(shape)
        made.append(array.astype(dtype))
    return made


def compiled(fn: Callable[..., Any], specs: Sequence[Any]) -> tw.DynamicProgram:
    program = tw.compile(fn, *arguments(specs))
    assert isinstance(program, tw.DynamicProgram)
    return program


def check(program: tw.DynamicProgram, fn: Callable[..., Any], args: Sequence[Any], bound: float = 2e-4) -> None:
    """The values of a program are JAX's, and the same in both memories."""
    version = program.at(program.sizes(*args))
    want = np.asarray(jax.jit(fn)(*args), np.float64)
    got = outputs(version, version.flatten(args))[0]
    assert got.shape == want.shape
    largest = max(1, np.abs(want).max(initial=0))
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=bound, atol=bound * largest)


def kernels(module: ModuleOp) -> list[str]:
    return [str(op) for op in module.ops if isinstance(op, npu.structure.KernelOp)]


@sampled(16)
@pytest.mark.parametrize("name", CASES)
def test_every_class_of_ops_is_right_at_each_size(name: str) -> None:
    fn, specs, every, ranged = CASES[name]
    program = compiled(fn, specs)
    for sizes in every:
        args = arguments(specs, sizes)
        check(program, fn, args, 5e-3 if "half" in name else 2e-4)
        assert not ranged or isinstance(program.at(sizes), SizedProgram)
    assert not [r for r in program.ranges.values() if str(r).startswith("internal error")]
    said = program.ir("npu")  # also what the cache relies on: text means the same when it is read
    again = tw.compile(said)
    for sizes in every:
        if isinstance(program.at(sizes), SizedProgram):
            assert kernels(again.module("npu", at=sizes)) == kernels(program.module("npu", at=sizes))


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 80), st.integers(1, 40))
def test_any_sizes(b: int, s: int) -> None:
    args = arguments(["b, s, 40", "40"], {"b": b, "s": s})
    check(NORM, norm, args)


@examples(40)
@given(st.sampled_from(sorted(CASES)), st.data())
def test_any_sizes_of_every_class_of_ops(name: str, data: st.DataObject) -> None:
    """Ends of ranges, primes and others; a program is compiled once for all its examples."""
    fn, specs, _, _ = CASES[name]
    texts = [spec if isinstance(spec, str) else spec[0] for spec in specs]
    names = sorted({n.strip() for text in texts for n in text.split(",") if not n.strip().isdigit()})
    sizes = {n: data.draw(st.sampled_from([1, 2, 3, 16, 17, 33, 64]) | st.integers(1, 70), n) for n in names}
    if name not in PROGRAMS:
        PROGRAMS[name] = compiled(fn, specs)
    check(PROGRAMS[name], fn, arguments(specs, sizes), 5e-3 if "half" in name else 2e-4)
    assert not [r for r in PROGRAMS[name].ranges.values() if str(r).startswith("internal error")]


PROGRAMS: dict[str, tw.DynamicProgram] = {}

NORM = compiled(norm, ["b, s, 40", "40"])
"""Kept between examples: its versions are compiled once."""


def test_a_version_is_lowered_once_for_its_range() -> None:
    program = compiled(mlp, ["b, 48", "48, 80", "80"])
    modules = {id(program.at(b=b).module()) for b in (33, 40, 64)}
    assert len(modules) == 3 and len(program.ranges) == 1
    assert program.at(b=65).report().microseconds > program.at(b=33).report().microseconds
    assert list(program.ranges) == [((33, 64),), ((65, 96),)]
    assert type(program.at(b=1)) is tw.Program and list(program.ranges) == [((33, 64),), ((65, 96),)]


def test_ranges_lie_between_powers_of_two_or_are_halves_and_within_bounds() -> None:
    free, bounded = Symbol("n", 1), Symbol("n", 5, 100)
    assert [range_of(n, free) for n in (0, 1, 2, 3, 4, 5, 64, 65, 96, 97)] == [
        *((0, 0), (1, 1), (2, 2), (3, 4), (3, 4), (5, 8), (33, 64), (65, 96), (65, 96), (97, 128))
    ]
    assert range_of(5, bounded) == (5, 8) and range_of(97, bounded) == (97, 100)


def test_a_reason_names_numbers_of_the_example() -> None:
    """As that all rows are more than a vector core holds, so that they are reduced in pieces."""
    rows = jax.ShapeDtypeStruct((*export.symbolic_shape("b"), 4096), "f4")
    opened = tw.compile(lambda x: x / jnp.sqrt((x * x).mean()), rows)
    assert isinstance(opened, tw.DynamicProgram)
    assert isinstance(opened.at(b=128), SizedProgram), opened.ranges


def test_sizes_that_break_an_assumption_are_compiled_for_themselves() -> None:
    text = """func.func @main(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x8xf32>) -> tensor<i32>
      %fifty = stablehlo.constant dense<50> : tensor<i32>
      %two = stablehlo.constant dense<2> : tensor<i32>
      %three = stablehlo.constant dense<3> : tensor<i32>
      %many = stablehlo.compare GE, %n, %fifty : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %times = stablehlo.select %many, %two, %three : tensor<i1>, tensor<i32>
      %factor = stablehlo.convert %times : (tensor<i32>) -> tensor<f32>
      %shape = stablehlo.constant dense<8> : tensor<1xi32>
      %one = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %dims = stablehlo.concatenate %one, %shape, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %f = stablehlo.dynamic_broadcast_in_dim %factor, %dims, dims = []
        : (tensor<f32>, tensor<2xi32>) -> tensor<?x8xf32>
      %r = stablehlo.multiply %x, %f : tensor<?x8xf32>
      return %r : tensor<?x8xf32>
    }"""
    program = tw.compile(text)
    assert isinstance(program, tw.DynamicProgram)
    for rows, factor in ((64, 2), (50, 2), (49, 3)):
        x = np.random.default_rng(0).standard_normal((rows, 8), np.float32)
        np.testing.assert_array_equal(program(x), x * factor)
        assert isinstance(program.at(arg0_0=rows), SizedProgram) == (factor == 2)
    (version,) = program.ranges.values()
    assert not isinstance(version, NoTemplate)
    assert [str(c) for c in version.template.constraints] == ["arg0_0 >= 50"]


def test_programs_for_one_size_only_say_why() -> None:
    program = compiled(lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x), ["b, s"])
    program.at(b=3, s=20)
    (reason,) = program.ranges.values()
    assert isinstance(reason, NoTemplate) and "\n" not in str(reason)
    assert str(reason).startswith("JAX does not export it with open sizes: ")


def test_sizes_of_stablehlo_that_have_to_be_equal_are_one() -> None:
    text = """func.func @main(%x: tensor<?x8xf32>, %y: tensor<?x8xf32>) -> tensor<?x8xf32> {
      %0 = stablehlo.add %x, %y : tensor<?x8xf32>
      return %0 : tensor<?x8xf32>
    }"""
    program = tw.compile(text)
    assert isinstance(program, tw.DynamicProgram)
    x, y = np.float32(np.arange(96).reshape(12, 8)), np.ones((12, 8), np.float32)
    np.testing.assert_array_equal(program(x, y), x + 1)
    assert isinstance(program.at(arg0_0=12, arg1_0=12), SizedProgram)
    with pytest.raises(tw.CompileError):
        program(x, y[:11])


def template_of(program: tw.DynamicProgram) -> Template:
    (version,) = program.ranges.values()
    assert not isinstance(version, NoTemplate)
    return version.template


def without(module: ModuleOp, cls: type[Any], number: int) -> ModuleOp:
    """A copy of a module without its op number `number` of a class, which gives nothing."""
    made = module.clone()
    [op for op in made.walk() if isinstance(op, cls)][number].detach()
    return made


def test_the_check_of_a_template_finds_a_missing_flag() -> None:
    program = compiled(mlp, ["b, 48", "48, 80", "80"])
    program.at(b=64)
    template = template_of(program)
    check_template(template, ["b"])
    flags = sum(isinstance(op, npu.WaitFlagOp) for op in template.module.walk())
    assert flags > 3
    for number in range(flags):
        broken = Template(
            without(template.module, npu.WaitFlagOp, number),
            template.symbols,
            template.example,
            template.constraints,
            template.stages,
        )
        with pytest.raises(NoTemplate):
            check_template(broken, ["b"])


def test_a_version_has_all_levels_and_is_verified() -> None:
    program, fn = compiled(centred, ["b, 30"]), centred
    version, (x,) = program.at(b=50), arguments(["b, 30"], {"b": 50})
    assert isinstance(version, SizedProgram) and version.extras
    for level in ("graph", "tile", "npu"):
        text = version.ir(level)
        assert "50x30xf32" in text and "#graph.sizes" not in text and "sizes [" not in text
    assert [line for line in version.ir("tile").splitlines() if "tile.launch" in line]
    assert tw.verify(fn, x, program=version).ok


def test_an_instance_has_no_open_sizes() -> None:
    program = compiled(norm, ["b, s, 40", "40"])
    program.at(b=4, s=50)
    template = template_of(program)
    assert "sizes [" in str(template.module)
    closed = str(Instantiation({"b": 3, "s": 40}).of(template.module))
    assert "sizes [" not in closed and "npu.size" not in closed
    assert str(template.module) != closed


@xla_code()
def test_xla_compiles_once_for_a_range() -> None:
    """Other sizes of it run what is there, in both memories, and take nothing with them from the call before."""
    b, s = export.symbolic_shape("b, s")
    args = [jax.ShapeDtypeStruct((b, s, 24), "float32"), jax.ShapeDtypeStruct((24, 72), "float32")]
    w = np.random.default_rng(0).normal(size=(24, 72)).astype("f4") / 5
    for memory in ("typed", "bytes"):
        program = tw.compile(attention, *args, options=tw.Options(memory=memory))
        counts = []
        for batch, length in [(3, 64), (4, 37), (3, 33), (4, 64)]:
            x = np.random.default_rng(length).normal(size=(batch, length, 24)).astype("f4")
            np.testing.assert_allclose(program(x, w), attention(x, w), rtol=1e-5, atol=1e-5)
            (version,) = program.ranges.values()
            assert not isinstance(version, NoTemplate)
            ((_, executable),) = version.executables._made[memory]
            assert all(not one.constraints for made in executable.compiled.values() for one in made)
            counts.append(sum(map(len, executable.compiled.values())))
        assert len(set(counts)) == 1


@xla_code()
def test_what_is_asked_while_xla_is_given_a_kernel_holds_for_its_sizes() -> None:
    """An executable is used where what was asked of open sizes is answered alike; else there is one more."""
    b = export.symbolic_shape("b")[0]
    program = tw.compile(lambda x: x * 2, jax.ShapeDtypeStruct((b, 8), "float32"))
    x = np.arange(512, dtype="f4").reshape(64, 8)
    np.testing.assert_array_equal(program(x[:40]), x[:40] * 2)
    (version,) = program.ranges.values()
    assert not isinstance(version, NoTemplate)
    ((_, executable),) = version.executables._made["typed"]
    (key,) = executable.compiled
    (made,) = executable.compiled[key]
    size = version.template.symbols["b"]
    executable.compiled[key] = [replace(made, constraints=(Constraint(Expr.of(size), "<=", Expr(50)),))]
    np.testing.assert_array_equal(program(x[:50]), x[:50] * 2)
    assert len(executable.compiled[key]) == 1
    np.testing.assert_array_equal(program(x[:51]), x[:51] * 2)
    assert len(executable.compiled[key]) == 2


@xla_code()
def test_an_arena_has_room_for_each_size() -> None:
    """A plan of smaller sizes may need more memory than that of the largest."""
    b = export.symbolic_shape("b")[0]
    program = tw.compile(
        lambda x: x @ x.T + 1,
        jax.ShapeDtypeStruct((b, 8), "float32"),
        options=tw.Options(memory="bytes"),
    )
    for size in (40, 64):
        x = np.random.default_rng(0).normal(size=(size, 8)).astype("f4")
        np.testing.assert_allclose(program(x), x @ x.T + 1, rtol=1e-5, atol=1e-5)
    (version,) = program.ranges.values()
    assert not isinstance(version, NoTemplate)
    ((_, executable),) = version.executables._made["bytes"]
    needed = [program.report(at={"b": size}).memory.arena_bytes for size in range(33, 65)]
    assert executable.arena is not None and executable.arena.words * 4 >= max(needed)


def test_a_plan_for_each_size_has_executables_of_its_own() -> None:
    """In bytes memory, whose addresses it has; typed memory has none."""
    b = export.symbolic_shape("b")[0]
    program = tw.compile(lambda x: x @ x.T + 1, jax.ShapeDtypeStruct((b, 8), "float32"))
    version = program.at(b=40)
    assert isinstance(version, SizedProgram)
    shared = SharedExecutables(replace(version._template, unplanned="too many sums"))
    assert shared.at({"b": 40}, "bytes") is None and shared.at({"b": 40}, "typed") is not None


def test_what_has_no_largest_size_is_run_for_each() -> None:
    program = compiled(lambda x: x + 1, ["b"])
    version = program.at(b=40)
    assert isinstance(version, SizedProgram)
    template = version._template
    (shape, *_) = (a.type for a in entry_of(template.module).args)
    b = next(iter(symbols_of(size_of(shape.shape[0]))))
    with typical_sizes():
        unbounded = npu.GmType.of([OpenSize.of(floordiv(Expr.of(b), Expr.of(b) - 50))], shape.element)
        entry_of(template.module).args[0]._type = unbounded
        assert SharedExecutables(template).at({"b": 40}, "typed") is None


def of_other_sizes(x: Any, y: Any) -> Any:
    return (x + y).sum(0) if x.shape[0] == y.shape[0] else x.sum(0) - y.sum(0)


@pytest.mark.parametrize(
    ("fn", "names", "constraint", "example", "sizes", "alone"),
    [
        (jnp.tanh, "a", "mod(a, 3) == 0", (126,), [(99,), (126,), (102,)], []),
        (jnp.tanh, "a", "mod(a, 7) == 0", (63,), [(49,), (56,), (63,), (35,)], []),
        (of_other_sizes, "a, b", "", (64, 63), [(40, 63), (64, 33), (50, 50), (64, 64)], [(50, 50), (64, 64)]),
    ],
    ids=["third", "seventh", "other"],
)
def test_ranges_whose_largest_sizes_are_not_taken(
    fn: Any, names: str, constraint: str, example: Any, sizes: Any, alone: Any
) -> None:
    """A version is made for the largest sizes of its range that the program takes, and for which it is the same."""
    symbols = export.symbolic_shape(names, constraints=[constraint] if constraint else ())
    program = tw.compile(fn, *(jax.ShapeDtypeStruct((n, 8), np.float32) for n in symbols))
    for each in sizes:
        arrays = [np.random.default_rng(n).integers(-8, 9, (n, 8)).astype(np.float32) for n in each]
        np.testing.assert_allclose(program(*arrays), fn(*map(jnp.asarray, arrays)), rtol=1e-6)
    (version,) = program.ranges.values()
    assert not isinstance(version, NoTemplate) and tuple(version.template.example.values()) == example
    assert [key for key, one in program.versions.items() if not isinstance(one, SizedProgram)] == alone
