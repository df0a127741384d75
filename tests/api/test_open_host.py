"""Host calls with open dimensions: versions for ranges of sizes, with the values and the cost of static programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import export, lax
from open_programs_of import inputs_of
from tiering import MEMORIES, Memory, examples, sampled, xla_code

import tilewright as tw
from tilewright.api.sizes.templates import SizedProgram, Version
from tilewright.backends.interpreter import Executable
from tilewright.dialects.host_text import OpenTextAttr
from tilewright.dialects.npu.structure import HostCallOp
from tilewright.passes.instantiation import Instantiation

Sizes = dict[str, int]


@dataclass(frozen=True)
class Case:
    """A function of inputs whose dimensions are texts, the least and the greatest of its open sizes (1 and 2 are no
    ranges). same: whether JAX gives the host the same ops where sizes are numbers."""

    fn: Callable[..., Any]
    specs: Sequence[str | tuple[str, str]]
    least: int = 3
    most: int = 24
    same: bool = True

    @property
    def names(self) -> list[str]:
        """The open sizes."""
        return sorted({n for s in self.specs for n in re.findall(r"[a-z]\b", s if isinstance(s, str) else s[0])})


def gram(x: Any) -> Any:
    """A positive matrix for each example."""
    return x @ x.mT + 30 * jnp.eye(x.shape[-2], dtype=x.dtype)


def between_kernels(x: Any, w: Any) -> Any:
    y = jnp.linalg.cholesky(gram(jnp.tanh(x))) @ w
    return jax.nn.softmax(jnp.linalg.inv(gram(y)) * 3)


def in_a_loop(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: jnp.linalg.cholesky(gram(c)) / 8 + i, x)


def as_long_as_rows(x: Any) -> Any:
    return lax.scan(lambda c, row: (jnp.linalg.cholesky(gram(c + row)) / 8, c.sum()), x[0], x)


def in_a_branch(x: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda x: jnp.linalg.cholesky(gram(x)), lambda x: -x, x)


F64: tuple[str, str] = ("b, s", "float64")
CASES = {
    "cholesky": Case(lambda x: jnp.linalg.cholesky(gram(x)) * 2, ["b, 4, 4"]),
    "cholesky of open matrices": Case(lambda x: jnp.linalg.cholesky(gram(x)) * 2, ["b, s, s"]),
    "eigh": Case(lambda x: jnp.linalg.eigh(gram(x))[0] + 1, ["b, 5, 5"]),
    "eigh of open matrices": Case(lambda x: jnp.linalg.eigh(gram(x))[0] + 1, ["s, s"]),
    "singular values": Case(lambda x: jnp.linalg.svd(x, compute_uv=False), ["b, s, 3"]),
    "qr": Case(lambda x: jnp.abs(jnp.linalg.qr(x)[1]), ["b, s, 4"], 4),
    "a triangular solve": Case(
        lambda a, y: lax.linalg.triangular_solve(gram(a), y, left_side=True, lower=True), ["b, 4, 4", "b, 4, s"]
    ),
    "an open triangular solve": Case(
        lambda a, y: lax.linalg.triangular_solve(gram(a), y, left_side=True, transpose_a=True), ["s, s", "s, b"]
    ),
    "solve": Case(lambda a, y: jnp.linalg.solve(gram(a), y), ["b, 4, 4", "b, 4, s"]),
    "fft": Case(lambda x: jnp.abs(jnp.fft.fft(x)), ["b, s, 16"]),
    "fft of complex numbers": Case(lambda x: jnp.fft.fft2(x) * 2, [("b, 8, 8", "complex64")]),
    "rfft and back": Case(lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * 2, 12), ["b, 12"]),
    "a sort that is too long": Case(lambda x: -jnp.sort(x * 2), ["b, 50000"], 3, 6),
    "an open sort that is too long": Case(lambda x: jnp.sort(x, stable=True), ["2, s"], 40000, 60000),
    "top_k of too many": Case(lambda x: lax.top_k(x, 30000), ["b, 40000"], 3, 6, same=False),
    "a sort in f64": Case(lambda x: jnp.sort(x), [F64]),
    "top_k in f64": Case(lambda x: lax.top_k(x, 3), [F64], same=False),
    "a frame in f64": Case(lambda x: jnp.pad(x, ((1, 2), (0, 3))), [F64]),
    "moves in f64": Case(lambda x: jnp.concatenate([lax.rev(x, [0]), x * x], 1).T, [F64]),
    "slices in f64": Case(lambda x: x[1:, : x.shape[1] - 1] + x[:-1, 1:], [F64], same=False),
    "a number in f64": Case(lambda x: x * 2 + x.shape[1], [F64], same=False),
    "running sums in f64": Case(lambda x: jnp.cumsum(x, 1), [F64]),
    "windows in f64": Case(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (1, 1), "SAME"), [F64]),
    "a product in f64": Case(lambda x: x @ x.T, [F64]),
    "places in f64": Case(lambda x: lax.iota("float64", x.shape[1]) + x, [F64], same=False),
    "rows in f64": Case(lambda x, i: x[i], [F64, ("k", "int32")], same=False),
    "between kernels": Case(between_kernels, ["b, 4, s", "4, s"]),
    "in a loop": Case(in_a_loop, ["b, s, s"], 3, 9),
    "as long as rows": Case(as_long_as_rows, ["b, 4, 4"], 3, 9),
    "in a branch": Case(in_a_branch, ["s, s"]),
}


def arguments(case: Case, sizes: Sizes | None, seed: int = 0) -> list[Any]:
    """Types with symbols, or arrays of given sizes."""
    bounds = [f"{n} {end}" for n in case.names for end in (f">= {case.least}", f"<= {2 * case.most}")]
    rng = np.random.default_rng(seed)

    def draw(shape: list[int], dtype: str) -> np.ndarray:
        return rng.integers(0, 2, shape) if dtype == "int32" else rng.standard_normal(shape)

    return inputs_of(case.specs, bounds, sizes, draw)


def exact(name: str) -> Any:
    """JAX has 64-bit types where a case is in f64."""
    return jax.enable_x64(F64 in CASES[name].specs)


@cache
def program_of(name: str) -> tw.DynamicProgram:
    """Kept between examples: its versions are compiled once. Which equalities JAX asks for while it traces depends on
    what it has kept of other tests."""
    jax.clear_caches()
    with exact(name):
        program = tw.compile(CASES[name].fn, *arguments(CASES[name], None))
    assert isinstance(program, tw.DynamicProgram)
    return program


def version_of(name: str, sizes: Sizes) -> SizedProgram:
    """The version for these sizes, which is one of a range."""
    with exact(name):
        found = program_of(name).at(sizes)
    assert isinstance(found, SizedProgram), list(map(str, program_of(name).ranges.values()))
    return found


def executables(name: str, memory: Memory) -> list[Executable]:
    """What was compiled for the ranges of a program."""
    versions = [v for v in program_of(name).ranges.values() if isinstance(v, Version)]
    return [made for v in versions for _, made in v.executables._made.get(memory, [])]


def host_costs(program: tw.Program) -> list[Any]:
    """What the host does, moved bytes and time included."""
    return [(op.name, op.calls, op.bytes, op.microseconds, op.compute_microseconds) for op in program.report().host_ops]


def check(name: str, sizes: Sizes, memory: Memory, seed: int = 0) -> None:
    case = CASES[name]
    args = arguments(case, sizes, seed)
    version = version_of(name, sizes)
    with exact(name):
        want = jax.tree.leaves(jax.jit(case.fn)(*args))
        got = version.executable(memory)(*version.flatten(args))
    for x, y in zip(want, got, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_allclose(y, x, rtol=2e-3, atol=2e-3 * max(1, np.abs(x).max(initial=0)))


@examples(60)
@given(st.sampled_from(sorted(CASES)), st.sampled_from(MEMORIES), st.data())
def test_values_are_those_of_jax_at_any_sizes(name: str, memory: Memory, data: st.DataObject) -> None:
    case = CASES[name]
    sizes = {n: data.draw(st.integers(case.least, case.most), n) for n in case.names}
    check(name, sizes, memory, data.draw(st.integers(0, 99)))


@xla_code()
@sampled(32)
@pytest.mark.parametrize("name", CASES)
def test_kernels_are_compiled_once_for_a_range(name: str) -> None:
    case = CASES[name]
    largest = {n: max(case.least + 1, case.most // (1 + i % 2)) for i, n in enumerate(case.names)}
    every = [largest, {n: max(case.least, v - v // 8) for n, v in largest.items()}]
    for memory in MEMORIES:
        before = len(executables(name, memory))
        for sizes in every:
            check(name, sizes, memory)
        made = executables(name, memory)
        assert len(made) >= before
        for one in made:
            assert all(len(kept) == 1 for kept in one.compiled.values())
            assert len(one.compiled) == len(set(one.compilers))


@sampled(8)
@pytest.mark.parametrize("name", [n for n in CASES if CASES[n].same])
def test_the_host_costs_what_it_does_in_the_static_program(name: str) -> None:
    case, of_range = CASES[name], 0
    for size in (case.least, case.least + 1, case.least + 2, (case.least + case.most) // 2):
        sizes = {n: size + i for i, n in enumerate(case.names)}
        with exact(name):
            version = program_of(name).at(sizes)
            if not isinstance(version, SizedProgram):
                continue  # JAX asked whether it is this very size
            static = tw.compile(case.fn, *arguments(case, sizes))
        assert host_costs(version) == host_costs(static) != []
        of_range += 1
    assert of_range >= 2


def calls(module: Any) -> list[HostCallOp]:
    return [op for op in module.walk() if isinstance(op, HostCallOp)]


def test_the_text_of_an_instance_is_that_of_the_static_program() -> None:
    case, sizes = CASES["fft"], {"b": 7, "s": 5}
    version = version_of("fft", sizes)
    (opened,) = calls(version._template.module)
    assert isinstance(opened.module, OpenTextAttr)
    assert "tensor<$[b]x$[s]x16xcomplex<f32>>" in opened.module.data
    static = tw.compile(case.fn, *arguments(case, sizes)).module("npu")
    made = [version.module("npu"), Instantiation(sizes).of(version._template.module)]
    (wanted,) = calls(static)
    for module in made:
        (call,) = calls(module)
        assert (call.module, call.work, call.op) == (wanted.module, wanted.work, wanted.op)


def test_versions_that_call_the_host_are_kept(tmp_path: Path) -> None:
    """Read in another process, or here: the same module, and the same values."""
    case, texts = CASES["between kernels"], []
    for _ in range(2):
        program = tw.compile(case.fn, *arguments(case, None), options=tw.Options(cache=tmp_path))
        assert isinstance(program, tw.DynamicProgram)
        args = arguments(case, {"b": 7, "s": 11})
        np.testing.assert_allclose(program(*args), case.fn(*args), rtol=2e-3, atol=2e-3)
        (version,) = program.ranges.values()
        assert isinstance(version, Version)
        texts.append(str(version.template.module))
    assert texts[0] == texts[1]


def test_a_chooser_calls_the_host() -> None:
    """The text of a program is a program, whose host calls are for all sizes."""
    program = program_of("between kernels")
    version_of("between kernels", {"b": 7, "s": 11})
    again = tw.compile(program.ir("npu"))
    for sizes in ({"b": 5, "s": 9}, {"b": 8, "s": 13}):
        args = arguments(CASES["between kernels"], sizes)
        np.testing.assert_allclose(again(*args), program(*args), rtol=1e-5, atol=1e-5)


def test_sizes_of_0_and_1() -> None:
    (b,) = export.symbolic_shape("b")

    def fn(x: Any) -> Any:
        return jnp.linalg.cholesky(gram(x)) + 1

    program = tw.compile(fn, jax.ShapeDtypeStruct((b, 4, 4), "float32"))
    for size in (1, 2, 3, 13):
        x = np.random.default_rng(size).standard_normal((size, 4, 4)).astype("f4")
        np.testing.assert_allclose(program(x), fn(x), rtol=1e-4, atol=1e-4)


SOLVED = """func.func @main(%a: tensor<?x4x4xf32>, %b: tensor<?x4x1xf32>) -> tensor<?x4x1xf32> {
  %0 = "stablehlo.triangular_solve"(%a, %b) <{left_side = true, lower = false,
    transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = true}>
    : (tensor<?x4x4xf32>, tensor<?x4x1xf32>) -> tensor<?x4x1xf32>
  return %0 : tensor<?x4x1xf32>
}"""


def test_batches_that_the_host_needs_equal_are() -> None:
    program: Any = tw.compile(SOLVED)
    rng = np.random.default_rng(0)
    for n in (3, 5, 6, 40):
        a, b = rng.standard_normal((n, 4, 4)).astype("f4"), rng.standard_normal((n, 4, 1)).astype("f4")
        assert isinstance(program.at(arg0_0=n, arg1_0=n), SizedProgram)
        upper = np.triu(a, 1) + np.eye(4, dtype="f4")
        np.testing.assert_allclose(upper @ program(a, b), b, rtol=0, atol=1e-3)
    assert {str(c) for v in program.ranges.values() for c in v.template.constraints} == {"arg0_0 == arg1_0"}
    with pytest.raises(tw.CompileError, match="batch dimensions of the operands must be compatible"):
        program(np.ones((5, 4, 4), "f4"), np.ones((8, 4, 1), "f4"))
