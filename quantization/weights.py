"""Integer weights of products: round to nearest, GPTQ, AWQ; and convolutions as products.

A weight is a matrix [K, N] that is multiplied from the left by inputs [M, K], or several such, [G, K, N]. Its scales
are [1, N], one for each column, or [K / group, N]. What the inputs are enters as the sum of x x^T over all rows x of
all batches, the "Hessian" of the squared error of the output (up to a factor of 2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from .rounding import TINY, quantize, rounded_up, spread, weight_scale

BLOCK = 32
"""Rows that GPTQ rounds before it corrects those after them. Of 16, 32, 64 and 128, the fastest at 768 x 3072."""

ALPHAS = 20
"""Exponents from 0 to 1 that AWQ tries, and 1 itself besides (Lin et al. 2023, section 3.2)."""

CLIPS = tuple(1 - i / 40 for i in range(21))
"""Fractions of the range that AWQ's clip search tries."""

LEAST_MAGNITUDE = 1e-4
"""Input channels count as no weaker than so much of the strongest one, where AWQ scales them."""

PATCH_BYTES = 1 << 26
"""A batch of a convolution is cut into parts whose patches take no more, where it can be."""

Padding = str | Sequence[tuple[int, int]]


class StoredWeight(NamedTuple):
    """A weight as integers. With the input scales s [K], the product of x and the weight is (x / s) @ (q * scale);
    they are None where inputs stay as they are."""

    q: jax.Array  # i8 (i32 for ranges beyond it), the weight's shape
    scale: jax.Array  # f32 [..., K / group or 1, N]
    input_scale: jax.Array | None = None  # f32 [..., K]

    def dequantized(self) -> jax.Array:
        """What the integers stand for, f32, for inputs that are not scaled."""
        w = self.q.astype(jnp.float32) * spread(self.scale, self.q.shape)
        return w if self.input_scale is None else w / self.input_scale[..., None]


def start_hessian(k: int, groups: int | None = None) -> jax.Array:
    """The sum of x x^T over no rows: zeros, f32 [k, k] or [groups, k, k]."""
    return jnp.zeros((k, k) if groups is None else (groups, k, k), jnp.float32)


def update_hessian(hessian: jax.Array, x: ArrayLike) -> jax.Array:
    """The sum with the rows of one batch more: [..., K], or [G, M, K] for [G, K, K]. Traceable."""
    x = jnp.asarray(x).astype(jnp.float32)
    if x.shape[-1:] != hessian.shape[-1:] or (hessian.ndim == 3 and x.shape[:-2] != hessian.shape[:1]):
        raise ValueError(
            f"inputs of shape {list(x.shape)} do not fit a Hessian of shape {list(hessian.shape)}: the last dimension "
            "of the inputs is that of the Hessian"
        )
    if hessian.ndim == 2:
        x = x.reshape(-1, x.shape[-1])
    return hessian + jnp.einsum("...mi,...mj->...ij", x, x, precision=lax.Precision.HIGHEST)


def output_error(w: ArrayLike, found: ArrayLike, hessian: ArrayLike) -> jax.Array:
    """The squared error of the outputs, |X w - X found|^2, for each column: f32 [..., N]."""
    apart = jnp.asarray(w).astype(jnp.float32) - jnp.asarray(found).astype(jnp.float32)
    return _error(apart, jnp.asarray(hessian))


def nearest(
    w: ArrayLike,
    stored: tuple[float, float] = (-127, 127),
    group: int | None = None,
    method: str = "absmax",
    mantissa_bits: int | None = None,
) -> StoredWeight:
    """The weight rounded to nearest. `group`: rows that share a scale (all, by default); `method` and
    `mantissa_bits` as in `weight_scale`. Raises ValueError for what GPTQ refuses of a weight."""
    w = _checked(w)
    scale = weight_scale(w, _blocks(w.shape, group), method, stored[1], mantissa_bits)
    return StoredWeight(quantize(w, scale, 0, *stored), scale)


