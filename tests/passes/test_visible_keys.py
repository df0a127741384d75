"""Which keys rows see: what is hidden is hidden by the mask, and every row has a key that it sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.dialects.graph import ContractOp, FusionOp
from tilewright.dialects.graph.interface import shape_of
from tilewright.frontends.jax import lower_function
from tilewright.machine import Machine
from tilewright.passes.forms.attention import Attention, attention_at
from tilewright.passes.forms.visible_keys import VisibleKeys, visible_keys
from tilewright.passes.pipeline import PIPELINE, run_stage

MACHINE = Machine.load("ascend-910b1")
KINDS = ("int32", "int16", "float32", "float16", "uint32")

Mask = Callable[[Any, Any], Any]
"""Whether rows see keys."""


def attention_of(
    mask: Mask, rows: int, keys: int, kind: str = "int32", away: float = float("-inf")
) -> Attention | None:
    """The attention of a function with a mask, as graph-schedule finds it; None where another kernel makes the mask."""

    def f(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("qd,kd->qk", q, k)
        at = (jax.lax.broadcasted_iota(kind, scores.shape, d) for d in (0, 1))
        return jax.nn.softmax(jnp.where(mask(*at), scores, away), axis=-1) @ v

    given = [jax.ShapeDtypeStruct((n, 16), "float32") for n in (rows, keys, keys)]
    module = lower_function(f, given).module
    for stage in PIPELINE:
        if stage.name == "graph-schedule":
            break
        run_stage(stage, module, "ascend-910b1")
    fusions = [op for op in module.walk() if isinstance(op, FusionOp) and not op.on_host]
    product = [op for op in fusions[-1].body.block.ops if isinstance(op, ContractOp)][-1]
    if len(fusions) > 1:
        return None
    found = attention_at(product, MACHINE)
    assert isinstance(found, Attention)
    return found


def seen(at: Attention | None) -> VisibleKeys | None:
    if at is None:
        return None
    (row,) = {*range(len(shape_of(at.scores.result)))} - {at.keys}
    return visible_keys(at, row)


def check_against(mask: Mask, rows: int, keys: int, kind: str, found: VisibleKeys | None) -> None:
    """No row sees a key that is left out for it, and each has one."""
    exact = np.asarray(mask(*(jax.lax.broadcasted_iota(kind, (rows, keys), d) for d in (0, 1))))
    if found is None:
        return
    for row in range(rows):
        first, end = found.of(row, row + 1)
        assert exact[row].any() or (first, end) == (0, keys)
        assert not exact[row, :first].any() and not exact[row, end:].any()


@given(
    st.integers(16, 90),
    st.integers(16, 90),
    st.sampled_from(KINDS),
    st.tuples(*(st.integers(-3, 3) for _ in range(3))),
    st.integers(1, 60),
    st.sampled_from(["ge", "window", "not", "or", "remainder", "quotient", "least", "apart", "clamp"]),
)
def test_nothing_that_a_row_sees_is_left_out(
    rows: int, keys: int, kind: str, factors: tuple[int, int, int], width: int, form: str
) -> None:
    a, b, c = (np.dtype(kind).type(abs(x) if kind == "uint32" else x) for x in factors)
    forms: dict[str, Mask] = {
        "ge": lambda r, k: r * a + b >= k + c,
        "window": lambda r, k: (r >= k) & (r - k < width),
        "not": lambda r, k: ~(r + b < k) | (k == c),
        "or": lambda r, k: (r >= k) | (k < width),
        "remainder": lambda r, k: jax.lax.rem(r, r.dtype.type(width)) >= k - b,
        "quotient": lambda r, k: jax.lax.div(r, r.dtype.type(width)) == jax.lax.div(k, k.dtype.type(width)),
        "apart": lambda r, k: jnp.abs(r + b - k) < width,
        "clamp": lambda r, k: jnp.clip(r + b, 0, width) * 1 >= k + c,
        "least": lambda r, k: jnp.minimum(r, r.dtype.type(width)) >= jnp.maximum(k, b) - c,
    }
    mask = forms[form]
    found = seen(attention_of(mask, rows, keys, kind))
    check_against(mask, rows, keys, kind, found)


@pytest.mark.parametrize(("rows", "keys"), [(17, 17), (64, 96), (96, 64), (1000, 1000)])
def test_a_causal_mask_leaves_out_all_that_it_can(rows: int, keys: int) -> None:
    found = seen(attention_of(lambda r, k: r >= k, rows, keys))
    assert found is not None
    for row in range(rows):
        assert found.of(row, row + 1) == (0, min((row // found.grain + 1) * found.grain, keys))


@pytest.mark.parametrize("kind", ["int32", "float32"])
def test_a_window_on_both_sides_is_as_one_of_two_bounds(kind: str) -> None:
    one, two = (
        seen(attention_of(mask, 300, 300, kind))
        for mask in (lambda r, k: jnp.abs(r - k) < 40, lambda r, k: (r - k < 40) & (k - r < 40))
    )
    assert one is not None and two is not None
    assert one.first.tolist() == two.first.tolist() and one.end.tolist() == two.end.tolist()
    assert one.of(150, 160) == (96, 208)


def test_blocks_grow_with_the_rows() -> None:
    found = seen(attention_of(lambda r, k: r >= k, 40_000, 40_000))
    assert found is not None and found.grain == 80 and found.of(0, 100) == (0, 160)


def test_a_mask_that_may_be_met_by_scores_hides_nothing() -> None:
    """Scores are up to 2 ** 14: what is as large must be far below them."""
    assert seen(attention_of(lambda r, k: r >= k, 64, 64, away=-16_384.0)) is None
    assert seen(attention_of(lambda r, k: r >= k, 64, 64, away=-16_500.0)) is not None


def test_a_row_without_keys_sees_all() -> None:
    for away in (float("-inf"), -1e30):
        found = seen(attention_of(lambda r, k: r > k, 64, 64, away=away))
        assert found is not None and found.of(0, 1) == (0, 64) and found.of(16, 17) == (0, 32)


def test_unsigned_numbers_that_wrap_around_hide_nothing() -> None:
    found = seen(attention_of(lambda r, k: r - k < 1000, 64, 64, "uint32"))
    assert found is None or all(found.of(r, r + 1)[0] == 0 for r in range(64))
