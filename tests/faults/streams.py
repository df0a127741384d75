"""Runs the streams of a host program in orders that events allow, and makes faults in the events.

It shares no code with npu-check. The program's own thread gives out commands; any queue whose head is not held up by an
event may run next, and a launch that waits for no barrier before those that it is independent of. Memory is ranges of
contents (pieces.py). A command reads what it uses and writes contents that mix all of it, old contents of what it
writes included: another order of two commands that meet leaves other contents.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pieces import Parts, Pieces, content
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, SSAValue

import tilewright as tw
from tilewright.dialects.base import integer, text, to_ints
from tilewright.dialects.npu import GmType, ViewOp, gm, structure
from tilewright.dialects.npu.streams import PROGRAM, QUEUES, Command

ROUNDS = 3
"""Rounds of a loop that are run."""


class Stuck(Exception):
    """Nothing can go on, and not everything is done."""


@dataclass
class Happening:
    """One time that an event is recorded."""

    done: bool = False


@dataclass
class Slot:
    """A value in the host's memory, made once."""

    held: Parts = ((content(0), 0, 1),)


Place = tuple[int, int]
Item = Callable[[], bool]
"""Something on a queue: runs and says True, or says False and stays."""


@dataclass
class Queued:
    """An item of a queue; `nowait`: it may run before those right ahead of it, back to the first that is not such."""

    run: Item
    nowait: bool = False


@dataclass
class Frame:
    """What names mean inside a function."""

    places: dict[SSAValue, Place] = field(default_factory=dict)
    slots: dict[SSAValue, Slot] = field(default_factory=dict)
    events: dict[int, Happening] = field(default_factory=dict)


