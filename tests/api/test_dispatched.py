"""The text of a program's choice of versions is a program itself, for the sizes that its versions are for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import export
from open_texts import ROWS_OF_FOUR

import tilewright as tw


def scaled(x: Any, w: Any) -> Any:
    return jax.nn.relu(x @ w) * x.shape[1]


def arrays(b: int, s: int) -> list[Any]:
    rng = np.random.default_rng(b * 100 + s)
    return [rng.standard_normal(shape).astype("f4") for shape in [(b, 8 * s), (8 * s, 16)]]


@pytest.fixture(scope="module")
def written() -> str:
    """Versions of two ranges, and one without."""
    b, s = export.symbolic_shape("b, s", constraints=["s <= 64"])
    program: Any = tw.compile(
        scaled, *(jax.ShapeDtypeStruct(shape, "float32") for shape in [(b, 8 * s), (8 * s, 16)])
    )
    program.at(b=20, s=10), program.at(b=3, s=10)
    return program.ir()


def test_it_runs_where_it_has_versions(written: str, tmp_path: Path) -> None:
    path = tmp_path / "choice.mlir"
    path.write_text(written)
    program: Any = tw.compile(path)
    assert isinstance(program, tw.DynamicProgram) and program.ir() == written
    for b, s in [(17, 9), (32, 16), (20, 13), (4, 10)]:
        args = arrays(b, s)
        np.testing.assert_allclose(program(*args), scaled(*args), rtol=1e-4, atol=1e-4)
    assert tw.verify(path, *arrays(19, 11), program=program, quick=True).ok
    assert program.report(at={"b": 20, "s": 10}).microseconds > 0


def test_other_sizes_are_refused(written: str) -> None:
    program: Any = tw.compile(written)
    with pytest.raises(
        tw.CompileError,
        match=r"^program has no version for b = 40, s = 10: compile its source .* where b >= 17",
    ):
        program(*arrays(40, 10))
    with pytest.raises(
        tw.CompileError, match=r"^program: s is 65 \(dimension 1 of argument x\), and must be at most 64$"
    ):
        program(*arrays(20, 65))
    with pytest.raises(tw.CompileError, match="has open sizes: say which"):
        program.ir("tile")


BROKEN = [
    (
        r"npu\.version @b3to4",
        "npu.version @b3to5",
        "'npu.dispatch' chooses @b3to5_s9to16, which does not exist",
    ),
    (r"guard = \"b >= 3 ", 'guard = "t >= 3 ', "and has no size t"),
    (
        r"func\.func @main\(%x: !npu\.gm<\?x\?xf32, sizes \[\"b\", \"8\*s\"\]>",
        'func.func @first(%x: !npu.gm<?x?xf32, sizes ["b", "8*s"]>',
        "its version @b17to32_s9to16 has no function @main",
    ),
    (r"\n *npu\.wait_flag[^\n]*", "", "kernel @contract_0: race: 'npu.load_l0'"),
]


@pytest.mark.parametrize(("old", "new", "said"), BROKEN, ids=["module", "guard", "main", "flag"])
def test_what_is_wrong_is_one_sentence(old: str, new: str, said: str, written: str) -> None:
    text, count = re.subn(old, lambda _: new, written, count=1)
    assert count
    with pytest.raises(tw.CompileError, match=re.escape(said)) as error:
        tw.compile(text)(*arrays(20, 10))
    assert "\n" not in str(error.value)


def test_sizes_in_values_decide() -> None:
    made: Any = tw.compile(ROWS_OF_FOUR)
    made.at(arg0=8, arg1_0=32)
    x = np.arange(20, dtype="f4")
    found = tw.compile(made.ir())(np.int32(5), x)
    np.testing.assert_array_equal(np.reshape(found, (5, 4)), x.reshape(5, 4))
