"""Programs of a billion elements cost no more to look at than small ones: only running them needs their arrays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from tiering import sampled

from tilewright.cli.commands.programs import build
from tilewright.cli.grammar import make_parser
from tilewright.cli.main import main
from tilewright.dialects.graph.attributes import Literal

PEAK = 300 << 20
"""Bytes of resident memory; importing JAX takes 150 MB of them."""
ADDRESSES = 3 << 30
"""Bytes of address space: less than one array of a billion floats takes."""
SECONDS = 60
"""Of the processor, for all programs of a test; drawing the values of one takes as long."""

PROGRAMS = """
pub fn wave(x: f32[N]) -> f32[N] {
    return tanh(x) * 2.0 + iota(shape=[N], axis=0, type=f32)
}
pub fn norm(x: f32[N]) -> f32[] {
    return sum(x * x)
}
pub fn attention(x: f32[M, N]) -> f32[M, N] {
    return softmax(x, axis=1)
}
pub fn product(x: f16[M, K], w: f16[K, N]) -> f16[M, N] {
    return x @ w
}
"""
COMMANDS = [
    "report big.tw:wave --shapes N=1000000000",
    "report big.tw:norm --shapes N=1000000000",
    "report big.tw:attention --shapes M=31623,N=31623",
    "report big.tw:product --shapes M=31623,K=31623,N=1024",
    "report big.tw:norm --shapes f32[1000000000]",
    "compile big.tw:wave --shapes N=1000000000 --emit npu -o wave.mlir",
    "report wave.mlir",
    "report big.py:double --shapes f32[1000000000]",
    "trace big.tw:norm --shapes N=1000000000 -o trace.json",
    "explain big.tw:norm --shapes N=1000000000 -o page.html",
]
COMMAND_LINE = f"""
from tilewright.cli.main import main
for command in {COMMANDS!r}:
    assert main(command.split()) == 0, command
"""
PYTHON = """
import jax, jax.numpy as jnp, tilewright as tw
N, R = 10**9, 31623
x, m = jax.ShapeDtypeStruct((N,), "float32"), jax.ShapeDtypeStruct((R, R), "float32")
h, w = (jax.ShapeDtypeStruct(s, "float16") for s in ((R, R), (R, 1024)))
for fn, args in (
    (lambda x: jnp.tanh(x) * 2 + 1, [x]),
    (lambda x: (x * x).sum(), [x]),
    (lambda m: jax.nn.softmax(m), [m]),
    (lambda h, w: h @ w, [h, w]),
    (lambda x: jnp.full(N, 3.0) + jnp.arange(N) * 2.0 + x, [x]),
    (lambda m: m * jnp.tril(jnp.ones((R, R))), [m]),
    (lambda m: jax.lax.scan(lambda c, a: (c + a, c), jnp.zeros(R), m), [m]),
):
    assert tw.compile(fn, *args).report().microseconds > 100
"""


@sampled(2)
@pytest.mark.parametrize("code", [COMMAND_LINE, PYTHON], ids=["command line", "Python"])
def test_a_billion_elements(code: str, tmp_path: Path) -> None:
    (tmp_path / "big.tw").write_text(PROGRAMS)
    (tmp_path / "big.py").write_text("def double(x):\n    return x + x\n")

    limits = "import resource\n" + "".join(
        f"resource.setrlimit(resource.{name}, ({most}, {most}))\n"
        for name, most in (("RLIMIT_AS", ADDRESSES), ("RLIMIT_CPU", SECONDS))
    )
    # getrusage would count what the process was before it became this program
    peak = "\nprint(next(x.split()[1] for x in open('/proc/self/status') if x.startswith('VmHWM')))"
    done = subprocess.run(
        [sys.executable, "-c", limits + code + peak],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) << 10 < PEAK


def test_types_are_checked_without_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.mlir").write_text(
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  func.return %x : tensor<4xf32>\n}\n"
    )
    path, npz = str(tmp_path / "f.mlir"), str(tmp_path / "x.npz")
    for shapes, said in (("f32[5]", "must be f32[4], got f32[5]"), ("i32[4]", "must be f32[4], got i32[4]")):
        assert main(["report", path, "--shapes", shapes]) == 1
        assert said in capsys.readouterr().err
    np.savez(npz, np.ones(5, np.float32))
    assert main(["report", path, "--inputs", npz]) == 1
    assert "must be f32[4], got f32[5]" in capsys.readouterr().err
    half = str(tmp_path / "bf16.npz")
    np.savez(half, np.ones(4, jnp.bfloat16))  # as bytes of no type
    (tmp_path / "half.mlir").write_text((tmp_path / "f.mlir").read_text().replace("f32", "bf16"))
    assert main(["report", str(tmp_path / "half.mlir"), "--inputs", half]) == 0
    np.savez(npz, np.ones(4, np.float64))  # which JAX narrows
    args = make_parser().parse_args(["report", path, "--inputs", npz])
    (struct,) = build(args)[2]
    assert (struct.shape, struct.dtype, hasattr(struct, "__array__")) == ((4,), np.float64, False)
    (array,) = build(args, values=True)[2]
    np.testing.assert_array_equal(array, np.ones(4))


def test_one_value_seen_many_times_is_a_splat() -> None:
    for value in (np.float32(-0.0), np.float16(3), np.int8(-1), np.complex64(1 - 2j), np.bool_(True)):
        large = Literal.of(np.broadcast_to(value, (10**6, 1, 10**9)))
        small = Literal.of(np.full((2, 3), value))
        assert large == Literal(small.dtype, (10**6, 1, 10**9), small.data, True)
        assert small.splat