class StreamRun:
    """One run of a module's host program in a random order; `decide` gives branches their way, the same in each run."""

    def __init__(self, module: ModuleOp, rng: random.Random):
        self.functions = {text(f.sym_name): f for f in module.ops if isinstance(f, FuncOp) and f.body.blocks}
        self.main = next(f for f in self.functions.values() if "npu.arena_bytes" in f.attributes)
        self.rng = rng
        self.queues: dict[str, deque[Queued]] = {q: deque() for q in QUEUES if q != PROGRAM}
        self.memory = Pieces(integer(self.main.attributes["npu.arena_bytes"]), content(1))
        self.decisions = 0
        self.seen = 0
        """What loops and branches were decided by: an order may show in it alone."""

    def outcome(self) -> int:
        """What stands for all that the results hold in the end. Raises Stuck."""
        main, frame = self.main, Frame()
        for i, (arg, at) in enumerate(
            zip(main.body.block.args, to_ints(main.attributes["npu.addresses"]), strict=True)
        ):
            self._fill((at, gm(arg).bytes), content(2, i))
            frame.places[arg] = (at, gm(arg).bytes)
        thread = self._block(main.body.block, frame)
        weights = {q: self.rng.choice((0.02, 0.3, 1.0, 10.0)) for q in QUEUES}
        going = True
        while going or any(self.queues.values()):
            able = [q for q in self.queues if self.queues[q]] + ([PROGRAM] if going else [])
            moved = False
            while able and not moved:
                queue = self.rng.choices(able, [weights[q] for q in able])[0]
                able.remove(queue)
                if queue != PROGRAM:
                    waiting = self.queues[queue]
                    barriers = (i for i, q in enumerate(waiting) if i and not q.nowait)
                    at = self.rng.randrange(next(barriers, len(waiting)))
                    moved = waiting[at].run()
                    if moved:
                        del waiting[at]
                    continue
                try:
                    moved = next(thread)
                except StopIteration:
                    going, moved = False, True
            if not moved:
                raise Stuck
        last = main.body.block.last_op
        assert isinstance(last, ReturnOp)
        return content(self.seen, *(self._content(v, frame) for v in last.operands))

    # -- memory --------------------------------------------------------------------------------------------

    def _fill(self, place: Place, held: int) -> None:
        at, n = place
        self.memory.write(at, ((held, 0, n),))

    def _content(self, value: SSAValue, frame: Frame) -> Parts:
        if isinstance(value.type, GmType):
            return self.memory.read(*frame.places[value])
        return frame.slots[value].held if value in frame.slots else ()

    # -- the program's thread ------------------------------------------------------------------------------

    def _block(self, block: Block, frame: Frame) -> Iterator[bool]:
        """Gives out commands; says False as long as it has to wait."""
        for op in block.ops:
            if isinstance(op, ViewOp):
                frame.places[op.result] = frame.places[op.source]
            elif isinstance(op, structure.GmAllocOp | structure.GmConstantOp):
                assert op.address is not None
                place = frame.places[op.result] = (integer(op.address), gm(op.result).bytes)
                if isinstance(op, structure.GmConstantOp):
                    self._fill(place, content(3))
            elif isinstance(op, structure.RecordEventOp):
                happening = frame.events[integer(op.event)] = Happening()
                self.queues[text(op.stream)].append(
                    Queued(lambda h=happening: bool(setattr(h, "done", True) or True))
                )
            elif isinstance(op, structure.WaitEventOp):
                yield from self._wait(op, frame)
            elif isinstance(op, structure.ScalarsOp):
                made = content(*(self._content(v, frame) for v in op.inputs))
                for i, result in enumerate(op.results):
                    frame.slots[result] = Slot(((content(made, i), 0, 1),))
            elif isinstance(op, structure.LoopOp):
                yield from self._loop(op, frame)
            elif isinstance(op, structure.BranchOp):
                self.seen = content(self.seen, self._content(op.index, frame))
                self.decisions += 1
                region = op.branches[self.decisions % len(op.branches)]
                yield from self._block(region.block, frame)
                self._carry(op.results, region.block, len(op.outputs), frame)
            elif isinstance(op, structure.CallOp):
                function = self.functions[op.callee.root_reference.data]
                inner = Frame()
                for arg, v in zip(function.body.block.args, op.operands, strict=True):
                    inner.places[arg] = frame.places[v]
                yield from self._block(function.body.block, inner)
            elif isinstance(op, Command):
                self._command(op, frame)
            yield True

    def _wait(self, op: structure.WaitEventOp, frame: Frame) -> Iterator[bool]:
        happening, stream = frame.events.get(integer(op.event), Happening()), text(op.stream)
        if stream != PROGRAM:
            self.queues[stream].append(Queued(lambda: happening.done))
            return
        while not happening.done:
            yield False

    def _loop(self, op: structure.LoopOp, frame: Frame) -> Iterator[bool]:
        body, condition = op.body.block, op.condition.block
        rounds = ROUNDS if op.trip_count is None else min(ROUNDS, integer(op.trip_count))
        for block in (body, condition):
            for arg, v in zip(op.state_args(block), op.state, strict=False):
                frame.places[arg] = frame.places[v]
        numbers = [Slot(self._content(v, frame)) for v in op.numbers]
        for i in range(rounds + 1):
            if op.trip_count is None:
                frame.slots.update(zip(op.number_args(condition), numbers, strict=False))
                yield from self._block(condition, frame)
                answer = condition.last_op
                assert answer is not None
                self.seen = content(self.seen, self._content(answer.operands[0], frame))
            if i == rounds:
                break
            frame.slots.update(zip(op.number_args(body), numbers, strict=False))
            yield from self._block(body, frame)
            last = body.last_op
            assert last is not None
            numbers = [Slot(self._content(v, frame)) for v in last.operands[len(op.state) :]]
        frame.slots.update(zip(op.results, numbers, strict=True))

    def _carry(self, results: Sequence[SSAValue], block: Block, skip: int, frame: Frame) -> None:
        last = block.last_op
        assert last is not None
        for result, v in zip(results, last.operands[skip:], strict=True):
            frame.slots[result] = Slot(self._content(v, frame))

    def _command(self, op: Command, frame: Frame) -> None:
        """Gives a command to its stream: what it reads then is where names lead now."""
        if isinstance(op, structure.NpuYieldOp) and all(
            frame.places[v] == frame.places[t] for v, t in op.moved()
        ):
            return
        given = content(
            f"{op.name} {op.properties.get('callee', '')}", *(self._content(v, frame) for v in op.at_issue())
        )
        inputs = [frame.places[v] if isinstance(v.type, GmType) else frame.slots[v] for v in op.reads()]
        outputs: list[Place | Slot] = []
        for v in op.writes():
            if not isinstance(v.type, GmType):
                frame.slots[v] = Slot()
            outputs.append(frame.places[v] if isinstance(v.type, GmType) else frame.slots[v])

        ahead = {op.inputs()[i] for i in to_ints(op.ahead)} if isinstance(op, structure.LaunchOp) else set()
        before = {
            i: place
            for i, (v, place) in enumerate(zip(op.reads(), inputs, strict=True))
            if v in ahead and not isinstance(place, Slot)
        }
        early: dict[int, Parts] = {}

        def read_ahead() -> bool:
            early.update((i, self.memory.read(*place)) for i, place in before.items())
            return True

        def run() -> bool:
            met = [x.held if isinstance(x, Slot) else self.memory.read(*x) for x in (*inputs, *outputs)]
            for i, held in early.items():
                met[i] = held
            made = content(given, *met)
            for i, x in enumerate(outputs):
                if isinstance(x, Slot):
                    x.held = ((content(made, i), 0, 1),)
                else:
                    self._fill(x, content(made, i))
            return True

        assert op.queue is not None
        if before:  # somewhere among what the last of the barriers that it passes waits for
            assert isinstance(op, structure.LaunchOp)
            queue = self.queues[op.queue]
            stages = [i for i, q in enumerate(queue) if not q.nowait]
            passed = op.passes_barriers - (op.nowait is None)  # its own barrier is in the queue already, or is not
            at = len(queue) if not passed else stages[-passed] if passed <= len(stages) else 0
            queue.insert(at, Queued(read_ahead, True))
        self.queues[op.queue].append(Queued(run, op.properties.get("nowait") is not None))


