"""Configurations of whole programs: figures are those of direct compilations, the best is the best, files come back."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.backends.report import Report
from tilewright.machine import Machine
from tilewright.tuning.axes import axes_of
from tilewright.tuning.configuration import SCHEMA
from tilewright.tuning.rows import METRICS

RANDOM = np.random.default_rng(0)
W = {n: (RANDOM.standard_normal(s) / 8).astype("f4") for n, s in (("w1", (64, 64)), ("w2", (64, 32)))}
DATA = [RANDOM.standard_normal((16, 64)).astype("f4") for _ in range(3)]
LABELS = [RANDOM.integers(0, 32, 16) for _ in range(3)]


def layer(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ params["w1"]) @ params["w2"]


def rows_of(x: jax.Array) -> jax.Array:
    return jnp.sin(x)


def x_of(*shape: int | str) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(jax.export.symbolic_shape(",".join(map(str, shape))), "float32")


def figures_of(report: Report, items: int) -> dict[str, float]:
    return {
        "latency": report.microseconds,
        "throughput": items / report.microseconds * 1e6,
        "energy": report.energy_joules / items,
        "memory": report.memory.arena_bytes,
    }


SPACE = {"batch": ["1", 8], "precision": ["f32", "f16"], "without": [(), "fusion"]}
OPTIONS = {"f32": "origin", "f16": "mixed_float16"}


@pytest.fixture(scope="module")
def found() -> tw.Autotuned:
    return tw.autotune(layer, W, x_of("b", 64), space=SPACE, progress=False)


def test_figures_are_those_of_direct_compilations(found: tw.Autotuned) -> None:
    assert [dict(r.chosen) for r in found.rows] == [
        {"batch": b, "precision": p, "without": w} for b in "18" for p in OPTIONS for w in ("none", "fusion")
    ]
    assert found.batch == "b" and found.original is None and found.accuracy_metric == ""
    for row in found.rows:
        items, without = int(row.chosen["batch"]), row.chosen["without"].replace("none", "")
        options: Any = tw.Options(precision=OPTIONS[row.chosen["precision"]], without=without)  # pyright: ignore[reportArgumentType]
        report = tw.compile(layer, W, jax.ShapeDtypeStruct((items, 64), "float32"), options=options).report()
        assert row.figures == figures_of(report, items)
        assert row.watts == pytest.approx(report.energy_joules / report.microseconds * 1e6)
        assert row.configuration == tw.Configuration("ascend-910b1", {"b": items}, options)
    assert len({r.figures["latency"] for r in found.rows}) > 4


@pytest.mark.parametrize("metric", METRICS)
def test_the_best_is_the_best(found: tw.Autotuned, metric: Any) -> None:
    again = tw.autotune(layer, W, x_of("b", 64), space=SPACE, metric=metric, progress=False)
    assert [r.figures for r in again.rows] == [r.figures for r in found.rows]
    values = [r.figures[metric] for r in again.rows]
    assert again.best is not None and again.best.front
    assert again.best.figures[metric] == (max(values) if metric == "throughput" else min(values))
    report = again.program.report()
    items = int(again.best.chosen["batch"])
    assert figures_of(report, items) == again.best.figures


def test_the_front_is_what_nothing_beats(found: tw.Autotuned) -> None:
    def no_worse(a: tw.Autotuned, b: Any) -> bool:
        signs = {"throughput": -1.0}
        return all(signs.get(n, 1.0) * a[n] <= signs.get(n, 1.0) * b[n] for n in METRICS)  # pyright: ignore

    for row in found.rows:
        beaten = any(o.figures != row.figures and no_worse(o.figures, row.figures) for o in found.rows)  # pyright: ignore
        assert row.front == (not beaten)
    assert 0 < sum(r.front for r in found.rows) < len(found.rows)


def test_int8_with_data_is_what_quantize_gives() -> None:
    """The same scales, program and accuracy, whatever the batch of a configuration."""
    space = {"b": [1, 16], "precision": ["f32", "f16", "int8"]}
    common: dict[str, Any] = {"data": DATA, "labels": LABELS, "progress": False}
    every = tw.autotune(layer, W, x_of("b", 64), space=space, quality="cosine", **common)
    rows = {r.name: r for r in every.rows}
    space = {"precision": ["int8"]}
    for metric in ("accuracy", "sqnr", "cosine"):
        made = tw.quantize(layer, W, DATA[0], metric=metric, **common)
        again = tw.autotune(layer, W, x_of("b", 64), space=space, at={"b": 1}, quality=metric, **common)
        assert again.rows[0].accuracy == made.table.after and again.original == made.table.before
    row = rows["b=16, precision=int8"]
    assert row.configuration is not None
    assert row.figures == figures_of(made.program.report(), 16)
    assert row.configuration.options.quantization == made.config and row.configuration.options.weights == made.packed
    assert row.note == "packs params once" and not row.problem
    assert rows["b=1, precision=int8"].figures["memory"] < row.figures["memory"]
    exact = {r.chosen["precision"]: r.accuracy for r in every.rows}
    assert exact["f32"] == pytest.approx(1.0, abs=1e-12) and exact["f32"] > exact["f16"] > exact["int8"]  # pyright: ignore


def test_accuracy_keeps_rows_on_the_front_and_limits_leave_them_out() -> None:
    space = {"precision": ["f32", "int8"]}
    common: dict[str, Any] = {"data": DATA, "quality": "cosine", "metric": "memory", "progress": False}
    free = tw.autotune(layer, W, DATA[0], space=space, **common)
    assert free.best is not None and free.best.chosen["precision"] == "int8"
    limited = tw.autotune(layer, W, DATA[0], space=space, max_drop=1e-6, **common)
    plain, integer = limited.rows
    assert limited.best is plain and plain.front and not integer.front
    assert integer.problem.startswith("cosine drops by ") and integer.problem.endswith("more than 1e-06")
    none = tw.autotune(layer, W, DATA[0], space={"quantization": ["w8a8"]}, max_drop=1e-6, **common)
    assert none.best is None and none.none_said.startswith("no configuration keeps the limits: cosine drops by")
    with pytest.raises(tw.CompileError, match="no configuration keeps the limits"):
        none.save("never.json")
    assert not Path("never.json").exists()


def test_without_data_nothing_is_measured() -> None:
    got = tw.autotune(layer, W, DATA[0], space={"precision": ["f32", "int8"]}, progress=False)
    assert [r.accuracy for r in got.rows] == [None, None]
    assert [r.note for r in got.rows] == ["", "packs params once; its accuracy was not measured"]
    made = tw.quantize(layer, W, DATA[0], progress=False)
    assert got.rows[1].figures == figures_of(made.program.report(), 1)


def test_types_alone_are_drawn_or_out() -> None:
    args = [jax.ShapeDtypeStruct(s, "float32") for s in ((8, 16), (16, 8))]
    space = {"precision": ["f32", "int8"]}
    got = tw.autotune(jnp.matmul, *args, space=space, progress=False)
    assert not got.rows[0].problem and "give arrays" in got.rows[1].problem and got.best is got.rows[0]
    drawn: list[Any] = []

    def draw(types: Any) -> list[np.ndarray]:
        drawn.append(types)
        return [np.ones(shape, dtype.replace("f32", "float32")) for shape, dtype in types]

    got = tw.autotune(jnp.matmul, *args, space=space, draw=draw, progress=False)
    assert got.rows[1].figures and drawn == [[((8, 16), "f32"), ((16, 8), "f32")]]


def test_targets_and_power() -> None:
    space = {"target": ["ascend-310", "ascend-910b1"]}
    got = tw.autotune(layer, W, DATA[0], space=space, progress=False)
    for row in got.rows:
        report = tw.compile(layer, W, DATA[0], target=row.chosen["target"]).report()
        assert row.figures == figures_of(report, 1)
        assert row.configuration is not None and row.configuration.target == row.chosen["target"]
    idle = {t: Machine.load(t).energy.idle_watts for t in space["target"]}
    limit = (min(idle.values()) + max(idle.values())) / 2
    limited = tw.autotune(layer, W, DATA[0], space=space, power_limit=f"{limit} W", progress=False)
    assert [r.problem == "" for r in limited.rows] == [(r.watts or inf) <= limit for r in got.rows] == [True, False]
    assert f"more than {limit:g} W" in limited.rows[1].problem
    with pytest.raises(tw.CompileError, match=r"power_limit: ascend-310 draws .* W when idle: say more than that"):
        tw.autotune(layer, W, DATA[0], space=space, power_limit=1, progress=False)


def test_what_cannot_be_compiled_is_a_row() -> None:
    got = tw.autotune(layer, W, DATA[0], space={"memory_limit": ["1K", None, 1 << 30]}, progress=False)
    first, *others = got.rows
    assert first.problem.startswith("memory_limit: the program does not fit into 1,024 bytes") and not first.figures
    assert got.best is others[0] and [r.chosen["memory_limit"] for r in others] == ["none", str(1 << 30)]
    none = tw.autotune(layer, W, DATA[0], space={"memory_limit": ["1K"]}, progress=False)
    assert none.best is None and none.none_said.startswith("no configuration can be compiled: memory_limit")
    with pytest.raises(tw.CompileError, match="no configuration can be compiled"):
        _ = none.program

    def even(x: jax.Array) -> jax.Array:
        return x.reshape(-1, 2).sum(1)

    sizes = tw.autotune(rows_of, x_of("b", 8), space={"b": [0, 4]}, progress=False)
    assert sizes.rows[0].problem == "rows_of: b is 0, and must be at least 1" and sizes.rows[1].figures
    with pytest.raises(tw.CompileError):
        tw.autotune(even, x_of("b"), space={"b": []}, progress=False)


MISTAKES: dict[str, tuple[Any, str]] = {
    "nothing": ({}, "space: give a list of values for each name"),
    "no mapping": ([("b", [1])], "space: give a list of values for each name"),
    "name": ({"b": [1], "precison": ["f16"]}, "there is no name 'precison'; names are b, batch, target, precision"),
    "option": ({"b": [1], "cache": ["x"]}, "the option cache is none of its names; these are b, batch, target"),
    "empty": ({"b": []}, "space: b has no values; it takes whole numbers"),
    "text": ({"b": "1,2"}, "space: b must be a list of values, not '1,2'"),
    "size": ({"b": ["x"]}, "space: b=x: b takes whole numbers"),
    "truth": ({"b": [True]}, "space: b=True: b takes whole numbers"),
    "twice": ({"b": [1, "1"]}, "space: b: 1 is there twice"),
    "same": ({"b": [1], "precision": ["f32", "origin"]}, "space: precision: f32 and origin are the same"),
    "batch": ({"b": [1], "batch": [2]}, "space: b and batch both say b: give one of them"),
    "both": ({"b": [1], "precision": ["int8"], "quantization": ["w8a16"]}, "both say quantization: give one"),
    "precision": ({"b": [1], "precision": ["f17"]}, "precision=f17: precision takes f32, f16, bf16, int8, origin"),
    "mode": ({"b": [1], "quantization": ["w9"]}, "there is no mode 'w9' of quantization"),
    "target": ({"b": [1], "target": ["ascend-9"]}, "target=ascend-9: unknown target 'ascend-9': known are"),
    "winograd": ({"b": [1], "winograd": ["3"]}, "winograd=3: winograd takes off, auto, 2, 4"),
    "bytes": ({"b": [1], "strips": ["4Z"]}, "strips takes bytes, such as 512K, 64M or 2G, or off"),
    "kind": ({"b": [1], "memory_limit": [-4]}, "memory_limit=-4: options: memory_limit must be bytes"),
    "without": ({"b": [1], "without": ["pooled+poled"]}, "no alternative is called 'poled'; did you mean pooled"),
    "plus": ({"b": [1], "donate": ["a+"]}, r"donate takes names of arguments, with \+ between several, or none"),
    "missing": ({"precision": ["f16"]}, "layer has open sizes that nothing says: b; give them values"),
    "many": ({"b": list(range(1, 5000))}, "4,999 configurations, of which each is compiled; the most is 4,096"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_sentence(mistake: str) -> None:
    space, said = MISTAKES[mistake]
    with pytest.raises(tw.CompileError, match=said) as raised:
        tw.autotune(layer, W, x_of("b", 64), space=space, progress=False)
    assert "\n" not in str(raised.value)


def test_other_mistakes() -> None:
    def tuned(**given: Any) -> None:
        tw.autotune(layer, W, x_of("b", 64), **{"space": {"b": [1]}, "progress": False, **given})

    for given, said in (
        ({"metric": "speed"}, "there is no metric 'speed'; there are latency, throughput, energy, memory"),
        ({"at": {"b": 2}}, "space: b says b, which is given for all configurations, too"),
        ({"at": {"c": 2}}, "layer has no size 'c': its sizes are b"),
        ({"options": {"precision": "f16"}}, "options must be tw.Options, not dict"),
        ({"max_drop": 1.0}, "max_drop is about accuracy, which is measured on data"),
        ({"max_drop": 1.0, "data": DATA}, "the SQNR of the original is infinite"),
        ({"power_limit": "low"}, "power_limit: 'low' is no power of more than 0 W, such as 150 or 150W"),
        ({"data": 3}, "the data must be a list of batches"),
        ({"data": []}, "the data has no batches"),
        ({"data": [DATA[0][:, :9]]}, "batch 0 of the data: .* is 9, and must be 64"),
        ({"data": DATA, "quality": "speed"}, "there is no metric 'speed'"),
        ({"data": DATA, "quality": "accuracy"}, "the metric needs labels"),
    ):
        with pytest.raises(tw.CompileError, match=said):
            tuned(**given)
    both: Any = {"space": {"b": [1], "precision": ["f32"]}, "options": tw.Options(precision="float16")}
    with pytest.raises(tw.CompileError, match="precision says precision, which is given for all"):
        tuned(**both)
    with pytest.raises(tw.CompileError, match="target says target, which is given for all"):
        tuned(space={"b": [1], "target": ["ascend-310"]}, target="ascend-910b1")
    with pytest.raises(tw.CompileError, match="rows_of has no open sizes, which batch is for"):
        tw.autotune(rows_of, DATA[0], space={"batch": [1]}, progress=False)


def test_names_of_dimensions_come_first() -> None:
    assert axes_of(["s", "batch"])["batch"].choice("4").sizes == {"batch": 4}
    assert axes_of(["s", "b"])["batch"].choice("4").sizes == {"s": 4}
    assert axes_of(["target"])["target"].choice("4").sizes == {"target": 4}
    assert "batch" not in axes_of([])


def test_a_file_makes_the_same_program(tmp_path: Path) -> None:
    got = tw.autotune(
        layer, W, x_of("b", 64), space={"b": [8], "precision": ["int8"], "without": ["pooled+join"]}, data=DATA,
        options=tw.Options(strips=None, host="forbid", memory_limit="1GiB"), progress=False,
    )  # fmt: skip
    path = tmp_path / "best.json"
    got.save(path, "model.py:layer")
    written = json.loads(path.read_text())
    assert written["schema"] == SCHEMA and written["source"] == "model.py:layer" and written["unit"] == "microseconds"
    assert written["tilewright"] == tw.__version__ and written["metric"] == "latency" and written["sizes"] == {"b": 8}
    assert got.best is not None and written["value"] == got.best.figures["latency"]
    assert written["chosen"] == {"b": "8", "precision": "int8", "without": "pooled+join"}
    read = tw.Configuration.load(path)
    assert got.best.configuration is not None
    asked = replace(got.best.configuration.options, weights=["params"])
    assert read == tw.Configuration("ascend-910b1", {"b": 8}, asked)
    program = tw.compile(layer, W, jax.ShapeDtypeStruct((8, 64), "float32"), options=read.options)
    assert program.report().to_json() == got.program.report().to_json()
    args = W, DATA[0][:8]
    np.testing.assert_array_equal(program(W, args[1].copy()), got.program(W, args[1].copy()))


@pytest.mark.parametrize(
    "options",
    [
        tw.Options(schedule=tw.Schedule(base_m=64)),
        tw.Options(schedule={"contract_0": tw.Schedule(base_m=64)}),
        tw.Options(host="forbid", donate=1, precision="float16", hivm=True),
        tw.Options(winograd={"params['conv']": "4", "*": "auto"}, weights="params", plans=Path("plans.sqlite")),
        tw.Options(quantization="w8a8-dynamic", without="join,pooled", strips="64MiB", memory_limit=1 << 20),
        tw.Options(quantization=tw.QuantConfig("w8a16", {"a*": "f16"}, {"a": tw.ProductChoice("w8a8", 0.1, -3)})),
    ],
)
def test_options_come_back(options: tw.Options, tmp_path: Path) -> None:
    found = tw.Configuration("ascend-310", {"s": 3}, options)
    found.save(tmp_path / "c.json")
    read = tw.Configuration.load(tmp_path / "c.json")
    assert read.to_json() == found.to_json() and read.sizes == {"s": 3}
    assert [str(s) for s in read.options.stages()] == [str(s) for s in options.stages()]
    kept = {"quantization": read.options.quantization, "precision": read.options.precision}
    assert kept == {"quantization": options.quantization, "precision": options.precision}


def test_what_a_file_does_not_hold(tmp_path: Path) -> None:
    arrays = tw.ProductChoice("w8a8", 0.1, balance=np.ones(3, "f4"))
    for options, said in (
        (tw.Options(quantization=tw.QuantConfig(products={"a": arrays})), "arrays, which JSON does not hold"),
        (tw.Options(oracle="mine"), "an oracle is registered in a process"),
    ):
        with pytest.raises(tw.CompileError, match=said):
            tw.Configuration("ascend-310", {}, options).save(tmp_path / "none.json")
    assert not (tmp_path / "none.json").exists()


FILES: dict[str, tuple[str, str]] = {
    "text": ("no JSON at all", "no JSON: .*a configuration is what `tilewright autotune` writes"),
    "bytes": ("\udcff", "no text"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "list": ("[]", f"its schema is not '{SCHEMA}'$"),
    "other": ('{"schema": "tilewright.report/1"}', f"its schema is not '{SCHEMA}', but 'tilewright.report/1'"),
    "target": ("{}", "target must be the name of a chip, not None"),
    "sizes": ('{"target": "t", "sizes": [1]}', r"sizes must be a table, not \[1\]"),
    "size": ('{"target": "t", "sizes": {"b": -1}}', "the size b must be a whole number, not -1"),
    "fraction": ('{"target": "t", "sizes": {"b": 1.5}}', "the size b must be a whole number, not 1.5"),
    "option": ('{"target": "t", "options": {"winogrd": "2"}}', "no option 'winogrd'.*did you mean winograd"),
    "value": ('{"target": "t", "options": {"winograd": "3"}}', "winograd must be off, auto, 2, 4"),
    "schedule": ('{"target": "t", "options": {"schedule": 3}}', "schedule must be text such as base_m=128, not 3"),
    "pins": ('{"target": "t", "options": {"schedule": "base_q=1"}}', "base_q"),
    "mode": ('{"target": "t", "options": {"quantization": "w9"}}', "there is no mode 'w9'"),
    "table": ('{"target": "t", "options": {"quantization": {"defalt": "w8a8"}}}', "the configuration has 'defalt'"),
    "digits": ('{"target": "t", "sizes": {"b": ' + "1" * 5000 + "}}", "digits"),
}


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_configuration(name: str, tmp_path: Path) -> None:
    text, said = FILES[name]
    if text.startswith("{") and '"schema"' not in text.partition(":")[0]:
        text = f'{{"schema": "{SCHEMA}"' + (", " if text != "{}" else "") + text[1:]
    path = tmp_path / "c.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(tw.CompileError, match=said) as raised:
        tw.Configuration.load(path)
    assert str(raised.value).startswith(f"{path}: ") and "\n" not in str(raised.value)
