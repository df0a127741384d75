"""Measures Tilewright against JAX/XLA side by side in one process and prints the ratios.

    python benchmarks/run.py [MODEL ...] [--repeat N]

For each model: compile time (from `tw.compile` to the finished npu program, against trace + lower + compile of
`jax.jit`), first call (JAX compiling the interpreter's kernels and running them, against XLA's compile), second call
of both memory modes (against the jitted function), report time, and the peak memory of a process of its own (compile
and one run, against the same with JAX alone). Times are the best of N repeats; ratios below 1 favour Tilewright.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODELS = (
    "gpt2.py:forward",
    "gpt2.py:forward_f16",
    "resnet50.py:forward",
    "resnet50.py:forward_f16",
    "lstm.py:forward",
    "digits_cnn.py:forward",
)
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def load(model: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function of `file.py:name` in the examples, and its example inputs."""
    file, name = model.split(":")
    spec = importlib.util.spec_from_file_location(file.removesuffix(".py"), EXAMPLES / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name), getattr(module, f"{name}_inputs")()


class Best:
    """The shortest time of each thing that is timed, in seconds."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(lambda: float("inf"))

    def keep(self, what: str, run: Callable[[], Any]) -> Any:
        """What `run` gives, timed until the device has it."""
        import jax

        start = time.perf_counter()
        result = jax.block_until_ready(run())
        self.seconds[what] = min(self.seconds[what], time.perf_counter() - start)
        return result


def measure(model: str, repeat: int) -> dict[str, tuple[float, float]]:
    """{what: (Tilewright, JAX)} in seconds for one model. The two take turns, so both have the machine as it is."""
    import jax

    import tilewright as tw

    fn, args = load(model)
    tw.compile(lambda x: x + 1, jax.ShapeDtypeStruct((8,), "float32"))
    jax.jit(lambda x: x + 1).lower(jax.ShapeDtypeStruct((8,), "float32")).compile()
    best = Best()
    jitted: Any = None
    program: Any = None
    flat: list[Any] = []
    for _ in range(repeat):
        jitted = program = None
        gc.collect()  # what the last round made is not to be freed on the clock of this one
        jax.clear_caches()
        jitted = best.keep("XLA", lambda: jax.jit(fn).lower(*args).compile())
        jax.clear_caches()
        program = best.keep("compile", lambda: tw.compile(fn, *args))
        flat = program.flatten(args)
        best.keep("first call", lambda p=program, f=flat: p.executable("typed")(*f))
    for memory in ("typed", "bytes"):
        executable = program.executable(memory)
        jax.block_until_ready(executable(*flat))
        jax.block_until_ready(jitted(*args))
        for _ in range(repeat):
            best.keep(memory, lambda e=executable: e(*flat))
            best.keep("JAX", lambda: jitted(*args))
    best.keep("report", program.report)
    seconds = best.seconds
    return {
        "compile": (seconds["compile"], seconds["XLA"]),
        "first call / XLA compile": (seconds["first call"], seconds["XLA"]),
        "second call, typed": (seconds["typed"], seconds["JAX"]),
        "second call, bytes": (seconds["bytes"], seconds["JAX"]),
        "report, s": (seconds["report"], float("nan")),
    }


def peak(model: str, who: str) -> float:
    """Peak resident MB of a fresh process that compiles and runs a model once, with `who` = ours or jax."""
    out = subprocess.run(
        [sys.executable, __file__, "--peak", who, model], capture_output=True, text=True, check=True
    )
    return float(out.stdout.split()[-1])


def peak_child(model: str, who: str) -> None:
    import jax

    fn, args = load(model)
    if who == "ours":
        import tilewright as tw

        jax.block_until_ready(tw.compile(fn, *args)(*args))
    else:
        jax.block_until_ready(jax.jit(fn)(*args))
    # Not getrusage: a new process starts with the peak of the one that made it.
    status = Path("/proc/self/status").read_text()
    print(int(status.split("VmHWM:")[1].split()[0]) / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--repeat", type=int, default=8)
    parser.add_argument("--peak", choices=("ours", "jax"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    for model in options.models:
        file, _, name = model.partition(":")
        if not name or not (EXAMPLES / file).is_file():
            parser.exit(1, f"{model!r} names no function of a file in examples/: say gpt2.py:forward\n")
    if options.peak:
        peak_child(options.models[0], options.peak)
        return
    for model in options.models:
        print(f"{model}")
        for what, (ours, theirs) in measure(model, options.repeat).items():
            ratio = f"  {theirs:8.3f} s   {ours / theirs:6.2f}x" if theirs == theirs else ""
            print(f"  {what:28} {ours:8.3f} s {ratio}")
        ours, theirs = peak(model, "ours"), peak(model, "jax")
        print(f"  {'peak memory, MB':28} {ours:8.0f}     {theirs:8.0f}     {ours / theirs:6.2f}x")


if __name__ == "__main__":
    main()
