"""Runs cases of the StableHLO conformance suite at the npu level and judges each result.

The suite is a directory with `suite_loader.py` (cases, permuted inputs), `golden.py` (XLA as the golden model, the
strict rules) and `stablehlo/` (the cases).
"""

from __future__ import annotations

import functools
import importlib.util
import re
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
from conformance_bounds import bound_of

import tilewright as tw

Status = Literal["strict", "documented", "failed"]
ORDER: tuple[Status, ...] = ("strict", "documented", "failed")
Case = dict[str, Any]


class SuiteMissing(Exception):
    """The directory is not a conformance suite: one sentence."""


@dataclass
class Verdict:
    """How one run of a case came out; `why` is the bound's reason or what failed."""

    status: Status
    why: str = ""


@dataclass
class Record:
    """A case's results. verdicts: by inputs (`original`, `permuted 1`...); host: ops that ran on the host;
    seconds: compiling and running, without the golden model; in_bytes: whether addressed memory was compared."""

    name: str
    op: str
    dtype: str
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    host: list[str] = field(default_factory=list)
    seconds: float = 0.0
    in_bytes: bool = False

    @property
    def worst(self) -> Verdict:
        return max(self.verdicts.values(), key=lambda v: ORDER.index(v.status))


@dataclass
class Quantized:
    """A quantized module's result: its own assertion holds (`equal`), fails (`differs`), or the module is `refused`
    with `message`."""

    name: str
    status: Literal["equal", "differs", "refused"]
    message: str = ""


@functools.cache
def module_of(suite: str, name: str) -> ModuleType:
    """`name`.py of the suite. Raises SuiteMissing where it is absent."""
    path = Path(suite) / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"conformance_{name}", path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise SuiteMissing(f"{suite} has no {path.name}: give the directory of the conformance suite")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.lru_cache(maxsize=2)
def cases(suite: str) -> list[Case]:
    """All cases with `pure` text. Raises SuiteMissing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the loader leaves closing its files to Python
        return list(module_of(suite, "suite_loader").cases(str(Path(suite) / "stablehlo")))


def quantized(suite: str) -> list[Path]:
    """The quantized modules, which have no golden model but the constants inside."""
    return sorted((Path(suite) / "stablehlo" / "quantized").glob("*.mlir"))


# -- one case ------------------------------------------------------------------------------------------


def run_case(suite: str, case: Case, seeds: Iterable[int], in_bytes: bool) -> Record:
    """Compile a case once and run it on its own inputs and on one permutation of them for each seed."""
    record = Record(case["pure"].removeprefix("pure/").removesuffix(".mlir"), case["main_op"], case["dtype"])
    sets = {"original": case["inputs"]}
    sets |= {f"permuted {s}": module_of(suite, "suite_loader").fresh(case, s) for s in seeds}
    try:
        start = time.perf_counter()
        program = tw.compile(case["text"])
        record.host = host_ops(program)
        for name, inputs in sets.items():
            got = [np.asarray(x) for x in program.executable("typed")(*program.flatten(inputs))]
            record.seconds += time.perf_counter() - start
            record.verdicts[name] = _judge(suite, case, inputs, got, name == "original")
            start = time.perf_counter()
        if in_bytes:
            record.in_bytes = True
            got = [np.asarray(x) for x in program.executable("bytes")(*program.flatten(case["inputs"]))]
            same = [np.asarray(x) for x in program.executable("typed")(*program.flatten(case["inputs"]))]
            if any(a.tobytes() != b.tobytes() for a, b in zip(got, same, strict=True)):
                record.verdicts["bytes"] = Verdict("failed", "typed and bytes memory differ")
    except Exception as e:  # whatever it raises, the other cases go on
        line = str(e).strip().splitlines()[0] if str(e).strip() else ""
        record.verdicts["error"] = Verdict("failed", f"{type(e).__name__}: {line}")
    return record


def host_ops(program: tw.Program) -> list[str]:
    """Names of the ops that a program runs on the host."""
    return [op.op.data for op in program.module().walk() if op.name == "npu.host_call"]


def _judge(
    suite: str, case: Case, inputs: list[np.ndarray], got: Sequence[np.ndarray], original: bool
) -> Verdict:
    golden = module_of(suite, "golden")
    want = case["expected"] if original else _golden_of(suite, case)(inputs)
    verdict = Verdict("strict")
    for i, (a, b, check) in enumerate(zip(got, want, case["checks"], strict=True)):
        b = np.asarray(b)
        strict, _, message = golden.compare(a, b, *check)
        if strict:
            continue
        bound = bound_of(case["ops"], a.dtype)
        if bound is None or a.dtype != b.dtype or a.shape != b.shape:
            return Verdict("failed", message)
        run = functools.partial(golden.run_xla, case["text"])
        allowed = bound.tolerance(b.dtype, inputs, b, run, i)
        if not within(a, b, allowed):
            return Verdict("failed", f"{message}; beyond the bound for {bound.what}")
        verdict = Verdict("documented", bound.what)
    return verdict


def within(a: np.ndarray, b: np.ndarray, allowed: np.ndarray) -> bool:
    """Whether each |a - b| is at most `allowed`; NaN and infinities must be equal."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        return bool(np.all(same | (np.abs(x - y) <= allowed)))


def _golden_of(suite: str, case: Case) -> Callable[[list[np.ndarray]], list[np.ndarray]]:
    """XLA; where the index says that XLA misses the case's own constants, StableHLO's reference interpreter."""
    if case["xla_cpu"] == "mismatch":
        return functools.partial(_reference, case["text"])
    return functools.partial(module_of(suite, "golden").run_xla, case["text"])


def _reference(text: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    from tilewright.frontends import bindings

    with bindings.context():
        args = [ir.DenseElementsAttr.get(np.ascontiguousarray(x)) for x in inputs]
        return [np.array(x) for x in stablehlo.eval_module(ir.Module.parse(text), args)]


# -- one quantized module --------------------------------------------------------------------------------


def run_quantized(path: Path) -> Quantized:
    """Compile and run a module whose assertion is a custom call; other exceptions than CompileError pass."""
    text = path.read_text()
    assertion = re.search(r"(%\w+) = stablehlo\.custom_call @check\.eq\(.*-> (tensor<i1>)", text)
    if assertion:  # some modules return what they computed instead of what they assert
        text = re.sub(r"(@main\(\) -> )tensor<.*>( \{)", r"\1tensor<i1>\2", text, count=1)
        text = re.sub(r"return %.*", f"return {assertion.group(1)} : tensor<i1>", text)
    try:
        tw.compile(path)  # as it is, so that a refusal names the line of the file
        program = tw.compile(text)
    except tw.CompileError as e:
        return Quantized(path.stem, "refused", str(e))
    return Quantized(path.stem, "equal" if bool(np.asarray(program()).all()) else "differs")
