"""`tilewright`: compile, run, cost, check and trace a model from the command line.

Nothing of the compiler is imported before Ctrl-C is taken care of.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .interrupt import guarded


def main(args: Sequence[str] | None = None) -> int:
    """Runs a command; 0, 1 after an error or a failed check, 130 when interrupted."""

    def run() -> int:
        from .dispatch import dispatch

        return dispatch(list(sys.argv[1:] if args is None else args))

    return guarded(run, whole_process=args is None)


if __name__ == "__main__":
    sys.exit(main())
