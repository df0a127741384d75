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
                "out-of-bounds", op, "leaves device memory", f"a box from byte {address} of {len(self.arena)} on"
            ) from None

    def shadow(
        self, of: np.ndarray, address: int, sizes: Sequence[int], strides: Sequence[int], width: int
    ) -> np.ndarray:
        """The same box of `of`, an i32 number for each granule."""
        granule, unit = self.granule, of.itemsize
        steps = [s * unit // granule for s in strides]
        if width == granule:
            return np.ndarray(sizes, of.dtype, of, address // granule * unit, steps)
        return np.ndarray((*sizes, width // granule), of.dtype, of, address // granule * unit, (*steps, unit))

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
        shadow = self.shadow(self.writer, address, x.shape, strides, x.dtype.itemsize)
        shadow[...] = self.record(mark, tensor.owner)

    def read(
        self, tensor: Tensor, address: int, sizes: Sequence[int], strides: Sequence[int], dtype: np.dtype, op: Operation
    ) -> np.ndarray:
        """A copy of a box of a tensor."""
        x = self.window(address, sizes, strides, dtype, op)
        if x.size:
            self.check(tensor, self.shadow(self.writer, address, sizes, strides, dtype.itemsize), op)
        return x.copy()

    def check(self, tensor: Tensor, shadow: np.ndarray, op: Operation) -> Sequence[int]:
        """The numbers of the writes that made what a box holds. Raises UninitialisedRead and Overwritten."""
        first, last = int(shadow.min()), int(shadow.max())
        if first == 0:
            raise fault("uninitialised", op, "reads bytes that nothing wrote", self.said(tensor, shadow, 0))
        found = (first,) if first == last else np.unique(shadow).tolist()
        owners, owner = self.owners, tensor.owner
        for number in found:
            if owners[number] != owner:
                by = self.log[number]
                what = "reads a tensor over which " + (f"'{by.op.name}' wrote another one" if by else "another one is")
                raise fault("overlap", op, what, self.said(tensor, shadow, number))
        return found

    def said(self, tensor: Tensor, shadow: np.ndarray, number: int) -> str:
        """Which bytes of a tensor a box has of a write, as text."""
        base = self.writer.__array_interface__["data"][0]
        at = np.argwhere(shadow == number)[0]
        place = shadow.__array_interface__["data"][0] + int(np.dot(at, shadow.strides)) - base
        byte = place // self.writer.itemsize * self.granule - tensor.address
        count = int((shadow == number).sum()) * self.granule
        return f"{tensor}, {count} bytes from byte {byte} of it on"

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
