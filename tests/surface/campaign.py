"""Holds the calls against JAX in many element types and sizes, in processes that may die: `make surface`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import zlib
from collections import Counter
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

FAST = "--xla_llvm_disable_expensive_passes=true"
"""How XLA compiles: a program runs once, so that compiling it is what counts. At level 0, and with its older emitters,
XLA contracts other products and sums than it does for users, and not the same ones in both memories."""

RECYCLE = 400
"""Calls after which a process is replaced, since XLA keeps what it compiled."""


def plan(options: argparse.Namespace) -> list:
    """The cases asked for: some of the product of calls, element types and sizes, in an order of no meaning."""
    from .arguments import DTYPES, WIDE
    from .calls import LETTERS, calls
    from .judge import Case

    dtypes = options.dtypes.split(",") if options.dtypes else WIDE if options.x64 else DTYPES
    names = tuple(options.only.split(","))
    cases = []
    for call in calls():
        if not call.name.startswith(names):
            continue
        typed = set(call.letters) & (LETTERS - {"i", "n", "q", "key"})
        for dtype in dtypes if typed else dtypes[:1]:
            for size in options.sizes.split(","):
                seed = zlib.crc32(f"{call.text}{dtype}{size}".encode())
                if seed % options.parts == options.part % options.parts:
                    addressed = options.bytes > 0 and seed % options.bytes == 0
                    cases.append(Case(call, dtype, size, options.special, options.x64, addressed))
    return sorted(cases, key=lambda case: zlib.crc32(str(case).encode()))


def work(options: argparse.Namespace, first: int) -> None:
    """Judges cases from `first` on; the file beside the results says how far it came."""
    import jax

    from .judge import judge

    cases = plan(options)
    last = min(len(cases), first + RECYCLE)
    with open(options.out, "a") as out:
        for k in range(first, last):
            if k % 60 == 59:
                jax.clear_caches()
            _reached(options, k)
            verdict = judge(cases[k])
            line = asdict(verdict) | {"name": cases[k].call.name, "case": str(cases[k])}
            out.write(json.dumps(line) + "\n")
            out.flush()
    _reached(options, last)


def _reached(options: argparse.Namespace, at: int) -> None:
    Path(f"{options.out}.at").write_text(str(at))


def main() -> int:
    """Gives the exit code: 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="build/surface.jsonl", help="results, one JSON object on a line")
    parser.add_argument("--dtypes", default="", help="element types of the arguments; all")
    parser.add_argument("--sizes", default="usual", help="of usual,one,empty,scalar,wide")
    parser.add_argument("--only", default="", help="how names of functions begin: jnp.linalg,lax.conv")
    parser.add_argument(
        "--special", action="store_true", help="NaN, infinities, limits of integers among the numbers"
    )
    parser.add_argument("--x64", action="store_true", help="with jax.enable_x64, in the types that it brings")
    parser.add_argument("--bytes", type=int, default=8, help="one case in so many in bytes mode too; 0: none")
    parser.add_argument("--parts", type=int, default=1, help="one case in so many")
    parser.add_argument("--part", type=int, default=0, help="which of the parts")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options, options.worker)
        return 0
    os.environ.setdefault("XLA_FLAGS", FAST)
    cases = plan(options)
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text("")
    at = 0
    while at < len(cases):
        _reached(options, at)
        command = [sys.executable, "-m", "surface.campaign", *sys.argv[1:], "--worker", str(at)]
        code = subprocess.run(command, check=False).returncode
        at = int(Path(f"{options.out}.at").read_text())
        if code:
            died = {"kind": "died", "case": str(cases[at]), "message": f"exit code {code}", "how": ""}
            with open(options.out, "a") as out:
                out.write(json.dumps(died | {"name": cases[at].call.name}) + "\n")
            at += 1
    return summary(options.out)


def summary(path: str) -> int:
    """Prints what was found, and the counts."""
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    found = [row for row in rows if row["kind"] not in ("", "refused")]
    for row in found:
        print(f"{row['kind']}: {row['case']}: {row['message']}")
    names = len({row["name"] for row in rows})
    print(
        f"{len(rows)} cases of {names} functions; {dict(Counter(row['kind'] or row['how'] for row in rows))}"
    )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
