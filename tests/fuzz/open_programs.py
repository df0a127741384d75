"""Random programs with open dimensions: the generator of generate.py, whose shapes have symbols in them.

The text of a program is plain JAX: it reads its sizes off the shapes of its first inputs (`b = v1.shape[0]`), so it
runs for arrays and traces for symbolic shapes.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp

from . import data
from .data import rand
from .generate import FUTURE, SIZES, Generator, Input, Limits, Make, Program, Step, Type, load, render, walk
from .open_dims import LANGUAGE, Open, Sizes, Symbols, at, random_sizes, random_symbols
from .table_open import TABLE
from .tables import DEVICE

ROOM = 12_000
"""Elements of the largest value of a program at the sizes that it is called with."""


@dataclass(frozen=True)
class OpenProgram(Program):
    """A random program with open dimensions. anchors: how each symbol follows from an input, as (symbol, input, text);
    sizes: what it is called with."""

    symbols: Symbols
    anchors: tuple[tuple[str, str, str], ...]
    sizes: tuple[dict[str, int], ...]

    @property
    def lasting(self) -> frozenset[str]:
        return frozenset(name for _, name, _ in self.anchors)

    def lines(self) -> list[str]:
        """The program as a Python function."""
        first, *rest = render(self.main)
        return [first, *(f"    {symbol} = {text}" for symbol, _, text in self.anchors), *rest]

    def function(self, path: str = "<program>") -> Callable[..., Any]:
        return load("\n".join(self.lines()), path, {**LANGUAGE, **self.known})["program"]

    def arguments_at(self, sizes: Sizes) -> list[Any]:
        """Arrays for a call with these sizes."""
        made = (self.inputs[name] for name in self.main.params)
        return [rand(i.seed, tuple(at(n, sizes) for n in i.type.shape), i.type.dtype, i.kind) for i in made]

    def structs(self) -> list[jax.ShapeDtypeStruct]:
        """Its inputs with symbolic shapes."""
        texts = list(
            dict.fromkeys(str(n) for i in self.inputs.values() for n in i.type.shape if isinstance(n, Open))
        )
        dims = dict(zip(texts, self.symbols.symbolic(texts), strict=True)) if texts else {}
        types = (self.inputs[name].type for name in self.main.params)
        return [
            jax.ShapeDtypeStruct(
                tuple(dims[str(n)] if isinstance(n, Open) else n for n in t.shape), jnp.dtype(t.dtype)
            )
            for t in types
        ]

    @property
    def text(self) -> str:
        """A standalone Python file: `program`, `program_inputs` for one of the sizes it was called with, and a check of
        all of them against JAX when it is run."""
        shown = ", ".join(f"{n}={v}" for n, v in self.sizes[-1].items())
        lines = [
            f'"""Random program {self.seed} with open dimensions{self._compiled_with}."""',
            *FUTURE,
            "import functools",
            "from typing import Any",
            "import jax",
            "import jax.numpy as jnp",
            "import numpy as np",
            "from jax import export, lax",
            *self.library_lines,
            *(['jax.config.update("jax_enable_x64", True)'] if self.x64 else []),
            "floordiv = lambda a, b: a // b",
            "mod = lambda a, b: a % b",
            "max = lambda *sizes: functools.reduce(jax.core.max_dim, sizes)",
            "min = lambda *sizes: functools.reduce(jax.core.min_dim, sizes)",
            "",
            inspect.getsource(data.rand)
            .replace("max(low", "__builtins__.max(low")
            .replace("min(50", "__builtins__.min(50"),
            "",
            *self.lines(),
            "",
            f"def program_inputs({shown}):",
            "    return (",
            *(f"        {self._filled(n)},  # {n}" for n in self.main.params),
            "    )",
            "",
            "if __name__ == '__main__':",
            "    import tilewright as tw",
            f"    scope = export.SymbolicScope({self.symbols.constraints!r})",
            f"    sizes = export.symbolic_shape({', '.join(self.symbols.bounds)!r}, scope=scope)",
            f"    {', '.join(self.symbols.bounds)}, = sizes",
            "    opened = tw.compile(program, *(",
            *(f"        {self._opened(n)}," for n in self.main.params),
            "    ))",
            f"    for sizes in {list(self.sizes)}:",
            "        args = program_inputs(**sizes)",
            "        got, want = opened(*args), jax.jit(program)(*args)",
            "        print(sizes, [np.array_equal(x, y, equal_nan=x.dtype.kind in 'fc') for x, y in zip(got, want)])",
            "    print(*opened.ranges.values(), sep='\\n')",
        ]
        return "\n".join(lines) + "\n"

    def _opened(self, name: str) -> str:
        t = self.inputs[name].type
        return f"jax.ShapeDtypeStruct({t.shape}, {t.dtype!r})"


class OpenGenerator(Generator):
    """Makes one program with open dimensions."""

    def __init__(
        self,
        seed: int,
        table: Sequence[tuple[str, float, Make]],
        x64: bool,
        special: bool,
        limits: Limits,
        dtypes: Sequence[str] | None = None,
    ):
        super().__init__(seed, table, x64, special, limits, dtypes)
        self.symbols = random_symbols(random.Random(seed))
        names = tuple(self.symbols.bounds)
        self._plain = self.symbols.symbolic(names)
        self.known = {**LANGUAGE, **dict(zip(names, self._plain, strict=True))}
        self.anchors: list[tuple[str, str, str]] = []

    # -- dimensions ----------------------------------------------------------------------------------------

    def opened(self, text: str) -> Open:
        """The dimension of a text, as JAX writes it."""
        dim = eval(text, dict(self.known))
        return Open(str(dim), dim, self.symbols.lowest)

    def dim(self) -> Open:
        """A random open dimension: mostly a symbol."""
        symbol, other = self.choose(tuple(self.symbols.bounds)), self.choose(tuple(self.symbols.bounds))
        low = self.symbols.lowest[symbol]
        texts = [symbol] * 14 + [f"2*{symbol}", f"8*{symbol}", f"{symbol} + 3", f"{symbol} + {other}"]
        texts += [f"floordiv({symbol}, 2)"] * (low >= 2) + [f"{symbol} - 1"] * (low >= 2)
        return self.opened(self.choose(texts))

    def shape(self, most: int | None = None, low: int = 0) -> tuple[int, ...]:
        closed = super().shape(min(most or 400, 400), low)
        return tuple(self.dim() if n and self.chance(0.35) else n for n in closed[:4])

    def reach(self, dimension: int) -> int:
        return 1 << 20 if isinstance(dimension, Open) else dimension

    def fixed(self, most: int = 20) -> int:
        """A closed dimension."""
        return self.choose([n for n in SIZES if n <= most])

    # -- values --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Inputs that each have a symbol in a dimension, from which it follows."""
        for symbol in self.symbols.bounds:
            text, undo = self.choose([(symbol, "")] * 5 + [(f"{k}*{symbol}", f" // {k}") for k in (2, 8)])
            shape = [self.fixed() for _ in range(self.choose((0, 1, 1, 2)))]
            d = self.rng.randint(0, len(shape))
            shape.insert(d, self.opened(text))
            name = self.fresh()
            self._input(name, Type(tuple(shape), self.dtype()), "plain")
            self.anchors.append((symbol, name, f"{name}.shape[{d}]{undo}"))
        if self.chance(0.5):
            self.new(Type(self.shape(), self.dtype()))

    def _input(self, name: str, t: Type, kind: str) -> None:
        self.types[name] = t
        self.inputs[name] = Input(self.rng.randrange(10**6), t, kind)
        self.scope.append(name)

    def new(self, t: Type, kind: str | None = None) -> str:
        if not any(isinstance(n, Open) for n in t.shape):
            return super().new(t, kind)
        name = self.fresh()
        if kind is None and self.chance(0.25):
            self.types[name] = t
            text = f"jnp.full({t.shape}, {self.choose((0, 1, 2))}, {t.dtype!r})"
            self._steps.append(Step("constant", (name,), text))
            self.scope.append(name)
        else:  # an inner function sees the program's inputs
            self._input(name, t, kind or ("special" if self.special and self.chance(0.4) else "plain"))
        return name

    def fitted(self, name: str, t: Type) -> str:
        have = self.types[name]
        if have.shape == t.shape or not any(isinstance(n, Open) for n in (*have.shape, *t.shape)):
            return super().fitted(name, t)
        made = self.fresh()
        self.types[made] = t
        text = f"jnp.sum({'jnp.real' if have.kind == 'c' and t.kind != 'c' else ''}({name}))"
        text = f"jnp.broadcast_to(lax.convert_element_type({text}, jnp.dtype({t.dtype!r})), {t.shape})"
        self._steps.append(Step("fit", (made,), text))
        self.scope.append(made)
        return made

    def struct(self, t: Type) -> jax.ShapeDtypeStruct:
        shape = tuple(n.dim if isinstance(n, Open) else n for n in t.shape)
        return jax.ShapeDtypeStruct(shape, jnp.dtype(t.dtype))

    def typed(self, x: Any) -> Type:
        lowest = self.symbols.lowest
        shape = (n if isinstance(n, int) else Open(str(n), n, lowest) for n in x.shape)
        return Type(tuple(shape), str(x.dtype))

    # -- the program ---------------------------------------------------------------------------------------

    def program(self) -> OpenProgram:
        return self.called_at_sizes(super().program())

    def called_at_sizes(self, made: Program, room: int = ROOM) -> OpenProgram:
        """A program with the inputs from which its sizes follow, and sizes to call it with. room: elements of its
        largest value there."""
        kept = {name: i for name, i in self.inputs.items() if name in made.inputs or self._is_anchor(name)}

        used = [made.types[n] for n in {*kept, *(r for s in walk(made.main) for r in s.results)}]

        def largest(sizes: Sizes) -> int:
            return max(_elements(t, sizes) for t in used)

        sizes = random_sizes(random.Random(self.seed + 1), self.symbols, largest, room)
        own = {f.name: getattr(made, f.name) for f in fields(made)}
        main = type(made.main)(made.main.name, tuple(kept), made.main.steps, made.main.results)
        own |= {"main": main, "inputs": kept}
        return OpenProgram(**own, symbols=self.symbols, anchors=tuple(self.anchors), sizes=sizes)

    def _is_anchor(self, name: str) -> bool:
        return any(name == anchor for _, anchor, _ in self.anchors)


def _elements(t: Type, sizes: Sizes) -> int:
    found = 1
    for n in t.shape:
        found *= at(n, sizes)
    return found


def open_program_of(seed: int, only: str = "") -> OpenProgram:
    """The random program with open dimensions of a seed. only: as in `program_of`."""
    names = [n for n in only.split(",") if n]
    table = [row for row in TABLE if not names or row[0] in names]
    x64, special, long = seed % 5 == 4, seed % 3 == 2, seed % 7 == 6
    limits = Limits(steps=10 if long else 5, elements=2000, depth=1)
    with jax.enable_x64(x64):
        return OpenGenerator(
            seed, table, x64, special, limits, DEVICE if seed % 2 and not x64 else None
        ).program()
