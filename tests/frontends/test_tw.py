"""The .tw language: its grammar, its values against JAX, places, weights and quantization."""

from __future__ import annotations

from pathlib import Path

import graph_reference
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from graph_equal import same
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from tiering import sampled
from xdsl.dialects.builtin import FileLineColLoc

import tilewright as tw
from tilewright.dialects.elementwise import FUNCTIONS
from tilewright.frontends.text import TwError, builder
from tilewright.frontends.text.diagnostics import DiagnosticLog, SourceFile
from tilewright.frontends.text.frontend import lower_tw
from tilewright.frontends.text.functions import OPERATORS, functions, graph_functions
from tilewright.frontends.text.parse import parse_items
from tilewright.frontends.text.printer import print_tw

ROOT = Path(__file__).resolve().parents[2]
RNG = np.random.default_rng(0)


def errors(text: str) -> list[str]:
    report = DiagnosticLog()
    parse_items(SourceFile("t.tw", text), report)
    return [d.message for d in report.found]


def values(body: str, result: str, *args: np.ndarray, types: str | None = None) -> list[np.ndarray]:
    """What `fn f(x, y, ...) -> result { body }` gives."""
    names = "xyzuvw"
    kinds = {"float32": "f32", "float16": "f16", "int32": "i32", "bool": "i1", "int8": "i8"}
    parameters = types or ", ".join(
        f"{n}: {kinds[str(a.dtype)]}{list(a.shape)}" for n, a in zip(names, args, strict=False)
    )
    module = lower_tw("t.tw", f"fn f({parameters}) -> {result} {{\n{body}\n}}\n").module
    module.verify()
    return graph_reference.run(module, args)


# -- grammar -------------------------------------------------------------------------------------------------

STATEMENTS = [
    "a = 1",
    "a, b = g(x)",
    "a: f32[N, 2 * K] = x",
    "a: f32[] quant i8(scale=0.5, zero=-3) = x",
    "a[0, 1:, ::2, ..., new, -1] = x",
    "a = x[:]",
    "a = -x ** 2",
    "a = x as f16 as f32",
    "a = not x and y or z",
    "a = m.f(x, axis=-1,)",
    "a = [[1, 2], [3.5, -4e-3]]",
    "a = f(\n    x,  # why\n    y,\n)",
    "for i in 0..N - 1 { a = i }",
    "while a < b and c { a = a + 1 }",
    "if p { a = 1 } else if q { a = 2 } else { a = 3 }",
    "if p {\n}\n else {\n}",
    "return x, -y",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements(statement: str) -> None:
    assert errors(f"fn f() -> f32[] {{\n{statement}\n}}\n") == []


@pytest.mark.parametrize(
    "item",
    [
        'import "a/b.tw" as b',
        "const N = 3 * (2 + 1)",
        "const A: f32[2] = [1, 2]",
        'param w: bf16[3] = "w.npz"["layer/0"]',
        "pub fn f(x: i1[], ) -> (f32[], f32[2],) { return x }",
        "# nothing\n\n\n",
        "",
    ],
)
def test_items(item: str) -> None:
    assert errors(item) == []


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("fn f(x: f32) -> f32[] { return x }", "expected `[`, found `)`"),
        ("fn f(x) -> f32[] { return x }", "expected `:`, found `)`"),
        ("fn f() -> f32[] { x }", "expected `,`, `:`, `=` or `[`, found the end of the line"),
        ("fn f() -> f32[] { return 1 2 }", "expected an operator, `,` or the end of the line, found `2`"),
        ("const N", "expected `:` or `=`, found the end of the line"),
        ("x = 3", "expected `fn`, `const`, `param` or `import`, found `x`"),
        ('import "a.tw"', "expected `as`, found the end of the line"),
        ("fn f( -> f32[] { return 1 }", "`(` is never closed"),
        ("fn f() -> f32[] { return 1 }}", "`}` closes nothing"),
        ("fn f() -> f32[] { return (1] }", "`]` cannot close `(`"),
    ],
)
def test_syntax_errors(item: str, message: str) -> None:
    assert any(m.startswith(message) for m in errors(item)), errors(item)