def gptq(
    w: ArrayLike,
    hessian: ArrayLike,
    stored: tuple[float, float] = (-7, 7),
    group: int | None = None,
    method: str = "absmax",
    act_order: bool = False,
    damping: float = 0.01,
    mantissa_bits: int | None = None,
) -> StoredWeight:
    """The weight rounded row by row, where the rows that are left make up for the error of those before (Frantar et
    al. 2022, algorithm 1; eq. 2 and 3).

    act_order: rows of strong inputs come first. Then the scales of groups are those of the weight as it was; otherwise
    each is chosen when its group's turn comes. damping: as a fraction of the mean of the Hessian's diagonal, added to
    the diagonal. Rows whose inputs are always 0 are rounded to nearest.

    Where inputs are barely correlated and come from few rows (twice K, say), it fits their noise and is worse than
    rounding to nearest on other inputs: take more rows, a damping of 1 or more, or `nearest`.

    Raises ValueError for a weight that is empty, not a matrix or not finite, for groups that do not divide its rows,
    for a Hessian of another shape, and for one that stays singular.
    """
    w = _checked(w)
    h = _fitting(hessian, w)
    if damping <= 0:
        raise ValueError(f"GPTQ cannot invert a Hessian with a damping of {damping}: choose one above 0")
    by_turns = group is not None and not act_order
    scale = weight_scale(w, _blocks(w.shape, group), method, stored[1], mantissa_bits)
    core = partial(
        _gptq,
        stored=(float(stored[0]), float(stored[1])),
        block=group if by_turns and group else min(BLOCK, w.shape[-2]),
        act_order=act_order,
        scale_of=(method, mantissa_bits) if by_turns else None,
    )
    core = core if w.ndim == 2 else jax.vmap(core, (0, 0, 0, None))
    q, chosen = core(w, h, spread(scale, w.shape), jnp.float32(damping))
    if not bool(jnp.all(jnp.isfinite(chosen))):
        raise ValueError(f"GPTQ cannot invert this Hessian with a damping of {damping}: choose a larger one")
    return StoredWeight(
        q.astype(jnp.int8 if stored[0] >= -128 and stored[1] <= 127 else jnp.int32),
        chosen if by_turns else scale,
    )


def awq(
    w: ArrayLike,
    hessian: ArrayLike,
    magnitude: ArrayLike,
    stored: tuple[float, float] = (-7, 7),
    group: int | None = None,
    method: str = "absmax",
    clip: bool = False,
    repeats: int = 1,
    mantissa_bits: int | None = None,
) -> StoredWeight:
    """The weight with rows of strong inputs scaled up, rounded to nearest; inputs are divided by the same scales
    s = magnitude ** alpha (Lin et al. 2023, eq. 4 and 5).

    magnitude: mean |x| of each input channel, [..., K / repeats]. repeats: neighbouring rows with one input channel,
    the number of taps of a convolution. alpha is the best of `ALPHAS` + 1 for the squared error of the outputs, one of
    which is 0: no worse than rounding to nearest. clip: the range of each block is then narrowed as far as the error of
    its own part of the outputs gains by it, in columns whose whole error gains, too. Raises ValueError as `gptq` does.
    """
    w = _checked(w)
    h = _fitting(hessian, w)
    strength = jnp.repeat(jnp.asarray(magnitude, jnp.float32), repeats, axis=-1)
    if strength.shape != w.shape[:-1]:
        raise ValueError(
            f"magnitudes of shape {list(jnp.shape(magnitude))}, {repeats} rows each, do not fit a weight of shape "
            f"{list(w.shape)}: give one for each input channel"
        )
    core = partial(
        _awq,
        stored=(float(stored[0]), float(stored[1])),
        group=group,
        method=method,
        clip=clip,
        mantissa_bits=mantissa_bits,
    )
    return StoredWeight(*(core if w.ndim == 2 else jax.vmap(core))(w, h, strength))


