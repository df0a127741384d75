"""Storage for host-program values: device tensors (fresh or reused) and host scalars."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue

from ...dialects import graph, tile
from ...dialects.base import block_of, to_ints
from ...dialects.dtypes import part, shape_in, tensor
from ...dialects.graph import ConstantOp, ReshapeOp, WhileOp, YieldOp
from ...dialects.npu import GmType, ViewOp, gm, structure, whole_tensor


def gm_type(value: SSAValue) -> GmType:
    """The dense device tensor of a tensor value."""
    assert isinstance(value.type, TensorType)
    return _dense(shape_in(value.type), value.type.element_type)


@lru_cache(maxsize=1 << 12)
def _dense(shape: tuple[int, ...], element: Attribute) -> GmType:
    return GmType.of(shape, element)


class HostValues:
    """The tensors and numbers of one function, and its block under construction. `owned` are tensors that may be
    overwritten once their values are not needed any more: those this program made, those a loop carries, and arguments
    that are donated.

    `env` has for each value the device tensor or the number of the host that it became.
    """

    def __init__(self) -> None:
        self.env: dict[SSAValue, SSAValue] = {}
        self.copies: dict[tuple[SSAValue, bool, Block], SSAValue] = {}
        """Numbers that were brought to the device (True) or to the host (False) in a block."""
        self.owned: set[SSAValue] = set()
        self.holds: dict[SSAValue, list[SSAValue]] = {}
        """For each tensor the values that are, or were, in it."""
        self.homes: dict[SSAValue, Sequence[SSAValue]] = {}
        """For values that end up in one of some tensors which hold other values until then, these tensors: the state of
        a loop for its next value, donated arguments for results."""
        self.outputs: Sequence[SSAValue] = ()
        """The tensors of the caller that a called function writes its results to."""
        self.into: dict[SSAValue, SSAValue] = {}
        """Those of them that a result is made in."""
        self.hosted: dict[SSAValue, SSAValue] = {}
        """What the host has, in this block or around it, of values that the device has too."""
        self.order: dict[Block, dict[Operation, int]] = {}
        self.block = Block()

    def add(self, op: Operation) -> None:
        self.block.add_op(op)

    @contextmanager
    def inside(self, block: Block) -> Iterator[None]:
        """Ops are added to a block inside this one; what the host learns there it does not know behind it."""
        outer, hosted = self.block, dict(self.hosted)
        self.block = block
        yield
        self.block, self.hosted = outer, hosted

    def bind(self, value: SSAValue, found: SSAValue) -> None:
        """Notes what a value became."""
        self.env[value] = found
        if isinstance(found.type, GmType):
            self.holds.setdefault(whole_tensor(found), []).append(value)

    def bind_all(self, values: Sequence[SSAValue], found: Sequence[SSAValue]) -> None:
        """Notes what several values became."""
        for value, tensor_ in zip(values, found, strict=True):
            self.bind(value, tensor_)

    def settle(self, value: SSAValue, tensors: Sequence[SSAValue]) -> None:
        """Notes that a value is best made in one of `tensors`, and so is what it may take its tensor over from, in its
        block: what is made outside a loop cannot be made in a tensor of that."""
        block = block_of(value)
        while value not in self.homes and block_of(value) is block:
            self.homes[value] = tensors
            source = made_over(value)
            if source is None:
                return
            value = source

    def allocate(self, kind: GmType, source: Operation) -> SSAValue:
        op = structure.GmAllocOp.create(result_types=[kind], location=source.location)
        self.add(op)
        self.owned.add(op.result)
        return op.result

    def result(
        self,
        value: SSAValue,
        source: Operation,
        over: Callable[[SSAValue], bool] = lambda tensor: False,
        taken: Container[SSAValue] = (),
    ) -> SSAValue:
        """The tensor for a result of `source`: the one it ends up in, if what that holds is not needed any more, or
        else a new one. over: whether `source` may store it over a tensor that it reads; `taken`: tensors that other
        results of it have."""
        if value in self.into:
            return self.into[value]
        kind = gm_type(value)
        free = [t for t in self.homes.get(value, ()) if t not in taken and self._fits(t, kind)]
        read = [t for t in free if over(t) and self._spent(t, source, reads=True)]
        for home in (*read, *(t for t in free if self._spent(t, source, reads=False))):
            return self.shown(home, kind, source)
        return self.allocate(kind, source)

    def results(
        self,
        values: Sequence[SSAValue],
        source: Operation,
        taken: Iterable[SSAValue] = (),
    ) -> list[SSAValue]:
        """The tensors for several results of an op; `taken`: those that others of it have."""
        found: list[SSAValue] = []
        others = {whole_tensor(v) for v in taken}
        for value in values:
            found.append(self.result(value, source, taken=others | {whole_tensor(v) for v in found}))
        return found

    def shown(self, home: SSAValue, kind: GmType, source: Operation) -> SSAValue:
        """A tensor as one of another shape."""
        if home.type == kind:
            return home
        view = ViewOp.create(operands=[home], result_types=[kind], location=source.location)
        self.add(view)
        return view.result

    def _fits(self, tensor_: SSAValue, kind: GmType) -> bool:
        found = gm(tensor_)
        return part(found.element) == part(kind.element) and found.bytes == kind.bytes

    def _spent(self, tensor_: SSAValue, user: Operation, reads: bool) -> bool:
        """Whether nothing after `user` needs what a tensor of its block holds; nor `user` itself but where `reads`, and
        then by its own operands only."""
        block = user.parent
        assert block is not None
        if block not in self.order:
            self.order[block] = {op: i for i, op in enumerate(block.ops)}
        order = self.order[block]
        for value in self.holds.get(tensor_, ()):
            for use in value.uses:
                at: Operation | None = use.operation
                while at is not None and at.parent is not block:
                    at = at.parent_op()
                if at is None or order[at] > order[user]:
                    return False
                if at is user and not (reads and use.operation is user):
                    return False
        return True

    def takes_over(self, value: SSAValue, user: Operation) -> bool:
        """Whether `user` may overwrite the tensor of `value`: ours, used by it once, and nobody looks at it
        afterwards."""
        found = self.env[value]
        if not isinstance(found.type, GmType) or not found.type.dense:
            return False
        home = whole_tensor(found)
        if home not in self.owned or block_of(home) is not self.block:
            return False
        if not self._spent(home, user, reads=True):
            return False
        return sum(use.operation is user for v in self.holds[home] for use in v.uses) == 1

    def copied(
        self, value: SSAValue, source: Operation, becomes: SSAValue, taken: Container[SSAValue]
    ) -> SSAValue:
        """A tensor with the contents of `value`, for the result of `source` that starts as it."""
        found, new = self.env[value], self.result(becomes, source, taken=taken)
        cls = structure.CopyOp if isinstance(found.type, GmType) else structure.ToDeviceOp
        self.add(cls.create(operands=[found, new], location=source.location))
        return new

    def device(self, value: SSAValue, source: Operation) -> SSAValue:
        """The device tensor of `value`, written there if the host has it."""
        found = self.env[value]
        if isinstance(found.type, GmType):
            return found
        key = (found, True, self.block)
        if key not in self.copies:
            # behind a return nothing can overwrite it any more
            ends = isinstance(source, ReturnOp)
            copy = self.result(value, source) if ends else self.allocate(gm_type(found), source)
            self.holds.setdefault(whole_tensor(copy), []).append(value)
            self.add(structure.ToDeviceOp.create(operands=[found, copy], location=source.location))
            self.copies[key] = copy
        return self.copies[key]

    def number(self, value: SSAValue, source: Operation) -> SSAValue:
        """The number of the host that `value` is, read from the device if only that has it."""
        if isinstance(value.owner, ConstantOp):
            return self._constant_number(value.owner)
        return self.fetched(value, source)

    def fetched(self, value: SSAValue, source: Operation) -> SSAValue:
        """What the host has of `value`, read from the device if only that has it. Later uses take the same copy:
        the tensor may be written meanwhile, the value stays."""
        found = self.env[value]
        if not isinstance(found.type, GmType):
            return found
        if value not in self.hosted:
            read = structure.ToHostOp.create(
                operands=[found],
                result_types=[tensor(found.type.shape, found.type.element)],
                location=source.location,
            )
            self.add(read)
            self.hosted[value] = read.result
        return self.hosted[value]

    def _constant_number(self, op: ConstantOp) -> SSAValue:
        key = (op.result, False, self.block)
        if key not in self.copies:
            inside = op.clone()
            inside.location = op.location
            body = Block([inside, YieldOp.create(operands=[inside.result])])
            made = structure.ScalarsOp.create(
                result_types=[op.result.type], regions=[Region(body)], location=op.location
            )
            self.add(made)
            self.copies[key] = made.results[0]
        return self.copies[key]


def made_over(value: SSAValue) -> SSAValue | None:
    """The value whose tensor this one would be in, if nothing else needed that: what is reshaped, updated, or what a
    loop starts with."""
    if not isinstance(value, OpResult):
        return None
    op = value.op
    if isinstance(op, ReshapeOp | graph.ViewOp):
        return op.x
    if isinstance(op, WhileOp):
        return op.inits[value.index]
    if isinstance(op, tile.LaunchOp):
        init = to_ints(op.inits)[value.index]
        return op.arguments[init] if init >= 0 else None
    return None
