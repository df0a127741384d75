"""`make demo`: a trained CNN compiled for an Ascend 910B1 model, checked against JAX, with its cost.

Trains a small CNN on scikit-learn's digits (cached afterwards), compiles it, runs the 360 test images through
the npu level, and compares every predicted class with JAX's.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import jax
import numpy as np

import tilewright as tw

sys.path.insert(0, str(Path(__file__).parent))
import digits_cnn


def main() -> int:
    started = time.perf_counter()
    params, images = digits_cnn.forward_inputs()
    labels = digits_cnn.test_labels()
    print(
        f"model: digits CNN, {sum(p.size for p in jax.tree.leaves(params)):,} parameters, trained in JAX "
        f"({time.perf_counter() - started:.1f} s, cached)"
    )

    started = time.perf_counter()
    program = tw.compile(digits_cnn.forward, params, images, target="ascend-910b1")
    print(f"compiled for {program.machine.name} in {time.perf_counter() - started:.2f} s: {program!r}")

    logits = np.asarray(program(params, images))
    reference = np.asarray(jax.jit(digits_cnn.forward)(params, images))
    classes, expected = logits.argmax(-1), reference.argmax(-1)
    same = int((classes == expected).sum())
    error = float(np.abs(logits - reference).max() / np.abs(reference).max())
    accuracy = float((classes == np.asarray(labels)).mean())
    print(
        f"npu level against JAX: {same} of {len(classes)} images in the same class, "
        f"largest error {error:.1e} of the largest logit; accuracy {accuracy:.1%}"
    )

    report = program.report()
    print()
    print(report.table())
    trace = Path("trace.json")
    program.trace(trace)
    print(f"timeline: {trace} (open in https://ui.perfetto.dev)")
    if same != len(classes):
        print("error: the npu level predicts other classes than JAX", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
