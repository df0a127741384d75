"""Makes a failing program smaller while it fails in the same way.

Results go first. Then steps go, also those inside functions: what one gives becomes an input of the program, or inside
a function a constant. Each edit is tried on many places at once, then on half of them, down to single ones. What is
left is Python; `tilewright reduce` goes on from there with the IR.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from .campaign import judged
from .generate import Block, Input, Program, Step, pruned, used, walk
from .open_dims import Open

SECONDS = 60.0


def shrink(
    program: Program, target: str, levels: Sequence[str], key: str, seconds: float = SECONDS
) -> Program:
    """The smallest program found within about `seconds` whose verdict has the same `key`."""
    end = time.monotonic() + seconds

    def fails(candidate: Program) -> bool:
        return judged(candidate, target, levels).key == key

    return reduced(program, fails, lambda: time.monotonic() > end)


def reduced(
    program: Program, fails: Callable[[Program], bool], late: Callable[[], bool] = lambda: False
) -> Program:
    """The smallest program found for which `fails` holds, which it does for `program`."""
    while True:
        before = (program.steps(), len(program.main.results))
        program = _fewer(program, fails, late, list(program.main.results), _without_results)
        program = _fewer(program, fails, late, [s.results[0] for s in walk(program.main)], _without_steps)
        if late() or (program.steps(), len(program.main.results)) == before:
            return program


def _fewer(
    program: Program,
    fails: Callable[[Program], bool],
    late: Callable[[], bool],
    places: list[str],
    edit: Callable[[Program, set[str]], Program | None],
) -> Program:
    chunk = max(len(places) // 2, 1)
    while chunk:
        at = 0
        while at < len(places) and not late():
            tried = edit(program, set(places[at : at + chunk]))
            if tried is not None and fails(tried):
                program = tried
                del places[at : at + chunk]
            else:
                at += chunk
        chunk //= 2
    return program


def _without_results(program: Program, drop: set[str]) -> Program | None:
    kept = tuple(r for r in program.main.results if r not in drop)
    return _tidy(program, replace(program.main, results=kept)) if kept else None


def _without_steps(program: Program, drop: set[str]) -> Program | None:
    """Without the steps whose first result is named."""
    if not any(s.results[0] in drop for s in walk(program.main)):
        return None
    inputs = dict(program.inputs)

    def without(block: Block, top: bool) -> Block:
        steps: list[Step] = []
        for s in block.steps:
            if s.results[0] not in drop:
                steps.append(replace(s, blocks=tuple(without(b, False) for b in s.blocks)))
                continue
            for number, name in enumerate(s.results):
                t = program.types[name]
                seed = 1000 * int(name[1:]) + number
                if top or any(isinstance(n, Open) for n in t.shape):
                    inputs[name] = Input(seed, t, "plain")
                else:
                    steps.append(
                        Step("constant", (name,), f"jnp.asarray(rand({seed}, {t.shape}, {t.dtype!r}))")
                    )
        return replace(block, steps=tuple(steps))

    main = without(program.main, True)
    changed = _tidy(replace(program, inputs=inputs), main)
    return None if changed.main == program.main else changed


def _tidy(program: Program, main: Block) -> Program:
    """The program with another main block, without what nothing uses."""
    main = _pruned_inside(main)
    wanted = used(replace(main, params=())) | program.lasting
    inputs = {n: i for n, i in program.inputs.items() if n in wanted}
    return replace(program, main=replace(main, params=tuple(inputs)), inputs=inputs)


def _pruned_inside(block: Block) -> Block:
    block = pruned(block)
    return replace(
        block,
        steps=tuple(replace(s, blocks=tuple(_pruned_inside(b) for b in s.blocks)) for s in block.steps),
    )
