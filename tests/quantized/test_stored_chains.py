"""Random chains of quantized layers as graph-level text, at the npu level in both memories, against the model in numpy
integers; 1,000 of them in a campaign:

    PYTHONPATH=tests/quantized:tests/support python tests/quantized/test_stored_chains.py [--programs 1000] [--first 0]
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from campaigns import Campaign, run
from chain_programs import TARGETS
from stored_chains import drawn
from tiering import sampled

import tilewright as tw


def check(seed: int, folder: Path, memories: tuple[str, ...] = ("typed", "bytes")) -> None:
    """Compiles a chain, and holds what it gives in each memory against the model."""
    chain = drawn(seed)
    path = folder / f"chain{seed}.mlir"
    path.write_text(chain.text())
    program = tw.compile(path, target=TARGETS[seed % len(TARGETS)])
    operands = chain.operands()
    wanted = chain.model(operands)
    for memory in memories:
        outputs = program.executable(memory)(*operands)  # pyright: ignore
        for i, (got, other) in enumerate(zip(outputs, wanted, strict=True)):
            np.testing.assert_array_equal(
                np.asarray(got).astype(np.float64),
                other.astype(np.float64),
                f"{memory}, result {i} of seed {seed}",
            )


@sampled(24)
@pytest.mark.parametrize("seed", range(24))
def test_chains_store_what_the_integer_model_does(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:

        def one(seed: int, memories: tuple[str, ...]) -> None:
            try:
                check(seed, Path(folder), memories)
            except Exception:
                print(drawn(seed).text())
                raise

        run(Campaign("chains", one))


if __name__ == "__main__":
    main()
