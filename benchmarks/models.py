"""Every model of examples/: whether it matches JAX, what runs on the NPU, its modelled time, and compile time against
XLA's in the same process.

python benchmarks/models.py                          # all models, some ten minutes
python benchmarks/models.py vit:forward moe:forward    # some of them
python benchmarks/models.py --page docs/models.md      # and put the table between the marks of the page
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks")]

from run import load  # noqa: E402  # found on the path above

MODELS = (
    "gpt2:forward",
    "gpt2:forward_f16",
    "resnet50:forward",
    "resnet50:forward_f16",
    "mobilenet_v2:forward",
    "unet:forward",
    "vit:forward",
    "bert:forward",
    "llama:prefill",
    "llama:decode",
    "moe:forward",
    "lstm:forward",
    "gru:forward",
    "generate:greedy",
    "generate:beam",
    "nms:forward",
    "flash_attention:forward",
    "flash_attention:gradient",
    "train_cnn:sgd",
    "train_cnn:adam",
    "train_transformer:sgd",
    "train_transformer:adam",
)
HEADER = (
    "model",
    "ops",
    "kernels",
    "launches",
    "flops on NPU",
    "on the host",
    "us (modelled)",
    "largest error",
    "compile",
)
BEGIN, END = "<!-- models: begin -->", "<!-- models: end -->"


def error(got: Any, want: Any) -> float:
    """The largest difference of a flat output relative to its largest number; for integers the share that differs."""
    import jax
    import numpy as np

    worst = 0.0
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype.kind in "biu":
            worst = max(worst, float((a != b).mean()) if a.size else 0.0)
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        difference = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        largest = np.abs(b[np.isfinite(b)]).max(initial=0.0)
        worst = max(worst, float(difference.max(initial=0.0) / (largest or 1.0)))
    return worst


def measure(model: str) -> tuple[list[str], float]:
    """The row of a model, and its compile time over XLA's (best of two each, traced anew)."""
    import jax

    import tilewright as tw

    file, name = model.split(":")
    fn, args = load(f"{file}.py:{name}")
    ours = xla = float("inf")
    for _ in range(2):
        jax.clear_caches()
        start = time.perf_counter()
        jitted = jax.jit(fn).lower(*args).compile()
        xla = min(xla, time.perf_counter() - start)
        jax.clear_caches()
        start = time.perf_counter()
        program = tw.compile(fn, *args)
        ours = min(ours, time.perf_counter() - start)
    report = program.report()
    hosted = Counter(op.name for op in report.host_ops)
    ops = sum(op.name.startswith("graph.") for op in program.source.lower()[0].walk())
    row = [
        f"`{model}`",
        f"{ops:,}",
        f"{len(report.kernels)}",
        f"{sum(k.launches - k.joined for k in report.kernels):,}",
        f"{100 * report.npu_flops_fraction:.3f} %",
        ", ".join(f"{n} x {name}" if n > 1 else name for name, n in hosted.items()) or "-",
        f"{report.microseconds:,.0f}",
        f"{error(program(*args), jitted(*args)):.1e}",
        f"{ours / xla:.2f}",
    ]
    return row, ours / xla


def main() -> int:
    """Prints the table, 1 where a model fails. Each has a process of its own: weights and executables stay there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="FILE:FUNCTION", default=list(MODELS))
    parser.add_argument("--page", metavar="FILE.md", help="put the table between the marks of a page")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        row, ratio = measure(args.models[0])
        print("\t".join([*row, f"{ratio}"]))
        return 0
    lines = [f"| {' | '.join(HEADER)} |", "|" + "|".join(["---", *["---:"] * 4, "---", *["---:"] * 3]) + "|"]
    ratios, failed = [], []
    print("\n".join(lines), flush=True)
    for model in args.models:
        done = subprocess.run([sys.executable, __file__, "--one", model], capture_output=True, text=True)
        if done.returncode:
            failed.append(model)
            print(f"{model}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            continue
        *row, ratio = done.stdout.strip().splitlines()[-1].split("\t")
        ratios.append(float(ratio))
        lines.append(f"| {' | '.join(row)} |")
        print(lines[-1], flush=True)
    lines += [
        "",
        f"Compile time over XLA's: median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}.",
    ]
    print("\n".join(lines[-2:]))
    if args.page and not failed:
        from tilewright.support.files import write_part

        write_part(args.page, BEGIN, END, "\n".join(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
