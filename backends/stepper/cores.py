"""One core of a block: what its instructions ask of it; its program as a generator, its memory, and every access
checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .device import Region
from .errors import fault
from .instructions import DeviceBox, Part
from .marks import Mark
from .nodes import Cross, IssuedNode, Loop
from .places import UNTOUCHED, BufferPlace, ByteCell, CoreMemory

if TYPE_CHECKING:
    from .device import Device
    from .launch import SteppedLaunch
    from .order import BlockOrder
    from .plan import PlannedSection, SteppedKernel


class BlockCore:
    """A core of a block, as instructions see it. env: the values of its indices; order: what orders its instructions
    and those of the block's other cores; device, launch: what has device memory and the tensors of the kernel."""

    order: Any
    device: Any
    launch: Any

    def __init__(
        self, plan: SteppedKernel, section: PlannedSection, memory: CoreMemory, point: Sequence[int], unit: int
    ) -> None:
        """point: its place in the grid."""
        self.section, self.memory, self.unit = section, memory, unit
        self.env = [0] * len(plan.indices)
        self.env[: len(point)] = point
        self.env[plan.indices[section.op.body.block.args[0]]] = unit
        self._views = memory.views

    def begin(self, node: IssuedNode) -> Any:
        """Begins an instruction; gives what stands for it."""
        raise NotImplementedError

    def view(self, place: BufferPlace, slot: int, mark: Any) -> np.ndarray:
        """The elements of a buffer. Raises OutOfBounds."""
        found = self._views[place.buffer.number][slot]
        if found is None:
            start, end = place.buffer.bytes_of(slot)
            what = f"uses {place.buffer.name}, which ends outside {place.buffer.space}"
            raise fault("out-of-bounds", mark.op, what, f"bytes {start}..{end - 1}")
        return found

    def read(self, place: BufferPlace, slot: int, mark: Any) -> None:
        """An instruction reads a buffer."""
        raise NotImplementedError

    def write(self, place: BufferPlace, slot: int, mark: Any) -> None:
        """An instruction writes a buffer."""
        raise NotImplementedError

    def work_in(self, place: BufferPlace, results: Sequence[tuple[BufferPlace, int]], mark: Any) -> None:
        """An instruction that has read its sources, and gives these results, works in some bytes."""
        raise NotImplementedError

    def load(self, box: DeviceBox, part: Part, mark: Any) -> np.ndarray:
        """The part of a box of device memory. Raises StepFault."""
        raise NotImplementedError

    def gather(self, box: DeviceBox, places: np.ndarray, mark: Any) -> np.ndarray:
        """The elements of a tensor at places, counted in elements. Raises StepFault."""
        raise NotImplementedError

    def store(self, box: DeviceBox, part: Part, x: np.ndarray, mark: Any) -> None:
        """Writes the part of a box of device memory. Raises StepFault."""
        raise NotImplementedError


