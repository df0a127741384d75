"""A program with open dimensions from text: what `DynamicProgram.ir("npu")` gives, with the versions that it had."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block

from ...dialects.affine import Expr
from ...dialects.base import integer_attr, text
from ...dialects.dtypes import dtype_name, shape_in
from ...dialects.graph.attributes import DataAttr
from ...dialects.graph.donation import donate, donated
from ...dialects.module import EXAMPLE, find_main, set_target, target_of
from ...dialects.npu import DispatchOp, GmType, VersionOp
from ...dialects.npu.dispatch import named_modules
from ...dialects.npu.places import addresses_of, set_addresses
from ...dialects.npu.structure import GmConstantOp
from ...dialects.open_sizes import size_of
from ...dialects.size_numbers import SizeNumber, scalar_at
from ...dialects.sizes import SizeError, Sizes, replaced
from ...frontends import is_stablehlo
from ...machine import DEFAULT_TARGET
from ...passes.errors import CompileError
from ...passes.instantiation import Instantiation
from ..arguments.parameters import INPUTS, Parameters
from ..arguments.signature import Signature
from ..sources import Source, own_module
from .dispatching import Dispatch
from .dynamic import OpenSource
from .shapes import OpenShapes


def chooses(content: bytes) -> bool:
    """Whether MLIR may be such a text."""
    return b"npu.dispatch" in content and not is_stablehlo(content)


def source_of_dispatch(content: bytes, filename: str | None) -> OpenSource | None:
    """The program of an `npu.dispatch` in @main, which has the sizes that one of its versions is for; None where there
    is no such op. Raises CompileError."""
    module = own_module(content, filename or "the program")
    main = find_main(module)
    op = None if main is None else next((o for o in main.body.block.ops if isinstance(o, DispatchOp)), None)
    if main is None or op is None:
        return None
    name = Path(filename).name if filename else "program"
    dispatch = Dispatch(op, main, _shapes(op), module)
    hints = [value.name_hint for value in op.inputs]
    names = tuple(hint for hint in hints if hint is not None)
    parameters = Parameters(names, noun="argument") if len(names) == len(hints) else INPUTS
    specialize = partial(_version, dispatch, name, parameters)
    return OpenSource(name, dispatch.shapes, specialize, parameters=parameters, dispatch=dispatch)


def _shapes(op: DispatchOp) -> OpenShapes:
    """The inputs that the operands of the op are."""
    symbols = op.symbols
    sizes = {name: Expr.of(symbol) for name, symbol in symbols.items()}
    kinds = [kind for kind in op.operand_types if isinstance(kind, TensorType)]
    inputs = tuple(
        (tuple(replaced(size_of(n), sizes) for n in shape_in(kind)), dtype_name(kind.element_type))
        for kind in kinds
    )
    deciding: dict[int, tuple[str, ...]] = {}
    elements = [(*part.source[:2], text(part.symbol)) for part in op.parts if part.source and part.source[2]]
    for operand, _, symbol in sorted(elements):
        deciding[operand] = (*deciding.get(operand, ()), symbol)
    return OpenShapes(inputs, symbols, tuple(c for c, _ in op.requirements), deciding)


def _version(dispatch: Dispatch, name: str, parameters: Parameters, sizes: Sizes) -> Source:
    """The version for given sizes. Raises CompileError where there is none."""
    case, whole = dispatch.chosen(sizes), dispatch.whole
    if not isinstance(case, VersionOp) or whole is None:
        asked = ", ".join(f"{n} = {v}" for n, v in sizes.items())
        guards = [text(c.guard) for c in dispatch.op.cases if isinstance(c, VersionOp)]
        raise CompileError(
            f"{name} has no version for {asked}: compile its source for these sizes"
            + (f"; it has versions where {' or where '.join(guards)}" if guards else "")
        )

    def lower() -> tuple[ModuleOp, Signature]:
        made = Instantiation(sizes).of(named_modules(whole)[case.version])
        del made.properties["sym_name"]
        made.attributes.pop(EXAMPLE, None)
        set_target(made, target_of(made) or target_of(whole) or DEFAULT_TARGET)
        main = find_main(made)
        if main is None:
            raise CompileError(f"{name}: its version @{case.version} has no function @main")
        _bind(main, case.numbers(), sizes, name)
        return made, Signature(dispatch.shapes.types(sizes), parameters=parameters)

    return Source(lower, name)


def _bind(main: FuncOp, numbers: Sequence[SizeNumber], sizes: Sizes, name: str) -> None:
    """Gives the last arguments of @main their values at given sizes, as constants that are where the arguments would
    be. Raises CompileError for a number that has none there."""
    block: Block = main.body.block
    kept = len(block.args) - len(numbers)
    flags, places = donated(main)[:kept], addresses_of(main)
    if places is not None:
        set_addresses(main, places[:kept])
    for i, (argument, number) in enumerate(zip(block.args[kept:], numbers, strict=True), kept):
        kind = argument.type
        assert isinstance(kind, GmType)
        try:
            value = scalar_at(number, dtype_name(kind.element), sizes)
        except SizeError as error:
            raise CompileError(f"{name}: {error}") from None
        properties: dict[str, Attribute] = {"value": DataAttr.of(value)}
        if places is not None:
            properties["address"] = integer_attr(places[i])
        made = GmConstantOp.create(result_types=[kind], properties=properties)
        block.insert_op_before(made, block.first_op) if block.first_op else block.add_op(made)
        argument.replace_all_uses_with(made.result)
    for argument in block.args[kept:]:
        block.erase_arg(argument)
    main.arg_attrs = None
    main.function_type = FunctionType.from_lists([a.type for a in block.args], [*main.function_type.outputs])
    donate(main, flags)
