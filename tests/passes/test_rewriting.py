"""The driver of rewrite patterns: fixpoints, locations, endless patterns, its rate; and the table of patterns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdsl.dialects.builtin import FileLineColLoc, ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import (
    GreedyRewritePatternApplier,
    PatternRewriter,
    PatternRewriteWalker,
    RewritePattern,
    op_type_rewrite_pattern,
)

from tilewright.dialects import make_context
from tilewright.dialects.graph import ELEMENTWISE, BroadcastOp, GraphOp
from tilewright.dialects.text import parse_module
from tilewright.machine import Machine
from tilewright.passes.errors import PassError
from tilewright.passes.patterns import (
    GraphPattern,
    listing,
    patterns,
    register,
    register_lazily,
    selected,
    unregister,
)
from tilewright.passes.rewriting import Driver, matched_classes, rule_of, walk_ops
from tilewright.passes.simplify.simplify import GraphSimplifyPass, simplify

MACHINE = Machine.load("ascend-910b1")
NegOp, ExpOp, AddOp = (ELEMENTWISE[name] for name in ("neg", "exp", "add"))


def module_of(*lines: str, result: str = "%r", kind: str = "tensor<8xf32>") -> ModuleOp:
    body = "\n".join(lines)
    head = "func.func @main(%x: tensor<8xf32>)"
    return parse_module(
        make_context(), f"{head} -> {kind} {{\n{body}\nfunc.return {result} : {kind}\n}}", "m.mlir"
    )


def ops_of(module: ModuleOp) -> list[str]:
    return [op.name for op in module.walk() if isinstance(op, GraphOp)]


class DropDoubleNegation(GraphPattern):
    """The negative of a negative is the value itself."""

    name = "drop-double-negation"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: NegOp, rewriter: PatternRewriter, /) -> None:  # pyright: ignore[reportInvalidTypeForm]
        inner = op.x.owner
        if isinstance(inner, NegOp):
            rewriter.replace(op, (), [inner.operands[0]])


def test_a_pattern_is_asked_for_its_class_alone() -> None:
    """xDSL's decorator hides the class, and what it hides asks every op for it."""

    class Inherits(DropDoubleNegation):
        pass

    class Undecorated(RewritePattern):
        def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None: ...

    assert matched_classes(DropDoubleNegation) == matched_classes(Inherits) == (NegOp,)
    assert matched_classes(Undecorated) == (Operation,)
    assert rule_of(Undecorated) is Undecorated.match_and_rewrite
    driver = Driver([DropDoubleNegation(MACHINE), Undecorated()])
    assert [type(p) for p, _ in driver.patterns_for(NegOp)] == [DropDoubleNegation, Undecorated]
    assert [type(p) for p, _ in driver.patterns_for(ExpOp)] == [Undecorated]


@pytest.fixture
def added() -> Iterator[type[GraphPattern]]:
    yield register(DropDoubleNegation)
    unregister(DropDoubleNegation)


def run(module: ModuleOp, *chosen: RewritePattern) -> Driver:
    driver = Driver(chosen)
    driver.run(list(walk_ops(module, lambda op: True)))
    return driver


def test_a_chain_goes_to_its_fixpoint_in_one_run() -> None:
    chain = [f"%{i} = graph.neg {'%x' if not i else f'%{i - 1}'} : tensor<8xf32>" for i in range(9)]
    module = module_of(*chain, result="%8")
    driver = run(module, DropDoubleNegation(MACHINE))
    assert ops_of(module) == ["graph.neg"]
    assert driver.applied["drop-double-negation"] == 4


def test_users_see_what_their_operand_became() -> None:
    """The second pattern makes what the first one matches, at an op that was visited before."""

    class ExpIsNeg(RewritePattern):
        @op_type_rewrite_pattern
        def match_and_rewrite(self, op: ExpOp, rewriter: PatternRewriter, /) -> None:  # pyright: ignore[reportInvalidTypeForm]
            rewriter.replace(op, NegOp.create(operands=op.operands, result_types=op.result_types))

    module = module_of("%a = graph.exp %x : tensor<8xf32>", "%r = graph.neg %a : tensor<8xf32>")
    driver = Driver([DropDoubleNegation(MACHINE), ExpIsNeg()])
    driver.run(reversed(list(walk_ops(module, lambda op: True))))
    assert ops_of(module) == []


def test_new_ops_have_the_location_of_the_matched_one() -> None:
    broadcast = "%a = graph.broadcast %x {dims = [1]} : (tensor<8xf32>) -> tensor<1x8xf32>"
    twice = "%r = graph.broadcast %a {dims = [0, 1]} : (tensor<1x8xf32>) -> tensor<4x8xf32>"
    module = module_of(broadcast, twice, kind="tensor<4x8xf32>")
    simplify(module, MACHINE, selected(["merge-broadcasts"]))
    (made,) = [op for op in module.walk() if isinstance(op, BroadcastOp)]
    assert isinstance(made.location, FileLineColLoc)
    assert made.location.line.data == 3


class Swap(GraphPattern):
    """Exchanges operands, and then again."""

    name = "swap-for-ever"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: AddOp, rewriter: PatternRewriter, /) -> None:  # pyright: ignore[reportInvalidTypeForm]
        new = type(op).create(operands=reversed(op.operands), result_types=op.result_types)
        rewriter.replace(op, new)


