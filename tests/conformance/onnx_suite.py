"""The cases of ONNX's own backend suite: what they are, and what becomes of one at the npu level."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np

import tilewright as tw
from tilewright.api.onnx_sources import resolved

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")

Status = Literal["passed", "refused", "documented", "failed", "left out"]

APART = ("_bf16", "_bfloat16", "_fp16", "_e8m0_", "dft_inverse")
"""What is in the names of cases that may be apart by a rounding of a narrow type, by XLA's conversion to f8E8M0, or by
noise that the suite has where 0 is: docs/onnx.md says so. They do not count as passed."""

RANDOM = (
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)
"""Ops that draw numbers, which no two implementations draw alike: shapes and types are compared. So are those of a
dropout in training."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case. ops: those of its model; host: the ops that ran on the host; why: the message where it did
    not pass."""

    name: str
    kind: str
    ops: tuple[str, ...]
    status: Status
    why: str = ""
    host: tuple[str, ...] = ()
    in_bytes: bool = False
    seconds: float = field(default=0.0, compare=False)


@cache
def cases(kinds: tuple[str, ...]) -> list[Any]:
    """The cases of the suite, by kind, in the order that the package has them."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [case for kind in kinds for case in load_model_tests(kind=kind)]


def model_of(case: Any) -> Any:
    """The model of a case, which is in memory or in a folder."""
    import onnx

    return case.model if case.model is not None else onnx.load(f"{case.model_dir}/model.onnx")


def data_sets(case: Any) -> list[tuple[list[Any], list[Any]]]:
    """Inputs and outputs of a case."""
    if case.data_sets is not None:
        return [([_array(x) for x in xs], [_array(y) for y in ys]) for xs, ys in case.data_sets]
    import glob

    found = []
    for folder in sorted(glob.glob(f"{case.model_dir}/test_data_set_*")):
        sides = []
        for side in ("input", "output"):
            count = len(glob.glob(f"{folder}/{side}_*.pb"))
            sides.append([_read(f"{folder}/{side}_{i}.pb") for i in range(count)])
        found.append((sides[0], sides[1]))
    return found


def _read(path: str) -> Any:
    import onnx

    tensor = onnx.TensorProto()
    with open(path, "rb") as file:
        tensor.ParseFromString(file.read())
    return _array(tensor)


def _array(value: Any) -> Any:
    """A tensor as an array; sequences are lists."""
    from onnx import numpy_helper

    if isinstance(value, list | tuple):
        return [_array(v) for v in value]
    return numpy_helper.to_array(value) if hasattr(value, "data_type") else value


def ops_of(model: Any) -> tuple[str, ...]:
    """The op types of a model's graph, each once."""
    return tuple(sorted({n.op_type for n in model.graph.node}))


def _leaves(values: Sequence[Any]) -> list[Any]:
    return [leaf for v in values for leaf in (_leaves(v) if isinstance(v, list | tuple) else [v])]


def is_left_out(model: Any, values: Sequence[Any]) -> bool:
    """Whether a case has text, or element types of 8 or 4 bits that are floats."""
    text = any(
        isinstance(v, str | bytes) or (hasattr(v, "dtype") and v.dtype.kind in "OUS") for v in _leaves(values)
    )
    types = {v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)}
    narrow = types & set(_narrow())
    return text or bool(narrow) or any(n.op_type == "ImageDecoder" for n in model.graph.node)


@cache
def _narrow() -> tuple[int, ...]:
    from onnx import TensorProto

    return tuple(
        number
        for name, number in TensorProto.DataType.items()
        if name.startswith(("FLOAT8", "FLOAT4", "STRING"))
    )


def opened(model: Any) -> Any:
    """A model each of whose dimensions is open, all under names of their own."""
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(model)
    kinds = [v.type.tensor_type for v in made.graph.input if v.type.HasField("tensor_type")]
    for k, dim in enumerate(d for kind in kinds for d in kind.shape.dim):
        dim.dim_param = f"size{k}"
    for value in made.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return made


def run_case(
    number: int, in_bytes: bool = False, kinds: tuple[str, ...] = KINDS, is_open: bool = False
) -> Outcome:
    """Compiles a case and runs it at the npu level. is_open: compiled without inputs, all dimensions open; a case whose
    values decide shapes is left out."""
    case = cases(kinds)[number]
    start = time.perf_counter()
    model = opened(model_of(case)) if is_open else model_of(case)
    sets = data_sets(case)

    def outcome(status: Status, why: str = "", host: tuple[str, ...] = ()) -> Outcome:
        said = " ".join(why.split())[:400]
        return Outcome(
            case.name, case.kind, ops_of(model), status, said, host, in_bytes, time.perf_counter() - start
        )

    host: set[str] = set()
    try:
        for inputs, wanted in sets:
            source, args, _ = (model, inputs, {}) if is_open else resolved(model, inputs, {})
            program = tw.compile(source, *(() if is_open else args))
            if is_open:
                compare(case, model, program(*args), wanted)
                continue
            host |= {op.op.data for op in program.module("npu").walk() if op.name == "npu.host_call"}
            compare(case, model, program(*args), wanted)
            if in_bytes:
                executable = program.executable("bytes")
                flat = program.flatten(args)
                typed = program.executable("typed")(*flat)
                for a, b in zip(executable(*flat), typed, strict=True):
                    if np.asarray(a).tobytes() != np.asarray(b).tobytes():
                        raise AssertionError("the two memories differ")
    except tw.CompileError as error:
        values = [v for pair in sets for side in pair for v in side]
        told = is_open and re.search(
            "give its value|give the value|no shape in the model|no tensor but", str(error)
        )
        return outcome("left out" if told or is_left_out(model, values) else "refused", str(error))
    except AssertionError as error:
        apart = any(a in case.name for a in APART) and "Not equal to tolerance" in str(error)
        return outcome("documented" if apart else "failed", str(error))
    except Exception as error:
        return outcome("failed", f"{type(error).__name__}: {error}")
    return outcome("passed", host=tuple(sorted(host)))


def compare(case: Any, model: Any, got: Any, wanted: Sequence[Any]) -> None:
    """Raises AssertionError where results are not those of a case within its own tolerance."""
    given = list(got) if isinstance(got, tuple) else [got]
    assert len(given) == len(wanted), f"{len(given)} outputs where there are {len(wanted)}"
    drawn = any(op in RANDOM for op in ops_of(model)) or re.search("bernoulli|training_dropout", case.name)
    for a, b in zip(given, wanted, strict=True):
        _compare(a, b, case.rtol, case.atol, bool(drawn))


def _compare(a: Any, b: Any, rtol: float, atol: float, drawn: bool) -> None:
    if isinstance(b, list):
        assert isinstance(a, list | tuple), "no sequence"
        assert len(a) == len(b), f"a sequence of {len(a)} where it has {len(b)}"
        for x, y in zip(a, b, strict=True):
            _compare(x, y, rtol, atol, drawn)
        return
    if b is None:
        assert a is None, "something where nothing is"
        return
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype, f"{a.dtype} where it is {b.dtype}"
    assert a.shape == b.shape, f"{a.shape} where it is {b.shape}"
    if drawn:
        return
    if b.dtype.kind in "biufc":
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
    else:
        np.testing.assert_allclose(a.astype(np.float32), b.astype(np.float32), rtol=rtol, atol=atol)
