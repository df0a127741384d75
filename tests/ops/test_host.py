"""Whole functions of JAX's library that need the host: linear algebra, transforms, custom calls, random draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from harness import check, data
from jax import lax

A, S = data("f32", (6, 4)), data("f32", (5, 5))


def positive(a: jax.Array) -> jax.Array:
    return a @ a.T + 5 * jnp.eye(a.shape[0])


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "solve": (lambda a, b: jnp.linalg.solve(positive(a), b), (S, S[:, :2])),
    "cholesky, inverse, determinant": (
        lambda a: (
            jnp.linalg.cholesky(positive(a)),
            jnp.linalg.inv(positive(a)),
            jnp.linalg.det(positive(a)),
        ),
        (S,),
    ),
    "singular values, eigenvalues": (
        lambda a: (jnp.linalg.svd(a, compute_uv=False), jnp.linalg.eigvalsh(a.T @ a)),
        (A,),
    ),
    "fft": (lambda a: jnp.abs(jnp.fft.fft2(a)), (S,)),
    "a convolution by fft": (lambda a: jnp.fft.irfft(jnp.fft.rfft(a) * jnp.fft.rfft(a[::-1])), (A,)),
    "approximate top k": (lambda a: lax.approx_max_k(a, 3), (data("f32", (5, 64)),)),
    "a loop of draws": (lambda k, a: jax.random.gamma(k, jnp.abs(a) + 1), (jax.random.key(3), A[0])),
    "a shuffle": (
        lambda k, a: (jax.random.permutation(k, a), jax.random.choice(k, 9, (3,), replace=False)),
        (jax.random.key(3), A[0]),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_of_the_library(name: str) -> None:
    fn, args = PROGRAMS[name]
    check(fn, *args, memories=("typed", "bytes"), length=100, host=True)
