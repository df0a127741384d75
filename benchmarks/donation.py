"""What donated arguments save: device memory and modelled time of a train step and of decoding, with and without.

python benchmarks/donation.py                    # the models below, some two minutes
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks")]

from run import load  # noqa: E402  # found on the path above

MODELS = {
    "train_transformer:sgd": (0,),
    "train_transformer:adam": (0,),
    "train_cnn:adam": (0,),
    "llama:decode": (1,),
    "llama:prefill": (1,),
}
"""Each with the arguments that it gives back changed."""


def main() -> int:
    """Prints the table."""
    import tilewright as tw

    print("| model | donated MB | device MB | with donation | us (modelled) | with donation |")
    print("|---|---:|---:|---:|---:|---:|")
    for model, donate in MODELS.items():
        file, name = model.split(":")
        fn, args = load(f"{file}.py:{name}")
        reports = []
        for options in (tw.Options(), tw.Options(donate=donate)):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                reports.append(tw.compile(fn, *args, options=options).report())
            for warning in said:
                print(warning.message, file=sys.stderr)
        without, given = reports
        row = [f"`{model}`", f"{given.memory.donated_bytes / 1e6:.2f}"]
        row += [f"{r.memory.arena_bytes / 1e6:.2f}" for r in reports]
        row += [f"{r.microseconds:,.1f}" for r in reports]
        assert given.memory.undonated_arena_bytes == without.memory.arena_bytes
        print(f"| {' | '.join(row)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
