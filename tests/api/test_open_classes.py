"""Each class of ops with open dimensions: JAX's values at random sizes, and which are versions for ranges of sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import export, lax
from open_programs_of import inputs_of
from tiering import examples, sampled

import tilewright as tw
from tilewright.api.sizes.templates import SizedProgram
from tilewright.passes.templates import NoTemplate

Fn = Callable[..., Any]
Spec = str | tuple[str, str]
Sizes = dict[str, int]

NHWC = ("NHWC", "HWIO", "NHWC")
KEY: Spec = ("2", "uint32")
ONE: Spec = ("1", "int32")


@dataclass(frozen=True)
class Case:
    """A function of inputs whose dimensions are texts, and the least of its open sizes. ranged: whether its versions
    are for ranges of sizes, all of which they are right for."""

    fn: Fn
    specs: Sequence[Spec]
    least: int = 2
    ranged: bool = True

    @property
    def names(self) -> list[str]:
        """The open sizes."""
        return sorted({n for s in self.specs for n in re.findall(r"[a-z]\b", s if isinstance(s, str) else s[0])})


def conv(x: Any, w: Any, strides: Sequence[int] = (1, 1), padding: str = "SAME", groups: int = 1) -> Any:
    return lax.conv_general_dilated(
        x, w, strides, padding, dimension_numbers=NHWC, feature_group_count=groups
    )


def pooled(x: Any, kind: Any = lax.max, padding: str = "VALID", step: int = 2) -> Any:
    start = -jnp.inf if kind is lax.max else 0.0
    return lax.reduce_window(x, start, kind, (1, 2, 2, 1), (1, step, step, 1), padding)


def key(k: Any) -> Any:
    return jax.random.wrap_key_data(k)


def recurrent(x: Any, w: Any) -> Any:
    def step(c: Any, row: Any) -> tuple[Any, Any]:
        c = jnp.tanh(c @ w / len(w) + row)  # a rounding shrinks from step to step
        return c, c.sum(-1)

    return lax.scan(step, jnp.zeros((x.shape[1], w.shape[0])), x)[1]


def causal(q: Any, k: Any, v: Any) -> Any:
    mask = jnp.tril(jnp.ones((q.shape[1], k.shape[1]), bool))
    scores = jnp.where(mask, jnp.einsum("bsd,btd->bst", q, k), -1e9)
    return jax.nn.softmax(scores, -1) @ v


def attention(q: Any, k: Any, v: Any, bias: Any = 0.0) -> Any:
    """[b, rows, d] with keys [b, keys, d], which one kernel computes."""
    return jax.nn.softmax(jnp.einsum("bsd,btd->bst", q, k) / 4 + bias, -1) @ v


def masked(q: Any, k: Any, v: Any) -> Any:
    """With a mask of positions, which the kernel makes."""
    seen = jnp.arange(k.shape[1]) <= jnp.arange(q.shape[1])[:, None]
    return jax.nn.softmax(jnp.where(seen, jnp.einsum("bsd,btd->bst", q, k), -jnp.inf), -1) @ v


def shared_keys(q: Any, k: Any, v: Any) -> Any:
    """[b, heads, rows, d]: heads share their keys."""
    weights = jax.nn.softmax(jnp.einsum("bhsd,btd->bhst", q, k) / 4, -1)
    return jnp.einsum("bhst,btd->bhsd", weights, v)


IMAGES, TAPS = "b, h, w, 3", "3, 3, 3, 8"
CASES = {
    "running sums": Case(lambda x: jnp.cumsum(x, 1), ["b, s"]),
    "running sums over the rows": Case(lambda x: jnp.cumsum(x, 0), ["b, 24"]),
    "running sums from the end": Case(lambda x: lax.cumsum(x, 1, reverse=True), ["b, s"]),
    "running products": Case(lambda x: jnp.cumprod(x, 1), ["b, s"]),
    "running maxima": Case(lambda x: lax.cummax(x, 1), ["b, s"]),
    "an associative scan": Case(lambda x: lax.associative_scan(jnp.add, x, axis=1), ["b, 24"]),
    "a sort": Case(lambda x: jnp.sort(x, 1), ["b, s"]),
    "a sort of columns": Case(lambda x: -jnp.sort(-x, 0), ["b, 12"]),
    "a sort with places": Case(lambda x: jnp.argsort(x, 1), ["b, s"]),
    "a sort of integers": Case(lambda x: jnp.sort(x, 1, descending=True), [("b, s", "int32")]),
    "the first few": Case(lambda x: lax.top_k(x, 5)[0], ["b, s"], 5),
    "as many as are there": Case(lambda x: lax.top_k(x, x.shape[1] - 1)[1], ["b, s"]),
    "the middle": Case(lambda x: jnp.median(x, axis=1), ["b, 21"]),
    "turned round": Case(lambda x: x[::-1, ::-1], ["b, s"]),
    "every other one": Case(lambda x: x[:, ::2], ["b, s"]),
    "rolled": Case(lambda x: jnp.roll(x, 3, 1), ["b, s"], 5),
    "rows of a table": Case(lambda x, i: x[i], ["b, 24", ("k", "int32")]),
    "columns of a table": Case(lambda x, i: jnp.take(x, i, axis=1), ["b, s", ("k", "int32")]),
    "along an axis": Case(lambda x, i: jnp.take_along_axis(x, i, axis=1), ["b, s", ("b, 4", "int32")]),
    "a slice at a number": Case(lambda x, i: lax.dynamic_slice_in_dim(x, i[0], 4, 1), ["b, s", ONE], 4),
    "an open slice at a number": Case(
        lambda x, i: lax.dynamic_slice_in_dim(x, i[0], x.shape[1] - 2, 1), ["b, s", ONE], 4
    ),
    "an update at a number": Case(
        lambda x, u, i: lax.dynamic_update_slice_in_dim(x, u, i[0], 1), ["b, s", "b, 3", ONE], 3
    ),
    "an open update at a number": Case(
        lambda x, u, i: lax.dynamic_update_slice_in_dim(x, u, i[0], 0), ["90, 16", "s, 16", ONE]
    ),
    "rows added": Case(lambda x, i, u: x.at[i].add(u), ["b, 24", ("k", "int32"), "k, 24"]),
    "rows set": Case(lambda x, i, u: x.at[i].set(u), ["b, 24", ("k", "int32"), "k, 24"]),
    "a part set": Case(lambda x: x.at[:, 1:3].set(0.0).at[-1].set(1.0), ["b, s"], 3),
    "sums of segments": Case(lambda x, i: jax.ops.segment_sum(x, i, 8), ["b, 16", ("b", "int32")]),
    "a gradient of a table": Case(
        lambda t, i: jax.grad(lambda t: (t[i] ** 2).sum())(t), ["50, 16", ("b, s", "int32")]
    ),
    "one behind the other": Case(lambda x, y: jnp.concatenate([x, y, x], 0), ["b, 24", "c, 24"]),
    "side by side": Case(lambda x, y: jnp.concatenate([x, y], 1), ["b, s", "b, c"]),
    "repeated": Case(lambda x: jnp.tile(jnp.repeat(x, 3, axis=1), (2, 1)), ["b, s"]),
    "a frame of edges": Case(lambda x: jnp.pad(x, ((1, 2), (0, 3)), mode="edge"), ["b, s"]),
    "a frame of mirrors": Case(lambda x: jnp.pad(x, ((1, 2), (2, 3)), mode="reflect"), ["b, s"], 4),
    "padded to a number": Case(lambda x: jnp.pad(x, ((0, 90 - x.shape[0]), (0, 0))), ["b, 8"]),
    "a convolution": Case(conv, [IMAGES, TAPS]),
    "a convolution inside": Case(lambda x, w: conv(x, w, padding="VALID"), [IMAGES, TAPS], 3),
    "a convolution in steps": Case(lambda x, w: conv(x, w, (2, 2)), [IMAGES, TAPS], ranged=False),
    "a convolution by channels": Case(lambda x, w: conv(x, w, groups=8), ["b, h, 16, 8", "3, 3, 1, 8"]),
    "a transposed convolution": Case(
        lambda x, w: lax.conv_transpose(x, w, (2, 2), "VALID", dimension_numbers=NHWC),
        ["b, h, 8, 4", "3, 3, 4, 8"],
    ),
    "the largest of windows": Case(pooled, [IMAGES]),
    "sums of windows": Case(lambda x: pooled(x, lax.add, "SAME", 1), [IMAGES]),
    "a gradient of windows": Case(lambda x: jax.grad(lambda x: (pooled(x) ** 2).sum())(x), ["b, h, 8, 4"]),
    "a loop over an open axis": Case(recurrent, ["s, b, 24", "24, 24"]),
    "a choice by a number": Case(
        lambda x, p: lax.switch(p[0], [lambda x: x * 2, lambda x: x - 1, jnp.sin], x), ["b, 24", ONE]
    ),
    "random numbers": Case(lambda k, x: x + jax.random.uniform(key(k), x.shape), [KEY, "b, s"]),
    "random bits": Case(
        lambda k, x: x + (lax.rng_bit_generator(k, x.shape)[1] >> 20).astype("float32"), [("4", "uint32"), "b, s"]
    ),
    "complex numbers": Case(lambda x: jnp.abs(lax.complex(x, x * 2) * 1j), ["b, s"]),
    "bits": Case(lambda x: lax.bitcast_convert_type(x, jnp.int8), [("b, s", "float16")]),
    "a causal mask": Case(causal, ["b, s, 16"] * 3),
    "attention of open batches": Case(attention, ["b, 40, 16"] * 3),
    "attention of open rows": Case(attention, ["3, s, 16", "3, 50, 16", "3, 50, 24"]),
    "attention over open keys": Case(attention, ["3, 33, 16", "3, k, 16", "3, k, 8"]),
    "attention with an open bias": Case(attention, ["b, s, 16", "b, k, 16", "b, k, 16", "s, k"]),
    "attention with a causal mask": Case(masked, ["b, s, 16"] * 3),
    "attention of shared keys": Case(shared_keys, ["b, 3, s, 16", "b, s, 16", "b, s, 16"]),
    "attention of open features": Case(attention, ["2, 40, s", "2, 40, s", "2, 40, 16"]),
    "places in sorted numbers": Case(lambda a, x: jnp.searchsorted(jnp.sort(a), x), ["32", "b"]),
    "patches": Case(lambda x: lax.conv_general_dilated_patches(x, (3, 3), (1, 1), "SAME"), ["b, 3, 8, 8"]),
    "what the host does": Case(lambda x: jnp.linalg.cholesky(x @ x.mT + 9 * jnp.eye(4)), ["b, 4, 4"]),
}


def arguments(case: Case, sizes: Sizes | None, seed: int = 0) -> list[Any]:
    """Types with symbols, or arrays of given sizes."""
    bounds = [f"{n} >= {case.least}" for n in case.names] + [f"{n} <= 90" for n in case.names]
    rng = np.random.default_rng(seed)

    def draw(shape: list[int], dtype: str) -> np.ndarray:
        if np.dtype(dtype).kind in "iu":
            return rng.integers(0, 1 << 31 if dtype == "uint32" else 9, shape)
        return rng.standard_normal(shape)

    return inputs_of(case.specs, bounds, sizes, draw)


@cache
def program_of(name: str) -> tw.DynamicProgram:
    """Kept between examples: its versions are compiled once."""
    program = tw.compile(CASES[name].fn, *arguments(CASES[name], None))
    assert isinstance(program, tw.DynamicProgram)
    return program


def check(name: str, sizes: Sizes, seed: int = 0) -> None:
    """The values at some sizes are JAX's; of a case that has versions for ranges, each range has one."""
    case, program = CASES[name], program_of(name)
    args = arguments(case, sizes, seed)
    want, got = np.asarray(jax.jit(case.fn)(*args)), np.asarray(program(*args))
    assert got.shape == want.shape and got.dtype == want.dtype
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=2e-4, atol=2e-4 * max(1, np.abs(want).max(initial=0))
    )
    reasons = [str(r) for r in program.ranges.values() if isinstance(r, NoTemplate)]
    assert not any(reason.startswith("internal error") for reason in reasons)
    assert not (case.ranged and reasons), reasons


@sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_each_class_is_lowered_for_ranges_of_sizes(name: str) -> None:
    """Nothing runs here: what is compiled for a size holds for another of the range, too."""
    case, program = CASES[name], program_of(name)
    one = dict(zip(case.names, (12, 40, 9, 21), strict=False))
    other = {n: size - size // 8 for n, size in one.items()}
    for sizes in (one, other):
        ranged = isinstance(program.at(sizes), SizedProgram)
        assert ranged or not case.ranged, list(map(str, program.ranges.values()))
    if not case.ranged:
        assert any(
            isinstance(version, NoTemplate) or version.template.constraints for version in program.ranges.values()
        )


@sampled(6)
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("attention") and "features" not in name])
def test_attention_with_open_sizes_is_one_kernel(name: str) -> None:
    """Of many rows, keys and batches; more keys than one piece has are taken as they come. A batch as large as the rows
    is a version of its own: JAX asks whether they are equal."""
    case, program = CASES[name], program_of(name)
    for seed, sizes in enumerate([(39, 40, 40), (3, 90, 90), (17, 65, 77)]):
        given = dict(zip(sorted(case.names, key="bsk".index), sizes, strict=False))
        if "b" not in given:
            given = dict.fromkeys(given, sizes[1])
        version = program.at(given)
        assert isinstance(version, SizedProgram)
        assert [kernel.name for kernel in version.report().kernels] == ["attention_0"]
        check(name, given, seed)


