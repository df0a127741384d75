"""lit over the textual IR: `lit lit_tests`, with the interpreter that has tilewright, lit and filecheck."""

# ruff: noqa: F821  # lit puts `config` and `lit_config` there

import importlib.util
import os
import sys
import tempfile

import lit.formats

if importlib.util.find_spec("tilewright") is None:
    lit_config.fatal(f"{sys.executable} cannot import tilewright: install it, or put it on PYTHONPATH")

config.name = "tilewright"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test", ".tw"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(os.path.abspath(__file__))
config.test_exec_root = os.path.join(tempfile.gettempdir(), f"tilewright-lit-{os.getuid()}")
for name in ("PYTHONPATH", "HOME", "JAX_PLATFORMS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
config.environment["PYTHONDONTWRITEBYTECODE"] = os.environ.get("PYTHONDONTWRITEBYTECODE", "")

PYTHON = f"'{sys.executable}'"


def tool(name: str, command: str) -> None:
    """Replaces `name` as a word, but not within a path, a longer word or the command of another tool."""
    config.substitutions.append((rf"(?<![\w./-])(?<!-m ){name}(?![\w./-])", command))


OPT = f"{PYTHON} -m tilewright.cli.opt"
CHECK = f"{PYTHON} -m filecheck"
SPLIT = "--split-input-file"
# Both forms of every op are printed, parsed and printed again.
tool("ROUNDTRIP", f"{OPT} %s {SPLIT} | {OPT} {SPLIT} | {CHECK} %s")
tool("GENERIC_ROUNDTRIP", f"{OPT} %s {SPLIT} --print-op-generic | {OPT} {SPLIT} | {CHECK} %s")
tool("INVALID", f"{OPT} %s {SPLIT} --verify-diagnostics --parsing-diagnostics | {CHECK} %s")
tool("DIAGNOSE", f"{PYTHON} {os.path.join(config.test_source_root, 'frontends', 'text', 'Inputs', 'diagnose.py')}")
tool("tilewright-opt", OPT)
tool("tilewright", f"{PYTHON} -m tilewright.cli.main")
tool("filecheck", CHECK)
