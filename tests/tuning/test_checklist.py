"""The checklist: figures are those of compilations with the options that an item names, and what saves nothing is
ticked."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tilewright as tw
from tilewright.backends.report import Report
from tilewright.cli.grammar import make_parser
from tilewright.cli.main import main
from tilewright.tuning.checklist import CheckedItem
from tilewright.tuning.checklist_items import HEADINGS, ITEMS
from tilewright.tuning.trials import Trial, switch_of, us


def single(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float32")


def half(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float16")


def step(state: jax.Array, x: jax.Array, w: jax.Array) -> jax.Array:
    return 0.9 * state + jax.nn.relu(x @ w)


ARGS = (single(256, 512), single(256, 512), single(512, 512))


@cache
def filled() -> tw.Checklist:
    return tw.checklist(step, *ARGS, evaluations=200, command="model.py:step")


def item(found: tw.Checklist, title: str) -> CheckedItem:
    (one,) = (each for each in found.items if each.title.startswith(title))
    return one


def direct(**options: Any) -> Report:
    return tw.compile(step, *ARGS, options=tw.Options(**options)).report()


def tried(one: CheckedItem, **options: Any) -> Trial:
    """The trial of an item whose figures are those of a compilation with these options."""
    report = direct(**options)
    (found,) = (t for t in one.trials if t.switch == switch_of(options, tw.Options()))
    assert (found.microseconds, found.bytes) == (report.microseconds, report.memory.arena_bytes)
    return found


def test_all_items_are_there() -> None:
    found, plain = filled(), direct()
    assert [(i.heading, i.title) for i in found.items] == [(i.heading, i.title) for i in ITEMS]
    assert list(dict.fromkeys(i.heading for i in found.items)) == list(HEADINGS)
    assert (found.microseconds, found.bytes) == (plain.microseconds, plain.memory.arena_bytes)
    assert str(found).count("  [x] ") + str(found).count("  [ ] ") == len(ITEMS) and not found.done


def test_what_is_advised_was_tried() -> None:
    """An item that is not ticked has a trial that saves something, with its figures in the text."""
    for one in filled().items:
        saving = [t for t in one.trials if t.saves_time or t.saves_bytes]
        assert one.done or saving, one
        if not one.done:
            best = next(t for t in saving if t.switch == one.switch)
            assert best.time in one.text or best.memory in one.text
        for trial in one.trials:
            assert trial.failed == "" and trial.microseconds is not None


def test_f32_products_are_cast_and_packed() -> None:
    one = item(filled(), "products are no wider")
    plain = tried(one, precision="mixed_float16")
    both = tried(one, precision="mixed_float16", weights=("w",))
    assert plain.microseconds_before == direct().microseconds
    assert both.microseconds_before == direct(weights=("w",)).microseconds
    assert not one.done and one.switch in (plain.switch, both.switch)
    best = min((plain, both), key=lambda t: t.microseconds or 0.0)
    assert one.text.startswith(f"{best.switch} takes {us(best.microseconds or 0.0)} us instead of ")
    assert one.details == ("tilewright verify model.py:step --precision mixed_float16",)


def test_products_are_quantized_for_time_alone() -> None:
    one = item(filled(), "products are quantized")
    trial = tried(one, quantization="w8a8-dynamic", weights=("w",))
    assert trial.microseconds_before == direct(weights=("w",)).microseconds
    assert one.done != trial.saves_time and "measures the accuracy" in one.text


def test_the_fewest_arguments_are_donated() -> None:
    one = item(filled(), "arguments are donated")
    trial = tried(one, donate=("state",))
    assert (one.done, one.switch) == (False, "--donate state") and trial.saves_bytes
    assert f"--donate state needs {trial.bytes:,} bytes instead of {direct().memory.arena_bytes:,}" in one.text
    given = tw.checklist(step, *ARGS, only=["memory"], options=tw.Options(donate="state"))
    again = item(given, "arguments are donated")
    assert again.done and again.text.startswith(f"{direct(donate='state').memory.donated_bytes:,} bytes are donated")


def test_parts_of_pytrees_are_donated_by_the_name_of_the_argument() -> None:
    def train(params: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
        return {name: p - 0.1 * x.sum() for name, p in params.items()}

    params = {"a": single(64, 512), "b": single(512)}
    found = tw.checklist(train, params, half(8, 8), only=["memory"])
    assert item(found, "arguments are donated").switch == "--donate params"


def test_all_advice_at_once() -> None:
    found = filled()
    assert found.together is not None
    cast = item(found, "products are no wider").switch
    options: dict[str, Any] = {"precision": "mixed_float16", "donate": ("state",)}
    options |= {"weights": ("w",)} if "--weights" in cast else {}
    assert found.together.microseconds == direct(**options).microseconds
    assert "--quant-config" not in found.together.switch  # it is tried for time alone
    assert f"all that is advised: {found.together.switch[:20]}" in str(found)


def test_a_host_call_is_named_with_its_cost() -> None:
    def spectrum(x: jax.Array) -> jax.Array:
        return jnp.fft.fft(x).real + 1

    report = tw.compile(spectrum, single(64, 64)).report()
    found = tw.checklist(spectrum, single(64, 64), only=["preparation", "streams"], evaluations=10)
    one = item(found, "nothing runs on the host")
    (op,) = report.host_ops
    assert not one.done and one.text.startswith(f"1 host call takes {us(op.microseconds)} us with the link")
    assert one.details[0].startswith("stablehlo.fft (test_checklist.py:")
    waits = item(found, "no stream waits")
    idle = report.microseconds - report.queues["compute"]
    assert not waits.done and f"waits {us(idle)} of {us(report.microseconds)} us" in waits.text
    assert not one.trials and not waits.trials  # there is nothing to try


def test_a_program_with_nothing_to_do() -> None:
    found = tw.checklist(lambda x: x > 0, half(16))
    assert found.done and found.together is None
    assert all(i.done and not i.switch for i in found.items)


def test_options_that_were_taken_over_are_tried_without() -> None:
    options = tw.Options(precision="mixed_float16", weights="w", without="fusion,join", check=False)
    found = tw.checklist(step, *ARGS, options=options, only=["preparation", "precision", "fusion", "monitoring"])
    cast = item(found, "products are no wider")
    assert cast.text.startswith("mixed_float16 is asked for; tried: --precision origin takes ") and cast.done
    assert item(found, "weights are apart").trials[0].switch == "no --weights"
    fused = item(found, "what can be one kernel")
    (trial,) = fused.trials
    assert trial.switch == "no --without fusion" and fused.done != trial.saves_time
    report = direct(precision="mixed_float16", weights="w", without="join", check=False)
    assert trial.microseconds == report.microseconds
    unchecked = item(found, "hazards are excluded")
    assert not unchecked.done and unchecked.switch == "tw.Options(check=True)"
    assert {t.switch for t in item(found, "no alternative").trials} == {"no --without fusion", "no --without join"}


def test_known_plans(tmp_path: Path) -> None:
    """What the short search finds is compared as a compilation with its plans; with them there is nothing to do."""
    fn, args = (lambda x: jnp.exp(x) + 1), [single(1000, 777)]
    before = tw.checklist(fn, *args, only=["preparation"], evaluations=300)
    one = item(before, "known plans")
    store = tmp_path / "plans.sqlite"
    tw.tune(fn, *args, evaluations=300, verify=2, store=store)
    report = tw.compile(fn, *args, options=tw.Options(plans=store)).report()
    assert not one.done and one.trials[0].microseconds == report.microseconds < before.microseconds
    assert one.switch.endswith("--budget 20s --evaluations 300 --verify 2 --plans plans.sqlite")
    assert make_parser().parse_args(shlex.split(one.switch)[1:]).command == "tune"
    after = tw.checklist(fn, *args, only=["preparation"], options=tw.Options(plans=store))
    assert item(after, "known plans").text == "1 fusion is cut as the knowledge base says"


def chip_with(tmp_path: Path, amount: int) -> str:
    """A chip with so much device memory."""
    chip = tmp_path / "small.toml"
    chip.write_text(f'extends = "ascend-910b1"\n[spaces]\ngm = {{ bytes = {amount}, align = 512 }}\n')
    return str(chip)


def test_a_variant_that_cannot_be_compiled_says_so(tmp_path: Path) -> None:
    """On a chip with little memory a limit is tried, which this program cannot keep."""
    found = tw.checklist(step, *ARGS, target=chip_with(tmp_path, 3 << 20), only=["memory"])
    one = item(found, "device memory is enough")
    strips, limit = one.trials
    assert (strips.switch, limit.switch) == ("--strips 8MiB", f"--memory-limit {found.bytes // 2}")
    assert one.done and limit.microseconds is None and "does not fit" in limit.failed
    assert f"{limit.switch} cannot be compiled: {limit.failed}" in one.text


def test_what_saves_memory_and_costs_time_is_said_and_not_advised(tmp_path: Path) -> None:
    def loss(ws: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in ws:
            x = jnp.tanh(x @ w)
        return (x * x).sum()

    gradient, args = jax.grad(loss), ([half(128, 128)] * 6, half(2048, 128))
    needed = tw.compile(gradient, *args).report().memory.arena_bytes
    chip = chip_with(tmp_path, needed * 3 // 2 // 512 * 512)
    found = tw.checklist(gradient, *args, target=chip, only=["memory"])
    one = item(found, "device memory is enough")
    _, limit = one.trials
    how = tw.Options(memory_limit=needed // 2)
    report = tw.compile(gradient, *args, target=chip, options=how).report()
    assert (limit.microseconds, limit.bytes) == (report.microseconds, report.memory.arena_bytes)
    assert limit.saves_bytes and limit.costs_time and one.done and one.switch == ""
    assert f"{limit.memory}, and {us(report.microseconds)} us instead of {us(found.microseconds)}" in one.text


def test_open_sizes() -> None:
    b = jax.export.symbolic_shape("b")[0]
    args = jax.ShapeDtypeStruct((b, 64), "float16"), half(64, 64)

    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.nn.relu(x @ w)

    found = tw.checklist(layer, *args, at={"b": 48}, only=["preparation"])
    sizes = item(found, "sizes are known")
    program = tw.compile(layer, *args)
    assert isinstance(program, tw.DynamicProgram)
    (trial,) = sizes.trials
    assert trial.microseconds_before == program.at(b=48).report().microseconds == found.microseconds
    assert trial.microseconds == program.at(b=48).alone().report().microseconds
    with pytest.raises(tw.CompileError, match=r'layer has open sizes: say which, as at=\{"b": 8\}'):
        tw.checklist(layer, *args)
    with pytest.raises(tw.CompileError, match="at= is for programs with open sizes, and layer has none"):
        tw.checklist(layer, half(8, 64), half(64, 64), at={"b": 8})


def test_reasons_are_sentences_with_places() -> None:
    def two(state: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return state * 0.9 + x, (state * x).sum()

    args = single(4096, 1024), single(4096, 1024)
    one = item(tw.checklist(two, *args, only=["fusion"]), "what can be one kernel")
    apart = tw.compile(two, *args, options=tw.Options(without="fusion")).report()
    assert one.done and one.trials[0].microseconds == apart.microseconds
    assert re.match(r"test_checklist\.py:\d+: .* ", one.details[0])


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"only": ["memori"]}, "there is no heading 'memori'; there are preparation, .*did you mean memory"),
        ({"budget": "soon"}, "checklist: budget: 'soon' is no time"),
        ({"evaluations": 0}, "evaluations must be at least 1, not 0"),
    ],
)
def test_mistakes(how: dict[str, Any], said: str) -> None:
    with pytest.raises(tw.CompileError, match=said):
        tw.checklist(step, *ARGS, **how)


MODEL = """
import jax
import jax.numpy as jnp

