"""Whether each operand is defined where it is used, which xDSL verifies only where it parses."""

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue


def check_visible(module: ModuleOp) -> None:
    """Raises AssertionError where an op takes a value that is made later, or inside a region that it is not in."""
    _check(module.body.block, set())


def _check(block: Block, visible: set[SSAValue]) -> None:
    mine = set(block.args)
    visible |= mine
    for op in block.ops:
        assert visible.issuperset(op.operands), f"{op.name} takes a value that is not there: {op}"
        for region in op.regions:
            for inner in region.blocks:
                _check(inner, visible)
        visible |= set(op.results)
        mine |= set(op.results)
    visible -= mine
