"""What of programs is written to model files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp

from ...backends.report import Report
from ...knowledge.base import Entry
from ...passes.templates import NoTemplate
from ..arguments.signature import Signature
from ..options import Options
from ..sizes.codes import OpenCode
from ..sizes.shapes import OpenShapes
from ..source import Source

if TYPE_CHECKING:
    from ..sizes.templates import Key, Ranges, Version


@dataclass(frozen=True)
class ChipParts:
    """What of a program is written for a chip: its npu level; what it costs, None where that cannot be simulated; and
    the plans of its kernels that were known before."""

    module: ModuleOp
    report: Report | None
    plans: Sequence[Entry] = ()


@dataclass(frozen=True)
class ProgramParts:
    """What of a program is written. chips: for each chip that it was compiled for; target: the one that it was made
    for; packed: arguments of which the program has what packing has made."""

    source: Source
    options: Options
    target: str
    chips: Mapping[str, ChipParts]
    packed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class OpenChipParts:
    """What of a program with open sizes is written for a chip: its versions by ranges, or why there is none; and its
    programs for sizes alone, by these."""

    ranges: Mapping[Key, Version | NoTemplate]
    alone: Mapping[tuple[int, ...], ChipParts]


@dataclass(frozen=True)
class OpenProgramParts:
    """What of a program with open sizes is written. codes: what it is for ranges of sizes, the widest ones first;
    signature: of a version."""

    shapes: OpenShapes
    codes: Sequence[tuple[Ranges, OpenCode]]
    signature: Signature
    options: Options
    target: str
    chips: Mapping[str, OpenChipParts]
