"""Injects faults into kernels with open dimensions and into what they assume of sizes:

    python tests/faults/open_campaign.py [--each N] [--sizes N] [--only NAME] [--seed N]

A mutant is of a template: one lowering of a program for a range of sizes. It is refused where npu-check of the template
(at the ends of its range) or of an instance at a size that is tried finds a hazard. What passes is run at each of these
sizes as mutants of other kernels are (campaign.py), with the same verdicts; the first one of the list is that of the
mutant at all sizes together: ESCAPED, verifier, checker, values, harmless.

A constraint that a template lacks is refused where, at a size that breaks it, the instance cannot be made, npu-check
finds a hazard, or the values differ from those of the program compiled for this size alone. Where they are the same at
all such sizes, the constraint asked for more than was needed: harmless.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from campaign import KernelSubject, Tally, drawn, kernels_of, work_of
from open_mutants import OPEN_MUTATIONS
from subject_types import Subject
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

import tilewright as tw
from tilewright import CompileError
from tilewright.api.sizes.templates import Version
from tilewright.backends.interpreter import Executable
from tilewright.dialects.dtypes import numpy_dtype
from tilewright.dialects.npu.structure import KernelOp
from tilewright.dialects.size_numbers import scalar_at
from tilewright.dialects.sizes import SizeError, Sizes
from tilewright.machine import Machine
from tilewright.passes.errors import PassError
from tilewright.passes.instantiation import Instantiation
from tilewright.passes.npu.check import check, check_kernel
from tilewright.passes.templates import NoTemplate, Template, check_template

MOST_WORK = 3_000_000
"""What one run of an instance may cost (`work_of`)."""

WORST = ("ESCAPED", "verifier", "checker", "values", "harmless")
GUARDS = "drop a constraint"


@dataclass
class OpenSubject:
    """A version of a program with open dimensions. sizes: those that mutants are tried at, in its range."""

    name: str
    program: tw.DynamicProgram
    version: Version
    sizes: list[dict[str, int]]
    target: str

    @property
    def template(self) -> Template:
        return self.version.template

    @property
    def machine(self) -> Machine:
        return Machine.load(self.target)

    def at(self, module: ModuleOp, sizes: Sizes) -> ModuleOp:
        """An instance of a module, with a plan of device memory."""
        return replace(self.template, module=module).instance(sizes)


def subjects_of(name: str, program: tw.DynamicProgram, tried: int) -> list[OpenSubject]:
    """The versions of a program, each with its example and `tried` random sizes of its range."""
    found: list[OpenSubject] = []
    for version in program.ranges.values():
        if isinstance(version, NoTemplate):
            continue
        template, rng = version.template, random.Random(name)
        bounds = {s.name: (s.lower, s.upper or s.lower) for s in template.symbols.values()}
        sizes = [dict(template.example)]
        for _ in range(20 * tried):
            one = {**template.example, **{n: rng.randint(*b) for n, b in bounds.items()}}
            fits = all(c.met_by(one) for c in template.constraints) and program.open_source.shapes.allows(one)
            if len(sizes) <= tried and fits and one not in sizes:
                sizes.append(one)
        found.append(OpenSubject(name, program, version, sizes, program.target))
    return found


def written(name: str, tried: int, target: str) -> list[OpenSubject]:
    """A program of PROGRAMS, for one range. Raises NoTemplate where it has no version for that."""
    import jax
    from jax import export

    fn, texts, largest = PROGRAMS[name]
    scope, args = export.SymbolicScope(), []
    for text in texts:
        shape, dtype = (text, "float32") if isinstance(text, str) else text
        args.append(jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), dtype))
    program = tw.compile(fn, *args, target=target)
    assert isinstance(program, tw.DynamicProgram)
    program.at(largest)
    for version in program.ranges.values():
        if isinstance(version, NoTemplate):
            raise version
    return subjects_of(name, program, tried)


def random_program(seed: int, tried: int, target: str) -> list[OpenSubject]:
    """A program of tests/fuzz, for the ranges of two of its sizes; nothing where JAX has no such program."""
    import jax
    from fuzz.open_programs import open_program_of

    made = open_program_of(seed)
    with jax.enable_x64(made.x64):
        try:
            program = tw.compile(made.function(), *made.structs(), target=target)
            assert isinstance(program, tw.DynamicProgram)
            for sizes in made.sizes[-2:]:
                program.at(sizes)
        except Exception:  # whatever JAX says; what we say is found by the campaign of random programs
            return []
        return subjects_of(f"fuzz {seed}", program, tried)


class Judge:
    """The mutants of one template."""

    def __init__(self, subject: OpenSubject) -> None:
        self.subject, self.machine = subject, subject.machine
        self.names = tuple(subject.program.symbols)
        self._originals: dict[tuple[str, int], KernelSubject | None] = {}

    def original(self, name: str, number: int) -> KernelSubject | None:
        """A kernel at size `number`, ready to be compared with; None where it is too much work."""
        key = name, number
        if key not in self._originals:
            module = self.subject.at(self.subject.template.module, self.subject.sizes[number])
            small = work_of(kernels_of(module)[name], self.machine) * 2 <= MOST_WORK
            where = Subject(f"{self.subject.name} {self.subject.sizes[number]}", module, self.subject.target)
            self._originals[key] = KernelSubject(where, name) if small else None
        return self._originals[key]

    def verdict(self, name: str, mutant: KernelOp) -> tuple[str, str]:
        """The verdict on a mutant of a kernel, and the reason."""
        module = self.subject.template.module.clone()
        old = kernels_of(module)[name]
        block = old.parent
        assert block is not None
        block.insert_op_before(mutant, old)
        old.detach()
        try:
            mutant.verify()
            check_template(replace(self.subject.template, module=module), self.names)
        except VerifyException as error:
            return "verifier", str(error)
        except (PassError, SizeError) as error:
            return "checker", str(error)
        found = [self._at(name, mutant, number) for number in range(len(self.subject.sizes))]
        refused = next((f for f in found if f[0] in ("verifier", "checker")), None)
        return refused or min(found, key=lambda f: WORST.index(f[0]))

    def possible(self, name: str) -> bool:
        """Whether a kernel can be run on bytes at one of the sizes."""
        return any(self.original(name, n) is not None for n in range(len(self.subject.sizes)))

    def _at(self, name: str, mutant: KernelOp, number: int) -> tuple[str, str]:
        sizes = self.subject.sizes[number]
        try:
            made = Instantiation(sizes).of(mutant)
        except (SizeError, ValueError) as error:
            return "checker", str(error)
        original = self.original(name, number)
        if original is None:  # too much work to run on bytes: the other sizes decide
            found = check_kernel(made, self.machine)[1]
            return ("checker", str(found[0])) if found else ("harmless", "")
        verdict, why = original.judge(made, True)
        return verdict, f"at {sizes}: {why}"

    def mutants(self, each: int, seed: int) -> Tally:
        """So many mutants of each kernel, evenly over the kinds."""
        tally = Tally()
        for name, kernel in kernels_of(self.subject.template.module).items():
            if not self.possible(name):
                tally.large += 1
                continue
            rng = random.Random(f"{seed} {self.subject.name} {name}")
            for kind, what, mutant in drawn(OPEN_MUTATIONS, kernel, self.machine, rng, each, 20 * each):
                verdict, why = self.verdict(name, mutant)
                tally.counts[kind, verdict] += 1
                if verdict == "ESCAPED":
                    tally.escapes.append(f"{self.subject.name} @{name}: {what}: {why}")
        return tally

    # -- guards --------------------------------------------------------------------------------------------

    def guards(self, tries: int, seed: int) -> Tally:
        """Each constraint of the template dropped, at up to `tries` sizes of its range that break it alone."""
        tally, template = Tally(), self.subject.template
        bounds = [range(s.lower, (s.upper or s.lower) + 1) for s in template.symbols.values()]
        every = [
            {**template.example, **dict(zip(template.symbols, v, strict=True))}
            for v in itertools.islice(itertools.product(*bounds), 4000)
        ]
        for dropped in template.constraints:
            left = tuple(c for c in template.constraints if c is not dropped)
            weaker = replace(template, constraints=left)
            broken = [s for s in every if weaker.holds(s) and not template.holds(s)]
            broken = [s for s in broken if self.subject.program.open_source.shapes.allows(s)]
            if not broken:
                continue
            rng = random.Random(seed)
            found = [self._guard(s) for s in rng.sample(broken, min(tries, len(broken)))]
            verdict, why = min(found, key=lambda f: ("checker", "values", "harmless").index(f[0]))
            tally.counts[GUARDS, verdict] += 1
            tally.refused += [f"{self.subject.name}: {dropped}: {verdict} {why}"]
        return tally

    def _guard(self, sizes: Sizes) -> tuple[str, str]:
        try:
            module = self.subject.template.instance(sizes)
            module.verify()
            findings = check(module, self.machine)
        except (PassError, SizeError, VerifyException, ValueError) as error:
            return "checker", f"at {dict(sizes)}: {error}"
        if findings:
            return "checker", f"at {dict(sizes)}: {findings[0]}"
        alone = self.subject.program.at(sizes)
        args = _random(alone.inputs)
        try:
            got = Executable(module, self.machine, "typed")(*self._flat(sizes, args))
        except Exception as error:
            return "values", f"at {dict(sizes)}: {type(error).__name__}"
        want = alone.executable("typed")(*alone.flatten(args))
        same = all(_alike(a, b) for a, b in zip(got, want, strict=True))
        return ("harmless" if same else "values"), f"at {dict(sizes)}"

    def _flat(self, sizes: Sizes, args: Sequence[Any]) -> list[Any]:
        """What @main of an instance takes."""
        extras = [scalar_at(number, dtype, sizes) for number, dtype in self.subject.version.extras]
        return [*args, *extras]


def _random(inputs: Sequence[tuple[tuple[int, ...], str]]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [
        (rng.standard_normal(s) if d.startswith("f") else rng.integers(0, 9, s)).astype(numpy_dtype(d))
        for s, d in inputs
    ]


def _alike(a: Any, b: Any) -> bool:
    a, b = np.asarray(a, np.complex128), np.asarray(b, np.complex128)
    if a.shape != b.shape:
        return False
    scale = max(1.0, float(np.abs(b).max(initial=0)))
    return bool(np.allclose(a, b, rtol=0, atol=1e-3 * scale, equal_nan=True))


# -- programs ----------------------------------------------------------------------------------------------


def _programs() -> dict[str, tuple[Callable[..., Any], list[Any], dict[str, int]]]:
    import jax
    import jax.numpy as jnp

    def mlp(x: Any, w: Any, c: Any) -> Any:
        return jax.nn.relu(x @ w + c)

    def norm(x: Any, g: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * g

    def attention(x: Any) -> Any:
        return jax.nn.softmax(jnp.einsum("bsd,btd->bst", x, x) / 4, axis=-1) @ x

    def windows(x: Any, w: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        y = jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers))
        return jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    return {
        "elementwise": (lambda x, y: jax.nn.relu(x * y) + 1, ["b, 37", "b, 37"], {"b": 600}),
        "transposed": (lambda x: x.T + 1, ["b, s"], {"b": 200, "s": 90}),
        "product": (mlp, ["b, 48", "48, 40", "40"], {"b": 600}),
        "product of three": (lambda a, b: a @ b, ["i, j", "j, k"], {"i": 16, "j": 32, "k": 32}),
        "half": (mlp, [("b, 8*s", "float16"), ("8*s, 16", "float16"), ("16", "float16")], {"b": 8, "s": 4}),
        "rows": (norm, ["b, s, 40", "40"], {"b": 100, "s": 16}),
        "columns": (lambda x: x - x.mean(0), ["b, 30"], {"b": 600}),
        "softmax": (lambda x: jax.nn.softmax(x), ["b, s"], {"b": 8, "s": 50}),
        "largest": (lambda x: (x.max(), x.sum(1)), ["b, s"], {"b": 6, "s": 50}),
        "attention": (attention, ["b, s, 16"], {"b": 2, "s": 20}),
        "windows": (windows, ["b, 8, 8, 1", "3, 3, 1, 8"], {"b": 8}),
        "parts": (lambda x, y: jnp.concatenate([x[1:, :-1], y[1:]], 1), ["b, s", "b, 7"], {"b": 16, "s": 40}),
        "frame": (lambda x: jnp.pad(x, ((0, 1), (2, 0))), ["b, s"], {"b": 16, "s": 9}),
        "table": (lambda t, i: t[i], ["50, 24", ("b, s", "int32")], {"b": 4, "s": 16}),
        "merged": (lambda x: (x * 2).reshape(-1, 8).sum(1), ["b, 8*s"], {"b": 5, "s": 4}),
    }


PROGRAMS = _programs()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--each", type=int, default=40, help="mutants of each kernel")
    parser.add_argument("--sizes", type=int, default=3, help="random sizes at which each is tried")
    parser.add_argument("--guards", type=int, default=4, help="sizes at which a dropped constraint is tried")
    parser.add_argument("--fuzz", type=int, default=40, help="random programs besides those written here")
    parser.add_argument(
        "--verbose", action="store_true", help="a line for each program, and for each constraint"
    )
    parser.add_argument("--only", default="", help="programs whose name has this")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="ascend-910b1")
    args = parser.parse_args(argv)
    started = time.perf_counter()
    whole, crashes, versions = Tally(), list[str](), 0
    for name in [*PROGRAMS, *(f"fuzz {args.seed + i}" for i in range(args.fuzz))]:
        if args.only not in name:
            continue
        try:
            if name in PROGRAMS:
                found = written(name, args.sizes, args.target)
            else:
                found = random_program(int(name.split()[1]), args.sizes, args.target)
        except (CompileError, PassError) as error:
            crashes.append(f"{name}: {error}")
            continue
        for subject in found:
            versions += 1
            judge = Judge(subject)
            whole.add(judge.mutants(args.each if name in PROGRAMS else -(-args.each // 4), args.seed))
            whole.add(judge.guards(args.guards, args.seed))
        if args.verbose:
            print(f"{time.perf_counter() - started:6.0f} s  {name}: {whole.total}", flush=True)
    print(
        f"{versions} versions, {time.perf_counter() - started:.0f} s; kernels that are too much work: {whole.large}"
    )
    print(f"{whole.total} mutants")
    print(whole.table())
    for line in [*whole.escapes, *(whole.refused if args.verbose else ()), *crashes]:
        print(line)
    return 1 if whole.escapes or crashes else 0


if __name__ == "__main__":
    sys.exit(main())
