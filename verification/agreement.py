"""How far a quantized program is from its twin and from the program that was quantized.

The twin computes in JAX what the quantized program should, integers included. Where a float lies between two stored
numbers, rounding it the other way moves a result by a step, and in deep nets steps add up to more than the results.
What a program may be off by is therefore measured against what quantization itself costs: the SQNR of the twin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

SQNR_MARGIN = 1.0
"""Decibels by which a program's SQNR may be below its twin's: then roundings have added a quarter of the noise of
quantization, 10 log10(1.26). In programs of integers they add nothing, elsewhere a thousandth or so."""


def decibels(signal: float, noise: float) -> float:
    """10 log10(signal / noise); infinite without noise."""
    if noise == 0:
        return float("inf")
    return 10 * float(np.log10(signal / noise)) if signal > 0 else float("-inf")


def sqnr(reference: Sequence[Any], outputs: Sequence[Any]) -> float:
    """The signal-to-noise ratio of flat outputs in dB: 10 log10 of the sum of squares over that of errors."""
    signal = sum(float(np.square(np.asarray(a, np.float64)).sum()) for a in reference)
    noise = sum(
        float(np.square(np.asarray(a, np.float64) - np.asarray(b, np.float64)).sum())
        for a, b in zip(reference, outputs, strict=True)
    )
    return decibels(signal, noise)


def cosine(reference: Sequence[Any], outputs: Sequence[Any]) -> float:
    """The cosine of the angle between flat outputs; where one of them is zero, 1 if the other one is, too, else 0."""
    a = np.concatenate([np.asarray(x, np.float64).ravel() for x in reference])
    b = np.concatenate([np.asarray(x, np.float64).ravel() for x in outputs])
    if not a.any() or not b.any():
        return float(not a.any() and not b.any())
    square = a @ a
    return float(a @ b / square * np.sqrt(square / (b @ b)))  # exactly 1 of what is the same


@dataclass(frozen=True)
class QuantizedAgreement:
    """A quantized program beside its twin and beside the original.

    numbers: of all results; equal: how many have the twin's value; largest: the largest difference from the twin,
    relative to the largest number of that result; sqnr, cosine: of the program against the original; twin_sqnr: the
    twin's, which is what quantization itself costs; both in dB; least: the SQNR that was asked for, in dB.
    """

    numbers: int
    equal: int
    largest: float
    sqnr: float
    cosine: float
    twin_sqnr: float
    least: float | None = None

    @property
    def bound(self) -> float:
        """The least SQNR in dB that is accepted: the twin's less `SQNR_MARGIN`, or what was asked for."""
        own = self.twin_sqnr - SQNR_MARGIN
        return own if self.least is None else max(own, self.least)

    @property
    def ok(self) -> bool:
        """Whether the program has the numbers of the twin, or its SQNR is within the bound; and what was asked for."""
        enough = self.least is None or self.sqnr >= self.least
        return enough and (self.equal == self.numbers or self.sqnr >= self.bound)

    def sentences(self) -> list[str]:
        """One sentence on the twin and one on the original."""
        if self.equal == self.numbers:
            twin = f"all {self.numbers:,} numbers equal those of the quantized twin in JAX"
        else:
            twin = (
                f"{self.equal:,} of {self.numbers:,} numbers equal those of the quantized twin in JAX, the others "
                f"are off by at most {self.largest:.2g} of the largest"
            )
        original = f"against the original: SQNR {self.sqnr:.1f} dB, cosine {self.cosine:.6f}; "
        original += f"the twin has {self.twin_sqnr:.1f} dB"
        if not self.ok:
            original += f". It DIFFERS: at least {self.bound:.1f} dB are expected"
        return [twin, original]

    def to_dict(self) -> dict[str, Any]:
        """Plain data; what is infinite is None."""
        data = {**asdict(self), "bound": self.bound}
        plain = {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in data.items()}
        return {**plain, "ok": self.ok}


def agreement(
    outputs: Sequence[Any], twin: Sequence[Any], original: Sequence[Any], least: float | None = None
) -> QuantizedAgreement:
    """Compares flat results: of the program, of its twin and of the original. Counts, masks and places say nothing of
    noise, so the SQNR is that of results in floats, where there are any."""
    numbers = equal = 0
    largest = 0.0
    flat = [(np.asarray(a), np.asarray(b).reshape(np.shape(a))) for a, b in zip(outputs, twin, strict=True)]
    for a, b in flat:
        same = (a == b) | ((a != a) & (b != b))
        numbers, equal = numbers + a.size, equal + int(same.sum())
        if not same.all():
            wide = [x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (a, b)]
            gap = np.abs(wide[0] - wide[1])[~same]
            top = np.abs(wide[1])[np.isfinite(wide[1])].max(initial=0.0) or 1.0
            largest = max(largest, float(np.nan_to_num(gap, nan=np.inf, posinf=np.inf).max()) / float(top))
    kept = [i for i, (a, _) in enumerate(flat) if a.dtype.kind not in "biu"] or list(range(len(flat)))
    ours, theirs, wanted = (
        [np.asarray(values[i]).reshape(flat[i][0].shape) for i in kept] for values in (outputs, twin, original)
    )
    return QuantizedAgreement(
        numbers, equal, largest, sqnr(wanted, ours), cosine(wanted, ours), sqnr(wanted, theirs), least
    )
