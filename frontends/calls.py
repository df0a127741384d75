"""Which calls stay calls: functions that are called more than once and are not small."""

from __future__ import annotations

from collections import Counter

from . import bindings
from .bindings import Op

SMALL = 48
"""A function of at most so many ops is inlined wherever it is called: activations, index arithmetic and the like are
part of the kernels around them. A layer is larger."""

CALLERS = {"func.call": "callee", "stablehlo.composite": "decomposition"}
"""Ops that call a function, and the attribute that names it."""


class CallPlan:
    """Sizes of functions, counted in ops with small callees in place, each function once."""

    def __init__(self, symbols: dict[str, Op]):
        self._symbols = symbols
        self._calls: dict[str, Counter[str]] = {}
        self._own: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._times: Counter[str] | None = None
        self._bounds = False

    def outlined(self, symbol: str) -> bool:
        """Whether a function is called, rather than inlined: none where dimensions are bounded, since a function takes
        and gives whole tensors."""
        if self._times is None:
            self._times = Counter()
            for name in self._symbols:
                self._times.update(self._scan(name))
        return not self._bounds and self._times[symbol] > 1 and self._size(symbol) > SMALL

    def _scan(self, symbol: str) -> Counter[str]:
        """How often each function is called in one."""
        if symbol not in self._calls:
            found: Counter[str] = Counter()
            self._own[symbol] = 0
            for op in bindings.nested(self._symbols[symbol]):
                self._own[symbol] += 1
                self._bounds |= bindings.sets_size(op)
                attribute = CALLERS.get(op.operation.name)
                if attribute is not None:
                    found[bindings.string(op, attribute)] += 1
            self._calls[symbol] = found
        return self._calls[symbol]

    def _size(self, symbol: str) -> int:
        """Ops of a function once its small callees are inlined; callees that call it back count nothing."""
        known = self._sizes.get(symbol)
        if known is not None:
            return known
        calls = self._scan(symbol)
        self._sizes[symbol] = 0
        total = self._own[symbol]
        for callee, times in calls.items():
            total += 0 if self.outlined(callee) else times * self._size(callee)
        self._sizes[symbol] = total
        return total
