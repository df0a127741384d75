"""Pins by paths and kernels, short names of modes, data from modules, and the plot of a search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.cli.main import main
from tilewright.passes.errors import PassError
from tilewright.passes.quantized.recipes import QuantConfig, fits
from tilewright.quantization.pins import kernels_of, resolved_pins
from tilewright.quantization.search import QuantPoint, QuantSearch, search

from .nets import array

rng = np.random.default_rng(9)
PARAMS = {
    "vision": {"w1": array(rng, 32, 48), "w2": array(rng, 48, 16)},
    "text": {"w1": array(rng, 24, 32), "w2": array(rng, 32, 16)},
    "head": array(rng, 32, 8),
}
IMAGE, TEXT = (jnp.asarray(rng.standard_normal((16, n)), jnp.float32) for n in (32, 24))


def towers(params: Any, image: jax.Array, text: jax.Array) -> jax.Array:
    v = jax.nn.relu(image @ params["vision"]["w1"]) @ params["vision"]["w2"]
    t = jax.nn.relu(text @ params["text"]["w1"]) @ params["text"]["w2"]
    return jnp.concatenate([v, t], -1) @ params["head"]


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("vision.*", True),
        ("params.vision.*", True),
        ("params['vision']*", True),
        ("*.w1", True),
        ("params['vision']['w1']", True),
        ("w1", False),
        ("text.*", False),
        ("vision", False),
        ("params", False),
    ],
)
def test_paths_may_have_dots(pattern: str, wanted: bool) -> None:
    assert fits("params['vision']['w1']", pattern) is wanted


def test_lists_and_numbers_are_paths_too() -> None:
    assert fits("layers[3]['w']#2", "layers.3.w#2") and fits("layers[3]['w']", "3.*")
    assert not fits("w", "")


def test_short_names_are_modes() -> None:
    config = QuantConfig("i8", {"a.*": "f32"}, {"b": QuantConfig("i4").choice("b")})
    assert (config.default, dict(config.pins)) == ("w8a8", {"a.*": "origin"})
    assert config.mode_of("b") == "w4a16" and 'default = "w8a8"' in config.to_toml()
    with pytest.raises(PassError, match="and i8, i4, f32 for short"):
        QuantConfig("zz")


def test_towers_are_pinned_by_their_paths() -> None:
    config = tw.QuantConfig("w8a16", {"vision.*": "i8", "text.*": "f16"})
    made = tw.quantize(towers, PARAMS, IMAGE, TEXT, config=config, progress=False)
    assert [row.mode for row in made.table.rows] == ["w8a8", "w8a8", "f16", "f16", "w8a16"]


def test_kernels_stand_for_the_products_in_them() -> None:
    kernels = kernels_of(towers, (PARAMS, IMAGE, TEXT), {}, None)
    names = [name for members in kernels.values() for name in members]
    assert sorted(names) == sorted(f"params{p}" for p in (
        "['vision']['w1']", "['vision']['w2']", "['text']['w1']", "['text']['w2']", "['head']"))  # fmt: skip
    kernel, (name, *_) = next(iter(kernels.items()))
    config = tw.QuantConfig("f16", {kernel: "i8"})
    made = tw.quantize(towers, PARAMS, IMAGE, TEXT, config=config, progress=False)
    assert made.config.pins == {name: "w8a8"}
    assert [row.name for row in made.table.rows if row.mode == "w8a8"] == kernels[kernel]


def test_the_first_pin_wins_and_kernels_are_asked_for_once() -> None:
    asked: list[int] = []

    def kernels() -> dict[str, list[str]]:
        asked.append(1)
        return {"contract_0": ["a", "b"], "contract_1": ["c"]}

    found = resolved_pins({"a": "f16", "contract_*": "w8a8", "contract_1": "f16"}, ["a", "b", "c"], kernels)
    assert found == {"a": "f16", "b": "w8a8", "c": "w8a8"} and asked == [1]
    assert resolved_pins({"a": "f16"}, ["a"], kernels) == {"a": "f16"} and asked == [1]
    with pytest.raises(tw.CompileError, match=r"no product and no kernel fits the pin 'x\.\*'; the products are a, in"):
        resolved_pins({"x.*": "f16"}, ["a"], kernels)


def test_a_pin_to_the_original_leaves_the_rest_to_the_search() -> None:
    found = search(towers, PARAMS, IMAGE, TEXT, modes=("f16", "i8"), pins={"head": "f32"}, progress=False)
    assert len(found.sensitivity) == 4
    assert all(p.config.mode_of("params['head']") == "origin" for p in found.points)
    assert {p.config.mode_of("params['text']['w1']") for p in found.points} == {"f16", "w8a8"}


def test_every_step_is_told() -> None:
    said: list[tuple[str, int, int]] = []
    search(
        towers, PARAMS, IMAGE, TEXT, modes=("f16", "w8a8"), pins={"vision.*": "f16", "text.*": "f16"},
        progress=lambda what, done=0, steps=0: said.append((what, done, steps)),
    )  # fmt: skip
    words = [what for what, _, _ in said]
    assert "calibrating: batch 1 of 1" in words
    assert "searching: params['head'] in w8a8" in words
    assert "searching: the cost of configuration 1 of 2" in words
    assert all(done <= steps for _, done, steps in said)


def test_points_that_meet_share_a_label(tmp_path: Path) -> None:
    places = [(30.0, 60.0), (20.0, 40.0), (20.01, 40.1), (10.0, 41.0)]
    points = tuple(QuantPoint(m, 60 - m, us, 8, 1e-3, QuantConfig(), {"f16": 1}) for us, m in places)
    found = QuantSearch((), points, points[3], "sqnr", 60.0, 35.0)
    assert [[points.index(p) for p in group] for group in found._together()] == [[0], [1, 2], [3]]
    assert [line.split()[1] for line in str(found).splitlines()[1:5] if line[0] in "+*"] == ["1", "4"]
    assert "most precise: 60" in str(found)
    found.plot(tmp_path / "front.png")
    assert (tmp_path / "front.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(tw.CompileError, match=r"front\.nothing"):
        found.plot(tmp_path / "front.nothing")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "two_towers_net.py").write_text(
        "import jax, jax.numpy as jnp, numpy as np\n"
        "def net(params, x):\n"
        "    return jnp.tanh(x @ params['vision']['w']) @ params['text']['w']\n"
        "def net_inputs():\n"
        "    n = lambda *s: np.random.default_rng(0).standard_normal(s).astype('float32')\n"
        "    return {'vision': {'w': n(16, 24)}, 'text': {'w': n(24, 8)}}, n(8, 16)\n"
        "def batches():\n"
        "    return [net_inputs()[1] * k for k in (1, 2)]\n"
        "def closeness(y, label):\n"
        "    return -float(abs(np.asarray(y) - label).mean())\n"
        "def labelled():\n"
        "    return batches(), [np.zeros((8, 8))] * 2\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_takes_pins_modules_and_metrics(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, data = "two_towers_net.py:net", "two_towers_net:labelled"
    pins = ["--pin", "vision.*=i8, text.*=f16"]
    assert main(["quantize", net, "--data", data, "--metric", "two_towers_net:closeness", *pins]) == 0
    said = capsys.readouterr().out
    assert "closeness -" in said and "  w8a8  " in said and "  f16   " in said
    assert tw.QuantConfig.load("quant.toml").pins == {"vision.*": "w8a8", "text.*": "f16"}
    assert main(["report", net, "--quant-config", "quant.toml", "--weights", "params", "--json"]) == 0
    modes: dict[str, str] = {}
    for kernel in json.loads(capsys.readouterr().out)["kernels"]:
        modes |= kernel["modes"]
    assert modes == {"params['vision']['w']": "w8a8", "params['text']['w']": "f16"}


def test_a_drop_that_is_allowed_is_searched_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["quantize", "two_towers_net.py:net", "--data", "two_towers_net.py:batches"]
    assert main([*command, "--max-drop", "99", "--plot", "front.png"]) == 0
    assert "* chosen" in capsys.readouterr().out and (folder / "front.png").exists()
    assert main([*command, "--mode", "w8a8", "--max-drop", "0.1", "--metric", "cosine"]) == 0
    assert "* chosen" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--pin", "vision.*=i9"], "--pin vision.*=i9: there is no mode 'i9'"),
        (["--pin", "vision"], "--pin vision: write PATTERN=MODE"),
        (["--pin", "sound.*=i8"], "no product and no kernel fits the pin 'sound.*'"),
        (["--data", "no_such_module:batches"], "Python finds no module no_such_module"),
        (["--data", "two_towers_net:nothing"], "two_towers_net has no function nothing"),
        (["--metric", "two_towers_net.py:"], "say which function"),
        (["--mode", "w8a8", "--plot", "front.png"], "--plot draws the front of a search"),
        (["--mode", "w8a8", "--max-drop", "9"], "--max-drop: the SQNR of the original is infinite"),
        (["--mode", "w4a8", "--max-drop", "-1", "--metric", "cosine"], "cosine drops by"),
    ],
)
def test_mistakes_are_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], args: list[str], said: str
) -> None:
    assert main(["quantize", "two_towers_net.py:net", *args]) == 1
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1
    assert not (folder / "quant.toml").exists()
