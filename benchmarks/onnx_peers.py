"""Other implementations on a sample of ONNX's backend suite, the one that `make test` has: how many cases of it each
passes, within the suite's own tolerance.

    python benchmarks/onnx_peers.py               # those that are installed
    python benchmarks/onnx_peers.py --every 1     # the whole suite

jaxonnxruntime, which makes JAX of ONNX as this project does, and onnxruntime are no dependencies: install them into an
environment of its own that has the project, too. jaxonnxruntime may take any input's value as known here.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ["JAXORT_ONLY_ALLOW_INITIALIZERS_AS_STATIC_ARGS"] = "0"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "conformance"))

from onnx_suite import KINDS, cases, compare, data_sets, is_left_out, model_of, run_case
from test_onnx import EVERY

Runner = Callable[[Any, list[Any]], Any]


def by_jaxonnxruntime(model: Any, inputs: list[Any]) -> Any:
    """The outputs of a model."""
    from jaxonnxruntime import backend

    return backend.run_model(model, inputs)


def by_onnxruntime(model: Any, inputs: list[Any]) -> Any:
    """The outputs of a model."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, by_name(model, inputs))


def by_reference(model: Any, inputs: list[Any]) -> Any:
    """The outputs of a model."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model).run(None, by_name(model, inputs))


def by_name(model: Any, inputs: list[Any]) -> dict[str, Any]:
    """The inputs of a model by their names."""
    return dict(zip((i.name for i in model.graph.input), inputs, strict=True))


def row(name: str, outcomes: Iterable[str]) -> str:
    """A line of the table."""
    counts = Counter(outcomes)
    return f"| {name} | {counts['passed']} | {counts['wrong']} | {counts['refused']} |"


PEERS: dict[str, tuple[str, Runner]] = {
    "jaxonnxruntime": ("jaxonnxruntime", by_jaxonnxruntime),
    "onnxruntime": ("onnxruntime", by_onnxruntime),
    "ONNX's own evaluator": ("onnx", by_reference),
}


def outcome(case: Any, run: Runner) -> str:
    """`passed`, `wrong` or `refused`: with an error of any kind."""
    model = model_of(case)
    try:
        for inputs, wanted in data_sets(case):
            got = run(model, inputs)
            compare(case, model, tuple(got) if isinstance(got, list | tuple) else got, wanted)
    except AssertionError:
        return "wrong"
    except Exception:  # each peer has errors of its own
        return "refused"
    return "passed"


def has_values(case: Any) -> bool:
    """Whether a case is one that the compiler is judged by."""
    values = [v for pair in data_sets(case) for side in pair for v in side]
    return not is_left_out(model_of(case), values)


def main() -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=EVERY, help="one case in so many")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    suite = cases(KINDS)
    numbers = [i for i in range(0, len(suite), args.every) if has_values(suite[i])]
    print(f"{len(numbers)} cases\n\n| | pass | wrong | refused |\n|---|--:|--:|--:|")
    ours = (run_case(i).status for i in numbers)
    print(
        row("Tilewright, at the npu level", ("wrong" if s in ("failed", "documented") else s for s in ours))
    )
    for name, (module, run) in PEERS.items():
        if find_spec(module) is None:
            print(f"{name} is not installed", file=sys.stderr)
            continue
        print(row(name, (outcome(suite[i], run) for i in numbers)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
