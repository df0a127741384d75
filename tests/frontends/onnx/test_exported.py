"""Nets that PyTorch exported, against what PyTorch gave: with the sizes of their inputs, and with open dimensions.

`exported/make.py` made the files, and needs PyTorch; these tests do not.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.export
import numpy as np
import onnx
import pytest
from exported_models import FOLDER, cases, filled
from tiering import later, sampled, some

import tilewright as tw

OPEN = ("bert", "bert_int8", "gpt", "gru", "mobilenet", "tagger", "unet", "vit")
FIXED = ("resnet18", "resnet18_int8", "yolo")
NAMES = sorted((*OPEN, *FIXED))
STATIC = [(name, i) for name in NAMES for i in range(2 if name in OPEN else 1)]
HOST: dict[str, list[str]] = {}
"""Ops that run on the host, for the nets that have some."""


@cache
def model(name: str) -> onnx.ModelProto:
    """A model with its weights."""
    return filled(FOLDER / f"{name}.onnx")


def host_ops(program: tw.Program) -> list[str]:
    """The ops of a program that run on the host."""
    return [op.op.data for op in program.module("npu").walk() if op.name == "npu.host_call"]


def check(name: str, got: Any, want: list[np.ndarray]) -> None:
    """Compares results: numbers of boxes exactly, floats within 1e-4 of the largest. What is rounded to int8 may be
    another number where the value is in the middle of two, and so may be what follows from it."""
    found = [np.asarray(v) for v in (got if isinstance(got, tuple | list) else [got])]
    assert [(v.shape, v.dtype) for v in found] == [(v.shape, v.dtype) for v in want]
    for a, b in zip(found, want, strict=True):
        if b.dtype.kind == "i":
            np.testing.assert_array_equal(a, b)
            continue
        error = np.abs(a.astype(float) - b) / np.abs(b).max()
        if name.endswith("int8"):
            assert error.max() <= 0.03, f"{name}: largest error {error.max():.3g} of the largest"
            error = np.quantile(error, 0.95)
        assert error.max() <= 1e-4, f"{name}: largest error {error.max():.3g} of the largest"


def check_program(name: str, program: tw.Program) -> None:
    """Checks that a program has kernels and a cost, and which of its ops run on the host."""
    report = program.report()
    assert report.kernels
    assert report.microseconds > 0
    want, host = HOST.get(name, []), host_ops(program)
    assert host == want, f"{name}: on the host are {host}, and should be {want}"


@sampled(21)
@pytest.mark.parametrize(("name", "i"), STATIC)
def test_with_the_sizes_of_the_inputs(name: str, i: int) -> None:
    case = cases(name)[i]
    program = tw.compile(model(name), *case.inputs)
    check(name, program(*case.inputs), case.outputs)
    check_program(name, program)


@sampled(15)
@pytest.mark.parametrize("target", ["ascend-910b4", "ascend-310", "ascend-950pr"])
@pytest.mark.parametrize("name", NAMES)
def test_for_other_chips(name: str, target: str) -> None:
    """From the shapes of inputs alone."""
    structs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in cases(name)[0].inputs]
    check_program(name, tw.compile(model(name), *structs, target=target))


BOUNDED = ("bert", "bert_int8")
"""Nets with 64 positions, so that no sequence is longer."""


@sampled(6)
@pytest.mark.parametrize("name", [n for n in OPEN if n not in BOUNDED])
def test_with_open_dimensions(name: str) -> None:
    """One program takes both sizes."""
    program = tw.compile(model(name))
    assert isinstance(program, tw.DynamicProgram)
    for case in cases(name):
        check(name, program(*case.inputs), case.outputs)
    assert len(program.versions) == 2
    for version in program.versions.values():
        check_program(name, version)


@sampled(2)
@pytest.mark.parametrize("name", BOUNDED)
def test_with_an_open_dimension_that_has_a_bound(name: str) -> None:
    """Without the bound, it is traced by size, and says what is missing."""
    assert "if an open size has a bound, say so in the example inputs" in repr(tw.compile(model(name)))
    sizes = jax.export.symbolic_shape("batch, seq", constraints=["seq <= 64"])
    program = tw.compile(model(name), *[jax.ShapeDtypeStruct(sizes, np.int64)] * 2)
    assert "traced by size" not in repr(program)
    for case in some(cases(name), 0, 3):
        check(name, program(*case.inputs), case.outputs)


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_small_and_say_nothing_of_the_machine_that_made_them(name: str) -> None:
    path = FOLDER / f"{name}.onnx"
    assert all(p.stat().st_size < 400 * 1024 for p in (path, path.with_suffix(".npz")))
    proto, content = onnx.load_model(path), path.read_bytes()
    assert b".py" not in content and b"site-packages" not in content
    graph = proto.graph
    noted = (proto, graph, *graph.node, *graph.input, *graph.output, *graph.value_info)
    assert not any(one.metadata_props or one.doc_string for one in noted)
    assert len(cases(name)) == (2 if name in OPEN else 1)
    onnx.checker.check_model(model(name), full_check=True)


BATCHES = (1, 2, 5, 7, 16, 33)
FIXED_BY_EXPORT = {
    "resnet18": r"into shape \(1, 512\)",
    "resnet18_int8": r"into shape \(1, 128\)",
    "yolo": r"into shape \(1, 3, 9, 8, 8\)",
}
"""Nets whose export holds for a batch of one alone, and what is said of others."""


@later()
@pytest.mark.parametrize("name", NAMES)
def test_all_batches_of_one_program(name: str) -> None:
    """Each example of a batch is what it is alone."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model(name))
    for value in proto.graph.input:
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    program = tw.compile(proto)
    case = cases(name)[-1]
    given, want = case.inputs, case.outputs
    for batch in BATCHES:
        inputs = [np.resize(x, (batch, *x.shape[1:])) for x in given]
        if batch > len(given[0]) and name in FIXED_BY_EXPORT:
            with pytest.raises(tw.CompileError, match=FIXED_BY_EXPORT[name]):
                program(*inputs)
            continue
        check(name, program(*inputs), [_of_batch(v, len(given[0]), batch) for v in want])


def _of_batch(result: np.ndarray, rows: int, batch: int) -> np.ndarray:
    """What the examples of a result are in a batch that has them again and again: along its first dimension, or the
    second one of states, which have layers before them."""
    axis = next((d for d in (0, 1) if result.shape[d] == rows), None)
    return result if axis is None else np.take(result, np.arange(batch) % rows, axis)