def test_precedence() -> None:
    x, y = RNG.standard_normal((2, 3)).astype(np.float32)
    (out,) = values("return -x ** 2 + y * 2.0 as f32 - x * y / 2.0", "f32[3]", x, y)
    np.testing.assert_allclose(out, -(x**2) + y * 2 - x * y / 2, rtol=1e-6)
    (out,) = values("return not x > 0.0 and y < 1.0 or x == y", "i1[3]", x, y)
    np.testing.assert_array_equal(out, (~(x > 0) & (y < 1)) | (x == y))


def test_long_programs_are_not_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "MOST_OPS", 2000)
    deep = "(" * 70 + "x" + ")" * 70
    with pytest.raises(TwError, match="more than 60 brackets within each other"):
        lower_tw("t.tw", f"fn f(x: f32[]) -> f32[] {{ return {deep} }}")
    with pytest.raises(TwError, match="nested too deeply"):
        lower_tw("t.tw", f"fn f(x: f32[]) -> f32[] {{ return {' + '.join(['x'] * 5000)} }}")
    lines = "".join(
        f"fn g_{i}(x: f32[]) -> f32[] {{ return g_{i + 1}(x) + g_{i + 1}(x) }}\n" for i in range(60)
    )
    with pytest.raises(TwError, match=r"grows beyond|too many calls"):
        lower_tw("t.tw", f"{lines}fn g_60(x: f32[]) -> f32[] {{ return x }}\n", "g_0")
    with pytest.raises(TwError, match="64 bits"):
        lower_tw("t.tw", "fn f(x: f32[]) -> f32[] { return x * (9 ** 9 ** 9) }")


# -- values --------------------------------------------------------------------------------------------------

A, B, V = (RNG.standard_normal(s).astype(np.float32) for s in [(5, 7), (7, 3), (7,)])
I = RNG.integers(-5, 6, (5, 7)).astype(np.int32)  # noqa: E741  # the integers, beside A, B and V
T = RNG.standard_normal((2, 5, 7)).astype(np.float32)
S = np.int32(2)

