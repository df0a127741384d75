"""Random layers of quantized numbers at the npu level, in both memories, against the integer model; 1,000 of them in
a campaign:

    PYTHONPATH=tests/quantized:tests/support python tests/quantized/test_layers.py [--programs 200] [--first 0]
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from campaigns import Campaign, run
from layers import Layer, module, random_layer
from tiering import sampled

import tilewright as tw

AT_ONCE = 5
"""Layers of one program."""

TARGETS = ("ascend-910b1",) * 4 + ("ascend-310", "ascend-910a", "ascend-950pr", "systolic-tpu1")


def drawn(seed: int) -> list[Layer]:
    """The layers of program number `seed`."""
    rng = np.random.default_rng(1000 + seed)
    return [random_layer(rng) for _ in range(AT_ONCE)]


def target_of(seed: int) -> str:
    return TARGETS[seed % len(TARGETS)]


def check_layers(
    layers: list[Layer],
    seed: int,
    target: str,
    folder: Path,
    memories: tuple[str, ...] = ("typed", "bytes"),
) -> None:
    """Compiles the layers as one program, and holds what it stores in each memory against the model."""
    path = folder / f"layers{seed}.mlir"
    path.write_text(module(layers))
    program = tw.compile(path, target=target)
    rng = np.random.default_rng(seed)
    operands = [layer.operands(rng) for layer in layers]
    flat = [x for pair in operands for x in pair]
    for (shape, dtype), x in zip(program.inputs, flat, strict=True):
        assert shape == x.shape and dtype.lstrip("u")[0] == "i"
    for memory in memories:
        outputs = program.executable(memory)(*flat)  # pyright: ignore
        for layer, (a, b), got in zip(layers, operands, outputs, strict=True):
            np.testing.assert_array_equal(
                np.asarray(got).astype(np.int64), layer.model(a, b), err_msg=f"{memory}, seed {seed}: {layer}"
            )


def test_1000_layers_have_every_kind() -> None:
    """What the campaign is to cover is drawn often: kinds of products, storage, zero points, saturation."""
    found = Counter[str]()
    for seed in range(200):
        rng = np.random.default_rng(seed)
        for layer in drawn(seed):
            left, right, made = layer.grids
            made_of = layer.model(*layer.operands(rng))
            low, high = (bool((made_of == end).any()) for end in (made.low, made.high))
            kind = f"convolution of {layer.groups > 1:d}" if layer.is_conv else f"rank {len(layer.lhs)}"
            facts = {
                kind: True,
                f"{left.storage} x {right.storage} -> {made.storage}": True,
                "depthwise": layer.is_conv and layer.groups == layer.lhs[3] > 1,
                "strided": layer.strides != (1, 1),
                "dilated": layer.dilation != (1, 1),
                "dilated input": layer.spread != (1, 1),
                "padded": any((*layer.low, *layer.high)),
                "no elements": 0 in (*layer.lhs, *layer.rhs),
                "one": 1 in layer.lhs,
                "per channel": right.axis is not None,
                "per group": layer.given is not None and layer.given.group > 0,
                "saturated below": low,
                "saturated above": high,
                "on both sides": low and high,
                **{
                    f"{what}, zero point at an end": grid.zeros[0] in (grid.low, grid.high)
                    for what, grid in (("left", left), ("right", right), ("result", made))
                },
            }
            found.update(name for name, holds in facts.items() if holds)
    storages = [
        f"{a} x {b} -> {c}" for a in ("i8", "ui8") for b in ("i8", "ui8", "i4") for c in ("i8", "ui8")
    ]
    kinds = ["rank 2", "rank 3", "convolution of 0", "convolution of 1"]
    wanted = {*storages, *kinds, *facts}
    assert min(found[kind] for kind in wanted) >= 5, found


@sampled(40)
@pytest.mark.parametrize("seed", range(40))
def test_layers_store_what_the_integer_model_does(seed: int, tmp_path: Path) -> None:
    check_layers(drawn(seed), seed, target_of(seed), tmp_path)


def test_a_product_over_one_number(tmp_path: Path) -> None:
    """It has no steps along k, of which more could be loaded ahead of a barrier."""
    seed = 100001
    check_layers(drawn(seed), seed, target_of(seed), tmp_path)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:

        def one(seed: int, memories: tuple[str, ...]) -> None:
            check_layers(drawn(seed), seed, target_of(seed), Path(folder), memories)

        run(Campaign(f"programs of {AT_ONCE} layers", one, count=200))


if __name__ == "__main__":
    main()
