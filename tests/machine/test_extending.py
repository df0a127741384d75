"""A chip that extends another one, with memory spaces and pipes of its own."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path

import pytest

from tilewright.dialects.npu import Pipe
from tilewright.machine import Machine, MachineError

OWN = """
extends = "ascend-910b1"
name = "own"
pipes = ["PX"]
[spaces]
px = { bytes = 65536, align = 64, core = "vector" }
[moves.ub]
px = { pipe = "PX", bytes_per_cycle = 64, fixed_cycles = 12 }
[energy.pj_per_byte]
px = 0.2
"""


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_space_and_a_pipe_of_its_own(tmp_path: Path) -> None:
    machine = Machine.load(write(tmp_path, "own.toml", OWN))
    assert machine.pipes == ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX", "PX")
    px = machine.spaces["px"]
    assert (px.bytes, px.core, px.level) == (65536, "vector", "px")
    assert machine.moves["ub", "px"].pipe == "PX"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('["PX"]', '["V"]', "key 'pipes' has 'V', which is there already"),
        ('["PX"]', '["P X"]', "key 'pipes' has 'P X', which is no identifier"),
        ('["PX"]', '["PY"]', "'moves.ub.px.pipe' must be one of V, MTE1, MTE2, MTE3, FIX, PY"),
        ('core = "vector"', 'core = "scalar"', "'spaces.px.core' must be cube or vector"),
        (', core = "vector"', "", "'spaces.px.core' is missing"),
        ("px = 0.2", "py = 0.2", "'energy.pj_per_byte.px' is missing"),
        ("[spaces]", "[waits]\nPY = 4\n[spaces]", "'waits.PY' is not a pipe"),
        ("[spaces]\n", '[spaces]\n"p x" = { bytes = 1, align = 1 }\n', "'spaces.p x' is no identifier"),
    ],
)
def test_malformed(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in OWN
    with pytest.raises(MachineError, match=message):
        Machine.load(write(tmp_path, "own.toml", OWN.replace(old, new, 1)))


def test_extends_a_path_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "own.toml", OWN)
    path = write(tmp_path, "smaller.toml", 'extends = "own.toml"\nname = "smaller"\n[cores]\nvector = 24\n')
    assert Machine.load(path).spaces["px"].bytes == 65536 and Machine.load(path).vector_cores == 24


def test_a_change_of_what_it_extends_is_seen(tmp_path: Path) -> None:
    base = write(tmp_path, "own.toml", OWN)
    path = write(tmp_path, "smaller.toml", 'extends = "own.toml"\nname = "smaller"\n')
    before = Machine.load(path)
    assert Machine.load(path) is before
    write(tmp_path, "own.toml", OWN.replace("65536", "32768"))
    os.utime(base, ns=(1, 1))
    assert Machine.load(path).spaces["px"].bytes == 32768


def test_extends_what_is_not_there_or_itself(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"a.toml: key 'extends': .*none.toml: no such file"):
        Machine.load(write(tmp_path, "a.toml", 'extends = "none.toml"'))
    write(tmp_path, "b.toml", 'extends = "a.toml"')
    with pytest.raises(MachineError, match=r"b.toml: key 'extends' leads from a.toml back to a.toml"):
        Machine.load(write(tmp_path, "a.toml", 'extends = "b.toml"'))


def test_pipes_are_one_object_each() -> None:
    assert Pipe("PX") is Pipe("PX") and Pipe("V") is Pipe.V and Pipe("PX") == "PX"
    assert copy.deepcopy(Pipe.V) is Pipe.V and pickle.loads(pickle.dumps(Pipe("PX"))) is Pipe("PX")
