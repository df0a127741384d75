"""The calls of `calls.txt` as programs, and which public names it does not have."""

from __future__ import annotations

import dis
import functools
import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import cases

LETTERS = frozenset("x y u v w t a s b i n q img ker key".split())
"""Names of arguments: `arguments.py` says what they are."""

MODULES = {
    "jnp": "jax.numpy",
    "jnp.linalg": "jax.numpy.linalg",
    "jnp.fft": "jax.numpy.fft",
    "lax": "jax.lax",
    "lax.linalg": "jax.lax.linalg",
    "jax.nn": "jax.nn",
    "jax.nn.initializers": "jax.nn.initializers",
    "jax.image": "jax.image",
    "jax.ops": "jax.ops",
    "jax.random": "jax.random",
    **{
        f"jsp.{name}": f"jax.scipy.{name}"
        for name in (
            *(
                "special",
                "stats",
                "linalg",
                "signal",
                "ndimage",
                "optimize",
                "fft",
                "interpolate",
                "integrate",
            ),
            *("cluster.vq", "spatial.transform"),
        )
    },
}
"""Modules whose public functions all have a call, by what the calls name them."""

LEFT_OUT = {
    "jnp": """
array_repr array_str broadcast_shapes can_cast character dtype einsum_path finfo flexible floating
from_dlpack frombuffer fromfile fromiter fromstring generic get_printoptions iinfo inexact integer
isdtype issubdtype iterable load ndarray number object_ printoptions promote_types result_type save
savez set_printoptions signedinteger unsignedinteger ComplexWarning complexfloating bfloat16 bool bool_
cdouble complex128 complex64 complex_ csingle double float16 float32 float4_e2m1fn float64 float6_e2m3fn
float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2
float8_e5m2fnuz float8_e8m0fnu float_ int1 int16 int2 int32 int4 int64 int8 int_ single uint uint1
uint16 uint2 uint32 uint4 uint64 uint8""",
    "lax": """
AccuracyMode ConvDimensionNumbers ConvGeneralDilatedDimensionNumbers DotAlgorithm DotAlgorithmPreset
DotDimensionNumbers FftType GatherDimensionNumbers GatherScatterMode Precision PrecisionLike
RaggedDotDimensionNumbers RandomAlgorithm RoundingMethod ScatterDimensionNumbers Tolerance after_all
broadcast_shapes conv_dimension_numbers conv_general_permutations conv_general_shape_tuple
conv_shape_tuple conv_transpose_shape_tuple create_token dtype padtype_to_pads pbroadcast pcast precv
psend ragged_all_to_all reduce_window_shape_tuple stage with_sharding_constraint""",
    "lax.linalg": """
EigImplementation EighImplementation SvdAlgorithm""",
    "jax.nn": """
get_scaled_dot_general_config scaled_dot_general""",
    "jax.nn.initializers": """
Initializer""",
    "jsp.optimize": """
OptimizeResults""",
    "jax.image": """
ResizeMethod""",
    "jax.random": """
key_dtype key_impl""",
}
"""Public names that compute nothing (types, their predicates, text, files), and those that need several devices."""


@dataclass(frozen=True)
class Call:
    """An expression, and the public function that it is there for."""

    name: str
    text: str

    @functools.cached_property
    def letters(self) -> tuple[str, ...]:
        """The letters that are arguments of the program: not those that lambdas bind."""
        return tuple(sorted(set(_names(compile(self.text, "<call>", "eval"))) & LETTERS))

    def function(self) -> Callable[..., Any]:
        """The program: takes the arrays of `letters`."""
        made = eval(f"lambda {', '.join(self.letters)}: ({self.text})", namespace())
        made.__name__ = re.sub(r"\W+", "_", self.name)
        return made


def _names(code: Any) -> Iterator[str]:
    """Global names that a code object and those inside it look up."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
            yield step.argval
    for inner in code.co_consts:
        if hasattr(inner, "co_code"):
            yield from _names(inner)


@functools.cache
def namespace() -> dict[str, Any]:
    """What the calls see."""
    for module in MODULES.values():
        importlib.import_module(module)
    return {"jax": jax, "jnp": jnp, "lax": jax.lax, "jsp": jax.scipy, "np": np, "cases": cases}


def calls() -> list[Call]:
    """All calls, in the order of the file: one on a line, with the function's name before it where another name
    leads."""
    found = []
    for line in (Path(__file__).parent / "calls.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            named = re.fullmatch(r"([\w.]+): (.*)", line)
            name, text = named.groups() if named else (line.partition("(")[0], line)
            found.append(Call(name, text))
    return found


def missing() -> list[str]:
    """Public functions of the modules that are neither called nor left out."""
    called = {call.name for call in calls()}
    found = []
    for short, module in MODULES.items():
        here = importlib.import_module(module)
        public = {f"{short}.{k}" for k in dir(here) if not k.startswith("_") and callable(getattr(here, k))}
        found += sorted(public - called - {f"{short}.{k}" for k in LEFT_OUT.get(short, "").split()})
    return found
