"""Random quantized programs: the npu level in both memories, the JAX twin of `tw.fake_quant` and the numpy model of
`chain_model.py` compute the same; 1,000 of them in a campaign:

    PYTHONPATH=tests/quantized:tests/support python tests/quantized/test_chains.py [--programs 1000] [--first 0]
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import jax
import numpy as np
import pytest
from campaigns import Campaign, run
from chain_drawing import drawn
from chain_model import ChainModel
from chain_programs import (
    ELEMENTWISE,
    FLOAT_MODES,
    INEXACT,
    MOVES,
    PRODUCTS,
    WHOLE,
    ChainProgram,
)
from tiering import sampled

import tilewright as tw

STEPS = 127
"""What the next quantizer tells apart: so many steps from 0 to the largest number of a result."""

MOST_APART = 1e-3
"""The part of the elements of programs with floats that may be a step of the next quantizer apart."""


@dataclass
class Tally:
    """Of the results of programs with floats: elements, and those that are apart by more than rounding."""

    elements: int = 0
    apart: Counter[str] = field(default_factory=Counter)


def config_of(program: ChainProgram) -> tw.QuantConfig:
    """The configuration of a program, as users write it."""
    products = {n: tw.ProductChoice(c.mode, c.scale, c.zero) for n, c in program.choices.items()}
    return tw.QuantConfig(program.default, program.pins, products)


def check(program: ChainProgram, tally: Tally, memories: tuple[str, ...] = ("typed", "bytes")) -> None:
    """Compiles a program and holds what it computes in each memory against the twin and the model."""
    params = {name: jax.numpy.asarray(p) for name, p in program.params.items()}
    args, config, target = (params, jax.numpy.asarray(program.x)), config_of(program), program.target
    options = tw.Options(quantization=config, weights="params")
    compiled = tw.compile(program.function(), *args, target=target, options=options)
    flat = compiled.flatten(args)
    runs = {m: [np.asarray(y) for y in compiled.executable(m)(*flat)] for m in memories}  # pyright: ignore
    twin = tw.fake_quant(program.function(), config, target=target, weights="params")
    wanted = [np.asarray(y) for y in jax.jit(twin)(*args)]
    model = ChainModel(program)
    with np.errstate(all="ignore"):
        modelled = model.results()
    for m in memories[1:]:
        for a, b in zip(runs[m], runs[memories[0]], strict=True):
            assert a.tobytes() == b.tobytes(), f"the memories differ: {described(a, b)}"
    for what, others in (("twin", wanted), *([] if model.overflows else [("model", modelled)])):
        for got, other in zip(runs[memories[0]], others, strict=True):
            assert (got.shape, got.dtype) == (other.shape, other.dtype), what
            if program.is_exact:
                assert np.array_equal(got, other, equal_nan=True), f"the {what}: {described(got, other)}"
            else:
                compare(got, other, what, tally, largest_step(program))
    tally.elements += 0 if program.is_exact else sum(y.size for y in wanted)


def largest_step(program: ChainProgram) -> float:
    """The largest scale of an input: residuals are stored numbers, too."""
    return max(c.scale for c in program.choices.values())


def compare(got: np.ndarray, other: np.ndarray, what: str, tally: Tally, step: float) -> None:
    """Within one step of a quantizer; elements that are further apart than roundings are counted."""
    got, other = got.astype(np.float64), other.astype(np.float64)
    largest = max(float(np.abs(other).max(initial=0)), 1e-30)
    apart = np.abs(got - other)
    tally.apart[what] += int((apart > largest * 2.0**-11).sum())
    steps = apart.max(initial=0) / max(step, largest / STEPS)
    assert steps <= 1, f"the {what} is {steps:.3g} steps apart"


def described(got: np.ndarray, other: np.ndarray) -> str:
    wrong = ~np.isclose(got.astype(np.float64), other.astype(np.float64), rtol=0, atol=0, equal_nan=True)
    first = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.any() else ()
    return f"{wrong.sum()} of {got.size} elements, at {list(first)} {got[first]!r} is not {other[first]!r}"


def shrunk(program: ChainProgram) -> ChainProgram:
    """The shortest beginning of a program that is wrong, too."""
    for count in range(2, len(program.steps)):
        made = program.prefix(count)
        if not made.products:
            continue
        try:
            check(made, Tally())
        except Exception:
            return made
    return program


def test_programs_have_all_that_the_model_tells_apart() -> None:
    """Modes, steps, results that stay integers behind a relu or a residual or not, and stored inputs that are read
    again."""
    found, kinds, modes = Counter[str](), Counter[str](), Counter[str]()
    for seed in range(200):
        program = drawn(seed)
        model = ChainModel(program)
        kinds.update(step.kind for step in program.steps)
        modes.update(p.mode for p in model.products.values())
        found.update(
            ["exact"] * program.is_exact, pinned=bool(program.pins), half=program.x.dtype == np.float16
        )
        for _, relu, other in model.paths.values():
            found[f"relu {relu}, residual {other is not None}"] += 1
        found["read again"] += sum(
            model._read_again(v, i) is not None for i, step in enumerate(model.steps) for v in step.args
        )
        found["zero point of an image"] += sum(
            p.static and not model._is_integer(p) for p in model.products.values()
        )
    paths = [f"relu {relu}, residual {other}" for relu in (True, False) for other in (True, False)]
    wanted = ["exact", "pinned", "half", "read again", "zero point of an image", *paths]
    assert all(found[kind] >= 5 for kind in wanted), found
    assert {*kinds} >= {*PRODUCTS, *ELEMENTWISE, *MOVES, *INEXACT, "concat", "largest"}
    assert {*modes} >= {*WHOLE, *FLOAT_MODES}


@sampled(24)
@pytest.mark.parametrize("seed", range(24))
def test_programs_compute_what_the_model_does(seed: int) -> None:
    tally = Tally()
    check(drawn(seed), tally)
    assert all(count <= max(2, MOST_APART * tally.elements) for count in tally.apart.values())


def main() -> None:
    tally, seen = Tally(), Counter[str]()

    def one(seed: int, memories: tuple[str, ...]) -> None:
        program = drawn(seed)
        seen.update([*["of integers alone"] * program.is_exact, program.target])
        try:
            check(program, tally, memories)
        except Exception:
            print(shrunk(program))
            raise

    def summary() -> tuple[list[str], bool]:
        line = (
            f"{dict(seen)}; of {tally.elements} elements of those with floats {dict(tally.apart)} are apart"
        )
        return [line], any(n > MOST_APART * tally.elements for n in tally.apart.values())

    run(Campaign("programs", one, summary))


if __name__ == "__main__":
    main()
