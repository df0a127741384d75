"""How rules are found for classes."""

from __future__ import annotations

import pytest

from tilewright.support.rules import Rules


class Base:
    def say(self) -> str:
        raise NotImplementedError


class Listed(Base):
    pass


class Derived(Listed):
    pass


class Own(Listed):
    def say(self) -> str:
        return "own"


RULES = Rules(Base, "say", {Listed: lambda op: "listed"})


def test_the_nearest_class_decides() -> None:
    assert RULES[Listed](Listed()) == RULES[Derived](Derived()) == "listed"
    assert RULES[Own](Own()) == "own"


def test_the_declaration_is_no_rule() -> None:
    assert RULES.of(Base) is None
    with pytest.raises(KeyError, match="Base"):
        RULES[Base]
