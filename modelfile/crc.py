"""The CRC-32 of bytes of which some are changed, without the others: of what a zip says of its members.

A CRC without its first and last inversion is linear over GF(2), so that the change of a CRC follows from that of the
bytes, and from how many are behind it (as `crc32_combine` of zlib has it).
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

_POLYNOMIAL = 0xEDB88320
"""Of CRC-32, lowest degree first (RFC 1952, section 8)."""


def changed_crc(crc: int, size: int, changes: Sequence[tuple[int, bytes | memoryview, bytes | memoryview]]) -> int:
    """The CRC-32 of `size` bytes that had another one, after changes that do not overlap: each the place of its first
    byte, and as many bytes before as after."""
    for begin, before, after in changes:
        crc ^= _behind(crc32(before) ^ crc32(after), size - begin - len(after))
    return crc


def _behind(crc: int, count: int) -> int:
    """What a change of a CRC becomes where so many bytes follow."""
    step = [_POLYNOMIAL, *(1 << bit for bit in range(31))]  # what one bit that follows makes of each bit
    for _ in range(3):
        step = [_times(step, row) for row in step]
    while count:
        if count & 1:
            crc = _times(step, crc)
        step = [_times(step, row) for row in step]
        count >>= 1
    return crc


def _times(matrix: Sequence[int], vector: int) -> int:
    """A matrix over GF(2), as its columns, times a vector of bits."""
    found = 0
    for column in matrix:
        if vector & 1:
            found ^= column
        vector >>= 1
    return found
