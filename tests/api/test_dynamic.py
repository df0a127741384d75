"""Programs with open dimensions: what JAX, StableHLO and .tw leave open, found, checked, compiled and run by size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from memories import outputs
from open_programs_of import dims, dynamic, struct

import tilewright as tw
from tilewright.api.sizes.dynamic import VERSIONS_KEPT
from tilewright.dialects.affine import Symbol
from tilewright.passes.templates import NoTemplate


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def agrees(program: tw.DynamicProgram, fn: Any, *args: Any, tolerance: float = 1e-5, **kwargs: Any) -> None:
    """The program gives what JAX gives, and both memories the same bytes."""
    version = program.at(program.sizes(*args, **kwargs))
    outputs(version, version.flatten(args, kwargs))
    got, want = jax.tree.flatten(program(*args, **kwargs)), jax.tree.flatten(fn(*args, **kwargs))
    assert got[1] == want[1]
    for a, b in zip(got[0], want[0], strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        scale = max(1.0, float(np.abs(b).max(initial=0)))
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)


# -- JAX -----------------------------------------------------------------------------------------------------


def test_windows_over_an_exported_dimension() -> None:
    """JAX has a custom call in place of these, where they are as long as the dimension."""
    (n,) = dims("n")
    program = dynamic(export.export(jax.jit(jnp.cumsum))(struct(n)))
    for size in (1, 5, 8):
        agrees(program, jnp.cumsum, random(size))
    assert not [v for v in program.ranges.values() if isinstance(v, NoTemplate)]


def test_a_convolutional_net_with_an_open_batch() -> None:
    def net(x: Any, kernel: Any, w: Any) -> Any:
        y = jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        y = jax.lax.reduce_window(jax.nn.relu(y), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return jax.nn.softmax(y.reshape(y.shape[0], -1) @ w)

    (b,) = dims("b")
    kernel, w = random(3, 3, 1, 4, seed=1), random(64, 10, seed=2)
    program = dynamic(net, struct(b, 8, 8, 1), kernel, w)
    assert program.input_types == ("f32[b, 8, 8, 1]", "f32[3, 3, 1, 4]", "f32[64, 10]")
    for size in (1, 3):
        agrees(program, net, random(size, 8, 8, 1, seed=size), kernel, w)
    assert list(program.versions) == [(1,), (3,)]


def test_a_transformer_block_with_open_batch_and_length() -> None:
    def block(x: Any, p: Mapping[str, Any]) -> Any:
        def normed(y: Any) -> Any:
            return (y - y.mean(-1, keepdims=True)) / jnp.sqrt(y.var(-1, keepdims=True) + 1e-5)

        b, s, d = x.shape
        q, k, v = (a.reshape(b, s, 2, d // 2) for a in jnp.split(normed(x) @ p["qkv"], 3, -1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(d // 2)
        mask = jnp.tril(jnp.ones((s, s), bool))
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9))
        x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b, s, d) @ p["out"]
        return x + jax.nn.gelu(normed(x) @ p["up"]) @ p["down"]

    shapes = {"qkv": (16, 48), "out": (16, 16), "up": (16, 32), "down": (32, 16)}
    weights = {k: 0.3 * random(*shape, seed=i) for i, (k, shape) in enumerate(shapes.items())}
    b, s = dims("b, s", "s <= 64")
    program = dynamic(block, struct(b, s, 16), weights)
    assert dict(program.symbols) == {"b": Symbol("b", 1), "s": Symbol("s", 1, 64)}
    for sizes in ((1, 5), (2, 3)):
        agrees(program, block, random(*sizes, 16, seed=sizes[1]), weights)
    said = r"^block: s is 65 \(dimension 1 of argument x\), and must be at most 64$"
    with pytest.raises(tw.CompileError, match=said):
        program(random(1, 65, 16), weights)


def test_sizes_that_are_multiples() -> None:
    def f(x: Any) -> Any:
        return x.reshape(-1, 8).sum(1)

    program = dynamic(f, struct(*dims("8*s")))
    agrees(program, f, random(24))
    with pytest.raises(
        tw.CompileError, match=r"^f: dimension 0 of argument x is 20, which 8\*s is for no whole s$"
    ):
        program(random(20))


def test_an_einsum_of_three_symbols() -> None:
    def f(x: Any, y: Any) -> Any:
        return jnp.einsum("ij,jk->ik", x, y)

    i, j, k = dims("i, j, k")
    program = dynamic(f, struct(i, j), struct(j, k))
    agrees(program, f, random(3, 5), random(5, 2))
    assert program.sizes(struct(3, 5), struct(5, 2)) == {"i": 3, "j": 5, "k": 2}
    said = r"^f: dimension 0 of argument y is 6, and must be j = 5 \(j = 5 from dimension 1 of argument x\)$"
    with pytest.raises(tw.CompileError, match=said):
        program(random(3, 5), random(6, 2))


def test_trees_keywords_and_keys() -> None:
    def f(d: Mapping[str, Any], *, scale: Any, key: Any) -> Any:
        return {"y": d["a"] * scale + jax.random.normal(key, d["a"].shape), "n": jnp.sum(d["b"][0])}

    (b,) = dims("b")
    key = jax.random.key(3)
    tree = {"a": struct(b, 4), "b": (struct(b, dtype="int32"),)}
    program = dynamic(f, tree, scale=2.0, key=struct(dtype=key.dtype))
    for size in (1, 6):
        given = {"a": random(size, 4), "b": (np.arange(size, dtype=np.int32),)}
        agrees(program, f, given, scale=2.0, key=key)
    args, kwargs = program.arguments(b=3)
    assert args[0]["a"].shape == (3, 4)
    assert kwargs["key"].dtype == key.dtype
    assert program.input_names == ("d['a']", "d['b'][0]", "key", "scale")


def test_arguments_may_be_donated() -> None:
    def step(p: Any, g: Any) -> Any:
        return p - 0.1 * g

    (b,) = dims("b")
    program = dynamic(step, struct(b), struct(b), options=tw.Options(donate=("p",)))
    p, g = jnp.asarray(random(40)), jnp.asarray(random(40, seed=1))
    want = step(p, g)
    np.testing.assert_allclose(program(p, g), want, atol=1e-6)
    assert p.is_deleted()
    assert not g.is_deleted()
    assert program.report(at={"b": 40}).memory.donated_bytes >= 160


def test_what_jax_exports_with_open_sizes() -> None:
    def f(x: Any, y: Any) -> Any:
        return jnp.sin(x) @ y

    b, n = dims("b, 2*n", "b <= 8")
    exported = export.export(jax.jit(f))(struct(b, n), struct(n, 3))
    program = dynamic(exported)
    agrees(program, f, random(5, 4), random(4, 3))
    with pytest.raises(tw.CompileError, match=r"^f: b is 9 .*and must be at most 8$"):
        program(random(9, 4), random(4, 3))
    program = dynamic(exported.mlir_module_serialized)  # which has assertions in place of the constraints
    agrees(program, f, random(5, 4), random(4, 3))
    with pytest.raises(tw.CompileError, match=r"^program: the constraint b <= 8 does not hold: ") as error:
        program(random(9, 4), random(4, 3))
    assert "\n" not in str(error.value)


# -- one program, many sizes ---------------------------------------------------------------------------------


def added(x: Any) -> Any:
    return x + 1


def test_versions_are_kept_and_the_oldest_dropped() -> None:
    program = dynamic(added, struct(*dims("b")))
    first = program.at(b=1)
    assert program.at({"b": 1}) is first
    for size in range(2, VERSIONS_KEPT + 1):
        program.at(b=size)
    assert program.at(b=1) is first  # and is the one that was used last
    program.at(b=VERSIONS_KEPT + 1)
    assert len(program.versions) == VERSIONS_KEPT
    assert (1,) in program.versions
    assert (2,) not in program.versions
    assert "b: at least 1\nversion for b = 3\n" in program._repr_html_()
    assert repr(program).startswith("<tilewright.DynamicProgram added(x f32[b]): 64 versions for ")


def test_of_many_inputs_the_open_ones_are_shown() -> None:
    def total(x: Any, params: Any) -> Any:
        return sum(params) + x.sum()

    program = dynamic(total, struct(*dims("b, 2*b")), [1.0] * 20)
    assert repr(program) == (
        "<tilewright.DynamicProgram total(x f32[b, 2*b], ...): 0 versions for ascend-910b1>"
    )


def test_what_depends_on_sizes_asks_for_them() -> None:
    program = dynamic(added, struct(*dims("b")))
    said = re.escape("added has open sizes: say which, with at=, or ask its version .at(b=...)")
    for ask, taken in [
        (program.report, ()),
        (program.simulation, ()),
        (program.ir, ("tile",)),
        (program.trace, ("trace.json",)),
        (program.executable, ("typed",)),
        (program.flatten, ([1.0],)),
    ]:
        with pytest.raises(tw.CompileError, match=f"^{said}$"):
            ask(*taken)
    with pytest.raises(tw.CompileError, match=f"^{said}$"):
        program.inputs  # noqa: B018
    report = program.report(at={"b": 4})
    assert report.microseconds == program.at(b=4).report().microseconds
    assert program.ir("graph", at={"b": 4}) == program.at(b=4).ir("graph")
    assert [n for n, _ in program.sweep("b", [1, 2])] == [1, 2]
    closed = program.at(b=4)
    with pytest.raises(
        tw.CompileError, match=r"has no open sizes: at= is for programs with symbolic shapes$"
    ):
        closed.report(at={"b": 4})


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({}, "added: give the sizes b (it has b)"),
        ({"b": 1, "c": 2}, "added has no size 'c': its sizes are b"),
        ({"b": 1.5}, "added: the size b must be a whole number, not 1.5"),
        ({"b": True}, "added: the size b must be a whole number, not True"),
        ({"b": 0}, "added: b is 0, and must be at least 1"),
        ({"b": -3}, "added: b is -3, and must be at least 1"),
        ({"b": 100}, "added: b is 100, and must be at most 64"),
        ({"b": 7}, "added: mod(b, 2) == 0 does not hold for b = 7"),
    ],
)
def test_a_size_that_a_program_does_not_take_is_one_sentence(sizes: Mapping[str, Any], said: str) -> None:
    program = dynamic(added, struct(*dims("b", "b <= 64", "mod(b, 2) == 0")))
    with pytest.raises(tw.CompileError, match=f"^{re.escape(said)}$"):
        program.at(sizes)
    with pytest.raises(tw.CompileError, match=f"^{re.escape(said)}$"):
        program.arguments(sizes)
    if "b" in sizes:
        others = {k: v for k, v in sizes.items() if k != "b"}
        with pytest.raises(tw.CompileError, match=f"^{re.escape(said)}$"):
            program.sweep("b", [2, 4, sizes["b"]], others)
    assert not program.versions


def test_what_takes_no_open_sizes_says_so() -> None:
    open_ = struct(*dims("b"))
    with pytest.raises(
        tw.CompileError, match=r"^added: symbolic shapes are for functions that tw\.compile takes"
    ):
        tw.verify(added, open_)
    with pytest.raises(
        tw.CompileError, match=r"^the program: symbolic shapes are for functions that tw\.compile"
    ):
        tw.compile(RESHAPED, open_, np.array([1, 2], np.int32))
    with pytest.raises(
        tw.CompileError, match=r"^program: input 0 is weights, .* its shape is open: f32\[arg0_0\]"
    ):
        tw.compile(RESHAPED, options=tw.Options(weights="0"))
    program = dynamic(added, open_)
    with pytest.raises(
        tw.CompileError, match=r"^argument x of added has the symbolic shape \(b\), and the sizes of"
    ):
        program.check(open_)
    for at in (3, "b=3", [("b", 3)]):
        with pytest.raises(tw.CompileError, match=r"^added: sizes are given as in at=\{'b': 4\}, not as "):
            program.at(at)  # pyright: ignore[reportArgumentType]


def test_a_program_of_open_sizes_is_verified_at_those_of_the_arguments() -> None:
    program = dynamic(added, struct(*dims("b")))
    assert tw.verify(added, random(5), program=program, quick=True, progress=False).ok
    assert list(program.versions) == [(5,)]


# -- StableHLO -----------------------------------------------------------------------------------------------

BOUNDED = """
func.func @main(%x: tensor<?x3xf32, #stablehlo.bounds<16, ?>>) -> tensor<?x3xf32, #stablehlo.bounds<16, ?>> {
  %0 = stablehlo.tanh %x : tensor<?x3xf32, #stablehlo.bounds<16, ?>>
  return %0 : tensor<?x3xf32, #stablehlo.bounds<16, ?>>
}
"""

RESHAPED = """
func.func @main(%x: tensor<?xf32>, %n: tensor<2xi32>) -> tensor<?x?xf32> {
  %0 = stablehlo.dynamic_reshape %x, %n : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
"""


def test_bounds_of_stablehlo() -> None:
    program = dynamic(BOUNDED)
    assert dict(program.symbols) == {"arg0_0": Symbol("arg0_0", 0, 16)}
    for size in (1, 5, 16):
        agrees(program, jnp.tanh, random(size, 3))
    said = r"^program: arg0_0 is 17 \(dimension 0 of input 0\), and must be at most 16$"
    with pytest.raises(tw.CompileError, match=said):
        program(random(17, 3))


def test_an_argument_whose_values_are_sizes() -> None:
    program = dynamic(RESHAPED)
    assert list(program.symbols) == ["arg0_0", "arg1_0", "arg1_1"]
    x = random(12)
    for shape in ((3, 4), (12, 1)):
        agrees(program, lambda a, _, shape=shape: a.reshape(shape), x, np.array(shape, np.int32))
    assert len(program.versions) == 2
    struct_, sizes = program.arguments(arg0_0=12, arg1_0=3, arg1_1=4)[0]
    assert struct_.shape == (12,)
    np.testing.assert_array_equal(sizes, np.array([3, 4], np.int32), strict=True)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ([3, 5], "program: number of output elements (15) doesn't match expected number of elements (12)"),
        ([-3, -4], "program: arg1_0 is -3 (element 0 of input 1), and must be at least 0"),
        ([2**31 - 1, 2**31 - 1], "program: "),
        ([3.0, 4.0], "input 1 of program must be 2 whole numbers: sizes depend on its value"),
        ([3, 4, 1], "input 1 of program must be 2 whole numbers: sizes depend on its value"),
    ],
)
def test_sizes_that_do_not_fit_are_one_sentence(shape: list[Any], said: str) -> None:
    program = dynamic(RESHAPED)
    values = np.array(shape, np.float32 if isinstance(shape[0], float) else np.int32)
    with pytest.raises(tw.CompileError, match=f"^{re.escape(said)}") as error:
        program(random(12), values)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("size", [1 << 20, 1 << 31])
def test_what_needs_more_memory_than_there_is(size: int) -> None:
    """Also where its addresses are no 64-bit numbers, and JAX has no such sizes."""
    (h,) = dims("h")
    program = dynamic(lambda x: x @ x.T + 1, struct(h, 4))
    with pytest.raises(
        tw.CompileError, match=r"^the program needs \d+ bytes of device memory, but ascend-910b1 has"
    ):
        program.at(h=size)


def test_a_size_by_name_is_one_that_its_argument_can_hold() -> None:
    with pytest.raises(
        tw.CompileError, match=f"^program: arg1_0 is {2**31}, and must be at most {2**31 - 1}$"
    ):
        dynamic(RESHAPED).at(arg0_0=4, arg1_0=2**31, arg1_1=0)


def test_arrays_beside_open_stablehlo_say_its_sizes() -> None:
    x, n = random(6), np.array([2, 3], np.int32)
    program = tw.compile(RESHAPED, x, n)
    assert not isinstance(program, tw.DynamicProgram)
    assert program.inputs == (((6,), "f32"), ((2,), "i32"))
    assert tw.verify(RESHAPED, x, n, quick=True, progress=False).ok


# -- .tw -----------------------------------------------------------------------------------------------------

LAYER = """
pub fn layer(x: f32[T, N], w: f32[N, 2*N]) -> f32[T, 2*N] {
    return x @ w
}
"""


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    (tmp_path / "layer.tw").write_text(LAYER)
    return tmp_path / "layer.tw"


def test_the_dimensions_of_a_tw_function(layer: Path) -> None:
    program = dynamic(layer)
    assert program.input_types == ("f32[T, N]", "f32[N, 2*N]")
    for t in (1, 3):
        agrees(program, jnp.matmul, random(t, 4), random(4, 8))
    said = r"^layer: dimension 1 of input w is 9, and must be 2\*N = 8 \(N = 4 from dimension 1 of input x\)$"
    with pytest.raises(tw.CompileError, match=said):
        program(random(1, 4), random(4, 9))


def test_some_dimensions_of_a_tw_function_may_stay_open(layer: Path) -> None:
    (t,) = dims("t", "t <= 8")
    program = dynamic(layer, struct(t, 4), struct(4, 8))
    assert program.input_types == ("f32[t, 4]", "f32[4, 8]")
    agrees(program, jnp.matmul, random(3, 4), random(4, 8))
    with pytest.raises(tw.CompileError, match=r"^layer takes 2 inputs, called with 1$"):
        tw.compile(layer, struct(t, 4))
