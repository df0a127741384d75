"""What is kept in a directory: found by who compiles the same again, in whatever process, and nothing else."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import export

import tilewright as tw
from tilewright.api import program as programs
from tilewright.api.kept import PROGRAMS, KeptPrograms, what_options_decide
from tilewright.api.sizes import templates
from tilewright.api.sizes.templates import Version
from tilewright.machine import Machine
from tilewright.passes.quantized.recipes import ProductChoice
from tilewright.passes.templates import NoTemplate
from tilewright.support import cache
from tilewright.support.cache import CacheDirectory, CacheWarning, digest

KEY = digest("a key")


def layer(x: Any, w: Any) -> Any:
    return jax.nn.softmax(jax.nn.relu(x @ w)) * x.shape[0]


def opened(cache: Path | str, fn: Callable[..., Any] = layer, **options: Any) -> Any:
    (b,) = export.symbolic_shape("b", constraints=["b <= 512"])
    types = [jax.ShapeDtypeStruct(shape, "float32") for shape in [(b, 24), (24, 32)]]
    return tw.compile(fn, *types, options=tw.Options(cache=cache, **options))


def version_of(program: Any) -> Version:
    (found,) = program.ranges.values()
    assert isinstance(found, Version)
    return found


def arrays(b: int) -> list[Any]:
    rng = np.random.default_rng(b)
    return [rng.standard_normal(shape).astype("f4") for shape in [(b, 24), (24, 32)]]


def entries(folder: Path) -> list[Path]:
    return sorted((folder / PROGRAMS).glob("*.entry"))


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Says what is lowered: a word for each range and for each program."""
    found: list[str] = []
    template, whole = templates.lower_template, programs.run_pipeline

    def lower(*args: Any) -> Any:
        found.append("range")
        return template(*args)

    def run(*args: Any, **more: Any) -> None:
        found.append("program")
        whole(*args, **more)

    monkeypatch.setattr(templates, "lower_template", lower)
    monkeypatch.setattr(programs, "run_pipeline", run)
    return found


def test_a_version_is_taken_from_where_it_is_kept(tmp_path: Path, lowered: list[str]) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    first.at(b=50), second.at(b=40)
    assert lowered == ["range"]
    one, other = version_of(first), version_of(second)
    assert str(one.template.module) == str(other.template.module)
    assert (
        replace(one.template, module=other.template.module) == other.template and one.extras == other.extras
    )
    for b in (33, 50, 64):
        args = arrays(b)
        np.testing.assert_allclose(second(*args), layer(*args), rtol=1e-5, atol=1e-5)
        assert first.ir(at={"b": b}) == second.ir(at={"b": b})
    assert lowered == ["range"]


RELATED = """func.func @main(%n: tensor<i32>, %x: tensor<?xf32>) -> tensor<?x4xf32> {
  %four = stablehlo.constant dense<4> : tensor<1xi32>
  %one = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %shape = stablehlo.concatenate %one, %four, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %z = stablehlo.add %x, %x : tensor<?xf32>
  %y = stablehlo.dynamic_reshape %z, %shape : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x4xf32>
  func.return %y : tensor<?x4xf32>
}"""


def test_sizes_that_follow_from_others_are_read(tmp_path: Path, lowered: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)
        for _ in range(2):
            made = tw.compile(RELATED, options=tw.Options(cache=tmp_path))
            assert (made(np.int32(8), np.ones(32, "f4")) == np.full((8, 4), 2)).all()
            assert isinstance(version_of(made), Version)
    assert lowered == ["range"]


CHILD = """
import sys
sys.path.insert(0, {here!r})
import numpy as np
from test_kept import arrays, layer, opened
from tilewright.api.sizes import templates
from tilewright.dialects.affine import Expr, Symbol
from tilewright.dialects.open_sizes import OpenSize, encode

def fail(*args): raise AssertionError("it is lowered again")
templates.lower_template = fail
encode(OpenSize(Expr.of(Symbol("other", 2))))  # the numbers of this process are others
np.testing.assert_allclose(opened({folder!r})(*arrays(61)), layer(*arrays(61)), rtol=1e-5, atol=1e-5)
"""


def test_another_process_takes_it_too(tmp_path: Path) -> None:
    opened(tmp_path).at(b=64)
    said = CHILD.format(here=str(Path(__file__).parent), folder=str(tmp_path))
    ran = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "Warning" not in ran.stderr and len(entries(tmp_path)) == 1


