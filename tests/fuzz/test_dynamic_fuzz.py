"""A sample of `make fuzz FUZZ=--dynamic`, and the parts of it that other programs do not have."""

from __future__ import annotations

import random
from pathlib import Path

import jax
import numpy as np
import pytest
from loading import module_at
from tiering import ALL

import tilewright as tw
from fuzz import campaign
from fuzz.generate import walk
from fuzz.open_compare import OpenJudge, judge_open
from fuzz.open_dims import Open, Symbols, at, random_sizes
from fuzz.open_programs import open_program_of
from fuzz.shrink import reduced
from fuzz.table_open import OWN, TABLE
from tilewright.backends.functions import values

from .test_fuzz import options

SAMPLE = 12 if ALL else 6
"""Programs of the sample, from seed 0 on."""


def test_a_sample_of_the_campaign() -> None:
    found = campaign.campaign(options(count=SAMPLE, kind=campaign.DYNAMIC))
    assert found.programs == SAMPLE
    assert not found.failures, found.failures
    assert found.counts["refused"] <= 1
    assert found.counts["sizes"] >= 2 * SAMPLE and found.counts["bytes"] >= 2
    assert found.counts["ranged"] >= found.counts["sizes"] // 3
    assert f"{found.counts['sizes']} sizes: {found.counts['ranged']} by a version" in found.table(1.0)


def test_a_seed_gives_one_program_and_its_sizes_fit() -> None:
    for seed in range(24):
        made = open_program_of(seed)
        assert (made.text, made.sizes) == (open_program_of(seed).text, made.sizes)
        assert all(made.symbols.allows(sizes) for sizes in made.sizes)
        with jax.enable_x64(made.x64):
            for sizes in made.sizes[:1]:
                args = made.arguments_at(sizes)
                assert [a.shape for a in args] == [
                    tuple(at(n, sizes) for n in made.inputs[p].type.shape) for p in made.main.params
                ]


def test_every_generator_of_open_dimensions_is_used() -> None:
    kinds = {s.kind for seed in range(250) for s in walk(open_program_of(seed).main)}
    assert {name for name, _, _ in OWN} <= kinds
    assert len({name for name, _, _ in TABLE} - kinds) <= 4


def test_an_open_dimension_is_its_least_value_and_its_text() -> None:
    (b,) = jax.export.symbolic_shape("b", constraints=["b >= 5"])
    made = Open("2*b - 1", 2 * b - 1, {"b": 5})
    assert (int(made), f"{made}", str((made, 3))) == (9, "2*b - 1", "(2*b - 1, 3)")
    assert made != 9 and made == Open("2*b - 1", 2 * b - 1, {"b": 7}) and at(made, {"b": 8}) == 15


def test_the_second_size_is_in_the_range_of_the_first() -> None:
    symbols = Symbols({"b": (3, 100), "s": (1, None)}, ("mod(b, 2) == 0",))
    near = 0
    for seed in range(40):
        first, second, *_ = random_sizes(random.Random(seed), symbols, lambda s: s["b"] * s["s"], 5000)
        near += all((first[n] - 1).bit_length() == (second[n] - 1).bit_length() for n in first)
        assert first["b"] % 2 == 0 and 3 <= first["b"] <= 100 and first["b"] * first["s"] <= 5000
    assert near >= 15


def test_a_reproducer_stands_alone(tmp_path: Path) -> None:
    program = next(p for p in map(open_program_of, range(100)) if p.steps() > 4 and not p.x64)
    file = tmp_path / "reproducer.py"
    file.write_text(program.text)
    module = module_at(file)
    sizes = program.sizes[0]
    got = jax.tree.leaves(module.program(*module.program_inputs(**sizes)))
    want = jax.tree.leaves(program.function()(*program.arguments_at(sizes)))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_a_wrong_function_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smaller program still has an input from which each size follows."""
    made = (open_program_of(seed, "normed,unary,join") for seed in range(0, 300, 2))
    program = next(p for p in made if "jax.nn.softmax(" in p.text and not p.x64 and p.steps() > 2)
    small = reduced(program, lambda p: "jax.nn.softmax(" in p.text)
    assert small.steps() == 1 and {s for s, _, _ in small.anchors} == set(small.symbols.bounds)
    assert judge_open(small, "ascend-910b1", ["npu"]).ok
    right = values.SCALAR["exp"]
    monkeypatch.setitem(
        values.SCALAR, "exp", lambda x: right(x) + jax.numpy.where(x < 0, 1, 0).astype(x.dtype)
    )
    verdict = judge_open(small, "ascend-910b1", ["npu"])
    assert (verdict.kind, verdict.where) == ("mismatch", "npu") and verdict.at in small.sizes


def test_an_error_inside_a_range_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though each size alone can be compiled."""

    def broken(*_: object) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr("tilewright.api.sizes.templates.lower_template", broken)
    verdict = judge_open(open_program_of(0), "ascend-910b1", ["npu"])
    assert (verdict.kind, verdict.where) == ("crash", "range") and "no such thing" in verdict.message


def test_what_jax_refuses_for_all_sizes_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise TypeError("not for these")

    monkeypatch.setattr(tw, "compile", refuse)
    assert judge_open(open_program_of(0), "ascend-910b1", ["npu"]).kind == "crash"
    monkeypatch.setattr(jax.export, "export", refuse)
    assert OpenJudge(open_program_of(0), "ascend-910b1", ["npu"]).run().refused