@dataclass(frozen=True)
class Im2col:
    """A convolution as products of patches and matrices, one for each of its feature groups.

    Rows of a matrix are input channels, and for each of them the taps of the kernel in row-major order. `specs` are the
    dimension numbers of `lax.conv_general_dilated`, as `lax.conv_dimension_numbers` returns them.
    """

    kernel_shape: tuple[int, ...]
    specs: lax.ConvDimensionNumbers
    strides: tuple[int, ...]
    padding: Padding
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    groups: int = 1

    @staticmethod
    def of(
        input_shape: Sequence[int],
        kernel_shape: Sequence[int],
        strides: Sequence[int] | None = None,
        padding: Padding = "SAME",
        lhs_dilation: Sequence[int] | None = None,
        rhs_dilation: Sequence[int] | None = None,
        dimension_numbers: tuple[str, str, str] | lax.ConvDimensionNumbers | None = None,
        groups: int = 1,
    ) -> Im2col:
        """The one with the arguments of `lax.conv_general_dilated`, which refuses what does not fit."""
        specs = lax.conv_dimension_numbers(tuple(input_shape), tuple(kernel_shape), dimension_numbers)
        ones = (1,) * (len(kernel_shape) - 2)
        return Im2col(
            tuple(kernel_shape),
            specs,
            tuple(strides or ones),
            padding if isinstance(padding, str) else tuple((a, b) for a, b in padding),
            tuple(lhs_dilation or ones),
            tuple(rhs_dilation or ones),
            groups,
        )

    @property
    def taps(self) -> int:
        """Places of the kernel."""
        return math.prod(self.kernel_shape[d] for d in self.specs.rhs_spec[2:])

    @property
    def k(self) -> int:
        """Rows of each matrix."""
        return self.taps * self.kernel_shape[self.specs.rhs_spec[1]]

    def matrix(self, kernel: ArrayLike) -> jax.Array:
        """The matrices of a kernel, [groups, K, N]."""
        laid = jnp.transpose(jnp.asarray(kernel), self.specs.rhs_spec)
        return jnp.swapaxes(laid.reshape(self.groups, -1, self.k), 1, 2)

    def kernel(self, matrix: ArrayLike) -> jax.Array:
        """The kernel of matrices: undoes `matrix`."""
        laid = jnp.swapaxes(jnp.asarray(matrix), 1, 2).reshape(
            [self.kernel_shape[d] for d in self.specs.rhs_spec]
        )
        back = [self.specs.rhs_spec.index(d) for d in range(len(self.kernel_shape))]
        return jnp.transpose(laid, back)

    def channels(self, scale: ArrayLike) -> jax.Array:
        """One scale for each output channel, from those of the matrices' columns, [groups, 1, N]."""
        return jnp.ravel(jnp.asarray(scale))

    def patches(self, x: ArrayLike) -> jax.Array:
        """What the matrices are multiplied by, [groups, M, K], f32: for each output place what its taps see."""
        x = jnp.transpose(jnp.asarray(x).astype(jnp.float32), self.specs.lhs_spec)
        taken = lax.conv_general_dilated_patches(
            x,
            [self.kernel_shape[d] for d in self.specs.rhs_spec[2:]],
            self.strides,
            self.padding,
            self.lhs_dilation,
            self.rhs_dilation,
            precision=lax.Precision.HIGHEST,
        )
        rows = jnp.moveaxis(taken, 1, -1).reshape(-1, self.groups, self.k)
        return jnp.swapaxes(rows, 0, 1)

    def update_hessian(self, hessian: jax.Array, x: ArrayLike) -> jax.Array:
        """The sums of x x^T over patches, [groups, K, K], with one batch more. Traceable. A batch is taken in parts,
        since patches take `taps` times its memory."""
        x = jnp.moveaxis(jnp.asarray(x), self.specs.lhs_spec[0], 0)
        many = x.shape[0]
        whole = 4 * self.taps * x.size // math.prod(self.strides)
        parts = next(
            p for p in range(1, many + 1) if many % p == 0 and (whole <= PATCH_BYTES * p or p == many)
        )

        def step(held: jax.Array, part: jax.Array) -> tuple[jax.Array, None]:
            return update_hessian(held, self.patches(jnp.moveaxis(part, 0, self.specs.lhs_spec[0]))), None

        return lax.scan(step, hessian, x.reshape(parts, many // parts, *x.shape[1:]))[0]


def _blocks(shape: Sequence[int], group: int | None) -> list[tuple[int, int]]:
    """Which elements share a scale, as in `rounding.grid`."""
    rank = len(shape)
    matrices = [(0, 1)] if rank == 3 else []
    return [*matrices, (rank - 2, shape[-2] if group is None else group), (rank - 1, 1)]


def _checked(w: ArrayLike) -> jax.Array:
    w = jnp.asarray(w).astype(jnp.float32)
    if w.ndim not in (2, 3) or not w.size:
        raise ValueError(
            f"a weight of shape {list(w.shape)} is no matrix with elements: give [K, N] or [G, K, N]"
        )
    if not bool(jnp.all(jnp.isfinite(w))):
        raise ValueError("a weight has NaN or infinity: it cannot be quantised")
    return w


def _fitting(hessian: ArrayLike, w: jax.Array) -> jax.Array:
    h = jnp.asarray(hessian, jnp.float32)
    k = w.shape[-2]
    if h.shape != (*w.shape[:-2], k, k):
        raise ValueError(
            f"a Hessian of shape {list(h.shape)} does not fit a weight of shape {list(w.shape)}: it has "
            f"{[*w.shape[:-2], k, k]}"
        )
    if not bool(jnp.all(jnp.isfinite(h))):
        raise ValueError("a Hessian has NaN or infinity: leave out the batches that have some")
    return h


def _error(apart: jax.Array, h: jax.Array) -> jax.Array:
    return jnp.sum(apart * jnp.matmul(h, apart, precision=lax.Precision.HIGHEST), axis=-2)


@partial(jax.jit, static_argnames=("stored", "block", "act_order", "scale_of"))
def _gptq(
    w: jax.Array,
    h: jax.Array,
    scale: jax.Array,
    damping: jax.Array,
    *,
    stored: tuple[float, float],
    block: int,
    act_order: bool,
    scale_of: tuple[str, int | None] | None,
) -> tuple[jax.Array, jax.Array]:
    """The integers, as f32 [K, N], and for each block of rows the scales of its first row. scale: of each element, used
    unless `scale_of` says how to choose one for each block and column."""
    k = w.shape[0]
    strength = jnp.diagonal(h)
    order = jnp.argsort(-strength, stable=True) if act_order else jnp.arange(k)
    damped = h + jnp.diag(jnp.where(strength > 0, damping * jnp.mean(strength), 1.0))
    upper = _inverse_root(damped[order][:, order])
    beyond = -k % block
    upper = jnp.pad(upper, ((0, beyond), (0, beyond))) + jnp.diag(
        (jnp.arange(k + beyond) >= k).astype(jnp.float32)
    )
    rows, scale = (
        jnp.pad(a[order], ((0, beyond), (0, 0)), constant_values=c) for a, c in ((w, 0), (scale, 1))
    )

    def round_block(rows: jax.Array, first: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        mine = lax.dynamic_slice_in_dim(rows, first, block)
        factors = lax.dynamic_slice_in_dim(upper, first, block)
        inner = lax.dynamic_slice_in_dim(factors, first, block, axis=1)
        if scale_of is None:
            unit = lax.dynamic_slice_in_dim(scale, first, block)
        else:
            chosen = weight_scale(mine, [(0, block), (1, 1)], scale_of[0], stored[1], scale_of[1])
            unit = jnp.broadcast_to(chosen, mine.shape)

        def round_row(i: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            mine, stored_rows, errors = state
            q = jnp.clip(jnp.round(mine[i] / unit[i]), *stored)
            error = (mine[i] - q * unit[i]) / inner[i, i]
            # inner is upper triangular: rows before i stay
            return mine - inner[i][:, None] * error, stored_rows.at[i].set(q), errors.at[i].set(error)

        start = (mine, jnp.zeros_like(mine), jnp.zeros_like(mine))
        _, stored_rows, errors = lax.fori_loop(0, block, round_row, start)
        later = jnp.where(jnp.arange(rows.shape[0]) >= first + block, factors, 0)
        rows = rows - jnp.matmul(later.T, errors, precision=lax.Precision.HIGHEST)
        return rows, (stored_rows, unit[:1])

    _, (q, units) = lax.scan(round_block, rows, jnp.arange(0, k + beyond, block))
    q = q.reshape(-1, w.shape[1])[:k]
    # a Hessian that is singular still leaves NaN in the factor, which clipping may hide
    units = jnp.where(jnp.all(jnp.isfinite(upper)), units.reshape(-1, w.shape[1]), jnp.nan)
    return jnp.zeros_like(q).at[order].set(q), units


def _inverse_root(h: jax.Array) -> jax.Array:
    """The upper triangular U with inverse(h) = U^T U, by one factorisation: with the rows and columns of h in reverse
    order, h = R R^T for an upper triangular R, and U is the inverse of R."""
    r = jnp.linalg.cholesky(h[::-1, ::-1])[::-1, ::-1]
    return jax.scipy.linalg.solve_triangular(r, jnp.eye(len(h), dtype=h.dtype), lower=False)


@partial(jax.jit, static_argnames=("stored", "group", "method", "clip", "mantissa_bits"))
def _awq(
    w: jax.Array,
    h: jax.Array,
    strength: jax.Array,
    *,
    stored: tuple[float, float],
    group: int | None,
    method: str,
    clip: bool,
    mantissa_bits: int | None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The integers, the scales of blocks and of inputs."""
    k = w.shape[0]
    blocks = _blocks(w.shape, group)
    strength = jnp.maximum(strength, jnp.maximum(LEAST_MAGNITUDE * jnp.max(strength), TINY))

    def round_scaled(s: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
        q = quantize(w * s[:, None], scale, 0, *stored)
        return q, w - q * spread(scale, w.shape) / s[:, None]

    def attempt(
        best: tuple[jax.Array, jax.Array], alpha: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        least, chosen = best
        s = strength**alpha
        s = s / jnp.sqrt(jnp.max(s) * jnp.min(s))
        scale = weight_scale(w * s[:, None], blocks, method, stored[1], mantissa_bits)
        error = jnp.sum(_error(round_scaled(s, scale)[1], h))
        return (jnp.minimum(error, least), jnp.where(error < least, s, chosen)), None

    alphas = jnp.arange(ALPHAS + 1) / ALPHAS
    (_, s), _ = lax.scan(attempt, (jnp.asarray(jnp.inf), jnp.ones(k)), alphas)
    scale = weight_scale(w * s[:, None], blocks, method, stored[1], mantissa_bits)
    if clip:
        scale = _clipped(w * s[:, None], h / (s[:, None] * s), scale, stored, mantissa_bits)
    return round_scaled(s, scale)[0], scale, s


def _clipped(
    w: jax.Array, h: jax.Array, scale: jax.Array, stored: tuple[float, float], mantissa_bits: int | None
) -> jax.Array:
    """Scales of narrower ranges, where they lessen the error of the outputs."""
    many, n = scale.shape
    own = h.reshape(many, -1, many, h.shape[0] // many)
    own = jnp.moveaxis(jnp.diagonal(own, axis1=0, axis2=2), -1, 0)

    def apart(tried: jax.Array) -> jax.Array:
        return w - quantize(w, tried, 0, *stored) * spread(tried, w.shape)

    def attempt(
        best: tuple[jax.Array, jax.Array], ratio: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        least, chosen = best
        tried = rounded_up(jnp.maximum(scale * ratio, TINY), mantissa_bits)
        error = _error(apart(tried).reshape(many, -1, n), own)
        return (jnp.minimum(error, least), jnp.where(error < least, tried, chosen)), None

    start = (jnp.full_like(scale, jnp.inf), scale)
    (_, narrow), _ = lax.scan(attempt, start, jnp.asarray(CLIPS))
    gains = _error(apart(narrow), h) < _error(apart(scale), h)
    return jnp.where(gains, narrow, scale)
