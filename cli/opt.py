"""`tilewright-opt`: xDSL's optimizer driver with our dialects and passes, and errors for people.

tilewright-opt model.mlir -p 'graph-simplify,graph-fuse,graph-to-tile,tile-to-npu'

Nothing of the compiler is imported before Ctrl-C is taken care of.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .interrupt import guarded


def main(args: Sequence[str] | None = None) -> int:
    """Runs the driver; 0, 1 after an error, 130 when interrupted."""

    def run() -> int:
        from .optimizer.driver import drive

        return drive(list(sys.argv[1:] if args is None else args))

    return guarded(run, whole_process=args is None)


if __name__ == "__main__":
    sys.exit(main())
