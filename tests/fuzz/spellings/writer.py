"""Writes one program: values whose dimensions have letters, and each computation of them in one of its spellings.

A family of programs (attention.py, products.py, ...) says what is computed, as `scores = contracted(q, k, "bhst")`. The
writer chooses how that is written: as an einsum, a matmul of transposes, a `dot_general`, a `vmap`. Every extent is the
letter's, so a family says nothing about layouts, and unit dimensions come and go around it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..generate import Block, Generator, Input, Limits, Program, Step, Type
from ..open_dims import LANGUAGE, Open, Symbols
from ..open_programs import OpenGenerator
from . import onnx_text

FLOATS = ("float32", "float16", "bfloat16")
ROOM = 1 << 26
"""Elements of the largest value at the sizes that a program with open dimensions is compiled for."""


@dataclass(frozen=True)
class Value:
    """A name of the program, and a letter for each of its dimensions."""

    name: str
    letters: str

    def axis(self, letter: str) -> int:
        return self.letters.index(letter)


class Writer(Generator):
    """One program. turn: which of a family's extents is 1, see `extents`; small: sizes for programs that run."""

    def __init__(self, seed: int, turn: int = 0, small: bool = True):
        super().__init__(seed, (), False, False, Limits(elements=1 << 62), FLOATS)
        self.rng = random.Random(seed)
        self.turn, self.small = turn, small
        self.usual = self.chance(0.3)
        """Whether products are spelled as most code has them: matmuls of operands that come as they are."""
        self.extent: dict[str, int] = {}
        self.options: dict[str, Any] = {}
        self._steps: list[Step] = []
        self._letters = (f"{c}" for c in "zyxwvu")
        self.known = dict(vars(onnx_text))

    # -- extents -------------------------------------------------------------------------------------------

    def extents(self, **choices: tuple[Sequence[int], Sequence[int]]) -> None:
        """Chooses the extent of each letter: of the first sizes in a small program, else of all. Each letter is 1 in
        its turn, and in one turn none is, in one a random half."""
        names, turn = list(choices), self.turn % (len(choices) + 2)
        for i, (name, (few, more)) in enumerate(choices.items()):
            size = self.choose(few if self.small else (*few, *more))
            is_unit = turn == i or (turn == len(names) + 1 and self.chance(0.5))
            self.extent[name] = 1 if is_unit else size

    def open(self, letter: str, symbol: str) -> None:
        """A program with open dimensions has one of this size; others have the extent that there is."""

    def size(self, letters: str) -> int:
        """The product of extents."""
        found: int = 1
        for letter in letters:
            found = self.times(found, self.extent[letter])
        return found

    def times(self, a: int, b: int) -> int:
        return a * b

    def shape_of(self, letters: str) -> tuple[int, ...]:
        return tuple(self.extent[c] for c in letters)

    def is_open(self, n: int) -> bool:
        return isinstance(n, Open)

    def open_in(self, letters: str) -> bool:
        """Whether one of these extents is open."""
        return any(self.is_open(self.extent[c]) for c in letters)

    def new_letter(self, extent: int) -> str:
        letter = next(self._letters)
        self.extent[letter] = extent
        return letter

    # -- values --------------------------------------------------------------------------------------------

    def input(self, letters: str, dtype: str, kind: str = "plain") -> Value:
        """An input of the program, with a dimension for each letter."""
        return Value(self.taken(self.shape_of(letters), dtype, kind), letters)

    def taken(self, shape: tuple[int, ...], dtype: str, kind: str = "plain") -> str:
        """An input of the program."""
        name = self.fresh()
        self.types[name] = Type(shape, dtype)
        self.inputs[name] = Input(self.rng.randrange(10**6), self.types[name], kind)
        self.scope.append(name)
        return name

    def line(self, text: str, kind: str = "line") -> str:
        """A step with one result. Raises ValueError where JAX refuses it: then the family is wrong."""
        step = Step(kind, (), text)
        found = self.result_types(step)
        if found is None:
            raise ValueError(f"seed {self.seed}: {self.rejected[kind]}")
        name = self.fresh()
        self.types[name] = found[0][0]
        self._steps.append(replace(step, results=(name,)))
        return name

    def say(self, text: str, letters: str, kind: str = "line") -> Value:
        """A step whose result has these letters."""
        made = Value(self.line(text, kind), letters)
        assert self.types[made.name].rank == len(letters), (text, letters)
        return made

    def same(self, text: str, like: Value, kind: str = "line") -> Value:
        """A step whose result has the letters of a value."""
        return self.say(text, like.letters, kind)

    def cast(self, x: Value, dtype: str) -> Value:
        if self.types[x.name].dtype == dtype:
            return x
        return self.same(f"{x.name}.astype({dtype!r})", x, "cast")

    def dtype_of(self, x: Value) -> str:
        return self.types[x.name].dtype

    # -- layouts -------------------------------------------------------------------------------------------

    def permuted(self, x: Value, want: str) -> Value:
        """The value with its dimensions in another order."""
        if x.letters == want:
            return x
        perm = tuple(x.axis(c) for c in want)
        moved = [i for i, p in enumerate(perm) if p != i]
        texts = [
            f"jnp.transpose({x.name}, {perm})",
            f"lax.transpose({x.name}, {perm})",
            f"jnp.einsum('{x.letters}->{want}', {x.name})",
        ]
        if len(moved) == 2:
            texts.append(f"{x.name}.swapaxes({moved[0]}, {moved[1]})")
            texts.append(f"jnp.moveaxis({x.name}, {moved}, {[perm.index(i) for i in moved]})")
        return self.say(self.choose(texts), want, "transpose")

    def lifted(self, x: Value, want: str) -> Value:
        """The value with dimensions of 1 for letters that it has not: its result has all letters of `want`."""
        x = self.permuted(x, "".join(c for c in want if c in x.letters))
        if x.letters == want:
            return x
        missing = tuple(i for i, c in enumerate(want) if c not in x.letters)
        index = ", ".join(":" if c in x.letters else "None" for c in want)
        shape = f"({', '.join(str(self.extent[c]) if c in x.letters else '1' for c in want)},)"
        texts = [
            f"{x.name}[{index}]",
            f"jnp.expand_dims({x.name}, {missing})",
            f"jnp.reshape({x.name}, {shape})",
        ]
        return self.say(self.choose(texts), want, "lift")

    def dropped(self, x: Value, letter: str) -> Value:
        """The value without a dimension of 1."""
        axis = x.axis(letter)
        index = ", ".join("0" if c == letter else ":" for c in x.letters)
        rest = x.letters.replace(letter, "")
        shape = f"({', '.join(str(self.extent[c]) for c in rest)}{',' * (len(rest) == 1)})"
        texts = [f"{x.name}.squeeze({axis})", f"{x.name}[{index}]", f"jnp.reshape({x.name}, {shape})"]
        return self.say(self.choose(texts), rest, "squeeze")

    def wrapped(self, letters: str) -> str:
        """Letters with another one of extent 1 among them, for values that come with a dimension which they need not
        have."""
        at = self.rng.randint(0, len(letters))
        return letters[:at] + self.new_letter(1) + letters[at:]

    def merged_input(self, letters: str, dtype: str) -> Value:
        """An input in which neighbours among these letters are one dimension, and what makes them two."""
        at = self.rng.randrange(len(letters) - 1)
        sizes = self.shape_of(letters)
        shape = (*sizes[:at], self.times(sizes[at], sizes[at + 1]), *sizes[at + 2 :])
        name = self.taken(shape, dtype)
        return self.say(f"jnp.reshape({name}, {sizes})", letters, "split")

    def merged(self, x: Value, pair: str) -> str:
        """The name of a value with two neighbouring dimensions as one."""
        at = x.letters.index(pair)
        sizes = self.shape_of(x.letters)
        shape = (*sizes[:at], self.times(sizes[at], sizes[at + 1]), *sizes[at + 2 :])
        return self.line(f"jnp.reshape({x.name}, {shape})", "merge")

    # -- products ------------------------------------------------------------------------------------------

    def contracted(self, a: Value, b: Value, out: str, spelling: str = "") -> Value:
        """The sum of products over all letters that `out` has not."""
        batch = "".join(c for c in out if c in a.letters and c in b.letters)
        over = "".join(c for c in a.letters if c in b.letters and c not in out)
        rows, columns = (
            "".join(c for c in x.letters if c in out and c not in batch) for x in (a, b)
        )
        ways = ("matmul",) if self.usual else ("einsum", "einsum", "dot_general", "matmul", "vmap", "matmul")
        spelled = spelling or self.choose(ways)
        if spelled == "matmul" and (len(over), len(rows), len(columns)) == (1, 1, 1):
            return self._matmul(a, b, batch, rows, over, columns, out)
        if spelled == "vmap" and batch:
            return self._vmap(a, b, batch, out)
        if spelled == "dot_general":
            return self._dot_general(a, b, batch, over, rows + columns, out)
        wide = self.choose(("", "", ", preferred_element_type=jnp.float32"))
        text = f"jnp.einsum('{a.letters},{b.letters}->{out}', {a.name}, {b.name}{wide})"
        return self.say(text, out, "einsum")

    def _matmul(self, a: Value, b: Value, batch: str, m: str, k: str, n: str, out: str) -> Value:
        batch = "".join(self.rng.sample(batch, len(batch))) if self.chance(0.2) else batch
        a = self.permuted(a, batch + m + k)
        if b.letters == batch + n + k or self.chance(0.5):
            b = self.permuted(b, batch + n + k)
            transposed = self.choose((f"{b.name}.swapaxes(-1, -2)", f"jnp.matrix_transpose({b.name})", f"{b.name}.mT"))
        else:
            b = self.permuted(b, batch + k + n)
            transposed = b.name
        text = self.choose((f"{a.name} @ {transposed}", f"jnp.matmul({a.name}, {transposed})"))
        return self.permuted(self.say(text, batch + m + n, "matmul"), out)

    def _dot_general(self, a: Value, b: Value, batch: str, over: str, free: str, out: str) -> Value:
        batch = "".join(self.rng.sample(batch, len(batch)))
        summed = tuple(map(a.axis, over)), tuple(map(b.axis, over))
        shared = tuple(map(a.axis, batch)), tuple(map(b.axis, batch))
        text = f"lax.dot_general({a.name}, {b.name}, ({summed}, {shared}))"
        return self.permuted(self.say(text, batch + free, "dot_general"), out)

    def _vmap(self, a: Value, b: Value, batch: str, out: str) -> Value:
        """A product of single members, mapped over one batch dimension after the other."""
        order = self.rng.sample(batch, len(batch))
        inner_a, inner_b = (x.letters.translate({ord(c): None for c in batch}) for x in (a, b))
        inner = "".join(c for c in out if c not in batch)
        core = f"lambda a, b: jnp.einsum('{inner_a},{inner_b}->{inner}', a, b)"
        if len(inner_a) == len(inner_b) == 2 and inner_a[1] == inner_b[1] and inner == inner_a[0] + inner_b[0]:
            core = "lambda a, b: a @ b.T"
        letters_a, letters_b, letters_out = a.letters, b.letters, out
        around: list[tuple[int, int, int]] = []
        for c in order:
            around.append((letters_a.index(c), letters_b.index(c), letters_out.index(c)))
            letters_a, letters_b, letters_out = (x.replace(c, "") for x in (letters_a, letters_b, letters_out))
        text = f"({core})"
        for at_a, at_b, at_out in reversed(around):
            text = f"jax.vmap({text}, in_axes=({at_a}, {at_b}), out_axes={at_out})"
        return self.say(f"{text}({a.name}, {b.name})", out, "vmap")

    # -- programs ------------------------------------------------------------------------------------------

    def finished(self, results: Sequence[str], gradient: bool = False) -> Program:
        """The program that gives these values; gradient: or their gradient with regard to all inputs of floats."""
        main = Block("program", tuple(self.inputs), tuple(self._steps), tuple(results))
        if gradient:
            main = self._gradient(main)
        return self._program(main)

    def _program(self, main: Block) -> Program:
        return Program(
            self.seed, False, main, dict(self.inputs), self.types, options=self.options, library=onnx_text
        )

    def _gradient(self, main: Block) -> Block:
        inner = Block(self.fresh("f"), main.params, main.steps, main.results[:1], True)
        wanted = [p for p in main.params if self.types[p].floating]
        given = [self.fresh() for _ in wanted]
        result = self.types[main.results[0]]
        cotangent = self.taken(result.shape, result.dtype)
        numbers = tuple(main.params.index(p) for p in wanted)
        arguments = ", ".join(main.params)
        text = f"jax.vjp({inner.name}, {arguments})[1]({cotangent})"
        text = f"[g for i, g in enumerate({text}) if i in {numbers}]"
        for g, p in zip(given, wanted, strict=True):
            self.types[g] = self.types[p]
        step = Step("gradient", tuple(given), text, (inner,))
        return Block("program", (*main.params, cotangent), (step,), tuple(given))


