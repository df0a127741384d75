"""Makes a program smaller as long as it stays interesting: delta debugging (Zeller and Hildebrandt, IEEE TSE 28(2),
2002) over kinds of edits, each tried on many places at once, then on fewer.

Every candidate passes the verifier before it is tried. The same program gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from ..backends.interpreter.graph import main_of
from ..dialects.dtypes import dtype_name, numpy_dtype, shape_in
from ..dialects.npu.types import GmType
from ..passes.pipeline import level_of
from .edits import EDITS, Edit, tidy
from .results import Progress
from .structure import Cache, structure
from .tags import Tags
from .walk import GraphWalk, Settings

Interesting = Callable[[ModuleOp, Sequence[Any]], bool]
"""Whether a module, with inputs, still shows what is looked for."""

TESTS = 3000
"""Candidates tried before the reduction stops."""


@dataclass
class Reduction:
    """What a reduction came to: the module, its inputs, and how many candidates were tried."""

    module: ModuleOp
    inputs: list[np.ndarray]
    tests: int = 0


@dataclass
class Reducer:
    """Reduces one module. inputs: flat arrays of its @main."""

    module: ModuleOp
    inputs: Sequence[Any]
    interesting: Interesting
    limit: int = TESTS
    tests: int = 0
    tried: set[Hashable] = field(default_factory=set)
    progress: Progress | None = None

    def run(self) -> Reduction:
        """The smallest module found. Raises ValueError where the check does not hold for the program itself."""
        self.module = self.module.clone()
        Tags().fresh(self.module)
        args = main_of(self.module).body.block.args
        self.values = {a.name_hint or "": np.asarray(x) for a, x in zip(args, self.inputs, strict=True)}
        if not self.interesting(self.module.clone(), self._inputs(self.module)):
            raise ValueError("the check does not hold for the program itself, so there is nothing to reduce")
        self._know_values()
        changed = True
        while changed and self.tests < self.limit:
            before = structure(self.module)
            for edit in EDITS:
                self._shrink(edit)
            changed = structure(self.module) != before
        inputs = self._inputs(self.module)
        return Reduction(self.module, inputs, self.tests)

    def _know_values(self) -> None:
        """The value of everything in a graph: what an op made can then be an input."""
        if level_of(self.module) != "graph":
            return
        try:
            trace = GraphWalk(self.module, Cache(), Settings()).run(self._inputs(self.module))
        except (VerifyException, NotImplementedError, TypeError, ValueError):
            return  # it cannot run: new inputs are zeros
        self.values |= {tag: np.asarray(x) for (path, tag), x in trace.values.items() if not path}

    def _inputs(self, module: ModuleOp) -> list[np.ndarray]:
        return [self._value(a) for a in main_of(module).body.block.args]

    def _value(self, arg: SSAValue) -> np.ndarray:
        """The known value of an argument, cut to the shape that it has now."""
        kind = arg.type
        if isinstance(kind, GmType):
            shape, dtype = kind.shape, numpy_dtype(dtype_name(kind.element))
        else:
            assert isinstance(kind, TensorType)
            shape, dtype = shape_in(kind), numpy_dtype(kind.element_type)
        known = self.values.get(arg.name_hint or "")
        if known is None or known.dtype != dtype or known.ndim != len(shape):
            return np.zeros(shape, dtype)
        if any(n > m for n, m in zip(shape, known.shape, strict=True)):
            return np.zeros(shape, dtype)
        return np.ascontiguousarray(known[tuple(slice(n) for n in shape)])

    def _shrink(self, edit: Edit) -> None:
        """Applies an edit wherever it leaves the module interesting: to all places, to halves, to single ones."""
        chunk = len(edit.sites(self.module))
        while chunk:
            at = 0
            while at < len(sites := edit.sites(self.module)) and self.tests < self.limit:
                if not self._try(edit, sites[at : at + chunk]):
                    at += chunk
            chunk //= 2

    def _try(self, edit: Edit, sites: Sequence[Any]) -> bool:
        candidate = self.module.clone()
        try:
            if not edit.apply(candidate, sites):
                return False
            tidy(candidate)
            candidate.verify()
        except (VerifyException, ValueError, TypeError, IndexError):
            return False
        key = structure(candidate)
        if key in self.tried:
            return False
        self.tried.add(key)
        self.tests += 1
        if self.progress is not None:
            self.progress(f"candidate {self.tests}", 0, 0)
        if not self.interesting(candidate.clone(), self._inputs(candidate)):
            return False
        self.module = candidate
        return True
