"""Where the npu level may differ from a case's strict rule: one table, by class of op and element type.

docs/conformance.md shows the same table; a test compares them. A row never names a case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tilewright.dialects.dtypes import name_of_numpy

Scale = Literal["terms", "largest"]


@dataclass(frozen=True)
class Bound:
    """A class of ops in some element types, and the error it may have.

    ops, dtypes: a case is of the class where it has all of these ops and one of these types. scale: `terms` allows
    n x eps x (sum of the magnitudes of the n terms that an element adds up), which any order and any place of
    rounding keeps; `largest` allows `units` x eps x the largest expected magnitude. eps: distance from 1 to the
    next number of the type.
    """

    what: str
    ops: frozenset[str]
    dtypes: frozenset[str]
    scale: Scale
    reason: str
    units: int = 1

    @property
    def allowed(self) -> str:
        """The bound as the table shows it."""
        if self.scale == "terms":
            return "n eps (sum of the magnitudes of the n terms)"
        return f"{self.units} eps (largest magnitude of the result)"

    def tolerance(
        self, dtype: np.dtype, inputs: list[np.ndarray], expected: np.ndarray, golden: Golden, result: int
    ) -> np.ndarray:
        """The largest error of each element of result number `result`, in f64.

        golden: runs the case's program on other inputs. A sum of products is linear in each input, so on ones it
        counts its terms, and on magnitudes it adds up theirs.
        """
        import ml_dtypes

        eps = float(ml_dtypes.finfo(dtype).eps)
        if self.scale == "terms":
            terms = np.asarray(golden([np.ones_like(x) for x in inputs])[result]).astype(np.float64)
            total = np.asarray(golden([np.abs(x) for x in inputs])[result]).astype(np.float64)
            return terms * eps * total
        finite = np.abs(expected.astype(np.float64)[np.isfinite(expected.astype(np.float64))])
        return np.full(expected.shape, self.units * eps * float(finite.max(initial=0.0)))


Golden = Callable[[list[np.ndarray]], list[np.ndarray]]

BOUNDS: tuple[Bound, ...] = (
    Bound(
        "sums over windows in f16 and bf16",
        frozenset({"reduce_window", "add"}),
        frozenset({"f16", "bf16"}),
        "terms",
        "The vector unit adds a window in f32 and rounds once; the reference rounds after every addition.",
    ),
    *(
        Bound(
            f"{name} in f32",
            frozenset({op}),
            frozenset({"f32"}),
            "terms",
            "The cube adds products to an f32 accumulator in an order of its own, and vector cores, which compute "
            "those of few rows, round each product before; where terms cancel, that moves the small result by many "
            "units in its last place.",
        )
        for name, op in (("products", "dot_general"), ("convolutions", "convolution"))
    ),
    Bound(
        "triangular solves in f32",
        frozenset({"triangular_solve"}),
        frozenset({"f32"}),
        "largest",
        "A host op, solved by XLA; the suite's constants come from another solver, and XLA itself misses them.",
        units=8,
    ),
    *(
        Bound(
            f"{name}, and what is made of it, in f32 and bf16",
            frozenset({op}),
            frozenset({"f32", "bf16"}),
            "largest",
            "StableHLO's polynomials for it: the vector unit multiplies, rounds, adds and rounds; XLA on the CPU "
            "contracts the two into one rounding. Both are as far from the function itself.",
            units=4,
        )
        for name, op in (("lgamma", "chlo.lgamma"), ("Bessel's I1", "chlo.bessel_i1e"))
    ),
)
"""Every documented bound."""


def bound_of(ops: Iterable[str], result: np.dtype) -> Bound | None:
    """The bound for a result of a program with these ops; None where the strict rule holds."""
    return next((b for b in BOUNDS if b.ops <= set(ops) and name_of_numpy(result) in b.dtypes), None)


def table() -> str:
    """The bounds as a Markdown table."""
    rows = [f"| {b.what} | {b.allowed} | {b.reason} |" for b in BOUNDS]
    return "\n".join(["| class | allowed error of an element | reason |", "|---|---|---|", *rows])