class SteppedCore(BlockCore):
    """A core of which every access is checked. node: what it comes to next, or is at."""

    order: BlockOrder
    device: Device
    launch: SteppedLaunch

    def __init__(
        self,
        launch: SteppedLaunch,
        section: PlannedSection,
        number: int,
        block: int,
        point: tuple[int, ...],
        unit: int,
    ) -> None:
        """number: of the core in its block; block: the number of the block's run; point: its place in the grid."""
        memory = launch.session.memory(launch.plan, section, unit)
        super().__init__(launch.plan, section, memory, point, unit)
        self.launch, self.device = launch, launch.device
        self.number, self.block, self.point = number, block, point
        self.first_queue = 0
        self.node: IssuedNode
        self._cells = memory.cells

    def __str__(self) -> str:
        return f"{self.section.core} core {self.unit} of block {list(self.point)}"

    def pipe_of(self, mark: Mark) -> str:
        """The pipe of an instruction that it ran."""
        return self.section.pipes[mark.queue - self.first_queue]

    def issue(self, nodes: Sequence[IssuedNode]) -> Iterator[bool]:
        """Runs nodes in program order. Before each it gives True, and False while the core waits for others."""
        env = self.env
        for node in nodes:
            if type(node) is Loop:
                index = node.index
                for value in node.places:
                    env[index] = value
                    yield from self.issue(node.body)
                continue
            if type(node) is Cross and not node.sets:
                self.node = node
                while not self.order.ready(self, node.event):
                    yield False
            self.node = node
            yield True
            node.run(self)

    def begin(self, node: IssuedNode) -> Mark:
        """Gives an instruction its number in its queue."""
        queue, order = self.first_queue + node.queue, self.order
        order.begun[queue] = number = order.begun[queue] + 1
        if not node.unordered:
            order.clocks[queue][queue] = number - 1
        session = self.launch.session
        session.steps += 1
        return Mark(node.op, self.block, self, queue, number, session.steps, tuple(self.env))

    # -- on-chip memory ------------------------------------------------------------------------------------

    def cells(self, place: BufferPlace, slot: int) -> list[ByteCell]:
        return self._cells[place.buffer.number][slot]

    def read(self, place: BufferPlace, slot: int, mark: Mark) -> None:
        """Checks a read of a buffer. Raises StepFault."""
        buffer, queue, order = place.buffer, mark.queue, self.order
        clock = order.clocks[queue]
        for cell in self._cells[buffer.number][slot]:
            writer = cell.writer
            if writer is None:
                raise fault("uninitialised", mark.op, f"reads {buffer.name}, which nothing wrote", str(cell))
            if order.checks and writer.number > clock[writer.queue]:
                raise order.race(mark, writer, f"reads {buffer.name} while {{}} may still write it", cell)
            if cell.owner is not buffer and not (buffer.shared and cell.owner and cell.owner.shared):
                what = f"reads {buffer.name}, over which '{writer.op.name}' wrote another buffer"
                raise fault("overlap", mark.op, what, str(cell))
            if cell.readers.get(queue) is not mark:
                cell.earlier, cell.readers[queue] = cell.readers.get(queue), mark

    def write(self, place: BufferPlace, slot: int, mark: Mark) -> None:
        """Checks a write of a buffer, and takes note of it. Raises Race."""
        buffer, order = place.buffer, self.order
        clock = order.clocks[mark.queue]
        for cell in self._cells[buffer.number][slot]:
            writer = cell.writer
            if order.checks and cell.readers:  # who knows that they are over knows it of what they read
                for queue, last in cell.readers.items():
                    reader = cell.earlier if last is mark else last
                    if reader is not None and reader.number > clock[queue]:
                        raise order.race(
                            mark, reader, f"writes {buffer.name} while {{}} may still read there", cell
                        )
            elif order.checks and writer is not None and writer.number > clock[writer.queue]:
                raise order.race(mark, writer, f"writes {buffer.name} while {{}} may still write there", cell)
            if cell.readers:
                cell.readers = {}
            cell.writer, cell.owner = mark, buffer

    def work_in(self, place: BufferPlace, results: Sequence[tuple[BufferPlace, int]], mark: Mark) -> None:
        """Checks that the bytes in which an instruction works are none of its sources and results, and takes note that
        what was there is gone. Raises StepFault."""
        own = self.cells(place, 0)
        for cell in own:
            if cell.readers.get(mark.queue) is mark:
                raise fault("overlap", mark.op, "works in bytes of a source", str(cell))
        for result, slot in results:
            for cell in self.cells(result, slot):
                if cell in own:
                    raise fault("overlap", mark.op, "works in bytes of its result", str(cell))
        self.write(place, 0, mark)
        self.view(place, 0, mark)[...] = UNTOUCHED

    # -- device memory -------------------------------------------------------------------------------------

    def load(self, box: DeviceBox, part: Part, mark: Mark) -> np.ndarray:
        """The part of a box of device memory. Raises StepFault."""
        launch, (offset, sizes, strides, _) = self.launch, part
        tensor = launch.tensors[box.tensor]
        address = tensor.address + offset
        x = self.device.window(address, sizes, strides, box.dtype, mark.op)
        if not launch.clean[box.tensor] and x.size:
            launch.check_read(self, box.tensor, Region(address, sizes, strides, box.dtype.itemsize), mark)
        return x

    def gather(self, box: DeviceBox, places: np.ndarray, mark: Mark) -> np.ndarray:
        """The elements of a tensor at places, counted in elements. Raises StepFault."""
        launch, tensor, width = self.launch, self.launch.tensors[box.tensor], box.dtype.itemsize
        region = Region(tensor.address, (tensor.bytes // width,), (width,), width, places)
        whole = self.device.window(region.address, region.sizes, region.strides, box.dtype, mark.op)
        if not launch.clean[box.tensor] and places.size:
            launch.check_read(self, box.tensor, region, mark)
        return whole[places]

    def store(self, box: DeviceBox, part: Part, x: np.ndarray, mark: Mark) -> None:
        """Writes the part of a box of device memory. Raises StepFault."""
        launch, (offset, sizes, strides, _) = self.launch, part
        address = launch.tensors[box.tensor].address + offset
        target = self.device.window(address, sizes, strides, box.dtype, mark.op)
        if target.size:
            launch.check_write(self, box.tensor, Region(address, sizes, strides, box.dtype.itemsize), mark)
            target[...] = x.reshape(target.shape)