VALUES = {
    "matmul": ("return x @ y", "f32[5, 3]", (A, B), lambda x, y: x @ y),
    "matvec": ("return x @ y", "f32[5]", (A, V), lambda x, y: x @ y),
    "vecmat": ("return x @ y", "f32[3]", (V, B), lambda x, y: x @ y),
    "batched": ("return x @ y", "f32[2, 5, 3]", (T, B), lambda x, y: x @ y),
    "stacked": (
        "return x @ transpose(y, perm=[0, 2, 1])",
        "f32[2, 5, 5]",
        (A, T),
        lambda x, y: x @ y.transpose(0, 2, 1),
    ),
    "row stack": (
        "return x @ transpose(y, perm=[0, 2, 1])",
        "f32[2, 5]",
        (V, T),
        lambda x, y: x @ y.transpose(0, 2, 1),
    ),
    "einsum": (
        'return einsum("bij,jk,i->bk", x, y, z)',
        "f32[2, 3]",
        (T, B, A[:, 0]),
        lambda x, y, z: jnp.einsum("bij,jk,i->bk", x, y, z),
    ),
    "diagonal sums": ('return einsum("ij->j", x)', "f32[7]", (A,), lambda x: x.sum(0)),
    "floor divide": ("return x // 3", "i32[5, 7]", (I,), lambda x: x // 3),
    "modulo": ("return x % -3", "i32[5, 7]", (I,), lambda x: x % -3),
    "float modulo": ("return x % 0.7", "f32[5, 7]", (A,), lambda x: x % 0.7),
    "float divide": ("return x // 0.7", "f32[5, 7]", (A,), lambda x: x // 0.7),
    "power": ("return x ** 5 + abs(x) ** 0.5", "f32[5, 7]", (A,), lambda x: x**5 + jnp.abs(x) ** 0.5),
    "softmax": ("return softmax(x, axis=0)", "f32[5, 7]", (A,), lambda x: jax.nn.softmax(x, axis=0)),
    "log_softmax": ("return log_softmax(x)", "f32[5, 7]", (A,), jax.nn.log_softmax),
    "gelu": (
        "return gelu(x) + gelu(x, exact=true)",
        "f32[5, 7]",
        (A,),
        lambda x: jax.nn.gelu(x) + jax.nn.gelu(x, approximate=False),
    ),
    "silu": (
        "return silu(x) + sigmoid(x) + relu(x)",
        "f32[5, 7]",
        (A,),
        lambda x: jax.nn.silu(x) + jax.nn.sigmoid(x) + jax.nn.relu(x),
    ),
    "layer_norm": (
        "return layer_norm(x, y, y, eps=1e-3)",
        "f32[5, 7]",
        (A, V),
        lambda x, y: jax.nn.standardize(x, epsilon=1e-3) * y + y,
    ),
    "rms_norm": (
        "return rms_norm(x, y, eps=1e-3)",
        "f32[5, 7]",
        (A, V),
        lambda x, y: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * y,
    ),
    "reductions": (
        "return sum(x, axis=[0, 2]) + max(x[0, 0]) + prod(x[0], axis=0, keep=true)[0, 0] + mean(x)",
        "f32[5]",
        (T,),
        lambda x: x.sum((0, 2)) + x[0, 0].max() + x[0].prod(0)[0] + x.mean(),
    ),
    "variance": ("return variance(x, axis=-1)", "f32[5]", (A,), lambda x: x.var(-1)),
    "any and all": (
        "return any(x > 1.0, axis=0) and not all(x > 0.0, axis=0)",
        "i1[7]",
        (A,),
        lambda x: (x > 1).any(0) & ~(x > 0).all(0),
    ),
    "argmax": ("return argmax(x) + argmin(x)", "i32[5]", (A,), lambda x: x.argmax(-1) + x.argmin(-1)),
    "slices": ("return x[1:4, ::-2]", "f32[3, 4]", (A,), lambda x: x[1:4, ::-2]),
    "empty slice": ("return x[3:1]", "f32[0, 7]", (A,), lambda x: x[3:1]),
    "ellipsis": ("return x[..., new, -1]", "f32[2, 5, 1]", (T,), lambda x: x[..., None, -1]),
    "moving index": ("return x[y, 1:]", "f32[6]", (A, S), lambda x, y: x[y, 1:]),
    "negative moving index": ("return x[y - 4]", "f32[7]", (A, S), lambda x, y: x[y - 4]),
    "take": (
        "return take(x, y, axis=1)",
        "f32[5, 2, 2]",
        (A, np.array([[0, -1], [3, 2]], np.int32)),
        lambda x, y: x[:, y],
    ),
    "index by tensor": (
        "return x[1, y]",
        "f32[3]",
        (A, np.array([4, -7, 0], np.int32)),
        lambda x, y: x[1, y],
    ),
    "update": (
        "x[y] = 1.0\nx[1:, ::3] = z\nx[-1, 0] = 5\nreturn x",
        "f32[5, 7]",
        (A, S, A[1:, :3]),
        lambda x, y, z: x.at[y].set(1.0).at[1:, ::3].set(z).at[-1, 0].set(5),
    ),
    "backward update": ("x[::-1] = y\nreturn x", "f32[5, 7]", (A, A), lambda x, y: x.at[::-1].set(y)),
    "split": (
        "a, b, c = split(x, parts=3)\nreturn a + b - c",
        "f32[7, 1]",
        (B,),
        lambda x: x[:, :1] + x[:, 1:2] - x[:, 2:],
    ),
    "concat": (
        "return concat(x, x * 2.0, axis=-1)",
        "f32[5, 14]",
        (A,),
        lambda x: jnp.concatenate([x, x * 2], -1),
    ),
    "stack": ("return stack(x, -x, axis=1)", "f32[5, 2, 7]", (A,), lambda x: jnp.stack([x, -x], 1)),
    "pad": (
        "return pad(x, 2.0, low=[1, 0], high=[0, -1], interior=[1, 0])",
        "f32[10, 6]",
        (A,),
        lambda x: jax.lax.pad(x, 2.0, [(1, 0, 1), (0, -1, 0)]),
    ),
    "one_hot": (
        "return one_hot(x, depth=4, type=f32)",
        "f32[3, 4]",
        (np.array([0, 3, 1], np.int32),),
        lambda x: jax.nn.one_hot(x, 4),
    ),
    "iota": (
        "return iota(shape=[3, 4], axis=-1) + x",
        "i32[3, 4]",
        (S,),
        lambda x: jnp.arange(4)[None] + x + jnp.zeros((3, 1), jnp.int32),
    ),
    "max_pool": (
        'return max_pool(x[new, ..., new], window=2, padding="same")[0, ..., 0]',
        "f32[3, 4]",
        (A,),
        lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2), (2, 2), "SAME"),
    ),
    "conversion": (
        "return (x * 10.0) as i32 as f32",
        "f32[5, 7]",
        (A,),
        lambda x: (x * 10).astype(jnp.int32).astype(jnp.float32),
    ),
    "list": ("return x * [1.0, 2.0, 3.0]", "f32[7, 3]", (B,), lambda x: x * jnp.array([1.0, 2.0, 3.0])),
    "for": (
        "s = 0.0\nfor i in 1..5 {\n s = s + x[i - 1, i]\n}\nreturn s",
        "f32[]",
        (A,),
        lambda x: x[0, 1] + x[1, 2] + x[2, 3] + x[3, 4],
    ),
    "no trips": ("for i in 3..1 {\n x = x * 2.0\n}\nreturn x", "f32[5, 7]", (A,), lambda x: x),
    "while": (
        "n = 1\nwhile n < x {\n n = n * 2\n}\nreturn n",
        "i32[]",
        (np.int32(37),),
        lambda x: jnp.int32(64),
    ),
    "if": (
        "if x > 1 {\n a = x\n} else {\n a = -1\n}\nreturn a",
        "i32[]",
        (S,),
        lambda x: jnp.where(x > 1, x, -1),
    ),
    "if at compile time": ("if 2 > 1 {\n x = x[0]\n}\nreturn x", "f32[7]", (A,), lambda x: x[0]),
    "select": ("return select(x > y, x, 0.0)", "f32[5, 7]", (A, V), lambda x, y: jnp.where(x > y, x, 0.0)),
    "graph op": ('return graph.reduce(x, kind="max", dims=[1])', "f32[5]", (A,), lambda x: x.max(1)),
}


