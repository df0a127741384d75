"""A product whose partial sums over k are added in device memory, as text of the npu level with its flags.

No level of ours has a store that adds. Each partial sum replaces the one before, which takes a core as long; the values
are not the product's. The drain of a block has unit flags: it follows the last step of its block piece by piece, and
the first step of the next block follows it. Without them a block that fills l0c could not overlap with the next one,
and the cube and the drains alone would take longer than measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from .kernels import MODULE

STEP_BYTES = 32768
"""Half of l0a or l0b: what a step of either side may take where both halves are in use."""


@dataclass(frozen=True)
class OperandSide:
    """One operand: its tensor, what is loaded to l1 at a time and moved to l0 at a step, rows (columns of b) first
    unless `k_first`; `place`: where its rows begin."""

    name: str
    dtype: str
    extents: tuple[int, int]
    load: tuple[int, int]
    step: int
    place: str
    k_first: bool

    def _pair(self, along: object, over_k: object) -> str:
        first, second = (over_k, along) if self.k_first else (along, over_k)
        return f"{first}, {second}"

    @property
    def tensor(self) -> str:
        """Its type in device memory."""
        return f"!npu.gm<{self._pair(*self.extents).replace(', ', 'x')}x{self.dtype}>"

    def whole(self, slots: int = 1) -> str:
        """The type of its buffer in l1."""
        return self._buffer(self._pair(*self.load), "l1", slots)

    def piece(self, slots: int = 1) -> str:
        """The type of its buffer in l0: rows first for a, k first for b."""
        rows = (self.load[0], self.step) if self.name == "a" else (self.step, self.load[0])
        return self._buffer(f"{rows[0]}, {rows[1]}", f"l0{self.name}", slots)

    def _buffer(self, shape: str, space: str, slots: int) -> str:
        count = f", {slots} slots" if slots > 1 else ""
        return f"!npu.buffer<{shape.replace(', ', 'x')}x{self.dtype}, {space}{count}>"

    def loaded(self, into: str) -> str:
        """The load of a chunk to l1."""
        box, sizes = self._pair(self.place, f"%c * {self.load[1]}"), self._pair(*self.load)
        types = f"({self.tensor}, {self.whole()})"
        return f"npu.load_nd2nz %{self.name}, {into} at [{box}] {{sizes = [{sizes}]}} : {types}\n"

    @property
    def half(self) -> str:
        """The name of the half of l0 that a step takes."""
        return f"%{self.name}0_s"

    def moved(self, source: str, slot: str) -> str:
        """The move of step %s to l0."""
        box, sizes = self._pair(0, f"%s * {self.step}"), self._pair(self.load[0], self.step)
        transposed = ", transpose = 1" if self.k_first is (self.name == "a") else ""
        return (
            f"{self.half} = npu.slot %{self.name}0 at [{slot}] : ({self.piece(2)}) -> {self.piece()}\n"
            f"npu.load_l0 {source}, {self.half} at [{box}] {{sizes = [{sizes}]{transposed}}} "
            f": ({self.whole()}, {self.piece()})\n"
        )


def split_product(
    extents: tuple[int, int, int],
    k_first: tuple[bool, bool],
    dtype: str,
    item_bytes: int,
    block: tuple[int, int],
    chunk: int,
    cores: int,
) -> str:
    """A product of (m, n, k) on at most `cores` cores, in blocks of m x n and chunks of k. A core keeps a chunk of one
    block of rows of a in l1, takes one block of columns of b after the other and stores a partial sum, in f32, for
    each of them, before it goes on to the next chunk. `k_first`: whether a and b have k as their first axis."""
    m, n, k = extents
    counts = [-(-extent // size) for extent, size in zip((m, n), block, strict=True)]
    grids = [(g, min(cores // g, counts[1])) for g in range(1, min(cores, counts[0]) + 1)]
    grid = min(grids, key=lambda g: (-(-counts[0] // g[0]) * -(-counts[1] // g[1]), g))
    tiles = [-(-count // g) for count, g in zip(counts, grid, strict=True)]
    step = max(16, min(chunk, STEP_BYTES // (max(block) * item_bytes)) // 16 * 16)
    places = [f"%g{i} * {t * size} + %{i} * {size}" for i, t, size in zip("mn", tiles, block, strict=True)]
    a = OperandSide("a", dtype, (m, k), (block[0], chunk), step, places[0], k_first[0])
    b = OperandSide("b", dtype, (n, k), (block[1], chunk), step, places[1], k_first[1])
    out, sums = f"!npu.gm<{m}x{n}xf32>", f"!npu.buffer<{block[0]}x{block[1]}xf32, l0c>"
    chunks, steps = -(-k // chunk), -(-chunk // step)
    trips = {"c": chunks, "m": tiles[0], "n": tiles[1], "s": steps}
    block_number = f"%n + %m * {tiles[1]} + %c * {tiles[0] * tiles[1]}"
    terms = f"%n * {steps} + %m * {tiles[1] * steps} + %c * {tiles[0] * tiles[1] * steps}"

    slot, operands = f"{terms} + %s", f"({a.piece()}, {b.piece()}, {sums})"
    product = (
        _wait("M", "MTE1", 0, slot, 2)
        + a.moved("%a1", slot)
        + b.moved("%b1s", slot)
        + _pass("MTE1", "M", 0, slot, 2)
        + f"npu.mmad {a.half}, {b.half}, %sum at [%s] {{unit_flag}} : {operands}\n"
        + _set("M", "MTE1", 0, slot, 2)
    )
    at, sizes = f"{places[0]}, {places[1]}", f"{block[0]}, {block[1]}"
    drain = f"npu.fixpipe %sum, %out at [{at}] {{sizes = [{sizes}], unit_flag}} : ({sums}, {out})\n"
    body = _loop("s", product) + drain
    taken = f"%b1s = npu.slot %b1 at [{block_number}] : ({b.whole(2)}) -> {b.whole()}\n"
    load = (
        _wait("MTE1", "MTE2", 1, block_number, 2)
        + b.loaded("%b1s")
        + _pass("MTE2", "MTE1", 1, block_number, 2)
    )
    body = _loop("n", taken + load + body + _set("MTE1", "MTE2", 1, block_number, 2))
    load = _wait("MTE1", "MTE2", 0) + a.loaded("%a1") + _pass("MTE2", "MTE1", 0)
    body = _loop("c", _loop("m", load + body + _set("MTE1", "MTE2", 0)))
    body = (
        _set("MTE1", "MTE2", 0)
        + "".join(_set("MTE1", "MTE2", 1, i, 2) + _set("M", "MTE1", 0, i, 2) for i in range(2))
        + body
    )
    buffers = {"a1": a.whole(), "b1": b.whole(2), "a0": a.piece(2), "b0": b.piece(2), "sum": sums}
    allocs = "\n".join(f"%{name} = npu.alloc : () -> {kind}" for name, kind in buffers.items())
    constants = [f"%n_{name} = arith.constant {n} : index" for name, n in trips.items()]
    constants += ["%zero = arith.constant 0 : index", "%one = arith.constant 1 : index"]
    section = f'npu.section {{core = "cube", units = 1}} {{\n^bb1(%u: index):\n{allocs}\n{body}\n}}'
    arguments = {"%a": a.tensor, "%b": b.tensor, "%out": out}
    listed = ", ".join(f"{name}: {kind}" for name, kind in arguments.items())
    return MODULE.format(
        arguments=listed,
        operands=", ".join(arguments),
        types=", ".join(arguments.values()),
        grid=f"{grid[0]}, {grid[1]}",
        kind="cube",
        coordinates="%gm: index, %gn: index",
        kernel_arguments=f", {listed}",
        body="\n".join([*constants, section]),
    )


def _loop(name: str, body: str) -> str:
    return f"scf.for %{name} = %zero to %n_{name} step %one {{\n{body}}}\n"


def _flag(verb: str, source: str, target: str, event: int, at: object, slots: int) -> str:
    names = f'event = {event}, slots = {slots}, source = "{source}", target = "{target}"'
    return f"npu.{verb}_flag at [{at}] {{{names}}}\n"


def _set(source: str, target: str, event: int, at: object = 0, slots: int = 1) -> str:
    return _flag("set", source, target, event, at, slots)


def _wait(source: str, target: str, event: int, at: object = 0, slots: int = 1) -> str:
    return _flag("wait", source, target, event, at, slots)


def _pass(source: str, target: str, event: int, at: object = 0, slots: int = 1) -> str:
    return _set(source, target, event, at, slots) + _wait(source, target, event, at, slots)
