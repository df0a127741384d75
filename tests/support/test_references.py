"""Results of JAX that are kept: the same bits, whatever their type."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references


def test_what_is_kept_is_what_was_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "KEPT", tmp_path / "kept")

    def fn(x: jax.Array) -> tuple[jax.Array, ...]:
        return x.astype(jnp.bfloat16), x > 1, x[:0], x.sum(), x.astype(jnp.float8_e4m3fn), jax.lax.complex(x, x)

    x = np.arange(6, dtype="f4").reshape(2, 3) / 3
    first, again = references.reference(fn, x), references.reference(fn, x)
    assert len([*(tmp_path / "kept").iterdir()]) == 1
    for a, b in zip(first, again, strict=True):
        a = np.asarray(a)
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    other = references.reference(fn, x + 1)
    assert len([*(tmp_path / "kept").iterdir()]) == 2 and not np.array_equal(other[3], again[3])
