"""Mixed precision: its modes, and what a module says of the ops that were cast and of those that stayed f32.

    tilewright.precision = {kept = [["graph.exp", "its results grow ...", 4 : i64, "model.py:7"]],
                            mode = "mixed_float16", narrow = 31 : i64, products = 12 : i64}

The record is an attribute of the module, so that it is printed, parsed and copied with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute, Operation
from xdsl.utils.exceptions import VerifyException

from ..support.precisions import NARROW
from ..support.sentences import counted

PRECISION = "tilewright.precision"


@dataclass(frozen=True)
class KeptOps:
    """Ops of one name that stayed f32 for one reason: how many, and where the first is from (`file:line`)."""

    op: str
    why: str
    count: int
    source: str | None


@dataclass(frozen=True)
class PrecisionRecord:
    """What a mode made of a program.

    mode: its name; products: matrix products and convolutions that multiply the narrow type; narrow: ops that compute
    with it, these products among them; kept: those that compute with f32, and why. Ops that only move or convert
    elements do not count.
    """

    mode: str
    products: int
    narrow: int
    kept: tuple[KeptOps, ...]

    def sentences(self) -> list[str]:
        """What was cast, and a line for each reason why ops stayed f32, the most frequent first."""
        dtype = NARROW.get(self.mode, "a narrow type")
        said = [
            f"{self.mode}: {counted(self.products, 'product', 'products')} and "
            f"{counted(self.narrow - self.products, 'other op', 'other ops')} compute in {dtype}"
        ]
        by_reason: dict[str, list[KeptOps]] = {}
        for row in self.kept:
            by_reason.setdefault(row.why, []).append(row)
        for why, rows in sorted(by_reason.items(), key=lambda item: -sum(row.count for row in item[1])):
            names = ", ".join(f"{row.count} {row.op.removeprefix('graph.')}" for row in rows)
            said.append(f"in f32, since {why}: {names}")
        return said


def record_precision(module: ModuleOp, record: PrecisionRecord) -> None:
    """Writes a record on a module, in the place of an older one."""
    rows: Iterable[Attribute] = (
        ArrayAttr(
            [StringAttr(k.op), StringAttr(k.why), IntegerAttr(k.count, i64), StringAttr(k.source or "")]
        )
        for k in record.kept
    )
    module.attributes[PRECISION] = DictionaryAttr(
        {
            "kept": ArrayAttr(list(rows)),
            "mode": StringAttr(record.mode),
            "narrow": IntegerAttr(record.narrow, i64),
            "products": IntegerAttr(record.products, i64),
        }
    )


def recorded_precision(module: Operation) -> PrecisionRecord | None:
    """The record of a module; None where nothing was cast. Raises VerifyException for one that is damaged."""
    attr = module.attributes.get(PRECISION)
    if attr is None:
        return None
    try:
        if not isinstance(attr, DictionaryAttr):
            raise TypeError
        given: Any = attr.data
        return PrecisionRecord(
            given["mode"].data,
            given["products"].value.data,
            given["narrow"].value.data,
            tuple(
                KeptOps(op.data, why.data, count.value.data, source.data or None)
                for op, why, count, source in (row.data for row in given["kept"].data)
            ),
        )
    except (KeyError, AttributeError, TypeError, ValueError):
        raise VerifyException(
            f"has an attribute {PRECISION} that graph-precision did not write: take it away"
        ) from None
