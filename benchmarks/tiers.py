"""One source as several model files: the digits CNN with its accuracy, MobileNetV2 with its error against f32.

    python benchmarks/tiers.py [--folder FOLDER] [--page docs/tiers.md]

The tiers of the digits are those of examples/digits_tiers.toml. MobileNetV2 has random weights and images of 224 x 224,
so that its error is that of numbers without meaning. Weights of the digits are trained when they are missing.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tilewright import tiers
from tilewright.cli.commands.tiers import table_of
from tilewright.cli.inputs import random_inputs
from tilewright.support.files import write_part

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
BEGIN, END = "<!-- tiers: begin -->", "<!-- tiers: end -->"

MOBILENET: dict[str, dict[str, Any]] = {
    "cloud": {"target": "ascend-910b1", "precision": "f32", "batch": 4},
    "edge": {"target": "ascend-310p3", "precision": "f16", "batch": 2},
    "device": {"target": "ascend-310", "precision": "int8", "batch": 1},
}
IMAGES = 2
"""Images that the error of MobileNetV2 is measured on, as many as scales are found in."""


def digits(folder: Path) -> tiers.Tiers:
    """The tiers of examples/digits_tiers.toml."""
    own = importlib.import_module("digits_tiers")
    spec = tiers.read_spec(EXAMPLES / "digits_tiers.toml")
    images, labels = own.test()
    return tiers.build(
        own.forward,
        *own.forward_inputs(),
        tiers=spec.tiers,
        folder=folder,
        data=images,
        labels=labels,
        calibration=own.digits_cnn.calibration()[0],
        pruning=tiers.Pruning(own.units(), own.retrain, spec.pruning["multiple"]),
        draw=random_inputs,
    )


def mobilenet(folder: Path) -> tiers.Tiers:
    """MobileNetV2 of width 1 at its own size."""
    net = importlib.import_module("mobilenet_v2")
    config, drawn = net.MOBILENET_V2, np.random.default_rng(0)
    shape = (IMAGES, config.size, config.size, 3)
    batches = [drawn.standard_normal(shape).astype(np.float32) for _ in range(2)]
    (batch,) = jax.export.symbolic_shape("batch")
    image = jax.ShapeDtypeStruct((batch, *shape[1:]), np.float32)
    return tiers.build(
        net.forward,
        net.init(config, jnp.float32),
        image,
        tiers=MOBILENET,
        folder=folder,
        data=batches[:1],
        calibration=batches[1:],
        draw=random_inputs,
    )


def lines(title: str, found: tiers.Tiers) -> list[str]:
    """A table for a page."""
    head, rows = table_of(found)
    cells = [head, ["---", *("--:" for _ in head[1:-2]), "---", "---"], *rows]
    return [f"{title}, {found.accuracy_metric}:", "", *(f"| {' | '.join(row)} |" for row in cells), ""]


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--folder", help="where the files go (default: nowhere that stays)")
    parser.add_argument("--page", help="the page whose tables are replaced")
    args = parser.parse_args()
    sys.path.insert(0, str(EXAMPLES))
    made: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(args.folder or scratch)
        folder.mkdir(exist_ok=True)
        for title, build in (("The digits CNN", digits), ("MobileNetV2, 224 x 224", mobilenet)):
            made += lines(title, build(folder / build.__name__))
            print("\n".join(made[-8:]), flush=True)
    if args.page:
        write_part(args.page, BEGIN, END, "\n".join(made).rstrip())


if __name__ == "__main__":
    main()