@sampled(5)
@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    body, result, args, fn = VALUES[name]
    (found,) = values(body, result, *args)
    expected = np.asarray(fn(*map(jnp.asarray, args)))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@given(st.integers(1, 9), st.integers(0, 9), st.data())
def test_slices_as_numpy(rows: int, columns: int, data: st.DataObject) -> None:
    """Any slice of any size, with any step, and what an update with it writes."""
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    bound = st.none() | st.integers(-12, 12)
    step = st.none() | st.integers(-4, 4).filter(bool)
    picks = tuple(slice(data.draw(bound), data.draw(bound), data.draw(step)) for _ in range(2))
    words = ", ".join(":".join("" if v is None else str(v) for v in (p.start, p.stop, p.step)) for p in picks)
    expected = x[picks]
    (found,) = values(f"return x[{words}]", f"f32{list(expected.shape)}", x)
    np.testing.assert_array_equal(found, expected)
    if expected.size:
        fresh = x.copy()
        fresh[picks] = np.arange(expected.size, dtype=np.float32).reshape(expected.shape) - 100
        (found,) = values(f"x[{words}] = y\nreturn x", f"f32{list(x.shape)}", x, fresh[picks])
        np.testing.assert_array_equal(found, fresh)


def test_every_row_is_a_function() -> None:
    assert {n for n in FUNCTIONS if n not in OPERATORS} <= set(functions())
    assert set(FUNCTIONS) - {"and", "or", "not"} <= set(graph_functions())