def outcomes(module: ModuleOp, orders: int, seed: int = 0) -> Counter[int | str]:
    """How often each outcome comes, `stuck` among them."""
    commands = [op for op in module.walk() if isinstance(op, Command)]
    hosted = any(isinstance(op, structure.ToHostOp | structure.HostCallOp) for op in commands)
    free = any(op.properties.keys() & {"nowait", "ahead"} for op in commands)
    if not hosted and not free and len({op.queue for op in commands}) < 2:
        orders = 1  # One stream runs in order, and nothing else uses what it makes.
    found: Counter[int | str] = Counter()
    for i in range(orders):
        try:
            found[StreamRun(module, random.Random(f"{seed} {i}")).outcome()] += 1
        except Stuck:
            found["stuck"] += 1
    return found


# -- programs ----------------------------------------------------------------------------------------------------


def hosted(x: jax.Array) -> jax.Array:
    """Work of the host alone, real numbers in and out."""
    spectrum = lax.fft(x, lax.FftType.RFFT, x.shape)
    return lax.fft(spectrum, lax.FftType.IRFFT, x.shape[1:])


def beside(x: jax.Array, w: jax.Array) -> jax.Array:
    """Work of the host and of the device side by side, twice."""
    a, b = hosted(x), jnp.tanh(x @ w) @ w
    return hosted(a + b) + jnp.exp(b).sum()


def rounds(x: jax.Array, w: jax.Array) -> jax.Array:
    """A loop with both in each round, and what it leaves is used by both."""
    y = lax.fori_loop(0, 5, lambda i, c: jnp.tanh(c @ w) + hosted(c) * (i + 1.0), x)
    return hosted(y) + y


def until(x: jax.Array, w: jax.Array) -> jax.Array:
    """A loop that the device decides, with a branch in it."""

    def body(c: jax.Array) -> jax.Array:
        return lax.cond(c[0, 0] > 1.0, lambda c: hosted(c) + w, lambda c: c @ w * 2.0, c)

    return lax.while_loop(lambda c: jnp.sum(c) < 1e6, body, x)


