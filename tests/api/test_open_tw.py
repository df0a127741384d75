"""`.tw` programs with open dimensions: each construct that takes dimensions, at many sizes, against the program that is
compiled for the size alone and against numpy, in both memories; and which sizes are versions for ranges."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from open_tw_cases import CASES, counted
from tiering import examples, sampled, xla_code

import tilewright as tw
from tilewright.api.sizes.templates import SizedProgram
from tilewright.dialects.dtypes import numpy_dtype
from tilewright.passes.templates import NoTemplate

Sizes = dict[str, int]
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples" / "tw")]

import twins  # noqa: E402  # found on the path above

FILES: dict[str, Path] = {}


@cache
def program_of(name: str) -> tw.DynamicProgram:
    path = FILES[name] = Path(mkdtemp()) / "f.tw"
    path.write_text(CASES[name].text + "\n")
    made: Any = tw.compile(str(path))
    assert isinstance(made, tw.DynamicProgram)
    return made


def arrays(types: Sequence[tuple[tuple[int, ...], str]], seed: int = 0) -> list[Any]:
    """Numbers for a program; indices are 0 or 1."""
    rng = np.random.default_rng(seed)
    return [
        (rng.standard_normal(shape) if dtype.startswith("f") else rng.integers(0, 2, shape)).astype(
            numpy_dtype(dtype)
        )
        for shape, dtype in types
    ]


def values(program: tw.Program, args: Sequence[Any], memory: Any = "typed") -> list[Any]:
    return [np.asarray(v) for v in program.executable(memory)(*program.flatten(args))]


def alike(got: Any, want: Any, bound: float) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    wide = want.astype(np.float64)
    largest = max(1, np.abs(wide[np.isfinite(wide)]).max(initial=0))
    np.testing.assert_allclose(got.astype(np.float64), wide, rtol=bound, atol=bound * largest)


def complaint(does: Callable[[], object]) -> str | None:
    """What is said to be wrong; None where nothing is."""
    try:
        does()
    except tw.CompileError as error:
        return str(error)
    return None


def check(name: str, sizes: Sizes, seed: int = 0) -> None:
    """A version gives what the program for its sizes alone gives, and numpy, in both memories; what is an error for
    these sizes is the same error."""
    case, program = CASES[name], program_of(name)
    bound = 1e-2 if "half" in name else 2e-4
    said = complaint(lambda: program.at(sizes))
    if said is not None:
        assert said == complaint(lambda: tw.compile(str(FILES[name]), *program.arguments(sizes)[0]))
        return
    version = program.at(sizes)
    args = arrays(version.inputs, seed)
    got = values(version, args)
    assert [v.tobytes() for v in got] == [v.tobytes() for v in values(version, args, "bytes")]
    for one, other in zip(got, values(version.alone(), args), strict=True):
        alike(one, other, bound)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy says that a mean of nothing is NaN
        want = case.fn(*args)
    if want is not None:
        alike(got[0], want, bound)


def sizes_of(name: str, numbers: Sequence[int]) -> Sizes:
    """Numbers for the sizes of a program, in turn."""
    return {s: numbers[i % len(numbers)] for i, s in enumerate(program_of(name).symbols)}


@sampled(66)
@pytest.mark.parametrize("name", CASES)
def test_every_construct_is_right_at_each_size(name: str) -> None:
    served, case = 0, CASES[name]
    for numbers in [(23, 9), (31, 12), (16, 5), (7, 3), (2, 2), (1, 3), (5, 1)]:
        sizes = sizes_of(name, numbers)
        check(name, sizes)
        served += isinstance(program_of(name).versions.get(tuple(sizes.values())), SizedProgram)
    reasons = [str(r) for r in program_of(name).ranges.values() if isinstance(r, NoTemplate)]
    assert not [r for r in reasons if r.startswith("internal error")]
    assert served >= 3 or not case.ranged, (served, reasons)


@examples(120)
@given(st.sampled_from(sorted(CASES)), st.data())
def test_every_construct_is_right_at_any_sizes(name: str, data: st.DataObject) -> None:
    sizes = {s: data.draw(st.integers(0, 40), s) for s in program_of(name).symbols}
    check(name, sizes, data.draw(st.integers(0, 99)))


EXAMPLES = {
    "examples/tw/lstm.tw": {},
    "examples/tw/beam.tw": {},
    "examples/tw/transformer.tw": {"E": 32},
    "examples/tw/mlp.tw": {},
    "tests/frontends/programs/cache.tw": {},
    "tests/frontends/programs/conv.tw": {},
    "tests/frontends/programs/gru.tw": {},
    "tests/frontends/programs/kmeans.tw": {"K": 5},
    "tests/frontends/programs/ode.tw": {},
    "tests/frontends/programs/qmlp.tw": {},
    "tests/frontends/programs/topk.tw": {"V": 40},
    "tests/frontends/programs/vit.tw": {"C": 3, "H": 16, "W": 24, "S": 7, "D": 32},
}
"""Programs whose dimensions are open, and sizes of those that have to be others' multiples."""