@pytest.mark.parametrize("sizes", [(2, 2), (5, 9)], ids=str)
def test_a_gradient_of_windows_is_a_version(sizes: tuple[int, int]) -> None:
    """npu-check looks among boxes of open sizes for those that share elements."""
    check("a gradient of windows", dict(zip("bh", sizes, strict=True)))


@examples(100)
@given(st.sampled_from(sorted(CASES)), st.data())
def test_values_are_those_of_jax_at_any_sizes(name: str, data: st.DataObject) -> None:
    case = CASES[name]
    check(name, {n: data.draw(st.integers(case.least, 40), n) for n in case.names}, data.draw(st.integers(0, 99)))


def test_numbers_that_are_not_finite_are_sorted_in_front_of_what_is_padded() -> None:
    """Rows of open length are padded with what comes last."""
    case = CASES["as many as are there"]
    x = np.float32([[np.nan, -np.inf, -np.nan, np.inf, 0.0, -0.0, 1.0], [-np.inf] * 7])
    for name in ("a sort", "a sort with places", "as many as are there"):
        np.testing.assert_array_equal(program_of(name)(x), jax.jit(CASES[name].fn)(x))
        assert isinstance(program_of(name).at(b=2, s=7), SizedProgram)
    least = np.full((3, 6), np.iinfo(np.int32).min)
    np.testing.assert_array_equal(program_of("a sort of integers")(least.astype(np.int32)), least)
    assert case.ranged


