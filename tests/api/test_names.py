"""The public names: listed, suggested, documented, and the same for type checkers."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest
from tiering import xla_code

import tilewright as tw


def test_dir_lists_what_there_is_before_it_is_loaded() -> None:
    code = "import sys, tilewright as t; print([n for n in dir(t) if n[0] != '_']); assert 'xdsl' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(sorted(tw.__all__))
    assert all(getattr(tw, name) is not None for name in dir(tw))


@pytest.mark.parametrize(
    ("name", "near"),
    [("complie", "compile"), ("Jit", "jit"), ("Sheduel", "Schedule"), ("CompilError", "CompileError")],
)
def test_a_near_name_is_suggested(name: str, near: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(tw, name)
    assert str(caught.value) == f"module 'tilewright' has no attribute '{name}'; did you mean tw.{near}?"


def test_a_name_that_is_like_none() -> None:
    names = (
        r"AddedPass, Autotuned, Checklist, .*, jit, load, nms, nonzero, onnx_function, pruning, quantize, save, "
        r"serving, tiers, training, tune, unique, update, variants, verify$"
    )
    with pytest.raises(AttributeError, match=rf"has no attribute 'zzz'; it has {names}"):
        tw.zzz  # noqa: B018
    assert not hasattr(tw, "__wrapped__")


@xla_code()
def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(tw.__file__).read_text())
    (block,) = [n for n in tree.body if isinstance(n, ast.If)]
    seen = {
        alias.name: f"tilewright{node.module}" if node.module[0] == "." else f"tilewright.{node.module}"
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    modules = {
        alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom) and not node.module
        for alias in node.names
    }
    assert sorted([*seen, *modules]) == sorted(tw.__all__)
    for name in modules:
        assert getattr(tw, name) is sys.modules[f"tilewright.{name}"]
    for name, home in seen.items():
        assert getattr(importlib.import_module(home), name) is getattr(tw, name)


@pytest.mark.parametrize("function", [tw.compile, tw.jit, tw.verify])
def test_each_parameter_is_documented(function: object) -> None:
    text = inspect.getdoc(function) or ""
    assert callable(function)
    for name in inspect.signature(function).parameters:
        assert re.search(rf"\b{name}\b", text), f"{name} of {function}"
    assert "Raises CompileError" in text


def test_the_source_type_says_all_that_compile_takes() -> None:
    import jax
    import jax.export  # its types are in the alias

    assert jax.stages is not None
    said = str(tw.ProgramSource)
    for kind in ("Callable", "Traced", "Lowered", "Exported", "ModelProto", "str", "bytes", "Path"):
        assert kind in said
    assert "ProgramSource" in str(inspect.signature(tw.compile)) and get_type_hints(tw.Options)
