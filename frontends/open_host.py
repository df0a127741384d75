"""The StableHLO of one op for the host, for all sizes at once: its text, in which sizes stand for numbers.

Each size is given a number that the text does not have. With these the op is one for static shapes, whose text MLIR
writes; in it the sizes take the places of their numbers. For some sizes of the range, what comes of the text is
compared with what MLIR makes of the op itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from ..dialects.affine import Expr, Symbol
from ..dialects.dtypes import numpy_dtype
from ..dialects.host_text import HostText, escaped, host_text, number_in_text, text_at
from ..dialects.open_sizes import OpenSize, example_sizes, is_assumed, is_open, size_of, value_at
from ..dialects.sizes import Size, SizeError, Sizes, evaluate, symbols_of
from . import bindings
from .errors import FrontendError
from .open_numbers import Numbers
from .refining import closed_op

FIRST = 2_000_000_000
"""From here on numbers stand for sizes. They are within i32, and larger than what texts have."""

APART = 20_011_003
"""Symbols are so far from each other where sizes are computed from them."""


@dataclass(frozen=True)
class OpenOp:
    """An op by itself. module: as `bindings.isolate` gives it; inputs, results: the shapes of what it takes and gives,
    of ints and `OpenSize`s; values: of its inputs that decide shapes, by position, which are no inputs of the host."""

    module: Any
    inputs: Sequence[Sequence[int]]
    results: Sequence[Sequence[int]]
    values: Mapping[int, Numbers]

    def text(self) -> tuple[str, HostText] | None:
        """The name of the op and its module for all sizes; None where there is no such text."""
        sizes = self._sizes()
        found = self._written({size: FIRST + i for i, size in enumerate(sizes)})
        if found is None:  # perhaps since MLIR looks at how shapes fit together
            symbols = dict.fromkeys(s for size in sizes for s in symbols_of(size))
            values = {s.name: APART * (i + 1) for i, s in enumerate(symbols)}
            found = self._written({size: evaluate(size, values) for size in sizes})
        return found

    def _written(self, numbers: Mapping[Size, int]) -> tuple[str, HostText] | None:
        """The same, with these numbers for sizes on the way; None where these do not do."""
        places = {str(number): number_in_text(OpenSize.of(size)) for size, number in numbers.items()}
        if len(places) < len(numbers) or any(number < APART // 2 for number in numbers.values()):
            return None
        several = re.compile(rf"(?<![\d.])({'|'.join(places) or '(?!)'})(?!\d)")
        if several.search(bindings.text_of(self.module)):
            return None
        closed = self._closed(lambda n: numbers[size_of(n)] if is_open(n) else n)
        if closed is None:
            return None
        text = escaped(bindings.unverified_text_of(closed))
        made = host_text(several.sub(lambda found: places[found.group()], text))
        return (_name(closed), made) if self._is_right(made) else None

    def _closed(self, number: Callable[[int], int]) -> Any:
        """The module with these numbers for sizes; None where it has none."""
        inputs, results = ([tuple(map(number, s)) for s in shapes] for shapes in (self.inputs, self.results))
        arguments = bindings.functions(self.module)["main"].regions[0].blocks[0].arguments
        values: dict[int, np.ndarray] = {}
        for i, given in self.values.items():
            parts = bindings.tensor_parts(arguments[i].type)
            assert parts is not None
            try:
                flat = np.array([number(n) for n in given.reshape(-1)], numpy_dtype(parts[1]))
            except OverflowError:
                return None
            values[i] = flat.reshape(given.shape)
        return closed_op(self.module, inputs, results, values)

    def _sizes(self) -> list[Size]:
        """The open sizes that it depends on."""
        given = [n for value in self.values.values() for n in value.reshape(-1)]
        every = [*given, *(n for shape in (*self.inputs, *self.results) for n in shape)]
        return list(dict.fromkeys(size_of(n) for n in every if is_open(n)))

    def _is_right(self, text: HostText) -> bool:
        """Whether a text is that of the op for sizes which there may be, the example among them."""
        for i, sizes in enumerate(self._some()):
            try:
                wanted = self._closed(lambda n, sizes=sizes: value_at(n, sizes))
            except SizeError:
                wanted = None
            if wanted is None or not bindings.is_valid(wanted):
                if i == 0 or not self._are_equal(sizes):
                    return False
                continue
            try:
                made = bindings.parse(text_at(text, sizes), None)
            except (FrontendError, SizeError):
                return False
            if bindings.text_of(made) != bindings.text_of(wanted):
                return False
        return True

    def _are_equal(self, sizes: Sizes) -> bool:
        """Assumes of sizes at which there is no such op, and which differ there alone, that they are equal, as those of
        two batches are. False where there are none."""
        example = example_sizes()
        found = False
        for one, other in combinations(self._symbols(), 2):
            if example[one.name] == example[other.name] and sizes[one.name] != sizes[other.name]:
                found = OpenSize(Expr.of(one)) == OpenSize(Expr.of(other))
        return found

    def _symbols(self) -> list[Symbol]:
        return list(dict.fromkeys(s for size in self._sizes() for s in symbols_of(size)))

    def _some(self) -> Iterator[Sizes]:
        """Some sizes: the example, and such with the least of one symbol or of all."""
        symbols = self._symbols()
        example = dict(example_sizes())
        yield example
        least = {s.name: s.lower for s in symbols}
        for sizes in [*({**example, name: low} for name, low in least.items()), {**example, **least}]:
            if sizes != example and is_assumed(sizes):
                yield sizes


def _name(module: Any) -> str:
    """The name of the op in a module that `closed_op` gives."""
    *_, op, _ = bindings.functions(module)["main"].regions[0].blocks[0].operations
    return str(op.operation.name)
