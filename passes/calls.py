"""Which function calls which."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from ..dialects.base import describe, text
from .errors import PassError


def callee_of(op: Operation) -> str | None:
    """The function that an op calls, at whatever level."""
    if op.name not in ("func.call", "npu.call"):
        return None
    callee = op.properties["callee"]
    assert isinstance(callee, SymbolRefAttr)
    return callee.root_reference.data


def calls_of(func: FuncOp) -> dict[str, Operation]:
    """The functions that a function calls, each with the first op that does."""
    found: dict[str, Operation] = {}
    for op in func.walk():
        name = callee_of(op)
        if name is not None:
            found.setdefault(name, op)
    return found


def callers_first(module: ModuleOp) -> list[FuncOp]:
    """The functions of a module, each behind all that call it. Raises PassError for a call of a function that is not
    there, and for a function that calls itself, directly or through others."""
    functions = {text(f.sym_name): f for f in module.ops if isinstance(f, FuncOp) and f.body.blocks}
    calls = {name: calls_of(f) for name, f in functions.items()}
    order: list[str] = []
    done: set[str] = set()
    for start in functions:
        path: list[tuple[str, list[str]]] = [] if start in done else [(start, list(calls[start]))]
        on_path = {start}
        while path:
            name, rest = path[-1]
            if not rest:
                path.pop()
                on_path.discard(name)
                done.add(name)
                order.append(name)
                continue
            callee = rest.pop()
            op = calls[name][callee]
            if callee not in functions:
                raise PassError(f"{describe(op)} calls @{callee}, which does not exist")
            if callee in on_path:
                raise PassError(
                    f"{describe(op)} in @{name} calls @{callee} again: a function that calls itself cannot be "
                    f"compiled; write it as a loop"
                )
            if callee not in done:
                on_path.add(callee)
                path.append((callee, list(calls[callee])))
    return [functions[name] for name in reversed(order)]