def layer(x: Any, w: Any, c: Any) -> Any:
    return jax.nn.gelu(x @ w + c)


def sized(options: tw.Options, *args: Any) -> tuple[Any, tw.DynamicProgram]:
    """The version of `layer` with an open batch for these arguments, which is one for a range; and the program."""
    (b,) = export.symbolic_shape("b")
    types = [jax.ShapeDtypeStruct((b, *args[0].shape[1:]), "float32"), *args[1:]]
    program = tw.compile(layer, *types, options=options)
    assert isinstance(program, tw.DynamicProgram)
    version = program.at(b=len(args[0]))
    assert isinstance(version, SizedProgram), list(map(str, program.ranges.values()))
    return version, program


def layer_inputs(rows: int) -> list[Any]:
    rng = np.random.default_rng(rows)
    return [np.float32(rng.standard_normal(shape)) for shape in ((rows, 48), (48, 80), (80,))]


@sampled(2)
@pytest.mark.parametrize("mode", ["w8a8-dynamic", "w8a16", "w4a16", "w4a8-dynamic"])
def test_quantized_products_are_versions_for_ranges(mode: str) -> None:
    options = tw.Options(quantization=mode)
    for rows in (41, 64):
        args = layer_inputs(rows)
        version, _ = sized(options, *args)
        alone = tw.compile(layer, *args, options=options)
        np.testing.assert_allclose(version(*args), alone(*args), atol=2e-5)
        assert version.origin.twin is not None


@pytest.mark.parametrize(
    "schedule", [tw.Schedule(base_m=32), tw.Schedule(base_n=16), tw.Schedule(base_k=16)], ids=str
)
def test_pinned_schedules_are_obeyed_in_versions_for_ranges(schedule: tw.Schedule) -> None:
    args = layer_inputs(41)
    version, _ = sized(tw.Options(schedule=schedule), *args)
    free, _ = sized(tw.Options(), *args)
    np.testing.assert_allclose(version(*args), layer(*args), atol=1e-4)
    assert str(version.module("npu")) != str(free.module("npu"))


def test_donated_arguments_of_versions_for_ranges() -> None:
    def step(p: Any, g: Any) -> Any:
        return p - 0.1 * g

    (b,) = export.symbolic_shape("b")
    types = [jax.ShapeDtypeStruct((b,), "float32")] * 2
    for fn, options in ((step, tw.Options(donate=("p",))), (jax.jit(step, donate_argnums=0), tw.Options())):
        program = tw.compile(fn, *types, options=options)
        assert isinstance(program, tw.DynamicProgram)
        p, g = jnp.arange(40.0), jnp.ones(40)
        want = step(p, g)
        np.testing.assert_allclose(program(p, g), want, atol=1e-6)
        assert p.is_deleted() and not g.is_deleted()
        assert isinstance(program.at(b=40), SizedProgram)
        assert program.report(at={"b": 40}).memory.donated_bytes >= 160
