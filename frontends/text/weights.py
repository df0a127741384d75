"""Arrays of weight files: .safetensors and .npz."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...dialects.dtypes import numpy_dtype
from ...support.files import NOT_ARRAYS, open_plain, read_plain
from .diagnostics import Problem, did_you_mean, in_words

_SAFETENSORS = {
    "F64": "f64",
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "I64": "i64",
    "I32": "i32",
    "I16": "i16",
    "I8": "i8",
    "U8": "ui8",
    "BOOL": "i1",
    "F8_E4M3": "f8E4M3FN",
    "F8_E5M2": "f8E5M2",
}
"""Element types of https://github.com/huggingface/safetensors#format."""


SUFFIXES = (".safetensors", ".npz")


class WeightFiles:
    """Weight files, each opened once."""

    def __init__(self) -> None:
        self._arrays: dict[Path, dict[str, np.ndarray]] = {}

    def read(self, path: Path, key: str) -> np.ndarray:
        """The array `key` of a file. Raises Problem where there is none."""
        arrays = self._arrays.get(path)
        if arrays is None:
            arrays = self._arrays[path] = _load(path)
        if key not in arrays:
            names = sorted(arrays)
            known = f"it has {in_words(names[:8], 'and')}" if names else "it is empty"
            raise Problem(
                f'{path.name} has no array "{key}"', help=did_you_mean(key, names) or known, argument="key"
            )
        return arrays[key]


def _load(path: Path) -> dict[str, np.ndarray]:
    if path.suffix not in SUFFIXES:
        raise Problem(f"{path.name or path} is neither a .safetensors nor an .npz file")
    try:
        if path.suffix == ".npz":
            with open_plain(path) as content, np.load(content, allow_pickle=False) as arrays:
                return dict(arrays)
        return _safetensors(path)
    except FileNotFoundError:
        near = (p.name for p in path.parent.glob("*") if p.suffix in SUFFIXES)
        raise Problem(f"there is no file {path}", help=did_you_mean(path.name, near)) from None
    except OSError as error:
        raise Problem(f"{path.name}: {error.strerror or 'not an .npz file of arrays'}") from None
    except NOT_ARRAYS:
        article = "an" if path.suffix == ".npz" else "a"
        raise Problem(f"{path.name} is not {article} {path.suffix} file of arrays") from None


def _safetensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError, deserialize

    try:
        found = deserialize(read_plain(path))
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    out = {}
    for name, entry in found:
        dtype = _SAFETENSORS.get(entry["dtype"])
        if dtype is not None:
            array = np.frombuffer(entry["data"], numpy_dtype(dtype))
            out[name] = array.reshape(tuple(entry["shape"]))
    return out
