"""A typed generator of random JAX programs: steps of Python text that run, print and shrink as one thing.

A step is one line of Python, such as `v7 = jnp.tanh(v3)`, with the functions it calls (bodies of loops, functions to
differentiate) above it. JAX itself says which types the results have, and a step that JAX refuses is left out: so the
generators in `table_*.py` only say what to try.
"""

from __future__ import annotations

import inspect
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import data
from .data import rand

NAME = re.compile(r"\bv\d+\b")

NARROW = ("bool", "int8", "int16", "int32", "uint8", "uint32", "float16", "bfloat16", "float32", "complex64")
WIDE = ("int64", "uint64", "float64", "complex128")
WEIGHTS = {
    "float32": 9,
    "float16": 4,
    "bfloat16": 3,
    "int32": 4,
    "int8": 2,
    "bool": 2,
    "float64": 3,
    "int64": 2,
}
"""How often a dtype is chosen; 1 where it is not here."""

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33, 64, 97, 130)
MOST_RANK = 5
FUTURE = ("from __future__ import annotations",)


@dataclass(frozen=True)
class Type:
    """Shape and dtype of a value."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def kind(self) -> str:
        """`b`, `i`, `u`, `f` or `c`."""
        return "f" if self.dtype == "bfloat16" else np.dtype(self.dtype).kind

    @property
    def floating(self) -> bool:
        return self.kind == "f"

    @property
    def integral(self) -> bool:
        return self.kind in "iu"


@dataclass(frozen=True)
class Block:
    """A function of the program: its parameters, its steps and what it returns. single: returns a value, no tuple."""

    name: str
    params: tuple[str, ...]
    steps: tuple[Step, ...]
    results: tuple[str, ...]
    single: bool = False


@dataclass(frozen=True)
class Step:
    """`results = text`; `kind` is the generator that made it, `blocks` the functions that `text` calls."""

    kind: str
    results: tuple[str, ...]
    text: str
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Input:
    """How a parameter of the program is filled."""

    seed: int
    type: Type
    kind: str


@dataclass(frozen=True)
class Program:
    """A random program: a main block, its inputs, and the types of all values. options: with which `tw.Options` it is
    compiled; library: a module whose functions its steps call."""

    seed: int
    x64: bool
    main: Block
    inputs: dict[str, Input]
    types: dict[str, Type] = field(repr=False)
    options: dict[str, Any] = field(kw_only=True, default_factory=dict)
    library: ModuleType | None = field(kw_only=True, default=None, repr=False)

    @property
    def lasting(self) -> frozenset[str]:
        """Inputs that stay when nothing uses them."""
        return frozenset()

    @property
    def text(self) -> str:
        """A standalone Python file with `program` and `program_inputs`, for `tilewright verify FILE:program`."""
        lines = [
            f'"""Random program {self.seed}{self._compiled_with}."""',
            *FUTURE,
            "from typing import Any",
            "import jax",
            "import jax.numpy as jnp",
            "import numpy as np",
            "from jax import lax",
            *self.library_lines,
            *(['jax.config.update("jax_enable_x64", True)'] if self.x64 else []),
            "",
            inspect.getsource(data.rand),
            "",
            *render(self.main),
            "",
            "def program_inputs():",
            "    return (",
            *(f"        {self._filled(n)},  # {n}" for n in self.main.params),
            "    )",
        ]
        return "\n".join(lines) + "\n"

    @property
    def _compiled_with(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f", compiled with tw.Options({given})" if given else ""

    @property
    def library_lines(self) -> list[str]:
        """The text of the functions that steps call."""
        text = inspect.getsource(self.library) if self.library else ""
        return [line for line in text.splitlines() if line not in FUTURE]

    @property
    def known(self) -> dict[str, Any]:
        """The same functions."""
        return vars(self.library) if self.library else {}

    def _filled(self, name: str) -> str:
        i = self.inputs[name]
        return f"rand({i.seed}, {i.type.shape}, {i.type.dtype!r}, {i.kind!r})"

    def function(self, path: str = "<program>") -> Callable[..., Any]:
        """The program as a Python function; locations name `path`."""
        return load("\n".join(render(self.main)), path, self.known)["program"]

    def arguments(self) -> list[Any]:
        return [
            rand(i.seed, i.type.shape, i.type.dtype, i.kind)
            for i in map(self.inputs.get, self.main.params)
            if i
        ]

    def structs_of_inputs(self) -> list[jax.ShapeDtypeStruct]:
        """The types of what it is called with."""
        types = (self.inputs[name].type for name in self.main.params)
        return [jax.ShapeDtypeStruct(t.shape, jnp.dtype(t.dtype)) for t in types]

    def steps(self) -> int:
        """How many steps there are, those of inner functions included."""
        return sum(1 for _ in walk(self.main))


def walk(block: Block) -> Iterator[Step]:
    for s in block.steps:
        for b in s.blocks:
            yield from walk(b)
        yield s


def load(text: str, path: str = "<program>", known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The names that a piece of program text defines. known: others that it may use."""
    names: dict[str, Any] = {"jax": jax, "jnp": jnp, "np": np, "lax": lax, "rand": rand, **(known or {})}
    exec(compile(text, path, "exec"), names)
    return names


