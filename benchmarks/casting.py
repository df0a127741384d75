"""What mixed_float16 makes of the f32 models of examples/: modelled microseconds by chip, the error, what stayed f32.

python benchmarks/casting.py                            # all models, some ten minutes
python benchmarks/casting.py gpt2:forward moe:forward   # some of them
python benchmarks/casting.py --page docs/precision.md   # and put the tables between the marks of the page

A model whose arguments are f16 runs as f32 (`as f32` in the table). Weights are packed, unless they are trained: they
are cast once, which is no part of the microseconds. A program that needs more memory than the chip has is `too large`.
Errors are norms: |got - want| over |want|, of the float result where that is largest; `want` is what JAX gives in f32.
Values are those of the cast graph level, which tw.verify holds the lower levels to; integers (tokens, kept boxes)
count as the share that differs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks")]

from run import load  # noqa: E402  # found on the path above

TARGETS = ("ascend-310", "ascend-310p3", "ascend-910a")
MODE = "mixed_float16"
MODELS = (
    "digits_cnn:forward",
    "gpt2:forward",
    "bert:forward",
    "vit:forward",
    "resnet50:forward",
    "mobilenet_v2:forward",
    "unet:forward",
    "moe:forward",
    "lstm:forward",
    "gru:forward",
    "llama:prefill",
    "llama:decode",
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
BEGIN, END = "<!-- casting: begin -->", "<!-- casting: end -->"
REASONS = 4
"""Reasons of a model that its row of the table names, the most frequent ones."""


def as_f32(args: Any) -> tuple[Any, bool]:
    """Arguments with f32 in the place of narrower floats, and whether there were any."""
    import jax
    import jax.numpy as jnp

    narrow = [x for x in jax.tree.leaves(args) if x.dtype in (jnp.float16, jnp.bfloat16)]
    cast = jax.tree.map(
        lambda x: x.astype(jnp.float32) if x.dtype in (jnp.float16, jnp.bfloat16) else x, args
    )
    return cast, bool(narrow)


def norm_error(got: Any, want: Any) -> tuple[float, float]:
    """Of flat results, the largest norm of a difference relative to the norm of what it should be, and the largest
    share of integers that differ. What is infinite or NaN in both counts as equal, in one as an infinite error."""
    import numpy as np

    floats = integers = 0.0
    for a, b in zip(got, want, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape
        if b.dtype.kind in "biu":
            integers = max(integers, float((a != b).mean()) if b.size else 0.0)
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        gap = np.linalg.norm(np.where(same, 0.0, a - b))
        size = np.linalg.norm(np.where(np.isfinite(b), b, 0.0))
        floats = max(floats, float(gap / size) if size else float(gap))
    return floats, integers


def measure(model: str) -> dict[str, Any]:
    """What the tables say of a model."""
    import jax

    import tilewright as tw
    from tilewright.api.arguments.calls import call_of
    from tilewright.api.compiling import lower, reference_values
    from tilewright.backends.interpreter import run_graph
    from tilewright.passes.pipeline import run_stage

    file, name = model.split(":")
    fn, given = load(f"{file}.py:{name}")
    args, cast = as_f32(given)
    times: dict[str, list[float | None]] = {}
    record: Any = None
    for target in TARGETS:
        for mode in ("origin", MODE):
            report = _report(fn, args, target, mode)
            times.setdefault(target, []).append(report and report.microseconds)
            record = (report and report.precision) or record
    want = reference_values(call_of(fn, args, {}))
    options = tw.Options(precision=MODE)
    module, flat = lower(fn, *args, options=options)
    stage = next(s for s in options.stages() if s.optional)
    origin = norm_error(run_graph(module, *flat), want)
    run_stage(stage, module, TARGETS[0])
    mixed = norm_error(run_graph(module, *flat), want)
    reasons: Counter[str] = Counter()
    for kept in record.kept:
        reasons[kept.why] += kept.count
    jax.clear_caches()
    return {
        "model": model,
        "cast": cast,
        "times": times,
        "origin": origin,
        "mixed": mixed,
        "products": record.products,
        "narrow": record.narrow,
        "kept": sum(reasons.values()),
        "reasons": reasons.most_common(),
    }


def _report(fn: Any, args: Any, target: str, mode: str) -> Any:
    """The report of a program, with weights packed unless it trains them; None where it needs more memory than the
    device has."""
    import inspect

    import tilewright as tw

    names = inspect.signature(fn).parameters
    weights = "params" if "params" in names and not fn.__module__.startswith("train") else None
    options = tw.Options(precision=mode, weights=weights)
    try:
        return tw.compile(fn, *args, target=target, options=options).report()
    except tw.CompileError as error:
        if "device memory" not in str(error):
            raise
        return None


def tables(rows: list[dict[str, Any]]) -> list[str]:
    """Both tables, and the reasons that the second one names by letters."""
    lines = ["| model | " + " | ".join(f"{t}: f32, us | mixed, us | faster" for t in TARGETS) + " |"]
    lines.append("|---|" + "---:|" * (3 * len(TARGETS)))
    for row in rows:
        cells = []
        for origin, mixed in row["times"].values():
            cells += ["too large" if t is None else f"{t:,.0f}" for t in (origin, mixed)]
            cells.append(f"{origin / mixed:.1f}x" if origin and mixed else "")
        lines.append(f"| {_name(row)} | " + " | ".join(cells) + " |")
    total: Counter[str] = Counter()
    for row in rows:
        total.update(dict(row["reasons"]))
    letters = {why: chr(ord("a") + i) for i, (why, _) in enumerate(total.most_common())}
    lines += [
        "",
        "| model | f32 error | mixed error | integers that differ | products | ops in f16 | ops in f32 |",
    ]
    lines.append("|---|---:|---:|---:|---:|---:|---|")
    for row in rows:
        kept = ", ".join(f"{count} {letters[why]}" for why, count in row["reasons"][:REASONS])
        more = len(row["reasons"]) - REASONS
        kept += f", {more} more reason{'s' * (more > 1)}" if more > 0 else ""
        cells = [f"{row['origin'][0]:.1e}", f"{row['mixed'][0]:.1e}", f"{100 * row['mixed'][1]:.2g} %"]
        cells += [f"{row['products']}", f"{row['narrow']}", f"{row['kept']}: {kept}" if kept else "0"]
        lines.append(f"| {_name(row)} | " + " | ".join(cells) + " |")
    lines += ["", "Reasons, with the ops of all models that stay f32 for them:", ""]
    lines += [f"* {letters[why]}: {why} ({count:,})" for why, count in total.most_common()]
    return lines


def _name(row: dict[str, Any]) -> str:
    return f"`{row['model']}`" + (" as f32" if row["cast"] else "")


def main() -> int:
    """Prints the tables, 1 where a model fails. Each has a process of its own: weights and executables stay there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="FILE:FUNCTION", default=list(MODELS))
    parser.add_argument("--page", metavar="FILE.md", help="put the tables between the marks of a page")
    parser.add_argument(
        "--keep", metavar="FILE.json", help="rows that are known, and where new ones are added"
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.models[0])))
        return 0
    kept = Path(args.keep) if args.keep else None
    known: dict[str, Any] = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    failed = []
    for model in (m for m in args.models if m not in known):
        done = subprocess.run([sys.executable, __file__, "--one", model], capture_output=True, text=True)
        if done.returncode:
            failed.append(model)
            print(f"{model}: {(done.stderr.strip().splitlines() or ['?'])[-1]}", file=sys.stderr, flush=True)
            continue
        known[model] = json.loads(done.stdout.strip().splitlines()[-1])
        print(
            f"{model}: {known[model]['times']}, error {known[model]['mixed'][0]:.1e}",
            file=sys.stderr,
            flush=True,
        )
        if kept is not None:
            kept.write_text(json.dumps(known, indent=1))
    lines = tables([known[m] for m in args.models if m in known])
    print("\n".join(lines))
    if args.page and not failed:
        from tilewright.support.files import write_part

        write_part(args.page, BEGIN, END, "\n".join(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