OTHERS: dict[str, Callable[[Path], Any]] = {
    "function": lambda folder: opened(folder, lambda x, w: layer(x, w)),
    "check": lambda folder: opened(folder, check=False),
    "precision": lambda folder: opened(folder, precision="mixed_float16"),
    "donated": lambda folder: opened(folder, donate=(0,)),
    "quantized": lambda folder: opened(folder, quantization="w8a8-dynamic"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_differs_is_not_taken(other: str, tmp_path: Path, lowered: list[str]) -> None:
    opened(tmp_path).at(b=50)
    program = OTHERS[other](tmp_path)
    program.at(b=50)
    assert lowered.count("range") == 2 and len(entries(tmp_path)) == 2
    program.at(b=100)  # another range
    assert lowered.count("range") == 3 and len(entries(tmp_path)) == 3


def test_keys_follow_the_machine_and_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = tw.Options().stages()
    found: set[str] = set()

    def note(target: str | None) -> None:
        kept = KeptPrograms.of(tmp_path, target, stages)
        entry = None if kept is None else kept.version("code", [], "f", {})
        assert entry is not None
        found.add(entry.key)

    note(None)
    note("ascend-910b1")
    assert len(found) == 1
    note("ascend-310")
    slower = replace(Machine.load("ascend-910b1"), clock_mhz=17)
    with monkeypatch.context() as patch:
        patch.setattr(Machine, "load", lambda _: slower)
        note(None)
    monkeypatch.setattr("tilewright.support.cache._compiler", lambda: "another compiler")
    note(None)
    assert len(found) == 4


def test_keys_follow_what_options_do_before_the_passes(tmp_path: Path) -> None:
    scaled, other = (ProductChoice("w8a8", 0.5, balance=np.full(4, n, np.float32)) for n in (1, 2))
    asked = [
        tw.Options(),
        tw.Options(donate=(0,)),
        tw.Options(donate=("x",)),
        tw.Options(quantization="w8a8-dynamic"),
        tw.Options(quantization="w8a16"),
        tw.Options(quantization="w8a16", weights="params*"),
        tw.Options(quantization=tw.QuantConfig(products={"dot": scaled})),
        tw.Options(quantization=tw.QuantConfig(products={"dot": other})),
    ]
    said = ["\n".join(what_options_decide(options, ["x"])) for options in asked]
    assert len(set(said)) == len(asked)
    assert "\n".join(what_options_decide(asked[3], ["y"])) not in said
    assert what_options_decide(tw.Options(memory="bytes"), ["y"]) == what_options_decide(tw.Options(), ["x"])


def test_passes_of_this_process_have_no_key(tmp_path: Path) -> None:
    first, *rest = tw.Options().stages()
    assert KeptPrograms.of(tmp_path, None, [first, *rest]) is not None
    assert KeptPrograms.of(tmp_path, None, [replace(first, implementation=first.load()), *rest]) is None
    mine = replace(first, choices=replace(first.choices, oracle="mine"))
    assert KeptPrograms.of(tmp_path, None, [mine, *rest]) is None
    assert KeptPrograms.of(tmp_path, None, [replace(first, implementation="mine.passes:Pass"), *rest]) is None


def test_a_static_program_is_taken_too(tmp_path: Path, lowered: list[str]) -> None:
    def compiled(n: int) -> Any:
        return tw.compile(layer, *arrays(n), options=tw.Options(cache=tmp_path))

    first, second = compiled(8), compiled(8)
    assert lowered == ["program"] and first.ir() == second.ir()
    assert first.report().to_json() == second.report().to_json()
    np.testing.assert_allclose(second(*arrays(8)), layer(*arrays(8)), rtol=1e-5, atol=1e-5)
    compiled(9)
    assert lowered == ["program", "program"]


def test_functions_of_this_process_are_not_kept(tmp_path: Path) -> None:
    def called(x: Any) -> Any:
        return jax.pure_callback(lambda v: v + 1, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    program = tw.compile(called, np.ones(3, "f4"), options=tw.Options(cache=tmp_path))
    assert np.array_equal(program(np.ones(3, "f4")), [2, 2, 2]) and not entries(tmp_path)


def test_a_reason_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(*args: Any) -> Any:
        asked.append("range")
        raise NoTemplate("not for a range")

    monkeypatch.setattr(templates, "lower_template", refuse)
    for _ in range(2):
        program = opened(tmp_path)
        np.testing.assert_allclose(program(*arrays(7)), layer(*arrays(7)), rtol=1e-5, atol=1e-5)
        reason = program.ranges[((5, 8),)]
        assert isinstance(reason, NoTemplate) and str(reason) == "not for a range"
    assert asked == ["range"]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[:-300],
    "a bit": lambda content: content[:5000] + bytes([content[5000] ^ 1]) + content[5001:],
    "empty": lambda _: b"",
    "foreign": lambda _: b"\x7fELF" * 100,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_compiled_with_one_warning(
    damage: str, tmp_path: Path, lowered: list[str]
) -> None:
    opened(tmp_path).at(b=50)
    (path,) = entries(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(DAMAGES[damage](whole))
    program = opened(tmp_path)
    with pytest.warns(CacheWarning) as said:
        program.at(b=50)
    assert len(said) == 1 and str(path) in str(said[0].message)
    assert lowered == ["range", "range"] and path.read_bytes() == whole


def test_an_entry_under_another_name_is_none(tmp_path: Path, lowered: list[str]) -> None:
    opened(tmp_path).at(b=50)
    (path,) = entries(tmp_path)
    opened(tmp_path).at(b=100)
    (other,) = set(entries(tmp_path)) - {path}
    other.write_bytes(path.read_bytes())
    with pytest.warns(CacheWarning, match="was not written here"):
        opened(tmp_path).at(b=100)
    assert len(lowered) == 3


def test_text_that_is_no_program_is_none(tmp_path: Path) -> None:
    opened(tmp_path).at(b=50)
    (path,) = entries(tmp_path)
    cache, key = CacheDirectory(tmp_path / PROGRAMS), path.stem
    text = cache.get(key)
    assert text is not None
    for wrong in (
        text.replace("npu.launch", "npu.lunch"),
        text.replace("outputs = 1", "outputs = 0", 1),
        "{}\n",
    ):
        cache.put(key, {}, wrong)
        with pytest.warns(CacheWarning, match="is damaged") as said:
            opened(tmp_path).at(b=50)
        assert len(said) == 1 and cache.get(key) == text


def test_a_directory_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    program = opened(tmp_path / "file")
    with pytest.warns(CacheWarning):
        program.at(b=50)
    with pytest.raises(tw.CompileError, match="cache must be the path of a directory"):
        tw.Options(cache=3)  # pyright: ignore[reportArgumentType]


def test_the_environment_names_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    opened("").at(b=50)
    assert not entries(tmp_path)
    (b,) = export.symbolic_shape("b")
    tw.compile(lambda x: x + 1, jax.ShapeDtypeStruct((b,), "float32")).at(b=50)
    assert len(entries(tmp_path)) == 1


# -- the directory -----------------------------------------------------------------------------------------


def test_what_was_not_used_for_longest_goes(tmp_path: Path) -> None:
    cache, made = CacheDirectory(tmp_path, 4_000), [digest(str(n)) for n in range(4)]
    (tmp_path / "mine.txt").write_text("x" * 10_000)
    for n, key in enumerate(made[:3]):
        cache.put(key, {"program": str(n)}, "x" * 1_000)
        os.utime(tmp_path / f"{key}.entry", (n, n))
    assert cache.get(made[0]) is not None  # now it is the one that was used last
    cache.put(made[3], {"program": "3"}, "y" * 1_000)
    assert {kept.about["program"] for kept in cache.entries()} == {"0", "2", "3"}
    cache.put(made[1], {}, "z" * 5_000)  # more than everything
    assert cache.get(made[1]) is None and len(cache.entries()) == 3
    assert cache.clear() == 3 and not cache.entries() and (tmp_path / "mine.txt").exists()


def test_writers_and_readers_at_once_see_whole_entries(tmp_path: Path) -> None:
    cache, texts = CacheDirectory(tmp_path), [letter * 50_000 for letter in "abc"]
    seen: set[str | None] = set()

    def write(text: str) -> None:
        for _ in range(30):
            cache.put(KEY, {}, text)
            seen.add(cache.get(KEY))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        threads = [threading.Thread(target=write, args=(text,)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen <= set(texts)
    assert [path.name for path in tmp_path.iterdir()] == [f"{KEY}.entry"]


# -- what others may have written ----------------------------------------------------------------------------

FORGED = [
    "[]",
    "null",
    "5",
    "{}",
    "[" * 100_000,
    '{"reason": 5}',
    '{"symbols": ["b"], "example": {"b": 48}, "constraints": [5], "extras": [], "unplanned": ""}',
    '{"symbols": ["b"], "example": {"b": -1}, "constraints": [], "extras": [], "unplanned": ""}',
    '{"symbols": ["b"], "example": {"b": 1e400}, "constraints": [], "extras": [], "unplanned": ""}',
    '{"symbols": ["z"], "example": {"z": 4}, "constraints": [], "extras": [], "unplanned": ""}',
    '{"symbols": 7, "example": [], "constraints": {}, "extras": 0, "unplanned": []}',
    '{"symbols": [], "example": {}, "constraints": ["((("], "extras": [["b", "f99"]], "unplanned": ""}',
]


def forge(entry: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Gives an entry other lines, and the hash that belongs to them."""
    lines = change(entry.read_bytes().split(b"\n")[1:])
    rest = b"\n".join(lines)
    entry.write_bytes(b"tilewright-cache 1 " + sha256(rest).hexdigest().encode() + b"\n" + rest)


@pytest.mark.parametrize("line", range(2))
@pytest.mark.parametrize("said", FORGED)
def test_forged_entries_of_versions(said: str, line: int, tmp_path: Path) -> None:
    """What is written over an entry, with a hash that fits, is no entry where it is not one by its structure."""
    opened(tmp_path).at(b=40)
    (entry,) = entries(tmp_path)
    forge(entry, lambda lines: [*lines[:line], said.encode(), *lines[line + 1 :]])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = opened(tmp_path)
        got = program(*arrays(40))
    np.testing.assert_allclose(got, layer(*arrays(40)), rtol=1e-5)
    assert (said == '{"reason": 5}' and line) or any("was not written here" in str(w.message) for w in caught)


@pytest.mark.parametrize("text", [b"", b"module {}", b'"a', b"module {" * 5000, b"\xff", None])
def test_forged_entries_of_programs(text: bytes | None, tmp_path: Path) -> None:
    options = tw.Options(cache=tmp_path)
    x = np.ones((8, 8), np.float32)

    def square(x: Any) -> Any:
        return x @ x

    tw.compile(square, x, options=options)
    (entry,) = entries(tmp_path)
    other = tmp_path / "other"
    tw.compile(lambda x: x + 1, x[:4], options=tw.Options(cache=other))
    written = entries(other)[0].read_bytes().split(b"\n", 2)[2] if text is None else text
    forge(entry, lambda lines: [lines[0], written])
    with pytest.warns(CacheWarning, match="was not written here"):
        program = tw.compile(square, x, options=options)
    np.testing.assert_array_equal(program(x), x @ x)


def test_an_entry_that_uses_values_before_they_are_computed(tmp_path: Path) -> None:
    opened(tmp_path).at(b=40)
    (entry,) = entries(tmp_path)

    def moved(lines: list[bytes]) -> list[bytes]:
        alloc = next(i for i, line in enumerate(lines) if b"npu.alloc" in line)
        name = re.escape(lines[alloc].split(b" = ")[0].strip()) + rb"\b"
        use = next(i for i in range(alloc + 1, len(lines)) if re.search(name, lines[i]))
        return [*lines[:alloc], *lines[alloc + 1 : use + 1], lines[alloc], *lines[use + 1 :]]

    forge(entry, moved)
    with pytest.warns(CacheWarning, match="before it is computed"):
        np.testing.assert_allclose(opened(tmp_path)(*arrays(40)), layer(*arrays(40)), rtol=1e-5)


def test_a_directory_that_others_may_use_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    for mode in (0o777, 0o755, 0o710, 0o704):
        folder.chmod(mode)
        cache._REFUSED.clear()
        with pytest.warns(CacheWarning, match="is not used: others may use it: chmod 700 it"):
            opened(folder).at(b=40)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it is said once
            opened(folder).at(b=40)
        assert not list(folder.iterdir())
    folder.chmod(0o700)
    opened(folder).at(b=40)
    assert len(entries(folder)) == 1
    made = tmp_path / "deep" / "new"
    opened(made).at(b=40)
    assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_pipes_are_no_entries(tmp_path: Path) -> None:
    opened(tmp_path).at(b=40)
    (entry,) = entries(tmp_path)
    entry.unlink()
    os.mkfifo(entry)
    with pytest.warns(CacheWarning, match="a pipe, not a file"):
        np.testing.assert_allclose(opened(tmp_path)(*arrays(40)), layer(*arrays(40)), rtol=1e-5)
    entry.unlink(missing_ok=True)
    os.mkfifo(entry)
    assert CacheDirectory(tmp_path / PROGRAMS).entries() == []
