"""Random layers of quantized numbers at the npu level, in both memories, against the integer model; 1,000 of them in
a campaign:

    PYTHONPATH=tests/quantized python tests/quantized/test_layers.py [--programs 200] [--first 0]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from layers import Layer, module, random_layer
from tiers import sampled

import tilewright as tw

AT_ONCE = 5
"""Layers of one program."""

TARGETS = ("ascend-910b1", "ascend-310")


def drawn(seed: int) -> list[Layer]:
    """The layers of program number `seed`."""
    rng = np.random.default_rng(1000 + seed)
    return [random_layer(rng) for _ in range(AT_ONCE)]


def target_of(seed: int) -> str:
    return TARGETS[seed % 8 == 7]


def check_layers(layers: list[Layer], seed: int, target: str, folder: Path) -> None:
    """Compiles the layers as one program, and holds what it stores in each memory against the model."""
    path = folder / f"layers{seed}.mlir"
    path.write_text(module(layers))
    program = tw.compile(path, target=target)
    rng = np.random.default_rng(seed)
    operands = [layer.operands(rng) for layer in layers]
    flat = [x for pair in operands for x in pair]
    for (shape, dtype), x in zip(program.inputs, flat, strict=True):
        assert shape == x.shape and dtype.lstrip("u")[0] == "i"
    for memory in ("typed", "bytes"):
        outputs = program.executable(memory)(*flat)
        for layer, (a, b), got in zip(layers, operands, outputs, strict=True):
            np.testing.assert_array_equal(
                np.asarray(got).astype(np.int64), layer.model(a, b), err_msg=f"{memory}, seed {seed}: {layer}"
            )


@sampled(8)
@pytest.mark.parametrize("seed", range(40))
def test_layers_store_what_the_integer_model_does(seed: int, tmp_path: Path) -> None:
    check_layers(drawn(seed), seed, target_of(seed), tmp_path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(args.first, args.first + args.programs):
            try:
                check_layers(drawn(seed), seed, target_of(seed), Path(folder))
            except Exception as error:
                wrong += 1
                print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    print(f"{args.programs * AT_ONCE} layers, {wrong} programs differ")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
