"""What a module says of itself: the machine that it is for, and how far down it is. Both are attributes of the module,
so that they are printed, parsed and copied with it.

    builtin.module attributes {tilewright.states = ["real", "fused"], tilewright.target = "ascend-910b1"} { ... }
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, UnitAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from ..machine import Machine, MachineError

EXAMPLE = "tilewright.example"
"""Of a module with open dimensions in one that chooses among some: the sizes for which its choices were made."""

TARGET = "tilewright.target"
STATES = "tilewright.states"
BOUNDED = "tilewright.bounded"
"""Set where the sizes of some tensors depend on data, also where no result shows it."""

FOR_HIVM = "tilewright.hivm"
"""Set where kernels are in forms that the vendor's IR has."""

NO_HIVM = "tilewright.no_hivm"
"""On a kernel: why it is not in such a form."""

LEFT_OUT = "tilewright.left_out"
"""What would have made the program faster, and failed when it was compiled."""

KNOWN_PLANS = "tilewright.known_plans"
"""The kernels whose schedules, and the decisions whose options, were known before."""


def target_of(module: Operation) -> str | None:
    """The name or path of the machine that a module is for; None where it does not say. Raises VerifyException where
    the attribute is no string."""
    attr = module.attributes.get(TARGET)
    if attr is None:
        return None
    if not isinstance(attr, StringAttr):
        raise VerifyException(f"is in a module whose attribute {TARGET} must be the name of a machine, not {attr}")
    return attr.data


def set_target(module: ModuleOp, target: str) -> None:
    """Says which machine a module is for."""
    module.attributes[TARGET] = StringAttr(target)


def set_example(module: ModuleOp, sizes: Mapping[str, int]) -> None:
    """Says for which sizes the choices in a module with open dimensions were made."""
    module.attributes[EXAMPLE] = DictionaryAttr({name: IntegerAttr(n, i64) for name, n in sizes.items()})


def example_of(module: Operation) -> dict[str, int] | None:
    """The sizes for which the choices in a module were made; None where it does not say."""
    attr = module.attributes.get(EXAMPLE)
    if not isinstance(attr, DictionaryAttr):
        return None
    return {name: n.value.data for name, n in attr.data.items() if isinstance(n, IntegerAttr)}


def is_bounded(module: ModuleOp) -> bool:
    """Whether the sizes of some tensors of a module depend on data, so that what is behind them does not count."""
    return BOUNDED in module.attributes


def set_bounded(module: ModuleOp) -> None:
    """Says so."""
    module.attributes[BOUNDED] = UnitAttr()


def left_out_of(module: ModuleOp) -> str | None:
    """What was left out when a module was compiled since it failed, as a sentence; None where nothing was."""
    attr = module.attributes.get(LEFT_OUT)
    return attr.data if isinstance(attr, StringAttr) else None


def set_left_out(module: ModuleOp, why: str) -> None:
    """Says what was left out of a module."""
    module.attributes[LEFT_OUT] = StringAttr(why)


def known_plans_of(module: ModuleOp) -> dict[str, int]:
    """What was known before a module was compiled: the fingerprints of kernels whose schedules were, with how many
    fusions have these, and the keys of decisions, with 0."""
    attr = module.attributes.get(KNOWN_PLANS)
    found = attr.data if isinstance(attr, DictionaryAttr) else {}
    return {key: count.value.data for key, count in found.items() if isinstance(count, IntegerAttr)}


def set_known_plans(module: ModuleOp, known: Mapping[str, int]) -> None:
    """Says so; nothing where there is none."""
    if known:
        counts = {key: IntegerAttr(count, 64) for key, count in sorted(known.items())}
        module.attributes[KNOWN_PLANS] = DictionaryAttr(counts)


def find_main(module: ModuleOp) -> FuncOp | None:
    """The function @main of a module, where it has one."""
    return next((op for op in module.ops if isinstance(op, FuncOp) and op.sym_name.data == "main"), None)


def machine_of(op: Operation) -> Machine | None:
    """The machine that the module around an op is for; None where the module does not say. Raises VerifyException for
    a machine that does not exist."""
    top = op
    while (parent := top.parent_op()) is not None:
        top = parent
    target = target_of(top)
    if target is None:
        return None
    try:
        return Machine.load(target)
    except MachineError as error:
        raise VerifyException(f"is in a module whose attribute {TARGET} is wrong: {error}") from error


def recorded_states(module: ModuleOp) -> tuple[str, ...]:
    """The states that passes recorded on a module, in the order of the pipeline."""
    attr = module.attributes.get(STATES)
    if not isinstance(attr, ArrayAttr):
        return ()
    return tuple(s.data for s in attr.data if isinstance(s, StringAttr))


def record_states(module: ModuleOp, states: Iterable[str]) -> None:
    """Replaces the states recorded on a module."""
    module.attributes[STATES] = ArrayAttr([StringAttr(s) for s in states])