@sampled(12)
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_a_version_for_a_range(name: str) -> None:
    if name.startswith("examples"):
        twins.inputs(Path(name).stem)  # makes the file of weights that one of them reads
    program: Any = tw.compile(str(ROOT / name))
    assert isinstance(program, tw.DynamicProgram)
    served, rng = 0, np.random.default_rng(1)
    for _ in range(3):
        sizes = {s: EXAMPLES[name].get(s, int(rng.integers(5, 20))) for s in program.symbols}
        version = program.at(sizes)
        served += isinstance(version, SizedProgram)
        args = arrays(version.inputs)
        got = values(version, args)
        assert [v.tobytes() for v in got] == [v.tobytes() for v in values(version, args, "bytes")]
        for one, other in zip(got, values(version.alone(), args), strict=True):
            alike(one, other, 2e-2 if "cache" in name or "conv" in name else 2e-4)
    assert served >= (0 if "vit" in name else 2), list(map(str, program.ranges.values()))


@xla_code()
def test_xla_compiles_one_version_once() -> None:
    for memory in ("typed", "bytes"):
        program_of("a loop")
        program: Any = tw.compile(str(FILES["a loop"]), options=tw.Options(memory=memory))
        counts = []
        for t in (40, 57, 64, 33):
            x = arrays([((t, 24), "f32")], t)[0]
            alike(program(x), counted(x, 0, t), 1e-4)
            (version,) = program.ranges.values()
            ((_, executable),) = version.executables._made[memory]
            counts.append(sum(map(len, executable.compiled.values())))
        assert len(set(counts)) == 1


CHILD = """
import sys
import numpy as np
import tilewright as tw
from tilewright.api.sizes import templates

def fail(*args): raise AssertionError("it is lowered again")
if sys.argv[3] == "read":
    templates.lower_template = fail
program = tw.compile(sys.argv[1], options=tw.Options(cache=sys.argv[2]))
for t in (50, 41):
    x = np.full((t, 8), 3, np.float32)
    np.testing.assert_allclose(program(x), np.full((t, 8), 3 * float(sys.argv[4]) + 1 / (t / 2)), rtol=1e-6)
assert len(program.ranges) == 1 and type(program.at(T=50)).__name__ == "SizedProgram", program.ranges
"""
MODEL = """import "scale.tw" as scales

param w: f32[8] = "w.npz"["w"]

pub fn model(x: f32[T, 8]) -> f32[T, 8] {
    return scales.scaled(x) * w + 1 / (T / 2)
}
"""


def test_another_process_takes_a_version_and_follows_the_files(tmp_path: Path) -> None:
    """What is imported and the weights are part of what a version is found by."""
    path = tmp_path / "model.tw"
    path.write_text(MODEL)

    def run(what: str, factor: float) -> None:
        command = [sys.executable, "-c", CHILD, str(path), str(tmp_path / "kept"), what, str(factor)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert "Warning" not in ran.stderr

    def write(factor: float, weight: float) -> None:
        text = f"pub fn scaled(x: f32[A, B]) -> f32[A, B] {{\n    return x * {factor}\n}}\n"
        (tmp_path / "scale.tw").write_text(text)
        np.savez(tmp_path / "w.npz", w=np.full(8, weight, np.float32))

    write(2.0, 1.0)
    run("lower", 2.0)
    run("read", 2.0)
    write(4.0, 1.0)
    run("lower", 4.0)
    write(4.0, 0.5)
    run("lower", 2.0)


WRONG = {
    "at every size": "fn f(x: f32[T, 4]) -> f32[T, 4] {\n    return x @ y\n}",
    "an index outside of small ones": "fn f(x: f32[T, 4]) -> f32[4] {\n    return x[40]\n}",
    "what is not used": "const A = 1 / 0\n\nfn f(x: f32[T, 4]) -> f32[T, 4] {\n    return x\n}",
    "a number too large for its type": "fn f(x: i8[T, 4]) -> i8[T, 4] {\n    return x + 3 * T\n}",
    "a division by zero": "fn f(x: f32[T, 4]) -> f32[T, 4] {\n    return x / (1 / (T / 2 - 20.5))\n}",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_at_a_size_is_said_as_for_the_size_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "f.tw").write_text(WRONG[name] + "\n")
    program: Any = tw.compile(str(tmp_path / "f.tw"))
    wrong = 0
    for t in (33, 40, 41, 42, 50, 64):
        x = arrays([((t, 4), program.open_source.shapes.inputs[0][1])], t)
        said = complaint(lambda x=x: tw.compile(str(tmp_path / "f.tw"), *x))
        assert said == complaint(lambda x=x: program(*x))
        if said is None:
            alike(program(*x), tw.compile(str(tmp_path / "f.tw"), *x)(*x), 1e-5)
        wrong += said is not None
    assert wrong


def test_what_open_sizes_do_not_decide_is_compiled_for_each_size(tmp_path: Path) -> None:
    text = (
        "fn f(x: f32[T]) -> f32[T] {\n    if sqrt(T) > 6.5 {\n        x = x * 2.0\n    }\n    return x\n}\n"
    )
    (tmp_path / "f.tw").write_text(text)
    program: Any = tw.compile(str(tmp_path / "f.tw"))
    for t in (33, 42, 43, 64):
        np.testing.assert_array_equal(program(np.ones(t, np.float32)), np.full(t, 2 if t > 42.25 else 1))
    (reason,) = program.ranges.values()
    assert str(reason) == "a number that is computed from open sizes decides what the program is"


def test_the_choice_of_versions_says_what_follows_from_sizes() -> None:
    program = program_of("an eps of sizes")
    program.at(T=20, N=9)
    again: Any = tw.compile(program.ir("npu"))
    for t, n in ((20, 9), (32, 16), (17, 11)):
        args = arrays([((t, n), "f32"), ((n,), "f32")])
        alike(again(*args), program(*args), 1e-5)
