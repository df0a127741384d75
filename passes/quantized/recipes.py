"""How products are to be quantized: recipes by name, and what a configuration says of each product.

default = "w8a8"                                  # what no line below says otherwise

[pins]
"params['head']*" = "f16"                         # patterns of names, as the shell has them; the first that fits
"vision.*" = "w8a8"                               # the same with dots: params['vision']['w1']

[products."params['conv1_w']"]
mode = "w8a8"
input = {scale = 0.03125, zero = -128}            # of a static mode, from calibration
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ...dialects.dtypes import limits
from ...support.files import read_arrays, read_plain, together, toml_of, write_whole
from ..errors import PassError

LEAST_NORMAL = float(np.finfo(np.float32).tiny)
"""The smallest number of f32 that is not a denormal."""

SUFFIX = ".toml"
"""How the name of a configuration's file ends."""

WIDE_LIMIT = 32639
"""The largest number in i16 that is 256 times one of 8 bits and another one: 127 * 256 + 127."""


@dataclass(frozen=True)
class Recipe:
    """How one product is computed.

    weights, inputs: what is stored for the weights and for the other operand, None where they stay floats; dynamic:
    whether inputs are scaled by what they are, row by row, rather than by numbers from calibration; group: how many
    weights along the summed dimension share a scale, 0: all of a feature; compute: the float type of a product that is
    not one of integers, None: as it is; sparse: whether of four weights along the summed dimension the two largest are
    stored, with their positions, the others being zero.
    """

    weights: str | None = None
    inputs: str | None = None
    dynamic: bool = False
    group: int = 0
    compute: str | None = None
    sparse: bool = False

    @property
    def static(self) -> bool:
        """Whether the scale of the inputs has to be known before."""
        return self.inputs is not None and not self.dynamic

    @property
    def largest_input(self) -> float:
        """What the largest number of a row is stored as, where inputs are scaled row by row."""
        assert self.inputs is not None
        if self.inputs == "i16":
            return WIDE_LIMIT
        return limits(self.inputs)[1]

    @property
    def weight_range(self) -> tuple[int, int]:
        """The least and the largest stored weight: as many below zero as above it."""
        high = {"i8": 127, "i4": 7}[self.weights or "i8"]
        return -high, high


RECIPES = {
    "origin": Recipe(),
    "f16": Recipe(compute="f16"),
    "bf16": Recipe(compute="bf16"),
    "w8a8": Recipe("i8", "i8"),
    "w8a8-dynamic": Recipe("i8", "i8", dynamic=True),
    "w8a16": Recipe("i8", "i16", dynamic=True),
    "w4a16": Recipe("i4", None, group=128, compute="f16"),
    "w4a4": Recipe("i4", "i4"),
    "w4a8": Recipe("i4", "i8"),
    "w4a8-dynamic": Recipe("i4", "i8", dynamic=True),
    "f8": Recipe("f8E4M3FN", "f8E4M3FN"),
    "f8-e5m2": Recipe("f8E5M2", "f8E5M2"),
    "f8-dynamic": Recipe("f8E4M3FN", "f8E4M3FN", dynamic=True),
}
"""The modes by name. `w4a16-g32` has groups of 32 weights; those of `SPARSE` may end in `-sparse`."""

SPARSE = ("w8a8", "w8a8-dynamic", "w8a16")
"""Modes in which two of four weights may be stored: products of integers with 8-bit weights."""


SHORT = {"i8": "w8a8", "i4": "w4a16", "f32": "origin"}
"""Short names of modes, by the element type of the weights."""


def full_mode(mode: str) -> str:
    """The name of a mode for it or its short name."""
    return SHORT.get(mode, mode)


def largest_stored(high: int, count: int) -> float:
    """What the largest of `count` weights that share a scale is in units of it: `high`, the largest integer, or half a
    step more, which is stored as `high`, too.

    Half a step more makes steps finer, and the largest weight half a step worse. A step s makes an error of s^2 / 12 in
    each weight that is not exact, so it pays if ((count - 1) / 12 + 1 / 4) r^2 < (count - 1) / 12, with r the ratio of
    the steps: from 22 weights on in 4 bits, from 382 on in 8 bits.
    """
    finer = (high / (high + 0.5)) ** 2
    return high + 0.5 if (count - 1) * (1 - finer) > 3 * finer else float(high)


def recipe_of(mode: str) -> Recipe:
    """The recipe of a mode. Raises PassError for a mode that there is not."""
    if not isinstance(mode, str):
        raise PassError(f"a mode of quantization is a name such as 'w8a8', not {mode!r}")
    mode = full_mode(mode)
    found = re.fullmatch(r"(w[48]a16)-g(\d+)", mode)
    if found is not None and int(found[2]) > 0:
        base = RECIPES[found[1]]
        return replace(base, group=int(found[2]), inputs=None, dynamic=False, compute="f16")
    if mode in RECIPES:
        return RECIPES[mode]
    if mode.removesuffix("-sparse") in SPARSE:
        return replace(RECIPES[mode.removesuffix("-sparse")], sparse=True)
    close = get_close_matches(mode, [*RECIPES, *(f"{m}-sparse" for m in SPARSE)], 1)
    hint = (
        f"did you mean {close[0]!r}?"
        if close
        else f"there are {', '.join(RECIPES)}, w4a16-g32 (groups of 32), w8a8-sparse, and {', '.join(SHORT)} for short"
    )
    raise PassError(f"there is no mode {mode!r} of quantization; {hint}")


