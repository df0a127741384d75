"""Samples of `make fuzz FUZZ=--spellings` and `FUZZ=--stacks`, and what their generators promise: every family, every
extent 1 in its turn, open sizes, programs that JAX accepts."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest
from loading import module_at
from tiering import ALL

import tilewright as tw
from fuzz import campaign
from fuzz.compiled import CompiledJudge, judge_compiled
from fuzz.generate import walk
from fuzz.open_programs import OpenProgram
from fuzz.shrink import shrink
from fuzz.spellings.attention import attention
from fuzz.spellings.programs import FAMILIES, VALUES_EVERY, spelled_program_of
from fuzz.spellings.writer import Writer
from fuzz.stacks.programs import FAMILIES as NETS
from fuzz.stacks.programs import stack_of
from tilewright.backends.functions import values
from tilewright.passes.lower.chains.attention_choice import AttentionChoice

from .test_fuzz import options

SPELLINGS, STACKS = (400, 300) if ALL else (14, 60)
"""Programs of the samples, from seed 0 on."""


@pytest.mark.parametrize(("kind", "count"), [(campaign.SPELLINGS, SPELLINGS), (campaign.STACKS, STACKS)])
def test_a_sample_of_the_campaign(kind: str, count: int) -> None:
    """Nothing crashes and nothing takes long, on four chips."""
    found = campaign.campaign(options(count=count, kind=kind))
    assert found.programs == found.counts["compiled"] == count
    assert not found.failures, found.failures
    assert not found.counts["refused"] and set(found.targets) == set(campaign.SPLIT)
    assert found.counts["npu"] == (kind == campaign.SPELLINGS) * -(-count // VALUES_EVERY)


def test_a_seed_gives_one_program() -> None:
    for seed in range(0, 42, 5):
        assert spelled_program_of(seed).text == spelled_program_of(seed).text
        assert stack_of(seed).text == stack_of(seed).text


def test_every_family_is_used_and_sizes_are_open() -> None:
    spelled = [spelled_program_of(seed) for seed in range(0, 4 * len(FAMILIES))]
    opened = [p for p in spelled if isinstance(p, OpenProgram)]
    assert len(opened) >= len(FAMILIES) // 3 and all(len(p.sizes) >= 2 for p in opened)
    kinds = Counter(s.kind for p in spelled for s in walk(p.main))
    assert {"einsum", "matmul", "dot_general", "vmap", "onnx", "gradient", "dot_product_attention"} <= set(kinds)
    assert {"conv", "pool", "ragged_dot", "concatenate", "norm", "squeeze", "lift", "mask"} <= set(kinds)
    layers = Counter(s.kind for seed in range(4 * len(NETS)) for s in walk(stack_of(seed).main))
    assert {"conv", "batch_norm", "group_norm", "rotary", "window_partition", "squeeze_excite"} <= set(layers)


def test_each_extent_is_one_in_its_turn() -> None:
    for turn, letter in enumerate("bhrstde"):
        writer = Writer(7, turn)
        attention(writer)
        assert writer.extent[letter] == 1
    writer = Writer(7, len("bhrstde"))
    attention(writer)
    assert {writer.extent[c] for c in "bhst"}.isdisjoint({1})


def test_spellings_compute_one_product() -> None:
    """Whatever spelling is chosen."""
    found: list[np.ndarray] = []
    for spelling in ("einsum", "matmul", "dot_general", "vmap"):
        writer = Writer(3)
        writer.extent = {"b": 3, "s": 4, "t": 5, "d": 6}
        a, b = (writer.input(letters, "float32", "index") for letters in ("sbd", "dtb"))
        program = writer.finished([writer.contracted(a, b, "tbs", spelling).name])
        x, y = (np.arange(n, dtype=np.float32).reshape(s) for n, s in ((72, (4, 3, 6)), (90, (6, 5, 3))))
        found.append(np.asarray(program.function()(x, y)[0]))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


@pytest.mark.parametrize("kind", [campaign.SPELLINGS, campaign.STACKS])
def test_a_reproducer_stands_alone(kind: str, tmp_path: Path) -> None:
    drawn = (campaign.made(seed, "", kind) for seed in range(VALUES_EVERY, 99, VALUES_EVERY))
    program = next(p for p in drawn if type(p) is not OpenProgram)
    file = tmp_path / "reproducer.py"
    file.write_text(program.text)
    module = module_at(file)
    got = jax.eval_shape(module.program, *program.structs_of_inputs())
    want = jax.eval_shape(program.function(), *program.structs_of_inputs())
    assert got == want


def test_a_crash_names_its_function_and_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    real = tw.compile

    def broken(fn: object, *args: object, **given: object) -> object:
        program = real(fn, *args, **given)
        if any(op.name == "npu.mmad" for op in program.module().walk()):
            raise KeyError("no such thing")
        return program

    monkeypatch.setattr(tw, "compile", broken)
    program = stack_of(next(n for n, (name, _) in enumerate(NETS) if name == "mixer"))
    verdict = judge_compiled(program, "ascend-910b1", ["compiled"])
    assert (verdict.kind, verdict.where) == ("crash", "compile") and "no such thing" in verdict.message
    small = shrink(program, "ascend-910b1", ["compiled"], verdict.key, 8.0)
    assert small.steps() < program.steps()


def test_what_is_left_out_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(AttentionChoice, "__init__", fail)
    verdict = judge_compiled(stack_of(0), "ascend-910b1", ["compiled"])
    assert verdict.kind == "crash" and "failed (KeyError in " in verdict.message


def test_what_takes_long_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.chain((0.0,), itertools.repeat(9.0))
    monkeypatch.setattr(time, "process_time", lambda: next(clock))
    verdict = CompiledJudge(stack_of(2), "ascend-310", ["compiled"]).run()
    assert (verdict.kind, verdict.message) == ("slow", "9.0 s of process time")


def test_wrong_values_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = next(n for n in range(0, 999, VALUES_EVERY) if "jax.nn.softmax(" in spelled_program_of(n).text)
    right = values.SCALAR["exp"]
    monkeypatch.setitem(values.SCALAR, "exp", lambda x: right(x) + (x < -0.5).astype(x.dtype))
    verdict = judge_compiled(spelled_program_of(seed), "ascend-310", ["compiled", "npu"])
    assert (verdict.kind, verdict.where) == ("mismatch", "npu")