@pytest.mark.parametrize("dims", ["N=6", "N=1"])
def test_symbols_in_calls(dims: str) -> None:
    n = int(dims[2:])
    text = (
        "fn half(x: f32[2 * K], y: f32[K]) -> f32[K] {\n    return x[:K] + y * K\n}\n"
        "pub fn f(x: f32[2 * N], y: f32[N]) -> f32[N] {\n    return half(x, y)\n}\n"
    )
    module = lower_tw("t.tw", text, None, None, {"N": n}).module
    x, y = np.ones(2 * n, np.float32), np.ones(n, np.float32)
    np.testing.assert_array_equal(graph_reference.run(module, [x, y])[0], 1 + n * y)


# -- files ---------------------------------------------------------------------------------------------------


def test_weights(tmp_path: Path) -> None:
    half, wide = np.arange(4, dtype=np.float16), np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3)
    save_file({"a": half, "b": wide}, tmp_path / "w.safetensors")
    np.savez(tmp_path / "w.npz", a=half, b=wide)
    for file in ("w.safetensors", "w.npz"):
        text = (
            f'param a: f16[4] = "{file}"["a"]\nparam b: bf16[2, 3] = "{file}"["b"]\n'
            "fn f(x: f16[4]) -> (f16[4], bf16[2, 3]) {\n    return x + a, b\n}\n"
        )
        module = lower_tw(str(tmp_path / "m.tw"), text).module
        one, two = graph_reference.run(module, [half])
        np.testing.assert_array_equal(one, half + half)
        np.testing.assert_array_equal(two.astype(np.float32), wide.astype(np.float32))
        for wrong, message in [
            ("f16[5]", r"`a` is stored as f16\[4\]"),
            ("f32[4]", r"declare it as stored: `a: f16\[4\]`"),
        ]:
            with pytest.raises(TwError, match=message):
                lower_tw(str(tmp_path / "m.tw"), text.replace("a: f16[4]", f"a: {wrong}"))
        with pytest.raises(TwError, match='has no array "aa"'):
            lower_tw(str(tmp_path / "m.tw"), text.replace('["a"]', '["aa"]'))
    (tmp_path / "bad.npz").write_text("nothing")
    with pytest.raises(TwError, match=r"bad.npz is not an .npz file of arrays"):
        lower_tw(str(tmp_path / "m.tw"), 'param a: f16[4] = "bad.npz"["a"]\nfn f() -> f16[4] { return a }')


def test_imports(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.tw").write_text(
        'import "b.tw" as b\nconst SIZE = b.ONE + 1\n'
        "pub fn twice(x: f32[N]) -> f32[N] {\n    return b.same(x) * SIZE\n}\n"
    )
    (tmp_path / "sub" / "b.tw").write_text("const ONE = 1\npub fn same(x: f32[N]) -> f32[N] { return x }\n")
    main = tmp_path / "main.tw"
    main.write_text(
        'import "sub/a.tw" as a\nimport "sub/b.tw" as b\n'
        "fn f(x: f32[a.SIZE]) -> f32[2] {\n    return a.twice(b.same(x))\n}\n"
    )
    module = lower_tw(str(main), main.read_text()).module
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(graph_reference.run(module, [x])[0], 2 * x)


# -- the whole way -------------------------------------------------------------------------------------------

MODEL = """# A layer.
fn layer(x: f16[N, 64] quant i8(scale=0.05), w: f16[64, M], b: f16[M]) -> f16[N, M] {
    y: f16[N, M] quant i8(scale=[0.5], zero=[1], axis=-1) = x @ w
    return relu(
        y + b,
    )
}
"""


