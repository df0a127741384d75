"""Messages stay sentences, whatever is wrong and however long it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.support.sentences import LONGEST, shortened

X = np.ones(4, np.float32)


class Long:
    def __repr__(self) -> str:
        return "R" * 1_500_000


def same(x: Any) -> Any:
    return x


WRONG: dict[str, Callable[[], object]] = {
    "target": lambda: tw.compile(same, X, target=Long()),  # pyright: ignore[reportArgumentType]
    "schedule": lambda: tw.compile(same, X, options=tw.Options(schedule=Long())),  # pyright: ignore
    "host": lambda: tw.compile(same, X, options=tw.Options(host=Long())),  # pyright: ignore
    "text": lambda: tw.compile("x" * 100_000),
    "call": lambda: tw.compile(same, X)([1] * 100_000),
    "keyword": lambda: tw.compile(same, X)(X, **{"a" * 100_000: 1}),
    "level": lambda: tw.compile(same, X).ir(Long()),  # pyright: ignore[reportArgumentType]
    "model": lambda: tw.onnx_function(Long()),
    "machine": lambda: tw.Machine.load("a" * 100_000),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_a_message_is_no_longer_than_a_sentence(case: str) -> None:
    with pytest.raises((tw.CompileError, tw.MachineError)) as caught:
        WRONG[case]()
    assert len(str(caught.value)) <= LONGEST + 50
    assert "\n" not in str(caught.value)


def test_the_middle_of_a_long_line_is_left_out() -> None:
    text = "begin " + "x" * 10_000 + " end"
    assert shortened(text).startswith("begin x") and shortened(text).endswith("x end")
    assert " ... " in shortened(text)
    assert shortened("short\n" + text).startswith("short\nbegin")
    assert shortened("y" * LONGEST) == "y" * LONGEST


def test_keys_that_are_missing_are_named() -> None:
    params = {f"layer{i}": np.float32(i) for i in range(500)}
    program = tw.compile(lambda p: p["layer1"] + p["layer2"], params)
    other = {name: value for name, value in params.items() if name != "layer7"}
    with pytest.raises(tw.CompileError, match=r"argument p of <lambda> lacks 'layer7'$"):
        program(other)
    with pytest.raises(
        tw.CompileError, match=r"has 'a', 'b', 'c' and 1 more, which it was compiled without$"
    ):
        program(params | dict.fromkeys("abcd", np.float32(0)))
