"""Parts of a tensor, however large it is: runs of elements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....dialects.npu import GmType


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the `total` elements of a tensor: those from starts[i] to before ends[i], in order, with gaps between."""

    starts: np.ndarray
    ends: np.ndarray
    total: int

    @staticmethod
    def of(elements: np.ndarray, total: int) -> Part:
        """Of flat element numbers in ascending order."""
        elements = elements.astype(np.int64)
        new = np.flatnonzero(np.diff(elements, prepend=-2) != 1)
        last = np.append(new[1:], len(elements)) - 1
        return Part(elements[new], elements[last] + 1 if len(elements) else elements, total)

    @staticmethod
    def shown(view: GmType, total: int) -> Part:
        """What a view, with all of its dimensions, shows of a tensor: one run for each of its rows, or for more of
        them where they follow each other."""
        if 0 in view.shape:
            return Part.of(np.zeros(0, np.int64), total)
        first = view.offset + sum(min((n - 1) * s, 0) for n, s in zip(view.shape, view.strides, strict=True))
        starts, run = np.array([first], np.int64), 1
        for stride, n in sorted((abs(s), n) for s, n in zip(view.strides, view.shape, strict=True)):
            if stride <= run:  # the next one begins within this run or right behind it
                run += stride * (n - 1)
            else:
                starts = (starts[:, None] + np.arange(n) * stride).reshape(-1)
        return Part(starts, starts + run, total) | Part.of(starts[:0], total)

    def __or__(self, other: Part) -> Part:
        starts = np.concatenate([self.starts, other.starts])
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.concatenate([self.ends, other.ends])[order]
        reach = np.maximum.accumulate(ends)
        new = np.flatnonzero(np.append([True], starts[1:] > reach[:-1])[: len(starts)])
        return Part(starts[new], reach[np.append(new[1:], len(starts)) - 1] if len(new) else reach, self.total)

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return int((self.ends - self.starts).sum())

    @property
    def whole(self) -> bool:
        """Whether it is all of the tensor."""
        return self.elements == self.total

    def missing(self) -> int:
        """The first element that it does not have; the total where it has all."""
        return int(self.ends[0]) if len(self.starts) and self.starts[0] == 0 else 0

    def covers(self, other: Part) -> bool:
        """Whether it has all that another part of the same tensor has."""
        return self.total == other.total and (self | other).elements == self.elements

    def has(self, elements: np.ndarray) -> bool:
        """Whether it has all of these flat elements."""
        if not len(self.starts):
            return elements.size == 0
        at = np.searchsorted(self.starts, elements, side="right") - 1
        return bool(((at >= 0) & (elements < self.ends[at])).all())