def render(block: Block, indent: str = "") -> list[str]:
    """A block as the lines of a Python function."""
    lines = [f"{indent}def {block.name}({', '.join(block.params)}):"]
    for s in block.steps:
        for b in s.blocks:
            lines += render(b, indent + "    ")
        lines.append(f"{indent}    {', '.join(s.results)} = {s.text}")
    results = ", ".join(block.results)
    lines.append(
        f"{indent}    return {results if block.single else f'({results},)' if block.results else '()'}"
    )
    return lines


def used(block: Block) -> set[str]:
    """Names that a block takes from outside."""
    found, own = set(block.results), set(block.params)
    for s in block.steps:
        found |= needs(s)
        own |= set(s.results)
    return found - own


def needs(step: Step) -> set[str]:
    """Names that a step uses."""
    found = set(NAME.findall(step.text))
    for b in step.blocks:
        found |= used(b)
    return found


Make = Callable[["Generator"], "str | tuple[str, Sequence[Block]] | None"]
"""A step generator: the text of the right side, and the blocks it calls. None: nothing fits."""


@dataclass
class Limits:
    """steps: how many; elements: of a value at most; depth: how deep functions nest."""

    steps: int = 12
    elements: int = 4096
    depth: int = 2


class Generator:
    """Makes one program. `table`: (name, weight, generator) rows."""

    def __init__(
        self,
        seed: int,
        table: Sequence[tuple[str, float, Make]],
        x64: bool,
        special: bool,
        limits: Limits,
        dtypes: Sequence[str] | None = None,
    ):
        self.rng = random.Random(seed)
        self.seed, self.table, self.x64, self.special, self.limits = seed, table, x64, special, limits
        self.types: dict[str, Type] = {}
        self.scope: list[str] = []
        self.inputs: dict[str, Input] = {}
        self.depth = 0
        self.rejected: dict[str, str] = {}
        self._count = 0
        wide = WIDE if x64 else ()
        self.dtypes = tuple(dtypes or (*NARROW, *wide))
        self.known: dict[str, Any] = {}
        """Names that steps may use besides values."""
        self.smooth = False
        """Only steps that a gradient goes through."""

    # -- chance --------------------------------------------------------------------------------------------

    def choose(self, options: Sequence[Any]) -> Any:
        return options[self.rng.randrange(len(options))]

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def dtype(self, among: Sequence[str] | None = None) -> str:
        options = among or self.dtypes
        return self.rng.choices(options, [WEIGHTS.get(d, 1) for d in options])[0]

    def shape(self, most: int | None = None, low: int = 0) -> tuple[int, ...]:
        """A random shape: rank 0 to 5, sizes 0 (seldom), 1, primes and more."""
        room = most or self.limits.elements
        shape: list[int] = []
        for _ in range(max(low, self.rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5)))):
            if self.chance(0.015):
                shape.append(0)
                continue
            fitting = [n for n in SIZES if n * max(math.prod(shape), 1) <= room] or [1]
            shape.append(self.choose(fitting))
        self.rng.shuffle(shape)
        return tuple(shape)

    def reach(self, dimension: int) -> int:
        """The most that a dimension may be."""
        return dimension

    # -- values --------------------------------------------------------------------------------------------

    def fresh(self, prefix: str = "v") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def type(self, name: str) -> Type:
        return self.types[name]

    def pick(self, good: Callable[[Type], bool] = lambda t: True) -> str | None:
        """A visible value whose type is good, later ones rather."""
        fitting = [v for v in self.scope if good(self.types[v])]
        if not fitting:
            return None
        return self.rng.choices(fitting, [1 + 2 * i / len(fitting) for i in range(len(fitting))])[0]

    def value(self, dtype: str, shape: tuple[int, ...], kind: str | None = None) -> str:
        """A visible value of this type, or a new one: an input of the program or a constant."""
        found = self.pick(lambda t: t.dtype == dtype and t.shape == shape) if kind is None else None
        if found is not None and self.chance(0.8):
            return found
        return self.new(Type(shape, dtype), kind)

    def new(self, t: Type, kind: str | None = None) -> str:
        """A new input, or where that cannot be a constant."""
        kind = kind or ("special" if self.special and self.chance(0.4) else "plain")
        seed = self.rng.randrange(10**6)
        if self.depth or self.chance(0.25):
            text = f"jnp.asarray(rand({seed}, {t.shape}, {t.dtype!r}, {kind!r}))"
            if self.chance(0.3):
                one = rand(seed, (), t.dtype, kind).item()
                literal = f"float({str(one)!r})" if t.floating else repr(one)
                text = f"jnp.full({t.shape}, {literal}, {t.dtype!r})"
            name = self.fresh()
            self.types[name] = t
            self._steps.append(Step("constant", (name,), text))
        else:
            name = self.fresh()
            self.types[name] = t
            self.inputs[name] = Input(seed, t, kind)
        self.scope.append(name)
        return name

    def fitted(self, name: str, t: Type) -> str:
        """A value of type t made of `name`."""
        have = self.types[name]
        if have == t:
            return name
        text = name if have.shape == t.shape else f"jnp.resize({name}, {t.shape})"
        if have.kind == "c" and t.kind != "c":
            text = f"jnp.real({text})"
        made = self.fresh()
        self.types[made] = t
        self._steps.append(Step("fit", (made,), f"lax.convert_element_type({text}, jnp.dtype({t.dtype!r}))"))
        self.scope.append(made)
        return made

    # -- functions -----------------------------------------------------------------------------------------

    @contextmanager
    def inside(self, params: Sequence[Type], capture: bool = True) -> Iterator[list[str]]:
        """A new function's scope; gives the names of its parameters. Steps made inside are in `taken`."""
        outer_scope, outer_steps = self.scope, self._steps
        names = [self.fresh() for _ in params]
        self.types.update(zip(names, params, strict=True))
        self.scope, self._steps = [*(outer_scope[-3:] if capture else []), *names], []
        self.depth += 1
        try:
            yield names
        finally:
            self.depth -= 1
            self.scope, self._steps = outer_scope, outer_steps

    def function(
        self,
        params: Sequence[Type],
        results: Sequence[Type] | int,
        steps: int | None = None,
        single: bool = False,
        capture: bool = True,
        smooth: bool = False,
    ) -> tuple[Block, list[Type]]:
        """A random function; results: their types, or how many. Gives the types of its results too."""
        before, self.smooth = self.smooth, self.smooth or smooth
        with self.inside(params, capture) as names:
            self.grow(self.rng.randint(1, 5) if steps is None else steps)
            inner = [v for v in self.scope if v in names or any(v in s.results for s in self._steps)]
            if isinstance(results, int):
                ends = [self.choose(inner[-3:]) for _ in range(results)]
            else:
                ends = []
                for t in results:
                    like = [v for v in inner if self.types[v] == t]
                    ends.append(like[-1] if like else self.fitted(self.choose(inner[-3:]), t))
            block = Block(self.fresh("f"), tuple(names), tuple(self._steps), tuple(ends), single)
        self.smooth = before
        return pruned(block), [self.types[v] for v in ends]

    # -- steps ---------------------------------------------------------------------------------------------

    def grow(self, steps: int) -> None:
        """Add about so many steps to the current function."""
        rows = [r for r in self.table if not (self.smooth and r[0] in SHARP)]
        weights = [w for _, w, _ in rows]
        for _ in range(steps):
            for _ in range(6):
                name, _, make = self.rng.choices(rows, weights)[0]
                if self.add(name, make):
                    break

    def add(self, kind: str, make: Make) -> bool:
        """Try one step; False where nothing fits or JAX refuses it."""
        mark, scope = len(self._steps), len(self.scope)
        made = make(self)
        if made is None:
            return False
        text, blocks = made if isinstance(made, tuple) else (made, ())
        step = Step(kind, (), text, tuple(blocks))
        found = self.result_types(step)
        if found is None or not found[0] or not all(self._fine(t) for t in found[0]):
            del self._steps[mark:]
            for v in self.scope[scope:]:
                self.inputs.pop(v, None)
            del self.scope[scope:]
            return False
        types, flat = found
        names = [self.fresh() for _ in types]
        self.types.update(zip(names, types, strict=True))
        if flat is False:
            text = f"jax.tree.leaves({text})" + ("[0]" if len(types) == 1 else "")
        self._steps.append(replace(step, results=tuple(names), text=text))
        self.scope += names
        return True

    def _fine(self, t: Type) -> bool:
        return (
            t.dtype in (*NARROW, *WIDE, "uint16")
            and t.size <= 4 * self.limits.elements
            and t.rank <= MOST_RANK
        )

    def result_types(self, step: Step) -> tuple[list[Type], bool] | None:
        """What JAX says a step gives, and whether that is one array; None where it refuses the step."""
        names = sorted(needs(step))
        body = Block("probe", tuple(names), (replace(step, results=("out",)),), ("out",), True)
        structs = [self.struct(self.types[n]) for n in names]
        try:
            out = jax.eval_shape(load("\n".join(render(body)), known=self.known)["probe"], *structs)
        except Exception as error:  # whatever JAX says about it, the step is not made
            self.rejected[step.kind] = f"{step.text}: {str(error)[:300]}"
            return None
        return [self.typed(x) for x in jax.tree.leaves(out)], hasattr(out, "shape")

    def struct(self, t: Type) -> jax.ShapeDtypeStruct:
        """A type as JAX has it."""
        return jax.ShapeDtypeStruct(t.shape, jnp.dtype(t.dtype))

    def typed(self, x: Any) -> Type:
        """The type of what JAX says a step gives."""
        return Type(tuple(x.shape), str(x.dtype))

    def begin(self) -> None:
        """Makes the first values."""
        for _ in range(self.rng.randint(1, 3)):
            self.new(Type(self.shape(), self.dtype()))

    def program(self) -> Program:
        self._steps: list[Step] = []
        self.begin()
        self.grow(self.rng.randint(1, self.limits.steps))
        made = [v for s in self._steps for v in s.results]
        known = set(NAME.findall(" ".join(s.text for s in self._steps)))
        ends = [v for v in made if v not in known][-6:] or made[-1:] or self.scope[-1:]
        main = pruned(Block("program", tuple(self.inputs), tuple(self._steps), tuple(ends)))
        wanted = used(replace(main, params=()))
        params = tuple(p for p in self.inputs if p in wanted)
        return Program(
            self.seed,
            self.x64,
            replace(main, params=params),
            {p: self.inputs[p] for p in params},
            self.types,
        )


SHARP = {"while", "integers", "bits", "shift", "random", "sort", "top_k", "argmax", "linalg"}
"""Generators that a function to differentiate does without: what JAX cannot differentiate, or not well."""


def pruned(block: Block) -> Block:
    """A block without the steps that nothing uses."""
    wanted, kept = set(block.results), []
    for s in reversed(block.steps):
        if wanted & set(s.results):
            kept.append(s)
            wanted |= needs(s)
    return replace(block, steps=tuple(reversed(kept)))
