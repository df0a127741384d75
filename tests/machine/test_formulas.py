"""What ops without an instruction are computed with gives their values as exactly as the table of functions says."""

from __future__ import annotations

import numpy as np
import pytest
from formulas import FORMULAS, Lanes
from scipy import special

from tilewright.dialects.elementwise import FUNCTIONS
from tilewright.machine import Machine
from tilewright.machine.parts import ALL_DTYPES

EXACT = {
    "erf": special.erf,
    "erfc": special.erfc,
    "logistic": special.expit,
    "tanh": np.tanh,
}
SHORT = {"f4": "f32", "f2": "f16"}

CASES = [("erf", "f4"), ("erf", "f2"), ("erfc", "f4"), ("logistic", "f4"), ("logistic", "f2"), ("tanh", "f4")]


def arguments(dtype: str) -> np.ndarray:
    """All f16 numbers, or many f32 ones of each magnitude; only finite ones."""
    if dtype == "f2":
        every = np.arange(1 << 16, dtype="u2").view("f2")
        return every[np.isfinite(every)]
    small = np.logspace(-30, 1.1, 200_001)
    return np.concatenate([small, -small, np.linspace(-100, 100, 200_001), [0.0, -0.0, 3e38, -3e38]]).astype("f4")


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_it_is_as_exact_as_its_row(name: str, dtype: str) -> None:
    on, x = Lanes(dtype), arguments(dtype)
    with np.errstate(over="ignore", under="ignore"):
        got = FORMULAS[name](on, x).astype("f8")
        want = EXACT[name](x.astype("f8"))
    least = float(np.finfo(dtype).tiny)
    magnitude = np.maximum(np.abs(want), least)
    if name == "tanh":
        magnitude = np.ones_like(want)  # its error is one of 1
    unit = np.spacing(magnitude.astype(dtype)).astype("f8")
    settled = np.where(np.abs(want) < least, np.minimum(np.abs(got), least) * np.sign(want), got)  # denormals are zeros
    worst = np.max(np.abs(settled - np.where(np.abs(want) < least, settled, want)) / unit)
    assert worst <= FUNCTIONS[name].ulps_in(SHORT[dtype]), (worst, float(x[np.argmax(np.abs(got - want) / unit)]))


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_machine_files_have_its_instructions(name: str, dtype: str) -> None:
    on = Lanes(dtype)
    FORMULAS[name](on, np.ones(3, dtype))
    for chip in Machine.names():
        by_dtype = Machine.load(chip).vector.expansions[name]
        listed = by_dtype.get(SHORT[dtype], by_dtype.get(ALL_DTYPES))
        assert listed is not None and sorted(listed) == sorted(on.instructions), chip


def test_steps_of_polynomials_are_one_instruction_where_there_is_one() -> None:
    fma = {chip: "f32" in Machine.load(chip).vector.rates.get("fma", {}) for chip in Machine.names()}
    assert [chip for chip, has in fma.items() if not has] == ["ascend-310", "ascend-910a", "systolic-tpu1"]
