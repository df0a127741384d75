"""Text made from graphs and from tokens: the way back from JAX programs, the canonical form, colours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import fuzz_tw
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graph_equal import same
from pygments.lexers import get_lexer_by_name
from pygments.token import Error

from tilewright.dialects import dtypes
from tilewright.dialects.text import parse_module
from tilewright.frontends import FrontendError, lower_function
from tilewright.frontends.text.diagnostics import SourceFile
from tilewright.frontends.text.format import format_text
from tilewright.frontends.text.frontend import lower_tw
from tilewright.frontends.text.highlight import TEXTMATE, textmate_text
from tilewright.frontends.text.printer import print_tw
from tilewright.frontends.text.tokens import keywords, scan

ROOT = Path(__file__).resolve().parents[2]


def test_round_trip_of_jax_programs() -> None:
    def model(x, w, i):
        y = jax.lax.conv_general_dilated(x, w, (1, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        y = jax.lax.reduce_window(y, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID")
        y = jax.nn.softmax(y.astype(jnp.float16)).astype(jnp.float32) + jnp.pi
        return (
            jax.lax.fori_loop(0, i, lambda k, v: (v[1], v[0] * 0.5), (y, -y)),
            y[:, i],
            jnp.take(y, 2, axis=1),
        )

    args = [np.ones(s, np.float32) for s in [(2, 6, 8, 3), (3, 3, 3, 4)]]
    module = lower_function(model, [*args, np.int32(2)]).module
    assert same(lower_tw("m.tw", print_tw(module)).module, module)


def test_what_cannot_be_said() -> None:
    module = lower_function(lambda x: jnp.sort(x), [np.ones(4, np.float32)]).module
    if any(op.name == "graph.host" for op in module.walk()):
        with pytest.raises(
            FrontendError, match=r"^'graph.host' \(.*test_tw.py:\d+\) cannot be written in .tw$"
        ):
            print_tw(module)
    text = """func.func @main(%i: tensor<i32>, %x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = graph.case %i : (tensor<i32>) -> tensor<2xf32> { graph.yield %x : (tensor<2xf32>) }
      func.return %0 : tensor<2xf32> }"""
    from tilewright.dialects import make_context

    with pytest.raises(
        FrontendError, match=r"^'graph.case' \(c.mlir:2\) cannot be written in .tw: a choice between 1"
    ):
        print_tw(parse_module(make_context(), text, "c.mlir"))


def test_different_graphs_differ() -> None:
    one, *others = (
        lower_tw("t.tw", f"fn f(x: f32[4], n: i32[]) -> f32[4] {{\n{body}\nreturn x\n}}").module
        for body in [
            "for i in 0..3 { x = x + 1 }",
            "for i in 0..4 { x = x + 1 }",
            "for i in 0..3 { x = x + 2 }",
            "for i in 0..3 { x = 1 + x }",
            "for i in 0..n { x = x + 1 }",
            "x = x + 3",
        ]
    )
    assert same(one, one)
    assert not any(same(one, other) for other in others)


def test_fuzz() -> None:
    ends = fuzz_tw.campaign(120, 3)
    assert ends["lowered and printed"] > 15
    assert ends["diagnosed"] > 50


def test_fmt_keeps_comments_and_tokens() -> None:
    text = (
        "fn f(x:f32[2] ,y : f32[2])->f32[2]{ # one\n  # two\n\n\n  a=x+  y # three\n"
        "  if 1<2 { a=-a }\n  # four\n  else { a = g(a, # five\n b) }\n return a }\n#six\n"
    )
    made = format_text("t.tw", text)
    assert [c for c in scan(SourceFile("t", made), skip=False) if c.type == "COMMENT"] == [
        f"# {n}" for n in ("one", "two", "three", "four", "five", "six")
    ]
    plain = [str(t) for t in scan(SourceFile("t", text)) if t.type != "_NEWLINE"]
    assert [str(t) for t in scan(SourceFile("t", made)) if t.type != "_NEWLINE"] == plain
    assert format_text("t.tw", made) == made


def test_fmt_command(tmp_path: Path) -> None:
    path = tmp_path / "m.tw"
    path.write_text("fn f(x:f32[2])->f32[2]{return x}\n")
    command = [sys.executable, "-m", "tilewright.cli.main", "fmt", str(path)]
    check = subprocess.run([*command, "--check"], capture_output=True, text=True)
    assert (check.returncode, check.stdout) == (1, f"{path}: not in canonical form\n")
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert path.read_text() == "fn f(x: f32[2]) -> f32[2] {\n    return x\n}\n"
    assert subprocess.run([*command, "--check"], capture_output=True).returncode == 0


def test_colours() -> None:
    lexer = get_lexer_by_name("tw")
    for path in (ROOT / "examples" / "tw").glob("*.tw"):
        assert not [t for t in lexer.get_tokens(path.read_text()) if t[0] is Error]
    stored = (ROOT / "frontends" / "text" / TEXTMATE).read_text()
    assert stored == textmate_text(), "run python -m tilewright.frontends.text.highlight"
    assert all(word in json.dumps(json.loads(stored)) for word in keywords())
    for name in dtypes._NUMPY.keys() - {dtypes.dtype_name(dtypes.PAIR)}:  # as which a device holds numbers
        (token,) = scan(SourceFile("t", name))
        assert token.type == "DTYPE", name