def step(state, x):
    return 0.9 * state + jnp.tanh(x)

def step_inputs():
    return [jax.ShapeDtypeStruct((64, 64), "float16")] * 2
"""


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    shapes = "f16[64,64],f16[64,64]"
    command = ["checklist", "model.py:step", "--shapes", shapes, "--without", "join", "--only", "memory, monitoring"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {i["heading"] for i in found["items"]} == {"memory", "monitoring"} and found["source"] == "model.py:step"
    (donated,) = (i for i in found["items"] if i["title"] == "arguments are donated")
    assert main(["report", "model.py:step", "--json", "--without", "join", *shlex.split(donated["switch"])]) == 0
    memory = json.loads(capsys.readouterr().out)["memory"]
    assert memory["arena_bytes"] in [trial["bytes"] for trial in donated["trials"]]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "\nmemory\n" in said and "\nmonitoring\n" in said and "precision" not in said
    assert f"tilewright explain model.py:step --shapes '{shapes}' --without join\n" in said
    for words, why in (
        (["--only", "memori"], "there is no heading 'memori'"),
        (["--only", ","], "--only: name headings"),
        (["--at", "b=4"], "step has no open sizes"),
        (["--budget", "soon"], "'soon' is no time"),
    ):
        assert main(["checklist", "model.py:step", *words]) == 1
        error = capsys.readouterr().err
        assert why in error and error.count("\n") == 1
