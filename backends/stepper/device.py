"""Device memory: an arena of bytes, and for each of them who wrote it last, and for which tensor.

Who wrote is kept for each *granule*, as many bytes as the smallest element of the program has: a number in `writer`, 0
where nobody did, that counts the writes in `log`. A write is for a tensor; who reads these bytes as another one reads
what was overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation, SSAValue

from .errors import fault
from .marks import Mark
from .places import UNTOUCHED


@dataclass(eq=False)
class Tensor:
    """A tensor in device memory. address, bytes: where it is; value: what the host program calls it; owner: a number of
    its contents, another one each time it is made anew."""

    value: SSAValue
    address: int
    bytes: int
    owner: int

    @property
    def name(self) -> str:
        return f"%{self.value.name_hint}" if self.value.name_hint else "a device tensor"

    def __str__(self) -> str:
        return f"{self.name} at device bytes {self.address}..{self.address + self.bytes - 1}"


@dataclass(slots=True)
class Region:
    """Elements of device memory: a box from `address` on, strides in bytes; or with `places` those of its elements.
    width: bytes of an element."""

    address: int
    sizes: Sequence[int]
    strides: Sequence[int]
    width: int
    places: np.ndarray | None = None


class Device:
    """The device memory of a run."""

    def __init__(self, size: int, granule: int) -> None:
        self.arena = np.full(-(-size // 8) * 8 or 8, UNTOUCHED, np.uint8)
        self.granule = granule
        self.writer = np.zeros(len(self.arena) // granule, np.int32)
        self.log: list[Mark | None] = [None]
        self.owners: list[int] = [0]
        self.next_owner = 1
        self.readings: list[Mark] = []
        """The reads that may meet a write, in order."""
        self.planes: dict[int, np.ndarray] = {}
        """For each queue of a block the number of its last read of each granule, where it may meet a write."""
        self.shared = np.zeros(0, np.int32)
        """Of what several blocks read, the number of a read that is no longer in a plane."""
        self.accumulated = False
        """Whether an instruction has accumulated: of several, the last write of a byte does not tell all."""
        self.denormals = False
        """Whether numbers may be there that XLA takes for zeros."""

    def new_owner(self) -> int:
        """A number for contents of a tensor that begin now."""
        self.next_owner += 1
        return self.next_owner - 1

    def window(
        self, address: int, sizes: Sequence[int], strides: Sequence[int], dtype: np.dtype, op: Operation
    ) -> np.ndarray:
        """The elements of a box as an array that shares their memory; strides in bytes. Raises OutOfBounds."""
        try:
            return np.ndarray(sizes, dtype, self.arena, address, strides)
        except (TypeError, ValueError):
            raise fault(
                "out-of-bounds",
                op,
                "leaves device memory",
                f"a box from byte {address} of {len(self.arena)} on",
            ) from None

    def shadow(self, of: np.ndarray, region: Region) -> np.ndarray:
        """What `of`, an i32 number for each granule, has for a region: a view of it, or a copy where that has
        places."""
        found = self._box(of, region)
        return found if region.places is None else found[region.places]

    def _box(self, of: np.ndarray, region: Region) -> np.ndarray:
        granule, unit, start = self.granule, of.itemsize, region.address // self.granule * of.itemsize
        steps = [s * unit // granule for s in region.strides]
        if region.width == granule:
            return np.ndarray(region.sizes, of.dtype, of, start, steps)
        return np.ndarray((*region.sizes, region.width // granule), of.dtype, of, start, (*steps, unit))

    def mark(self, of: np.ndarray, region: Region, number: int, where: np.ndarray | None = None) -> None:
        """Gives the granules of a region a number, or those of them `where` its shadow says so."""
        box = self._box(of, region)
        if region.places is None:
            box[... if where is None else where] = number
        elif where is None:
            box[region.places] = number
        else:
            found = box[region.places]
            found[where] = number
            box[region.places] = found

    def readers(self, queue: int) -> np.ndarray:
        """The number of a queue's last read of each granule."""
        if queue not in self.planes:
            self.planes[queue] = np.full(len(self.writer), -1, np.int32)
            if not self.shared.size:
                self.shared = np.full(len(self.writer), -1, np.int32)
        return self.planes[queue]

    def record(self, mark: Mark, owner: int) -> int:
        """The number of a write that happens now."""
        self.log.append(mark)
        self.owners.append(owner)
        return len(self.log) - 1

    # -- the host's accesses -------------------------------------------------------------------------------

    def write(self, tensor: Tensor, address: int, x: np.ndarray, strides: Sequence[int], mark: Mark) -> None:
        """Puts an array into a box of a tensor."""
        if not x.size:
            return
        self.window(address, x.shape, strides, x.dtype, mark.op)[...] = x
        self.mark(
            self.writer, Region(address, x.shape, strides, x.dtype.itemsize), self.record(mark, tensor.owner)
        )

    def read(
        self,
        tensor: Tensor,
        address: int,
        sizes: Sequence[int],
        strides: Sequence[int],
        dtype: np.dtype,
        op: Operation,
    ) -> np.ndarray:
        """A copy of a box of a tensor."""
        x = self.window(address, sizes, strides, dtype, op)
        if x.size:
            self.check(tensor, Region(address, sizes, strides, dtype.itemsize), op)
        return x.copy()

    def check(self, tensor: Tensor, region: Region, op: Operation) -> Sequence[int]:
        """The numbers of the writes that made what a region holds. Raises UninitialisedRead and Overwritten."""
        shadow = self.shadow(self.writer, region)
        first, last = int(shadow.min()), int(shadow.max())
        if first == 0:
            raise fault("uninitialised", op, "reads bytes that nothing wrote", self.said(tensor, region, 0))
        found = (first,) if first == last else np.unique(shadow).tolist()
        owners, owner = self.owners, tensor.owner
        for number in found:
            if owners[number] != owner:
                by = self.log[number]
                what = "reads a tensor over which " + (
                    f"'{by.op.name}' wrote another one" if by else "another one is"
                )
                raise fault("overlap", op, what, self.said(tensor, region, number))
        return found

    def said(self, tensor: Tensor, region: Region, number: int) -> str:
        """Which bytes of a tensor a region has of a write, as text."""
        granules = self.shadow(np.arange(len(self.writer), dtype=np.int32), region)
        found = np.unique(granules[self.shadow(self.writer, region) == number])
        first = int(found[0]) * self.granule - tensor.address
        return f"{tensor}, {len(found) * self.granule} bytes from byte {first} of it on"

    def is_clean(self, tensor: Tensor) -> bool:
        """Whether all bytes of a tensor were written, and hold its own contents."""
        granule = self.granule
        here = self.writer[tensor.address // granule : -(-(tensor.address + tensor.bytes) // granule)]
        if not here.size:
            return True
        first, last = int(here.min()), int(here.max())
        if first == 0:
            return False
        found = (first,) if first == last else np.unique(here).tolist()
        return all(self.owners[n] == tensor.owner for n in found)

    def who_wrote(self, address: int) -> Mark | None:
        """The last write of a byte."""
        return self.log[int(self.writer[address // self.granule])]
