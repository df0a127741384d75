"""Model files of GPT-2, and of 500 weights of 1 MB: bytes, seconds and memory of what is done with them.

python benchmarks/model_files.py [--model gpt2:forward] [--weights 500] [--page docs/model-file.md]

A file has two functions of the model, for all of its example tokens and for a quarter, on one set of weights, for two
chips. It is loaded in processes of their own, whose imports are not counted; memory is what the process has in RAM (of
Linux's /proc). onnxruntime and safetensors do the same where they are installed: what loads a model has its weights
then.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks")]

from run import load  # noqa: E402  # found on the path above

import tilewright as tw  # noqa: E402
from tilewright.support.files import write_part  # noqa: E402

BEGIN, END = "<!-- files: begin -->", "<!-- files: end -->"

CHIPS = ("ascend-910b1", "ascend-310p3")
OTHER = "ascend-310"

PROBE = """
import json, sys, time, re
def memory():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
path, chip, entry, mode = sys.argv[1:5]
import jax, numpy, tilewright as tw, tilewright.api.files.loading, tilewright.backends.report
jax.numpy.zeros(())
begin, before = time.perf_counter(), memory()
program = tw.load(path, chip or None, entry)
loaded, with_file = time.perf_counter(), memory()
us = program.report().microseconds
reported, with_report = time.perf_counter(), memory()
said = {"load": loaded - begin, "report": reported - begin, "us": us, "load MB": with_file - before,
        "report MB": with_report - before}
if mode:
    x = numpy.load(path + ".npy")
    y = jax.tree.leaves(program(tokens=x, mode=mode))
    numpy.savez(path + ".out.npz", *y)
    said |= {"run": time.perf_counter() - reported, "run MB": memory() - before}
print(json.dumps(said))
"""


def probed(path: Path, chip: str, entry: str, mode: str = "") -> dict[str, float]:
    """What a process says that loads a function of a file, and runs it in a mode where there is one."""
    line = [sys.executable, "-c", PROBE, str(path), chip, entry, mode]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def timed(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def gpt2(folder: Path, model: str) -> list[tuple[str, str]]:
    """A model saved and loaded."""
    import jax

    fn, (params, tokens) = load(model.replace(":", ".py:"))
    whole = tw.compile(fn, params, tokens)
    part = tw.compile(fn, params, tokens[: len(tokens) // 4])
    path, one = folder / "model.twm", folder / "one.twm"
    both, given = {"whole": whole, "part": part}, {"params": params}
    seconds = timed(lambda: tw.save(both, path, weights=given, targets=CHIPS[1:]))
    tw.save({"whole": whole}, one, weights=given)
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    rows = [
        ("weights of the model", f"{weights:,} bytes"),
        ("file of one function and chip", f"{one.stat().st_size:,} bytes"),
        ("file of two functions on the same weights, two chips", f"{path.stat().st_size:,} bytes"),
        ("save it, compiling for the second chip included", f"{seconds:.2f} s"),
    ]
    np.save(f"{path}.npy", np.asarray(tokens))
    chips = {CHIPS[0]: "its chip", CHIPS[1]: "another chip of the file", OTHER: "a chip that it has not"}
    for chip, said in chips.items():
        found = probed(path, chip, "whole")
        rows.append((f"load for {said}, and report", f"{found['report']:.2f} s, {found['report MB']:,.0f} MB"))
    for mode in ("typed", "bytes"):
        found = probed(path, "", "whole", mode)
        results = np.load(f"{path}.out.npz")
        wanted = [np.asarray(leaf) for leaf in jax.tree.leaves(whole(params, tokens, mode=mode))]
        same = all(np.array_equal(a, results[name]) for a, name in zip(wanted, results.files, strict=True))
        rows.append((f"run it in memory mode {mode}: compiled by XLA, then run", f"{found['run']:.1f} s, "
                     f"{found['run MB']:,.0f} MB, {'the same bits' if same else 'OTHER VALUES'}"))  # fmt: skip
    rows += peers(folder, {str(i): np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(params))})
    return rows


def peers(folder: Path, weights: dict[str, np.ndarray]) -> list[tuple[str, str]]:
    """What others take to load the same weights."""
    import safetensors.numpy

    safetensors.numpy.save_file(weights, folder / "w.safetensors")
    size = (folder / "w.safetensors").stat().st_size
    seconds = min(timed(lambda: safetensors.numpy.load_file(folder / "w.safetensors")) for _ in range(3))
    return [("safetensors: weights alone, all copied into memory", f"{size:,} bytes, {seconds:.2f} s")]


def updated(folder: Path, count: int) -> list[tuple[str, str]]:
    """One of many weights of 1 MB is another one."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = folder / "key.pem"
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    key.write_bytes(Ed25519PrivateKey.generate().private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    draw = np.random.default_rng(0)
    params = {f"w{i}": draw.standard_normal((512, 512), np.float32) for i in range(count)}
    program = tw.compile(lambda params, x: x @ params["w0"], params, np.ones((1, 512), np.float32))
    path, new = folder / "many.twm", folder / "next.twm"
    program.report()
    whole = min(timed(lambda: program.save(path, weights={"params": params}, sign=key)) for _ in range(2))
    value = {"params['w7']": draw.standard_normal((512, 512), np.float32)}
    one = min(timed(lambda: tw.update(path, new, value, sign=key)) for _ in range(3))
    copied = min(timed(lambda: (folder / "copy").write_bytes(memoryview(np.memmap(path)))) for _ in range(3))
    tw.load(new, trusted=_public(folder, key))
    return [
        (f"{count} weights of 1 MB: hash, sign and write all", f"{whole:.2f} s"),
        ("another value of one of them: hash, sign and write", f"{one:.2f} s"),
        ("of that to copy the rest", f"{copied:.2f} s"),
    ]


def _public(folder: Path, key: Path) -> Path:
    from cryptography.hazmat.primitives import serialization

    private = serialization.load_pem_private_key(key.read_bytes(), None)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / "public.pem").write_bytes(private.public_key().public_bytes(serialization.Encoding.PEM, form))
    return folder / "public.pem"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="gpt2:forward")
    parser.add_argument("--weights", type=int, default=500)
    parser.add_argument("--page", metavar="FILE.md", help="put the table between the marks of the page")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = [*gpt2(Path(name), args.model), *updated(Path(name), args.weights)]
    lines = ["| | |", "|---|---:|", *(f"| {what} | {said} |" for what, said in rows)]
    if args.page:
        write_part(args.page, BEGIN, END, "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
