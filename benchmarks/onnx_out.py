"""Every model of examples/ as ONNX: how large it is, and how far its values are off JAX's, by ONNX's own evaluator and
read back.

python benchmarks/onnx_out.py                          # all models, some twenty minutes
python benchmarks/onnx_out.py vit:forward moe:forward  # some of them
python benchmarks/onnx_out.py --page docs/onnx.md      # and put the table between the marks of the page
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks")]

from models import MODELS, error  # noqa: E402  # found on the path above
from run import load  # noqa: E402

HEADER = ("model", "nodes", "KB", "ONNX's evaluator", "read back")
BEGIN, END = "<!-- models: begin -->", "<!-- models: end -->"
PATIENCE = 240
"""Seconds that ONNX's evaluator has: it multiplies numbers of f16 one by one."""
BUG = ("array objects", "is out of bounds for axis 0")
"""What numpy says where the evaluator's GatherElements goes along more than 64 elements (onnx/reference/ops/
op_gather_elements.py takes numpy.choose)."""


def measure(model: str, evaluate: bool) -> list[str]:
    """The row of a model."""
    import jax
    import numpy as np
    import onnx
    from onnx.reference import ReferenceEvaluator

    from tilewright.api.onnx_models import to_onnx
    from tilewright.api.sources import origin_of
    from tilewright.frontends.onnx import OnnxFunction, read_model

    fn, args = load(model.replace(":", ".py:"))
    made = to_onnx(origin_of(fn, args), {}, None)
    onnx.checker.check_model(made, full_check=True)
    flat = [np.asarray(x) for x in jax.tree.leaves(args)]
    want = jax.tree.leaves(jax.jit(fn)(*args))
    with jax.enable_x64(True):
        back = jax.tree.leaves(jax.jit(OnnxFunction(read_model(made)))(*flat))
    errors = ["-", f"{error(back, want):.1e}"]
    if evaluate:
        try:
            given = dict(zip((v.name for v in made.graph.input), flat, strict=True))
            errors[0] = f"{error([np.asarray(x) for x in ReferenceEvaluator(made).run(None, given)], want):.1e}"
        except (IndexError, ValueError) as bug:
            if not any(said in str(bug) for said in BUG):
                raise
    nodes = len(made.graph.node) + sum(len(f.node) for f in made.functions)
    return [f"`{model}`", f"{nodes:,}", f"{made.ByteSize() / 1e3:,.0f}", *errors]


def main() -> int:
    """Prints the table, 1 where a model fails. Each has a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="FILE:FUNCTION", default=list(MODELS))
    parser.add_argument("--page", metavar="FILE.md", help="put the table between the marks of a page")
    parser.add_argument("--one", choices=("evaluated", "read"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print("\t".join(measure(args.models[0], args.one == "evaluated")))
        return 0
    lines = [f"| {' | '.join(HEADER)} |", "|---|--:|--:|--:|--:|"]
    failed = []
    print("\n".join(lines), flush=True)
    for model in args.models:
        command = [sys.executable, __file__, model, "--one"]
        try:
            done = subprocess.run([*command, "evaluated"], capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            done = subprocess.run([*command, "read"], capture_output=True, text=True)
        if done.returncode:
            failed.append(model)
            print(f"{model}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            continue
        lines.append(f"| {' | '.join(done.stdout.strip().splitlines()[-1].split(chr(9)))} |")
        print(lines[-1], flush=True)
    if args.page and not failed:
        from tilewright.support.files import write_part

        write_part(args.page, BEGIN, END, "\n".join(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
