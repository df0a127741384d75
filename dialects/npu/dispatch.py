"""The choice of a version: what the host does first where a program has open dimensions.

    npu.dispatch %x, %w : (tensor<?x?xf32, #graph.sizes<["b", "8*s"]>>, tensor<?x64xf32, #graph.sizes<["8*s"]>>) {
      npu.symbol {dimension = 0, operand = 0, place = "dimension 0 of argument x", symbol = "b"}
      npu.symbol {dimension = 1, operand = 0, place = "dimension 1 of argument x", symbol = "s"}
      npu.require {condition = "s <= 2048", message = "s is {s}, and must be at most 2048"}
      npu.version @v0 {guard = "b >= 33 and b <= 64 and s >= 65 and s <= 128 and ceildiv(8*s, 256) != 1"}
      npu.alone {guard = "b >= 1 and b <= 1", reason = "..."}
    }

Conditions and guards are text in the language of sizes (`dialects/sizes.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, StringAttr, SymbolRefAttr, TensorType
from xdsl.ir import Operation
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def, region_def, traits_def, var_operand_def
from xdsl.traits import NoTerminator

from ..affine import Symbol
from ..base import FormattedOp, integer, text
from ..dtypes import shape_in
from ..open_sizes import size_of
from ..size_numbers import SizeNumber, parse_number
from ..sizes import Constraint, Size, SizeError, Sizes, bounded, names_in, parse_guard, symbols_of


@lru_cache(1024)
def conditions_of(guard: str, symbols: tuple[Symbol, ...]) -> tuple[Constraint, ...]:
    """What a guard asks of sizes; nothing where it is empty. Raises SizeError."""
    return parse_guard(guard, {s.name: s for s in symbols}) if guard.strip() else ()


class DispatchPart(FormattedOp):
    """An op in the region of `npu.dispatch`."""

    def verify_(self) -> None:
        if not isinstance(self.parent_op(), DispatchOp):
            raise self.error("stands outside of npu.dispatch")


@irdl_op_definition
class SymbolOp(DispatchPart):
    """A size, and where a call has it: the dimension of an operand whose type names it, which is linear in it; or an
    element of the value of an operand. `place` is how messages call that. Without either no call has it."""

    name = "npu.symbol"
    symbol = prop_def(StringAttr)
    operand = opt_prop_def(IntegerAttr)
    dimension = opt_prop_def(IntegerAttr)
    element = opt_prop_def(IntegerAttr)
    place = opt_prop_def(StringAttr)

    @property
    def source(self) -> tuple[int, int, bool] | None:
        """The number of the operand, that of its dimension or element, and whether it is an element."""
        if self.operand is None:
            return None
        index = self.dimension if self.element is None else self.element
        return None if index is None else (integer(self.operand), integer(index), self.element is not None)

    def verify_(self) -> None:
        super().verify_()
        if not text(self.symbol).isidentifier():
            raise self.error(f"is called {text(self.symbol)!r}, which is no name of a size")
        given = [self.dimension is not None, self.element is not None].count(True)
        if given != (self.operand is not None):
            raise self.error("has an operand, and one of a dimension and an element of it; or none of them")


@irdl_op_definition
class RequireOp(DispatchPart):
    """What sizes have to fulfil. Where they do not, the call is refused with the message, in which `{s}` stands for the
    value of `s`. Conditions of one symbol are its bounds."""

    name = "npu.require"
    condition = prop_def(StringAttr)
    message = prop_def(StringAttr)


class CaseOp(DispatchPart):
    """What runs where a guard holds. `variant`: which implementation of `tw.variants` it is."""

    guard = prop_def(StringAttr)
    variant = opt_prop_def(StringAttr)


@irdl_op_definition
class VersionOp(CaseOp):
    """Where the guard holds: the @main of the module `callee`, with the sizes of the call in the place of symbols. It
    takes the operands of the dispatch, and behind them the numbers in `extras` (`dialects/size_numbers.py`), as
    scalars."""

    SYMBOL: ClassVar[str | None] = "callee"

    name = "npu.version"
    callee = prop_def(SymbolRefAttr)
    extras = opt_prop_def(ArrayAttr)

    def numbers(self) -> tuple[SizeNumber, ...]:
        """What its @main takes behind the operands. Raises SizeError."""
        dispatch = self.parent_op()
        assert isinstance(dispatch, DispatchOp)
        return tuple(parse_number(said, dispatch.symbols) for said in self.said())

    def said(self) -> list[str]:
        """The same as text."""
        return [a.data for a in self.extras or () if isinstance(a, StringAttr)]

    @property
    def version(self) -> str:
        """The name of the module."""
        return self.callee.root_reference.data


@irdl_op_definition
class AloneOp(CaseOp):
    """Where the guard holds, the program is compiled for the sizes of the call alone. `reason`: why."""

    name = "npu.alone"
    reason = prop_def(StringAttr)


@irdl_op_definition
class DispatchOp(FormattedOp):
    """Runs a program at the sizes that its operands have, and gives its results: finds the size of each `npu.symbol`,
    checks that all dimensions are what the operands' types say, then each `npu.require`; and takes the first case whose
    guard holds. Where none does, the range of the sizes has not been lowered yet."""

    name = "npu.dispatch"
    inputs = var_operand_def(TensorType)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    @property
    def parts(self) -> Iterator[SymbolOp]:
        """Its symbols, in order."""
        return (op for op in self.body.block.ops if isinstance(op, SymbolOp))

    @property
    def requirements(self) -> tuple[tuple[Constraint, str], ...]:
        """What has to hold, and the message where it does not. Raises SizeError."""
        names = {text(op.symbol): Symbol(text(op.symbol)) for op in self.parts}
        asked = [op for op in self.body.block.ops if isinstance(op, RequireOp)]
        first = [parse_guard(text(op.condition), names) for op in asked]
        within = tuple(bounded(names, [c for row in first for c in row]).values())
        return tuple((c, text(op.message)) for op in asked for c in conditions_of(text(op.condition), within))

    @property
    def symbols(self) -> dict[str, Symbol]:
        """The sizes by name, with the bounds that the requirements say. Raises SizeError."""
        names = {text(op.symbol): Symbol(text(op.symbol)) for op in self.parts}
        return bounded(names, [c for c, _ in self.requirements])

    @property
    def cases(self) -> Sequence[CaseOp]:
        """What may run, in order."""
        return [op for op in self.body.block.ops if isinstance(op, CaseOp)]

    def chosen(self, sizes: Sizes) -> CaseOp | None:
        """The first case whose guard holds for sizes."""
        symbols = tuple(self.symbols.values())
        for case in self.cases:
            if all(c.met_by(sizes) for c in conditions_of(text(case.guard), symbols)):
                return case
        return None

    def verify_(self) -> None:
        names: set[str] = set()
        for op in self.body.block.ops:
            if not isinstance(op, DispatchPart):
                raise self.error(f"holds '{op.name}', which is none of its parts")
            if isinstance(op, SymbolOp):
                if text(op.symbol) in names:
                    raise self.error(f"has two sizes {text(op.symbol)}")
                names.add(text(op.symbol))
                self._check_source(op)
        if not self.cases:
            raise self.error("needs a version, or that each size is compiled alone")
        for op in self.body.block.ops:
            said = [text(op.condition)] if isinstance(op, RequireOp) else []
            said += [text(op.guard)] if isinstance(op, CaseOp) else []
            for each in [*said, *(op.said() if isinstance(op, VersionOp) else ())]:
                self._check_text(each, names)
        try:
            symbols = tuple(self.symbols.values())
            for case in self.cases:
                conditions_of(text(case.guard), symbols)
                if isinstance(case, VersionOp):
                    case.numbers()
        except SizeError as error:
            raise self.error(str(error)) from None
        known = _modules_beside(self)
        for case in self.cases:
            if isinstance(case, VersionOp) and known is not None and case.version not in known:
                raise self.error(f"chooses @{case.version}, which does not exist")

    def _check_text(self, said: str, names: set[str]) -> None:
        """Raises VerifyException for a text that names what is no size of the op."""
        for word in _words(said):
            if word not in names:
                raise self.error(f"asks {said!r}, and has no size {word}")

    def _check_source(self, op: SymbolOp) -> None:
        source = op.source
        if source is None:
            return
        operand, index, is_element = source
        name = text(op.symbol)
        if not 0 <= operand < len(self.inputs):
            raise self.error(f"takes {name} from operand {operand}, which is not there")
        kind = self.inputs[operand].type
        if is_element or not isinstance(kind, TensorType):
            return
        shape = shape_in(kind)
        if not 0 <= index < len(shape):
            raise self.error(f"takes {name} from dimension {index} of {kind}, which is not there")
        if not _linear(size_of(shape[index]), name):
            raise self.error(f"takes {name} from dimension {index} of {kind}, where it does not follow")


def _words(said: str) -> set[str]:
    """The names in a guard; none where it is no text of the language, which is said elsewhere."""
    try:
        return names_in(said) if said.strip() else set()
    except SizeError:
        return set()


def _linear(size: Size, name: str) -> bool:
    """Whether a size is linear in a symbol."""
    found = [s for s in symbols_of(size) if s.name == name]
    if len(found) != 1 or not size.coefficient(found[0]):
        return False
    return found[0] not in symbols_of(size.without((found[0],)))


def _modules_beside(op: Operation) -> Mapping[str, ModuleOp] | None:
    """The named modules of the module around an op; None without one."""
    module = op.parent_op()
    while module is not None and not isinstance(module, ModuleOp):
        module = module.parent_op()
    return None if module is None else named_modules(module)


def named_modules(module: ModuleOp) -> dict[str, ModuleOp]:
    """The modules in a module that have names."""
    inner = [op for op in module.ops if isinstance(op, ModuleOp)]
    return {op.sym_name.data: op for op in inner if op.sym_name is not None}