def scanned(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A scan that the host feeds: its results do not depend on the device."""
    return lax.scan(
        lambda c, row: (jnp.tanh(c @ w + hosted(row)), hosted(row).max()), x, jnp.stack([x, w, x + w])
    )


def called(x: jax.Array, w: jax.Array) -> jax.Array:
    """A function with host work that is called several times, and is large enough to stay one."""

    @jax.jit
    def layer(c: jax.Array, w: jax.Array) -> jax.Array:
        for i in range(9):
            c = jnp.sin(jnp.cos(jnp.tanh(c * (i + 1.0)) + 1.0) * 2.0) - 0.5
        return hosted(c) + hosted(c @ w)

    return layer(layer(x, w), hosted(layer(x, w)))


PROGRAMS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (beside, rounds, until, scanned, called)}


def compiled(name: str, n: int = 16) -> tw.Program:
    rng = np.random.default_rng(0)
    return tw.compile(PROGRAMS[name], *(rng.random((n, n), np.float32) for _ in range(2)))


# -- random programs ---------------------------------------------------------------------------------------------

G, H, N = "!npu.gm<64xf32>", "tensor<64xf32>", "tensor<i32>"


class RandomHost:
    """The text of a random host program, whose tensors share a few places in device memory."""

    def __init__(self, rng: random.Random):
        self.rng, self.made = rng, 0
        self.tensors = [f"%t{i}" for i in range(4)]

    def text(self) -> str:
        allocs = [
            f"%t{i} = npu.gm_alloc {{address = {256 * self.rng.randint(1, 3)}}} : () -> {G}" for i in range(4)
        ]
        body = self.block([], [], 0, self.rng.randint(3, 8))
        return (
            f"func.func @main(%x: {G}) -> {G} attributes {{npu.addresses = array<i64: 0>, npu.arena_bytes = 1024}} {{\n"
            + "\n".join([*allocs, *body, f"func.return %t0 : {G}", "}"])
        )

    def name(self) -> str:
        self.made += 1
        return f"%v{self.made}"

    def block(self, held: Sequence[str], numbers: Sequence[str], depth: int, length: int) -> list[str]:
        """Ops; held: what the host has, numbers: those of rank 0."""
        held, numbers, out = list(held), list(numbers), []
        for _ in range(length):
            out += self.op(held, numbers, depth)
        return out

    def op(self, held: list[str], numbers: list[str], depth: int) -> list[str]:
        rng, new = self.rng, self.name()
        kinds = ["copy", "to_host", "to_host", "number"] + ["call", "to_device"] * 2 * bool(held)
        kinds += ["scalars"] * bool(numbers) + ["loop", "branch"] * (depth < 2)
        kind, tensor = rng.choice(kinds), rng.choice([*self.tensors, "%x"])
        target = rng.choice(self.tensors)
        if kind == "copy":
            return [f"npu.copy {tensor}, {target} : ({G}, {G})"]
        if kind == "to_host":
            held.append(new)
            return [f"{new} = npu.to_host {tensor} : ({G}) -> {H}"]
        if kind == "number":
            wide = self.name()
            numbers.append(new)
            call = 'npu.host_call %s {module = "m", op = "n"} : (%s) -> %s'
            return [f"{wide} = npu.to_host {tensor} : ({G}) -> {H}", f"{new} = {call % (wide, H, N)}"]
        if kind == "call":
            source = rng.choice(held)
            held.append(new)
            return [f'{new} = npu.host_call {source} {{module = "m", op = "f"}} : {H}']
        if kind == "to_device":
            return [f"npu.to_device {rng.choice(held)}, {target} : ({H}, {G})"]
        if kind == "scalars":
            source = rng.choice(numbers)
            numbers.append(new)
            a, b = self.name(), self.name()
            inside = f"^bb0({a}: {N}):\n{b} = graph.add {a}, {a} : {N}\ngraph.yield {b} : ({N})"
            return [f"{new} = npu.scalars {source} : {N} {{\n{inside}\n}}"]
        if kind == "branch" and numbers:
            index, ends = rng.choice(numbers), []
            for _ in range(2):
                inside = self.block(held, numbers, depth + 1, rng.randint(0, 3))
                ends.append("\n".join([*inside, f"npu.yield {rng.choice(self.tensors)} : ({G})"]))
            return [f"npu.branch {index}, {target} : ({N}, {G}) {{\n{ends[0]}\n}} {{\n{ends[1]}\n}}"]
        inside = self.block(held, numbers, depth + 1, rng.randint(1, 4))
        end = f"npu.yield {rng.choice([target, *self.tensors])} : ({G})"
        return [
            f"npu.loop {target} {{trip_count = 3}} : ({G}) {{\nnpu.yield\n}} {{\n"
            + "\n".join([*inside, end, "}"])
        ]
