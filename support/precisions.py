"""The modes of automatic mixed precision: names only, so that a command line starts without the compiler."""

from __future__ import annotations

from collections.abc import Mapping

ORIGIN = "origin"
"""The mode that leaves all types as they are."""

NARROW: Mapping[str, str] = {"mixed_float16": "f16", "mixed_bfloat16": "bf16", "float16": "f16"}
"""The other modes, with the type that f32 becomes."""

PRECISIONS = (ORIGIN, *NARROW)
