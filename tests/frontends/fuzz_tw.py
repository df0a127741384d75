"""Random and mutated .tw programs: each gives a graph or diagnostics, in bounded time and memory, never a traceback.

`python tests/frontends/fuzz_tw.py [COUNT] [SEED]`; `make fuzz-tw` runs 20,000. What lowers is also verified, formatted
twice and printed as .tw again.
"""

from __future__ import annotations

import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fuzz_tw_files import Linked, odd, write_files
from graph_equal import same

from tilewright.dialects.text import verify
from tilewright.frontends.errors import FrontendError
from tilewright.frontends.text import TwError
from tilewright.frontends.text.format import format_text
from tilewright.frontends.text.frontend import lower_tw
from tilewright.frontends.text.functions import functions, graph_functions
from tilewright.frontends.text.printer import print_tw
from tilewright.frontends.text.source import decoded
from tilewright.frontends.text.tokens import symbols

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "tw"
SECONDS = 10
"""The longest that one program may take, in time of the processor."""
MEGABYTES = 1024
"""How much the whole campaign may take beyond what it starts with."""
SIZES = dict.fromkeys("NMKSEFTBHDV", 4) | {"E": 8, "H": 4, "K": 4}

_DTYPES = ["f32", "f16", "bf16", "i32", "i8", "i1", "f64"]
_BINARY = ["+", "-", "*", "/", "//", "%", "@", "**", "<", "<=", "==", "!=", ">", ">=", "and", "or"]
_INPUTS = "x: f32[4, 4], y: f32[4], z: i32[4], n: i32[], p: i1[], h: f16[N, 4]"


