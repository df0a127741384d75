"""Mutants of each kind of file that commands read: refused in one sentence or accepted, in bounded time and memory.

`python -m fuzz.files [--count 300] [--seed 0] [--only onnx,tw]` runs so many of each kind, each kind in a process of
its own, and says what became of them, and what the worst one took.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np

SECONDS = 60
"""The longest that one mutant may take, in time of the processor."""

MEGABYTES = 4096
"""How much the process of a kind may take beyond what it starts with."""

MODEL = """
import jax, numpy as np

def f(x, w):
    return jax.nn.softmax(jax.nn.relu(x @ w))

def f_inputs():
    return np.ones((8, 16), 'f'), np.ones((16, 12), 'f')
"""

TW = """
param b: f32[12] = "w.npz"["b"]
const N = 8

fn scaled(x: f32[M, 12]) -> f32[M, 12] {
    return x * 0.5 + b
}

pub fn f(x: f32[N, 16], w: f32[16, 12]) -> f32[N, 12] {
    y = scaled(x @ w)
    return max(y, 0.0)
}
"""

STABLEHLO = """
func.func @main(%x: tensor<8x16xf32>, %w: tensor<16x12xf32>) -> tensor<8x12xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x12xf32>) -> tensor<8x12xf32>
  %1 = stablehlo.constant dense<0.0> : tensor<f32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<8x12xf32>
  %3 = stablehlo.maximum %0, %2 : tensor<8x12xf32>
  %4 = stablehlo.slice %3 [0:8, 0:12] : (tensor<8x12xf32>) -> tensor<8x12xf32>
  return %4 : tensor<8x12xf32>
}
"""  # noqa: E501

ONNX = (
    """<ir_version: 10, opset_import: ["" : 21]>
    g (float[1,4,8,8] x) => (float[a,b] y) <float[6,2,3,3] w = {ONES}, int64[2] s = {1, -1}> {
      c = Conv <group = 2, pads = [1,1,1,1], strides = [1,2]> (x, w)
      r = Relu (c)
      p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r)
      f = Reshape (p, s)
      t = Softmax <axis = 1> (f)
      i = Constant <value_ints = [0,2,1]> ()
      q = Gather <axis = 1> (t, i)
      y = Concat <axis = 1> (q, f)
    }""".replace("ONES", ",".join(["1"] * 108)),
    """<ir_version: 10, opset_import: ["" : 21, "d" : 1]>
    g (float[2,3] x) => (float[2,3] y) {
      m = Constant <value_int = 5> ()
      t = Constant <value = bool {1}> ()
      z = Loop (m, t, x) <body = b (int64 i, bool c, float[2,3] v) => (bool k, float[2,3] o) {
        k = Identity (c) o = d.twice (v)
      }>
      s = Shape (z)
      e = ConstantOfShape <value = float[1] {2.0}> (s)
      n = Mul (z, e)
      y = Add (n, e)
    }
    <domain: "d", opset_import: ["" : 21]>
    twice (a) => (o) { o = Add (a, a) }
    """,
)

NUMBERS = "0 -1 1 2 7 255 65536 2147483648 4611686018427387904 9223372036854775808 1e400 -0.0 nan inf".split()
NUMBERS += ["9" * 40, "9" * 5000]
PIECES = [
    '"',
    "'",
    "[",
    "]",
    "{",
    "}",
    "(",
    "<",
    ">",
    "%0",
    "@main",
    "\\",
    "\x00",
    "\u202e",
    "\n",
    "é",
    "#",
    "!",
    "x",
]


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Content with one to three changes."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        change = rng.choice(
            [_cut, _flipped, _without, _twice, _numbers, _numbers, _pieces, _pieces, _swapped]
        )
        content = change(content, rng)
    return content


def _span(content: bytes, rng: random.Random) -> tuple[int, int]:
    begin = rng.randrange(len(content) + 1)
    return begin, min(len(content), begin + rng.choice([1, 2, 8, 40, 400]))


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _flipped(content: bytes, rng: random.Random) -> bytes:
    if not content:
        return content
    at = rng.randrange(len(content))
    return content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]


def _without(content: bytes, rng: random.Random) -> bytes:
    begin, end = _span(content, rng)
    return content[:begin] + content[end:]


def _twice(content: bytes, rng: random.Random) -> bytes:
    begin, end = _span(content, rng)
    return content[:end] + content[begin:end] * rng.choice([1, 1, 50]) + content[end:]


def _numbers(content: bytes, rng: random.Random) -> bytes:
    places = list(re.finditer(rb"\d+(?:\.\d+)?", content))
    if not places:
        return _flipped(content, rng)
    place = rng.choice(places)
    return content[: place.start()] + rng.choice(NUMBERS).encode() + content[place.end() :]


def _pieces(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.choice(PIECES).encode() * rng.choice([1, 1, 3, 3000]) + content[at:]


def _swapped(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


# -- kinds ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileKind:
    """A kind of file. seeds: makes files of it in a folder; args: the command that reads one; mutate: changes one."""

    seeds: Callable[[Path], list[Path]]
    args: Callable[[Path], list[str]]
    mutate: Callable[[bytes, random.Random], bytes] = mutated


def _written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def _onnx_seeds(folder: Path) -> list[Path]:
    from onnx import parser

    made = []
    for i, text in enumerate(ONNX):
        made.append(_written(folder, f"seed{i}.onnx", parser.parse_model(text).SerializeToString()))
    return made


def _mutated_model(content: bytes, rng: random.Random) -> bytes:
    """A model with other attributes, dimensions or ops, or with other bytes."""
    import onnx

    if rng.random() < 0.3:
        return mutated(content, rng)
    model = onnx.load_model_from_string(content)
    ops = [*(n.op_type for n in model.graph.node), "Tile", "Expand", "TopK", "OneHot", "Pad"]
    values = [*(n for m in model.graph.node for n in m.output), ""]
    integers = [0, -1, 1, 2, 3, 2**31, 2**40, 2**62, -(2**63)]
    for _ in range(rng.choice([1, 1, 2])):
        node = rng.choice(model.graph.node)
        kind = rng.randrange(7)
        if kind == 0 and node.attribute:
            attribute = rng.choice(node.attribute)
            if attribute.ints:
                attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(integers)
            elif attribute.HasField("t"):
                attribute.t.dims[:] = [rng.choice(integers) for _ in range(rng.randrange(3))]
            else:
                attribute.i = rng.choice(integers)
        elif kind == 1:
            node.op_type = rng.choice(ops)
        elif kind == 2 and node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(values)
        elif kind == 3 and node.input:
            del node.input[-1]
        elif kind == 4 and model.graph.initializer:
            tensor = rng.choice(model.graph.initializer)
            if tensor.dims:
                tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(integers)
        elif kind == 5:
            value = rng.choice([*model.graph.input, *model.graph.output]).type.tensor_type
            value.elem_type = rng.choice([1, 7, 9, 10, 16, 99])
        else:
            dims = rng.choice(model.graph.input).type.tensor_type.shape.dim
            if dims:
                dims[rng.randrange(len(dims))].dim_value = rng.choice(integers)
    return model.SerializeToString()


def _level_seeds(folder: Path) -> list[Path]:
    """The text of each level of a program, and of one that calls the host."""
    import jax.numpy as jnp

    import tilewright as tw

    x, w = np.ones((8, 16), "f"), np.ones((16, 12), "f")
    program = tw.compile(lambda x, w: jnp.maximum(x @ w, 0).sum(1), x, w)
    host = tw.compile(lambda x: jnp.linalg.cholesky(x @ x.T), x)
    texts = [program.ir("graph"), program.ir("tile"), program.ir("npu"), host.ir("npu")]
    return [_written(folder, f"seed{i}.mlir", text) for i, text in enumerate(texts)]


def _chip_seeds(folder: Path) -> list[Path]:
    import tilewright.machine

    home = Path(tilewright.machine.__file__).parent
    own = 'extends = "ascend-910b1"\nname = "mine"\nclock_mhz = 1700\n[cores]\ncube = 20\nvector = 40\n'
    return [
        _written(folder, "seed0.toml", own),
        *(
            _written(folder, f"{n}.toml", (home / f"{n}.toml").read_bytes())
            for n in ("ascend-310", "systolic-tpu1")
        ),
    ]


def _array_seeds(folder: Path) -> list[Path]:
    for i, pack in enumerate((np.savez, np.savez_compressed)):
        pack(folder / f"seed{i}.npz", x=np.ones((8, 16), "f"), w=np.ones((16, 12), "f"))
    return [folder / "seed0.npz", folder / "seed1.npz"]


def _table_seeds(folder: Path) -> list[Path]:
    rows = "\n".join(f"b{i},{i % 7},{i % 7 + 1 + i % 5},{64 * (i % 9 + 1)}" for i in range(40))
    return [_written(folder, "seed0.csv", f"id,lower,upper,size\n{rows}\n")]


def _entry_seeds(folder: Path) -> list[Path]:
    """What is kept of a program and of a version for a range."""
    import tilewright.cli.main as tool

    for args in (["--shapes", "f32[8,16],f32[16,12]"], ["--shapes", "f32[b,16],f32[16,12]", "--at", "b=40"]):
        command = ["report", str(folder / "model.py:f"), *args, "--cache", str(folder / "kept")]
        assert tool.main(command) == 0
    found = sorted((folder / "kept" / "programs").glob("*.entry"))
    assert len(found) == 2
    return found


def _mutated_entry(content: bytes, rng: random.Random) -> bytes:
    """An entry with other contents, mostly with the hash that belongs to them."""
    rest = mutated(content.partition(b"\n")[2], rng)
    if rng.random() < 0.2:
        return mutated(content, rng)
    return b"tilewright-cache 1 " + sha256(rest).hexdigest().encode() + b"\n" + rest


def _with_model(*args: str) -> Callable[[Path], list[str]]:
    return lambda path: ["report", str(path.parent / "model.py:f"), *(a.format(path) for a in args)]


def _entry_args(path: Path) -> list[str]:
    model = str(path.parents[2] / "model.py:f")
    return [
        "report",
        model,
        "--shapes",
        "f32[b,16],f32[16,12]",
        "--at",
        "b=40",
        "--cache",
        str(path.parents[1]),
    ]


KINDS: dict[str, FileKind] = {
    "onnx": FileKind(_onnx_seeds, lambda path: ["compile", str(path)], _mutated_model),
    "mlir": FileKind(_level_seeds, lambda path: ["compile", str(path)]),
    "stablehlo": FileKind(
        lambda folder: [_written(folder, "seed0.mlir", STABLEHLO)], lambda path: ["compile", str(path)]
    ),
    "tw": FileKind(lambda folder: [_written(folder, "seed0.tw", TW)], lambda path: ["compile", str(path)]),
    "toml": FileKind(_chip_seeds, _with_model("--target", "{}")),
    "npz": FileKind(_array_seeds, _with_model("--inputs", "{}")),
    "csv": FileKind(_table_seeds, lambda path: ["pack", str(path), "--seconds", "1"]),
    "cache": FileKind(_entry_seeds, _entry_args, _mutated_entry),
}
"""Kinds of files, and how they are read."""


# -- running -------------------------------------------------------------------------------------------------


class TooLong(BaseException):
    """A mutant that takes more than SECONDS."""


@dataclass
class Outcome:
    """What became of the mutants of a kind. faults: of which seed, and what was said; seconds, megabytes: the most that
    one took, and all of them."""

    counts: dict[str, int] = field(default_factory=dict[str, int])
    faults: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    seconds: float = 0.0
    megabytes: float = 0.0


def run_kind(name: str, folder: Path, seeds: Iterator[int] | range) -> Outcome:
    """Runs the mutants of a kind that have these numbers."""
    kind, outcome = KINDS[name], Outcome()
    _written(folder, "model.py", MODEL)
    np.savez(folder / "w.npz", b=np.ones(12, "f"))
    files = kind.seeds(folder)
    contents = [path.read_bytes() for path in files]
    for path in files:
        word, said = _run(kind.args(path))
        if word != "accepted":
            outcome.faults.append((-1, f"{path.name} itself is {word}: {said[-300:]}"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in seeds:
        rng = random.Random(f"{name} {seed}")
        which = rng.randrange(len(files))
        original = files[which]
        path = original if name == "cache" else original.with_name(f"mutant{original.suffix}")
        path.write_bytes(kind.mutate(contents[which], rng))
        began = time.process_time()
        word, said = _run(kind.args(path))
        outcome.seconds = max(outcome.seconds, time.process_time() - began)
        outcome.counts[word] = outcome.counts.get(word, 0) + 1
        if word not in ("accepted", "refused"):
            outcome.faults.append((seed, said))
        if name == "cache":
            path.write_bytes(contents[which])
    outcome.megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return outcome


def _run(args: list[str]) -> tuple[str, str]:
    """What a command does: a word for it, and what it says."""
    import tilewright.cli.main as tool

    def stop(*_: object) -> None:
        raise TooLong

    out, err = io.StringIO(), io.StringIO()
    old = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(action="default"),
        ):
            code = tool.main(args)
    except TooLong:
        return "hang", f"more than {SECONDS} s"
    except Exception as error:  # which the tool lets out
        return "raised", f"{type(error).__name__}: {error}"[:300]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)
    said = err.getvalue()
    if "internal error" in said or "Traceback" in said:
        return "internal error", said[-300:]
    if code and not said.strip():
        return "silent", "refused without a word"
    return "refused" if code else "accepted", said


def main() -> int:
    """Runs the campaign; 1 where a mutant is neither refused nor accepted, or takes too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="mutants of each kind")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first")
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, separated by commas")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        with tempfile.TemporaryDirectory() as folder:
            found = run_kind(args.one, Path(folder), range(args.seed, args.seed + args.count))
        print(json.dumps(asdict(found)))
        return 0
    bad = False
    for name in args.only.split(","):
        command = [sys.executable, "-m", "fuzz.files", "--one", name]
        command += ["--count", str(args.count), "--seed", str(args.seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{name}: the process ended with {done.returncode}: {done.stderr[-600:]}")
            bad = True
            continue
        found = Outcome(**json.loads(done.stdout.splitlines()[-1]))
        counts = ", ".join(f"{n} {word}" for word, n in sorted(found.counts.items()))
        print(
            f"{name}: {counts}; the worst took {found.seconds:.1f} s, all {found.megabytes:.0f} MB",
            flush=True,
        )
        for seed, said in found.faults:
            print(f"  {name} {seed}: {' '.join(said.split())}")
        bad |= bool(found.faults) or found.megabytes > MEGABYTES
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
