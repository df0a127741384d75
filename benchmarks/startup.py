"""How long `tilewright-opt` takes from its start to its end on a small file, against what numpy and xDSL alone take
to load: processor seconds, the best of five processes each.

`python benchmarks/startup.py`.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

TIMES = 5

PROGRAM = """func.func @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %y = graph.max %x, %x : tensor<8x16xf32>
  func.return %y : tensor<8x16xf32>
}
"""
OURS = "import sys; from tilewright.cli.opt import main; sys.exit(main(sys.argv[1:]))"
LIBRARIES = "import numpy, xdsl.xdsl_opt_main, xdsl.dialects.func, xdsl.dialects.scf"


def seconds_of(script: str, *arguments: str) -> float:
    """The processor's seconds for a Python script."""
    before = os.times()
    subprocess.run([sys.executable, "-c", script, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "max.mlir")
        path.write_text(PROGRAM)
        pairs = [
            (seconds_of(OURS, str(path), "-p", "graph-fuse"), seconds_of(LIBRARIES)) for _ in range(TIMES)
        ]
    ours, theirs = (min(times) for times in zip(*pairs, strict=True))
    print(
        f"tilewright-opt -p graph-fuse: {ours:.2f} s; numpy and xDSL alone: {theirs:.2f} s; {ours / theirs:.2f}x"
    )


if __name__ == "__main__":
    main()
