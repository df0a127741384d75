"""Fourier transforms and the weights of mel bands. Transforms are products of matrices, which the cube computes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..node import Node
from ..table import rule
from ..values import dtype_named
from .reductions import wide

LONGEST = 1 << 10
"""The longest transform that is a product with a matrix; longer ones are left to the library."""


def _angles(length: Any, rows: Any, columns: Any, dtype: Any) -> tuple[Any, Any]:
    """The cosines and sines of 2 pi i k / length [rows, columns], by numpy where sizes are known."""
    import jax.numpy as jnp

    xp: Any = np if all(isinstance(n, int) for n in (length, rows, columns)) else jnp
    turns = (xp.arange(rows)[:, None] * xp.arange(columns)) % length
    parts = turns.astype(np.float64 if xp is np else dtype) * (2 * np.pi) / length
    return xp.cos(parts).astype(dtype), xp.sin(parts).astype(dtype)


def spectrum(length: Any, rows: Any, bins: Any, dtype: Any, inverse: bool = False) -> Any:
    """The matrix [rows, 2, bins, 2] from complex numbers to their transform: pairs of a real and an imaginary part."""
    import jax.numpy as jnp

    cos, sin = _angles(length, rows, bins, dtype)
    xp: Any = np if isinstance(cos, np.ndarray) else jnp
    sin = sin if inverse else -sin
    made = xp.stack([xp.stack([cos, sin], -1), xp.stack([-sin, cos], -1)], 1)
    return made / xp.asarray(length, dtype) if inverse else made


def real_signal(length: Any, rows: Any, dtype: Any) -> Any:
    """The matrix [rows, 2, length, 1] from the first half of a transform to the real signal that it is of."""
    import jax.numpy as jnp

    cos, sin = _angles(length, rows, length, dtype)
    xp: Any = np if isinstance(cos, np.ndarray) else jnp
    bins = xp.arange(rows)
    alone = (bins == 0) | (2 * bins == length)  # the others stand for two, of which one is left out
    factors = xp.where(alone, 1.0, 2.0).astype(dtype)[:, None] / xp.asarray(length, dtype)
    return xp.stack([cos * factors, -sin * factors], 1)[..., None]


@rule("DFT")
def _dft(node: Node, x: Any, dft_length: Any = None, axis: Any = None) -> Any:
    import jax.numpy as jnp
    from jax.core import min_dim

    along = node.get("axis", 1) if node.version < 20 else node.number(2, -2)
    along = node.place(along, x.ndim)
    inverse, half = bool(node.get("inverse", 0)), bool(node.get("onesided", 0))
    n, y = x.shape[along], wide(x)
    length = node.number(1, 2 * (n - 1) if inverse and half else n)
    bins = length // 2 + 1
    if isinstance(length, int) and length > LONGEST:
        return _by_library(y, length, along, inverse, half).astype(x.dtype)
    rows = min_dim(n, bins if inverse and half else length)
    y = jnp.moveaxis(y, along, -2)[..., :rows, :]
    if inverse and half:
        matrix = real_signal(length, rows, y.dtype)
    else:
        matrix = spectrum(length, rows, bins if half else length, y.dtype, inverse)
    made = jnp.tensordot(y, matrix[:, : y.shape[-1]], 2)
    return jnp.moveaxis(made, -2, along).astype(x.dtype)


def _by_library(x: Any, length: int, axis: int, inverse: bool, half: bool) -> Any:
    """The transform along an axis by `jax.numpy`."""
    import jax
    import jax.numpy as jnp

    whole = x[..., 0] if x.shape[-1] == 1 else jax.lax.complex(x[..., 0], x[..., 1])
    if inverse and half:
        return jnp.fft.irfft(whole, length, axis)[..., None]
    if half and x.shape[-1] == 1:
        made = jnp.fft.rfft(whole, length, axis)
    else:
        made = (jnp.fft.ifft if inverse else jnp.fft.fft)(whole, length, axis)
        made = jax.lax.slice_in_dim(made, 0, length // 2 + 1, axis=axis) if half else made
    return jnp.stack([made.real, made.imag], -1)


@rule("STFT")
def _stft(node: Node, x: Any, frame_step: Any, window: Any = None, frame_length: Any = None) -> Any:
    """The transforms of frames: a convolution by the window's waves, which steps from frame to frame."""
    import jax
    import jax.numpy as jnp

    y, step = wide(x), node.number(1)
    length = node.number(3, x.shape[1] if window is None else window.shape[0])
    half = bool(node.get("onesided", 1))
    bins = length // 2 + 1 if half else length
    if isinstance(length, int) and length > LONGEST:
        frames = (x.shape[1] - length) // step + 1
        places = jnp.arange(frames)[:, None] * step + jnp.arange(length)
        parts = jnp.take(y, places, 1, mode="clip")
        parts = parts if window is None else parts * window.astype(y.dtype)[:, None]
        return _by_library(parts, length, 2, False, half).astype(x.dtype)
    waves = spectrum(length, length, bins, y.dtype)[:, : x.shape[2]]
    if window is not None:
        waves = waves * window.astype(y.dtype).reshape(-1, 1, 1, 1)
    xp: Any = np if isinstance(waves, np.ndarray) else jnp
    kernel = xp.moveaxis(waves, 0, -1)  # [1 or 2, bins, 2, length]
    kernel = xp.moveaxis(kernel, 0, 2).reshape(bins * 2, x.shape[2], length)
    made = jax.lax.conv_general_dilated(jnp.swapaxes(y, 1, 2), kernel, [step], [(0, 0)])
    made = jnp.swapaxes(made, 1, 2)
    return made.reshape(*made.shape[:2], bins, 2).astype(x.dtype)


@rule("MelWeightMatrix", folds=True)
def _mel_weight_matrix(node: Node, bands: Any, length: Any, rate: Any, lowest: Any, highest: Any) -> Any:
    """Triangles over the bins of a transform [bins, bands], as far apart on the mel scale as all others."""
    from onnx import TensorProto

    count, size, samples, low, high = (node.number(i) for i in range(5))
    first, last = (2595 * np.log10(1 + hertz / 700) for hertz in (low, high))
    # the step is that of the op's reference: a part more than there are between the edges
    mels = first + np.arange(count + 2) * ((last - first) / (count + 2))
    edges = np.floor((size + 1) * (700 * (10 ** (mels / 2595) - 1)) / samples)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    bins = np.arange(size // 2 + 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        rising = np.where(bins == centre, 1, (bins - left) / (centre - left))
        falling = (right - bins) / (right - centre)
    made = np.where((bins >= left) & (bins <= centre), rising, 0)
    made = np.where((bins > centre) & (bins < right), falling, made)
    return made.astype(dtype_named(node.get("output_datatype", TensorProto.FLOAT)))