def test_compile_by_path(tmp_path: Path) -> None:
    path = tmp_path / "model.tw"
    path.write_text(MODEL.replace("scale=[0.5], zero=[1], axis=-1", "scale=0.5"))
    x, w, b = (RNG.standard_normal(s).astype(np.float16) for s in [(5, 64), (64, 17), (17,)])
    for source in (path, f"{path}:layer"):
        program = tw.compile(source, x, w, b)
        found = np.asarray(program(x, w, b))
        seen = np.clip(np.rint(x.astype(np.float32) / 0.05), -128, 127).astype(np.float16) * np.float16(0.05)
        y = np.clip(np.rint((seen @ w).astype(np.float32) / 0.5), -128, 127).astype(np.float16) / 2
        off = np.abs(found - np.maximum(y + b, 0))
        # a sum that is rounded in another order may be of the next step
        assert np.quantile(off, 0.9) < 2e-2 and off.max() < 0.52
    assert tw.verify(str(path), x, w, b).ok
    assert {k.source for k in program.report().kernels} == {f"{path}:2", f"{path}:3"}
    with pytest.raises(tw.CompileError, match="has no function `laier`"):
        tw.compile(f"{path}:laier", x, w, b)
    with pytest.raises(tw.CompileError, match=r"`w` of `layer` must be f16\[64, M\], got f16\[63, 17\]"):
        tw.compile(path, x, w[1:], b)
    program = tw.compile(path)
    assert isinstance(program, tw.DynamicProgram) and list(program.symbols) == ["N", "M"]
    np.testing.assert_array_equal(program(x, w, b), found)
    with pytest.raises(tw.CompileError, match="no such file"):
        tw.compile(tmp_path / "other.tw")


def test_places_and_quantization() -> None:
    text = MODEL.replace("scale=[0.5], zero=[1], axis=-1", "scale=[0.5, 0.25], zero=-7, axis=-1")
    module = lower_tw("model.tw", text, None, None, {"N": 3, "M": 2}).module
    places, kinds = {}, []
    for op in module.walk():
        if op.name.startswith("graph."):
            assert isinstance(op.location, FileLineColLoc), op.name
            places[op.name] = (op.location.filename.data, op.location.line.data, op.location.column.data)
            if op.name == "graph.quantize":
                kinds.append(str(op.results[0].type))
    assert kinds == [
        "tensor<3x64x!graph.quantized<i8:f16, 0.05>>",
        "tensor<3x2x!graph.quantized<i8:f16:1, {0.5:-7, 0.25:-7}>>",
    ]
    assert places["graph.contract"] == ("model.tw", 3, 66)
    assert places["graph.add"] == ("model.tw", 5, 9)
    assert places["graph.max"] == ("model.tw", 4, 12)
    again = lower_tw("again.tw", print_tw(module)).module
    assert same(again, module)
    assert "quant i8(scale=[0.5, 0.25], zero=-7, axis=1)" in print_tw(module)


def test_one_scale_and_a_zero_for_each_slice() -> None:
    text = MODEL.replace("scale=[0.5], zero=[1], axis=-1", "scale=0.5, zero=[1, 2], axis=-1")
    module = lower_tw("model.tw", text, None, None, {"N": 3, "M": 2}).module
    kinds = [str(op.results[0].type) for op in module.walk() if op.name == "graph.quantize"]
    assert kinds[1] == "tensor<3x2x!graph.quantized<i8:f16:1, {0.5:1, 0.5:2}>>"
    assert same(lower_tw("again.tw", print_tw(module)).module, module)


def test_unused_functions_are_checked() -> None:
    text = "pub fn f(x: f32[2]) -> f32[2] { return x }\nfn g(x: f32[3]) -> f32[2] { return x }\n"
    with pytest.raises(TwError, match=r"`g` gives f32\[2\], got f32\[3\]"):
        lower_tw("t.tw", text)