class SwapInPlace(Swap):
    name = "swap-in-place-for-ever"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: AddOp, rewriter: PatternRewriter, /) -> None:  # pyright: ignore[reportInvalidTypeForm]
        op.operands = reversed(op.operands)
        rewriter.notify_op_modified(op)


@pytest.mark.parametrize("kind", [Swap, SwapInPlace])
def test_an_endless_pattern_is_named(kind: type[GraphPattern]) -> None:
    module = module_of("%a = graph.exp %x : tensor<8xf32>", "%r = graph.add %x, %a : tensor<8xf32>")
    with pytest.raises(PassError, match=rf"pattern {kind.name} does not end: 'graph.add' \(m.mlir:3\)"):
        run(module, kind(MACHINE))


def test_long_chains_are_no_endless_pattern() -> None:
    chain = [f"%{i} = graph.neg {'%x' if not i else f'%{i - 1}'} : tensor<8xf32>" for i in range(2001)]
    module = module_of(*chain, result="%2000")
    run(module, DropDoubleNegation(MACHINE))
    assert ops_of(module) == ["graph.neg"]


def test_ten_thousand_rewrites_a_second() -> None:
    """In the time of this process, a third of what was measured for it: other processes take the machine's caches."""

    class ExpToNeg(RewritePattern):
        @op_type_rewrite_pattern
        def match_and_rewrite(self, op: ExpOp, rewriter: PatternRewriter, /) -> None:  # pyright: ignore[reportInvalidTypeForm]
            rewriter.replace(op, NegOp.create(operands=op.operands, result_types=op.result_types))

    count, rates = 3000, []
    for _ in range(3):
        chain = [f"%{i} = graph.exp {'%x' if not i else f'%{i - 1}'} : tensor<8xf32>" for i in range(count)]
        module = module_of(*chain, result=f"%{count - 1}")
        ops = list(walk_ops(module, lambda op: True))
        start = time.process_time()
        Driver([ExpToNeg()]).run(ops)
        rates.append(count / (time.process_time() - start))
    assert max(rates) > 10_000


def test_patterns_run_under_the_walker_of_xdsl(added: type[GraphPattern]) -> None:
    """They are xDSL's: its own walker gives the same module."""
    pages = Path(__file__).parents[2] / "lit_tests" / "passes" / "graph" / "simplify.mlir"
    compared = 0
    for text in pages.read_text().split("// -----"):
        ours = parse_module(make_context(), text, "m.mlir")
        theirs = ours.clone()
        applied = simplify(ours, MACHINE, patterns(), merge=False)
        walker = PatternRewriteWalker(GreedyRewritePatternApplier([p(MACHINE) for p in patterns()]))
        walker.rewrite_module(theirs)
        assert ours.is_structurally_equivalent(theirs), text
        compared += bool(applied)
    assert compared > 20


def test_a_registered_pattern_is_run_listed_and_selected(added: type[GraphPattern]) -> None:
    module = module_of("%a = graph.neg %x : tensor<8xf32>", "%r = graph.neg %a : tensor<8xf32>")
    GraphSimplifyPass(only=("drop-double-negation",)).apply(make_context(), module)
    assert ops_of(module) == []
    assert listing().splitlines()[-1].split("  ")[0] == "drop-double-negation"
    with pytest.raises(ValueError, match="there is a pattern drop-double-negation already"):
        register(DropDoubleNegation)


def test_a_pattern_can_be_named_as_text() -> None:
    before = patterns()
    register_lazily(f"{__name__}:DropDoubleNegation")
    assert patterns() == (*before, DropDoubleNegation)
    unregister(DropDoubleNegation)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("no.such.package:Pattern", "cannot read the pattern no.such.package:Pattern: No module named 'no'"),
        (f"{__name__}:MACHINE", f"{__name__}:MACHINE is not a GraphPattern"),
    ],
)
def test_an_entry_that_cannot_be_read_is_named(entry: str, message: str) -> None:
    from tilewright.passes import patterns as table

    register_lazily(entry)
    with pytest.raises(PassError, match=message):
        patterns()
    table._TABLE.remove(entry)


def test_a_name_that_no_pattern_has_is_refused() -> None:
    with pytest.raises(
        PassError, match="no pattern is called 'merge-broadcast'; did you mean merge-broadcasts"
    ):
        selected(["merge-broadcast"])
    with pytest.raises(PassError, match="no pattern is called 'x'; there are fold-empty-results, "):
        selected(["x"])


def test_every_pattern_says_what_it_does_in_a_line() -> None:
    for pattern in patterns():
        assert pattern.summary().endswith("."), pattern
        assert len(pattern.summary()) <= 110, pattern


def test_pins_leave_out_what_they_decide() -> None:
    """A pinned tile says how rows are cut, which a split of the reduction would change."""
    text = (
        "func.func @main(%x: tensor<1000000xf32>) -> tensor<f32> {\n"
        '%r = graph.reduce %x {dims = [0], kind = "sum"} : (tensor<1000000xf32>) -> tensor<f32>\n'
        "func.return %r : tensor<f32>\n}"
    )
    found: dict[str, int] = {}
    for schedule in ("", "tile=4096"):
        module = parse_module(make_context(), text, "m.mlir")
        GraphSimplifyPass(schedule=schedule).apply(make_context(), module)
        found[schedule] = sum(isinstance(op, Operation) for op in module.walk())
    assert found[""] > found["tile=4096"]