class Generator:
    """Programs that follow the grammar and often the types."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.names = ["x", "y", "z", "n", "p", "h"]

    def number(self) -> str:
        known = "0 1 2 -1 3 4 0.5 1e30 2.0 inf nan N 99999999999 1e-9"
        return self.rng.choice(known.split())

    def small(self) -> str:
        return self.rng.choice(["0", "1", "-1", "2", "3", "4", "N", "7"])

    def items(self) -> str:
        def item() -> str:
            kind = self.rng.random()
            if kind < 0.3:
                return self.small()
            if kind < 0.7:
                parts = [self.rng.choice(["", self.small()]) for _ in range(self.rng.choice([2, 3]))]
                return ":".join(parts)
            return self.rng.choice(["...", "new", "n", "z", ":", self.rng.choice(self.names)])

        return ", ".join(item() for _ in range(self.rng.randint(1, 3)))

    def keyword(self, name: str, kind: str) -> str:
        rng = self.rng
        values = {
            "int": self.small,
            "float": self.number,
            "bool": lambda: rng.choice(["true", "false"]),
            "str": lambda: rng.choice(['"same"', '"valid"', '"sum"', '"max"', '"ij,jk->ik"', '"a"']),
            "Ints": lambda: f"[{', '.join(self.small() for _ in range(rng.randint(0, 3)))}]",
            "DTypeName": lambda: rng.choice(_DTYPES),
        }
        known = [k for k in kind.split(" | ") if k in values]
        return (
            f"{name}={values[rng.choice(known)]() if known and rng.random() < 0.95 else self.expression(1)}"
        )

    def call(self, depth: int) -> str:
        rng = self.rng
        if rng.random() < 0.15:
            args = ", ".join(self.expression(depth - 1) for _ in range(rng.randint(0, 3)))
            return f"{rng.choice(['helper', 'twice', 'missing', 'loop'])}({args})"
        exact = rng.random() < 0.3
        table = graph_functions() if exact else functions()
        name = rng.choice(sorted(table))
        function = table[name]
        words = []
        for kind in function.positional.values():
            words.append('"ij,jk->ik"' if kind == "str" else self.expression(depth - 1))
        if function.rest:
            words += [self.expression(depth - 1) for _ in range(rng.randint(0, 3))]
        for k, kind in function.keywords.items():
            if k in function.required or rng.random() < 0.4:
                words.append(self.keyword(k, kind))
        return f"{'graph.' if exact else ''}{name}({', '.join(words)})"

    def expression(self, depth: int) -> str:
        rng = self.rng
        kind = rng.random()
        if depth <= 0 or kind < 0.25:
            return rng.choice([*self.names, *self.names, self.number(), "q"])
        if kind < 0.5:
            return f"({self.expression(depth - 1)} {rng.choice(_BINARY)} {self.expression(depth - 1)})"
        if kind < 0.8:
            return self.call(depth)
        if kind < 0.88:
            return f"{rng.choice(self.names)}[{self.items()}]"
        if kind < 0.93:
            return f"({self.expression(depth - 1)} as {rng.choice(_DTYPES)})"
        if kind < 0.97:
            return rng.choice(["-", "not "]) + self.expression(depth - 1)
        return f"[{', '.join(self.number() for _ in range(rng.randint(0, 3)))}]"

    def block(self, depth: int) -> str:
        return "".join(self.statement(depth) for _ in range(self.rng.randint(1, 3)))

    def statement(self, depth: int) -> str:
        rng = self.rng
        kind = rng.random()
        if kind < 0.12 and depth:
            head = f"for {rng.choice(['i', 'j', 'x'])} in {self.small()}..{self.small()}"
            return f"{head} {{\n{self.block(depth - 1)}}}\n"
        if kind < 0.22 and depth:
            return f"while {self.expression(2)} {{\n{self.block(depth - 1)}}}\n"
        if kind < 0.34 and depth:
            other = f" else {{\n{self.block(depth - 1)}}}" if rng.random() < 0.6 else ""
            return f"if {self.expression(2)} {{\n{self.block(depth - 1)}}}{other}\n"
        if kind < 0.42:
            return f"{rng.choice(self.names)}[{self.items()}] = {self.expression(2)}\n"
        name = rng.choice([*self.names, "a", "b", "c"])
        type_ = rng.choice(["", "", "", ": f32[4]", ": f32[4] quant i8(scale=0.5)"])
        return f"{name}{type_} = {self.expression(3)}\n"

    def typed(self, depth: int, rank: int) -> str:
        """An expression of type f32 with `rank` dimensions of 4."""
        rng = self.rng
        leaf = {
            0: ["s", "y[n]", "x[1, n]"],
            1: ["y", "x[n]", "x[:, -1]"],
            2: ["x", "y[new, :] + x", "x[::-1]"],
        }[rank]
        if depth <= 0 or rng.random() < 0.1:
            return rng.choice(leaf)
        inner = self.typed(depth - 1, rank)
        other = self.typed(depth - 1, rng.choice(range(rank + 1)))
        full = f"{rng.choice(['add', 'mul', 'max', 'pow', 'atan2', 'div', 'rem'])}"
        ways = [
            f"({inner} {rng.choice(['+', '-', '*', '/', '//', '%'])} {other})",
            f"graph.{full}({inner}, {self.typed(depth - 1, rank)})",
            f"select({inner} {rng.choice(['<', '==', '>='])} {other}, {other}, {inner})",
            f"{rng.choice(['exp', 'tanh', 'relu', 'gelu', 'sigmoid', 'sqrt', 'erf', 'abs', 'floor', 'silu'])}({inner})",
            f"(-{inner})",
            f"(({inner}) as {rng.choice(['f16', 'bf16', 'i32', 'f32'])} as f32)",
            f"({inner} {rng.choice(['+', '*', '-'])} {rng.choice(['1', '0.5', '1e-3', '(-2.5)'])})",
            f"clamp(-1, {inner}, {rng.choice(['1', self.typed(depth - 1, rank)])})",
        ]
        if rank:
            ways += [
                f"softmax({inner})",
                f"reshape({inner}, shape=[{', '.join(['4'] * rank)}])",
                f"sort({inner}, descending={rng.choice(['true', 'false'])})",
                f"cumsum({inner}, axis={rng.choice([0, -1])})",
                f"{inner}[[1, 0, 3, 3]]",
                f"{inner}[z]",
                f"slice({inner}, n, size=4)",
                f"scatter_add({inner}, z, {inner})",
                f"concat({inner}, {self.typed(depth - 1, rank)})[{rng.choice([':4', '4:', '::2', '6:2:-1', '1:5'])}]",
                f"pad({inner}, 0.5, low={[1] * rank}, high={[2] * rank})[{', '.join(['1:5'] * rank)}]",
                f"take({inner}, z)",
                f"graph.reverse({inner}, dims=[{rank - 1}])",
                f"log_softmax({inner}, axis=0)",
                f"layer_norm({inner}, y, y)",
            ]
        if rank == 2:
            ways += [
                f"({inner} @ {self.typed(depth - 1, 2)})",
                f"transpose({inner})",
                f'einsum("ij,kj->ki", {inner}, {self.typed(depth - 1, 2)})',
                f"(one_hot(z, depth=4, type=f32) * {inner})",
                f"stack({', '.join(self.typed(depth - 1, 1) for _ in range(4))}, axis={rng.choice([0, 1, -1])})",
                f'max_pool({inner}[new, :, :, new], window=2, strides=1, padding="same")[0, :, :, 0]',
                f'conv({inner}[new, :, :, new], {inner}[:3, :3, new, new], padding="same")[0, ..., 0]',
            ]
        if rank == 1:
            two = self.typed(depth - 1, 2)
            kind = rng.choice(["sum", "max", "min", "prod", "mean", "variance"])
            ways += [
                f"{kind}({two}, axis={rng.choice([0, 1, -1])})",
                f"({two} @ {inner})",
                f"({inner} @ {two})",
            ]
        if rank == 0:
            ways += [f"sum({self.typed(depth - 1, 1)})", f"max({self.typed(depth - 1, 2)})"]
        return rng.choice(ways)

    def typed_statements(self, depth: int) -> str:
        """Statements that keep the types of x, y and s."""
        rng, out = self.rng, ""
        for _ in range(rng.randint(1, 3)):
            name, rank = rng.choice([("x", 2), ("y", 1), ("s", 0)])
            kind = rng.random()
            if kind < 0.15 and depth:
                out += f"for i in 0..{rng.randint(0, 5)} {{\n{self.typed_statements(depth - 1)}}}\n"
            elif kind < 0.25 and depth:
                out += f"k = 0\nwhile k < n {{\n{self.typed_statements(depth - 1)}k = k + 1\n}}\n"
            elif kind < 0.4 and depth:
                test = f"{self.typed(1, 0)} < {self.typed(1, 0)}"
                one, two = self.typed_statements(depth - 1), self.typed_statements(depth - 1)
                out += f"if {test} {{\n{one}}} else {{\n{two}}}\n"
            elif kind < 0.5:
                out += f"x[{rng.choice(['n', '0', '-1'])}] = {self.typed(1, 1)}\n"
            elif kind < 0.53:
                out += rng.choice(["x, y = x * s, x[0]\n", "x[z] = y\n", "x[z, z] = s\n", "y, z = top_k(y, k=4)\n"])
            elif kind < 0.57:
                out += f"x[1:, ::2] = {self.typed(1, 0)}\n"
            else:
                out += f"{name} = {self.typed(2, rank)}\n"
        return out

    def typed_program(self) -> str:
        """A program without errors."""
        body = self.typed_statements(2) + self.typed_statements(2)
        head = "pub fn main(x: f32[4, 4], y: f32[4], s: f32[], z: i32[4], n: i32[]) -> (f32[4, 4], f32[4], f32[])"
        return f"{head} {{\n{body}return x, y, s\n}}\n"

    def program(self) -> str:
        rng = self.rng
        head = rng.choice(
            ["", "const N2 = 3\n", "const A: f32[2] = [1.0, 2.0]\n", 'import "layers.tw" as layers\n']
        )
        helper = "fn helper(a: f32[R, C]) -> f32[R, C] {\nreturn a + 1\n}\n"
        loop = "fn loop(a: f32[R]) -> f32[R] {\nreturn loop(a)\n}\n"
        twice = f"fn twice(x: f32[4, 4], y: f32[4]) -> f32[4] {{\n{self.block(1)}return y\n}}\n"
        body = self.block(2) + self.block(2)
        result = rng.choice(["return x", "return y", f"return {self.expression(2)}", "return x, y"])
        types = rng.choice(["f32[4, 4]", "f32[4]", "(f32[4, 4], f32[4])"])
        return f"{head}{helper}{loop}{twice}pub fn main({_INPUTS}) -> {types} {{\n{body}{result}\n}}\n"


def mutated(rng: random.Random, text: str) -> str:
    """A program with a few characters, words or lines changed."""
    words = [*symbols().values(), "x", "0", "1.5", '"s"', "#", "\n", "\t", "é", "\x00", "{", "}", "(", "]"]
    for _ in range(rng.randint(1, 4)):
        kind, at = rng.random(), rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.randint(1, 12))
        if kind < 0.3:
            text = text[:at] + rng.choice(words) + text[at:]
        elif kind < 0.55:
            text = text[:at] + text[end:]
        elif kind < 0.7:
            text = text[:at] + text[at:end] * rng.randint(2, 40) + text[end:]
        elif kind < 0.85:
            lines = text.split("\n")
            i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
            text = "\n".join(lines)
        else:
            text = text[:at] + rng.choice(words) + text[end:]
    return text


class Slow(Exception):
    """A program took longer than SECONDS."""


def _alarm(*_: object) -> None:
    raise Slow


def check(source: str | bytes, folder: Path = EXAMPLES) -> str:
    """Lowers a program and what follows; how that ended. Raises AssertionError where it is not as it should be."""
    path = str(folder / "fuzzed.tw")
    try:
        text = source if isinstance(source, str) else decoded(source)
    except ValueError:
        return "not text"
    try:
        made = lower_tw(
            path, text, None, None, {k: v for k, v in SIZES.items() if f"[{k}" in text or f" {k}" in text}
        )
    except TwError as error:
        if not all("has no dimension" in d.message for d in error.diagnostics):
            shown = str(error)
            assert shown.startswith("error: ")
            assert len(shown) < 200_000
            return "diagnosed"
        try:
            made = lower_tw(path, text, None, None, {"N": 4} if "N" in text else {})
        except TwError:
            return "diagnosed"
    verify(made.module)
    formatted = format_text(path, text)
    assert format_text(path, formatted) == formatted, "fmt is not idempotent"
    try:
        again = print_tw(made.module, "again")
    except FrontendError as error:
        if "\n" in str(error):
            raise
        return "lowered, cannot be printed"
    assert same(lower_tw("again.tw", again).module, made.module), f"another graph from\n{again}"
    return "lowered and printed"


def programs(count: int, seed: int):
    """Random programs, and mutations of them and of the examples."""
    rng = random.Random(seed)
    examples = [p.read_text() for p in sorted(EXAMPLES.glob("*.tw"))]
    for i in range(count):
        made, linked = Generator(rng), Linked(rng)
        match i % 6:
            case 4:
                yield linked.program() if i % 12 < 6 else mutated(rng, linked.program())
            case 5:
                yield odd(rng, rng.choice([made.typed_program, linked.program, lambda: rng.choice(examples)])())
            case 0:
                yield made.program()
            case 1:
                yield made.typed_program()
            case 2:
                yield mutated(rng, rng.choice([made.typed_program, made.program])())
            case _:
                yield mutated(rng, rng.choice(examples))


def campaign(count: int, seed: int) -> Counter[str]:
    """Check `count` programs. Raises AssertionError with the program that fails."""
    ends: Counter[str] = Counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.signal(signal.SIGVTALRM, _alarm)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_files(folder)
        for example in EXAMPLES.glob("*.tw"):
            (folder / example.name).write_text(example.read_text())
        for weights in EXAMPLES.glob("*.safetensors"):
            (folder / weights.name).symlink_to(weights)
        for text in programs(count, seed):
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            try:
                ends[check(text, folder)] += 1
            except Exception as error:
                shown = text if isinstance(text, str) else repr(text)
                raise AssertionError(f"{type(error).__name__}: {error}\n--- the program:\n{shown}") from error
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < MEGABYTES, f"memory grew by {grown:.0f} MB"
    ends["MB grown"] = round(grown)
    return ends


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    started = time.monotonic()
    found = campaign(wanted, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(f"{wanted} programs in {time.monotonic() - started:.0f} s: {dict(found)}")