@dataclass(frozen=True)
class ProductChoice:
    """What is chosen for one product: its mode and, where that is static, the scale and the zero point of its input.

    balance, one for each summed element, divides the input and multiplies the weights before they are quantized;
    shift, one for each feature, is added to the result; stored and scales are quantized weights that replace those that
    the program is given.
    """

    mode: str
    scale: float | None = None
    zero: int = 0
    balance: np.ndarray | None = None
    shift: np.ndarray | None = None
    stored: np.ndarray | None = None
    scales: np.ndarray | None = None

    @property
    def recipe(self) -> Recipe:
        """Raises PassError for a mode that there is not."""
        return recipe_of(self.mode)

    def arrays(self) -> dict[str, np.ndarray]:
        """Those of its arrays that it has."""
        return {name: found for name in ARRAYS if (found := getattr(self, name)) is not None}


ARRAYS = ("balance", "shift", "stored", "scales")


@dataclass(frozen=True)
class QuantConfig:
    """What a program is quantized to.

    default: the mode of products that are not named; pins: modes by patterns of names, of which the first that fits
    counts; products: what calibration found, by name. A pin wins over the mode of a product, a product's over the
    default.
    """

    default: str = "origin"
    pins: Mapping[str, str] = field(default_factory=dict)
    products: Mapping[str, ProductChoice] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for mode in (self.default, *self.pins.values(), *(p.mode for p in self.products.values())):
            recipe_of(mode)
        object.__setattr__(self, "default", full_mode(self.default))
        object.__setattr__(self, "pins", {p: full_mode(m) for p, m in self.pins.items()})
        products = {n: replace(p, mode=full_mode(p.mode)) for n, p in self.products.items()}
        object.__setattr__(self, "products", products)
        for name, product in self.products.items():
            if product.scale is not None and not _is_scale(product.scale):
                raise PassError(
                    f"quantization: the input of {name} has the scale {product.scale}; scales are positive and "
                    "finite numbers of f32, as their inverses are"
                )
            _check_arrays(name, product)

    def mode_of(self, name: str) -> str:
        """The mode of a product."""
        for pattern, mode in self.pins.items():
            if fits(name, pattern):
                return mode
        return self.products[name].mode if name in self.products else self.default

    def choice(self, name: str) -> ProductChoice:
        """What is chosen for a product."""
        return replace(self.products.get(name, ProductChoice(self.default)), mode=self.mode_of(name))

    def check_names(self, names: Sequence[str]) -> None:
        """Raises PassError where a line of it is of no product called one of `names`."""
        listed = (
            f"the products are {', '.join(names)}" if names else "the program has no products with weights"
        )
        for name in self.products:
            if name not in names:
                raise PassError(f"quantization: there is no product {name!r}; {listed}")
        for pattern in self.pins:
            if not any(fits(name, pattern) for name in names):
                raise PassError(f"quantization: no product fits the pin {pattern!r}; {listed}")

    # -- text ------------------------------------------------------------------------------------------------

    def to_toml(self, arrays: str | None = None) -> str:
        """The text of it; arrays: the file beside it in which `save` puts those that it has."""
        lines = [f"default = {json.dumps(self.default)}"]
        lines += [f"arrays = {json.dumps(arrays)}"] if arrays else []
        if self.pins:
            lines += ["", "[pins]", *(f"{json.dumps(p)} = {json.dumps(m)}" for p, m in self.pins.items())]
        for name, product in self.products.items():
            lines += ["", f"[products.{json.dumps(name)}]", f"mode = {json.dumps(product.mode)}"]
            if product.scale is not None:
                lines.append(f"input = {{scale = {product.scale!r}, zero = {product.zero}}}")
        return "\n".join(lines) + "\n"

    def save(self, path: str | Path) -> None:
        """Writes it to a file that ends in `.toml`; arrays, where it has any, to one beside it that ends in `.npz`.
        Neither is ever half written, and both are or none. Raises PassError for another ending, and OSError."""
        path = Path(path)
        if path.suffix != SUFFIX:
            raise PassError(f"{path}: a configuration is a {SUFFIX} file")
        found = {f"{name}/{key}": a for name, p in self.products.items() for key, a in p.arrays().items()}
        beside = path.with_suffix(".npz")
        with together():
            if found:
                stream = BytesIO()
                np.savez(stream, allow_pickle=False, **found)
                write_whole(beside, stream.getvalue())
            write_whole(path, self.to_toml(beside.name if found else None))

    @staticmethod
    def load(path: str | Path) -> QuantConfig:
        """Reads what `save` or a person wrote. Raises PassError with the file's name for what is wrong in it."""
        path = Path(path)
        try:
            return QuantConfig.parse(read_plain(path).decode(), path.parent)
        except OSError as error:
            raise PassError(f"{path}: {(error.strerror or str(error)).lower()}") from None
        except UnicodeDecodeError:
            raise PassError(f"{path}: no text; a configuration is TOML") from None
        except PassError as error:
            raise PassError(f"{path}: {error}") from None

    @staticmethod
    def parse(text: str, folder: Path | None = None) -> QuantConfig:
        """Reads the text of one; folder: where the file of its arrays is. Raises PassError."""
        try:
            table = toml_of(text)
        except ValueError as error:
            raise PassError(f"quantization: {error}") from None
        return QuantConfig.of_table(table, folder)

    def to_table(self) -> dict[str, Any]:
        """The tables of its text as plain data, which JSON has, too: what a product has of arrays is left out."""
        table: dict[str, Any] = {"default": self.default}
        if self.pins:
            table["pins"] = dict(self.pins)
        if self.products:
            table["products"] = {name: _table_of(product) for name, product in self.products.items()}
        return table

    @staticmethod
    def of_table(table: Any, folder: Path | None = None) -> QuantConfig:
        """Reads the tables of a text; folder: as `parse` has it. Raises PassError."""
        _check_keys(
            "the configuration", table, {"default": str, "pins": dict, "products": dict, "arrays": str}
        )
        pins = table.get("pins", {})
        _check_keys("pins", pins, dict.fromkeys(pins, str))
        arrays = _arrays(folder, table["arrays"]) if "arrays" in table else {}
        products = {name: _product(name, entry) for name, entry in table.get("products", {}).items()}
        for key, array in arrays.items():
            name, _, kind = key.rpartition("/")
            if name not in products or kind not in ARRAYS:
                raise PassError(f"quantization: {table['arrays']} has {key!r}, which belongs to no product")
            products[name] = replace(products[name], **{kind: array})
        return QuantConfig(table.get("default", "origin"), pins, products)


