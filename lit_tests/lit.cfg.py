"""lit over the textual IR: `lit lit_tests`, with the interpreter that has tilewright, lit and filecheck.

Commands run in copies of one process that has them loaded (`ready.py`); those of `cli/` are started as users start
them.
"""

# ruff: noqa: F821  # lit puts `config` and `lit_config` there

import importlib.util
import os
import subprocess
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
config.environment["TILEWRIGHT_PLANS"] = ""
config.environment["PYTHONDONTWRITEBYTECODE"] = os.environ.get("PYTHONDONTWRITEBYTECODE", "")

PYTHON = f"'{sys.executable}'"


def tool(name: str, command: str) -> None:
    """Replaces `name` as a word, but not within a path, a longer word or the command of another tool."""
    config.substitutions.append((rf"(?<![\w./-])(?<!-m ){name}(?![\w./-])", command))


HERE = config.test_source_root
SOCKET = os.path.join(tempfile.mkdtemp(prefix="tilewright-lit-"), "ready")
# it ends with this process, which holds the other end of its standard input
READY = subprocess.Popen(
    [sys.executable, os.path.join(HERE, "ready.py"), SOCKET], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
if READY.stdout.readline() != b"ready\n":
    lit_config.fatal("lit_tests/ready.py did not start")
lit_config.ready = READY
ASK = f"{PYTHON} -S '{os.path.join(HERE, 'ask.py')}' '{SOCKET}'"

OPT = f"{ASK} tilewright.cli.opt"
CHECK = f"{ASK} filecheck.main"
SPLIT = "--split-input-file"
# Both forms of every op are printed, parsed and printed again.
tool("ROUNDTRIP", f"{OPT} %s {SPLIT} | {OPT} {SPLIT} | {CHECK} %s")
tool("GENERIC_ROUNDTRIP", f"{OPT} %s {SPLIT} --print-op-generic | {OPT} {SPLIT} | {CHECK} %s")
tool("INVALID", f"{OPT} %s {SPLIT} --verify-diagnostics --parsing-diagnostics | {CHECK} %s")
tool("DIAGNOSE", f"{PYTHON} {os.path.join(config.test_source_root, 'frontends', 'text', 'Inputs', 'diagnose.py')}")
tool("tilewright-opt", OPT)
tool("tilewright", f"{ASK} tilewright.cli.main")
tool("filecheck", CHECK)
config.ask, config.python = ASK, PYTHON