class OpenWriter(Writer, OpenGenerator):
    """The same with open dimensions `b` and `s`."""

    def __init__(self, seed: int, turn: int = 0, small: bool = True):
        super().__init__(seed, turn, small)
        self.symbols = Symbols({"b": (1, None), "s": (1, None)}, ())
        names = tuple(self.symbols.bounds)
        plain = self.symbols.symbolic(names)
        self._plain = plain
        self.known |= {**LANGUAGE, **dict(zip(names, plain, strict=True))}

    def open(self, letter: str, symbol: str) -> None:
        if self.extent[letter] != 1:
            self.extent[letter] = self.opened(symbol)

    def times(self, a: int, b: int) -> int:
        texts = [f"{x}" for x in (a, b)]
        return self.opened("*".join(texts)) if isinstance(a, Open) or isinstance(b, Open) else a * b

    def taken(self, shape: tuple[int, ...], dtype: str, kind: str = "plain") -> str:
        name = super().taken(shape, dtype, kind)
        known = {symbol for symbol, _, _ in self.anchors}
        for axis, n in enumerate(shape):
            if isinstance(n, Open) and n.text in self.symbols.bounds and n.text not in known:
                self.anchors.append((n.text, name, f"{name}.shape[{axis}]"))
                known.add(n.text)
        return name

    def finished(self, results: Sequence[str], gradient: bool = False) -> Program:
        used = {n.text for n in self.extent.values() if isinstance(n, Open)} & self.symbols.bounds.keys()
        for symbol in sorted(used - {symbol for symbol, _, _ in self.anchors}):
            self.taken((self.opened(symbol),), "int32")  # where no input has it by itself
        return super().finished(results, gradient)

    def _program(self, main: Block) -> Program:
        used = {symbol for symbol, _, _ in self.anchors}
        if not used:  # all of them are 1
            return super()._program(main)
        self.symbols = Symbols({n: b for n, b in self.symbols.bounds.items() if n in used}, ())
        return self.called_at_sizes(super()._program(main), ROOM >> (8 * self.small))