def fits(name: str, pattern: str) -> bool:
    """Whether a pattern of the shell describes a name; brackets stand for themselves. A name in brackets may also be
    written with dots, with or without the argument that it is in: `params['vision']['w']` is `params.vision.w` and
    `vision.w`, too."""
    dotted = re.sub(r"\['([^']*)'\]|\[(\d+)\]", lambda m: f".{m[1] or m[2]}", name)
    shapes = (name, dotted, dotted.partition(".")[2])
    return any(shape and fnmatchcase(shape, re.sub(r"\[", "[[]", pattern)) for shape in shapes)


def _product(name: str, entry: Any) -> ProductChoice:
    where = f"products.{name}"
    _check_keys(where, entry, {"mode": str, "input": dict})
    if "mode" not in entry:
        raise PassError(f"quantization: {where} has no mode")
    given = entry.get("input", {})
    _check_keys(f"{where}.input", given, {"scale": (int, float), "zero": int})
    scale = given.get("scale")
    return ProductChoice(entry["mode"], None if scale is None else float(scale), given.get("zero", 0))


def _table_of(product: ProductChoice) -> dict[str, Any]:
    if product.scale is None:
        return {"mode": product.mode}
    return {"mode": product.mode, "input": {"scale": product.scale, "zero": product.zero}}


def _check_keys(where: str, table: Any, known: Mapping[str, Any]) -> None:
    if not isinstance(table, dict):
        raise PassError(f"quantization: {where} must be a table")
    for key, value in table.items():
        if key not in known:
            raise PassError(f"quantization: {where} has {key!r}; it takes {', '.join(known)}")
        if not isinstance(value, known[key]) or isinstance(value, bool):
            raise PassError(f"quantization: {key} of {where} is {value!r}, which it cannot be")


def _arrays(folder: Path | None, name: str) -> dict[str, np.ndarray]:
    path = (folder or Path()) / name
    try:
        return read_arrays(path)
    except OSError as error:
        raise PassError(f"quantization: {path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise PassError(f"quantization: {path} {error}") from None


def _is_scale(scale: float) -> bool:
    """Whether f32 holds a number and its inverse, neither of them flushed to 0."""
    if not isinstance(scale, int | float | np.number) or not math.isfinite(scale):
        return False
    return bool(LEAST_NORMAL <= scale <= 1 / LEAST_NORMAL)


def _check_arrays(name: str, product: ProductChoice) -> None:
    """Raises PassError for arrays that are not of finite numbers, and for weights without scales."""
    for kind, array in product.arrays().items():
        found = np.asarray(array)
        if found.dtype.kind not in "iuf" or not np.isfinite(found).all():
            raise PassError(f"quantization: the array {kind!r} of {name} must be of finite numbers")
    if (product.stored is None) != (product.scales is None):
        raise PassError(f"quantization: {name} has stored weights or their scales alone; it takes both")
    if product.stored is not None and not np.array_equal(product.stored, np.rint(product.stored)):
        raise PassError(f"quantization: the stored weights of {name} must be whole numbers")
