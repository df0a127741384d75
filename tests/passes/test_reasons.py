"""Why kernels are not one: each rule's sentence where it is the rule that decides, and none where nobody asks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.passes.forms import chained
from tilewright.passes.fusion import fuse, groups, long_rows, places
from tilewright.passes.reasons import Reason, asked_reasons, reasons_asked


def noted(fn: Callable[..., Any], *shapes: Any, **how: Any) -> list[Reason]:
    """What passes note of a function; shapes are of f16, or (shape, dtype)."""
    args = [
        jax.ShapeDtypeStruct(*((s, np.float16) if all(isinstance(n, int) for n in s) else s))
        for s in shapes
    ]
    with reasons_asked() as found:
        tw.compile(fn, *args, **how)
    return found


def whys(kind: str, *args: Any, **how: Any) -> list[str]:
    return [r.why for r in noted(*args, **how) if r.kind == kind]


def chain(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
    """Two products, one after the other."""
    return jnp.tanh(x @ w) @ v


PRODUCT = groups.GROUPINGS["contraction"].apart
INDEX, MOVE, VECTOR = (groups.GROUPINGS[name].apart for name in ("index", "move", "vector"))

CASES: dict[str, tuple[Callable[..., Any], list[Any], list[str]]] = {
    "a product after a product": (chain, [(37, 64), (64, 48), (48, 31)], [PRODUCT]),
    "sums over a product's rows": (
        lambda x, w: jax.nn.softmax((x @ w).astype(jnp.float32), axis=0),
        [(37, 64), (64, 48)],
        [groups.SUMS],
    ),
    "a value and its transpose": (
        lambda x: jnp.tanh(x) + jnp.tanh(x).T,
        [(48, 48)],
        [places.ALONG],
    ),
    "two products that meet": (
        lambda x, w, v: x @ w + x @ v,
        [(37, 64), (64, 48), (64, 48)],
        [groups.TWO_PRODUCTS],
    ),
    "what follows a sort": (lambda x: jnp.tanh(jnp.sort(x, axis=1)), [(13, 48)], [groups.OWN_ORDER]),
    "a sort of what is computed": (lambda x: jnp.sort(jnp.tanh(x), axis=1), [(13, 48)], [VECTOR]),
    "a gather of what is computed": (
        lambda x, i: jax.lax.dynamic_slice(jnp.tanh(x), (i, 0), (7, 48)),
        [(130, 48), ((), "int32")],
        [INDEX, INDEX],
    ),
    "parts of one tensor": (
        lambda x, y: jnp.concatenate([jnp.tanh(x), jnp.tanh(y)], axis=0),
        [(13, 48), (11, 48)],
        [groups.UNSTACKED, groups.UNSTACKED],
    ),
    "an epilogue of a convolution in groups": (
        lambda x, w: jax.nn.relu(
            jax.lax.conv_general_dilated(
                x, w, (1, 1), "SAME", feature_group_count=2, dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        ),
        [(1, 8, 8, 32), (3, 3, 16, 32)],
        [groups.GROUPED],
    ),
    "a residual that comes before a product": (
        lambda x, w, v: (y := x @ w) + jnp.tanh(y) @ v,
        [(37, 64), (64, 48), (48, 48)],
        [places.LATER, PRODUCT],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_rule_that_decides_says_why(name: str) -> None:
    fn, shapes, want = CASES[name]
    assert sorted(whys("not fused", fn, *shapes)) == sorted(want)


def test_rows_that_do_not_fit() -> None:
    """The sentence has the row, what it takes and what there is, and why it is not read in pieces."""
    fn = lambda x, w: jnp.tanh(x) + jnp.sum(jnp.tanh(x) * w, axis=1, keepdims=True)  # noqa: E731
    start = "whole rows of 20000 elements of all that one kernel would hold take "
    shape = ((8, 20_000), "float32")
    why = next(why for why in whys("not fused", fn, shape, shape) if why.startswith(start))
    whole, pieces = why.split("; to read them in pieces takes ")
    need, room = (int(n) for n in whole.replace(" bytes", "").split(" take ")[1].split(" of "))
    assert need > room and room < tw.Machine.load("ascend-910b1").spaces["ub"].bytes
    one, two = (float(n) for n in pieces.replace(" us", "").split(", and two kernels "))
    assert one > two


def normalized(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.nn.softmax((x @ w).astype(jnp.float32))


def test_rows_of_a_product_are_reduced_where_that_pays() -> None:
    """Nothing is said of two kernels that are one; of others how long either takes, and nothing else."""
    assert whys("not fused", normalized, (512, 64), (64, 64)) == []
    (why,) = whys("not fused", normalized, (512, 3072), (3072, 768))
    start = "one kernel that has whole rows takes "
    assert why.startswith(start)
    one, two = (float(n) for n in why.removeprefix(start).replace(" us", "").split(", and two kernels "))
    assert one > two
    options = tw.Options(without={"row-epilogue"})
    assert whys("not fused", normalized, (512, 64), (64, 64), options=options) == [groups.SUMS]


def test_long_rows_of_different_axes_are_reduced_in_two_kernels() -> None:
    fn = lambda x: (jnp.tanh(x).sum(0), jnp.tanh(x).max(1))  # noqa: E731
    found = whys("not fused", fn, ((64, 20_000), "float32"))
    assert any(why.endswith(long_rows.OTHER_AXES) for why in found)


def test_nothing_is_noted_where_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_reasons() is None
    made: list[groups.Grouper] = []

    class Watched(groups.Grouper):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(fuse, "Grouper", Watched)
    tw.compile(chain, *(jax.ShapeDtypeStruct(s, np.float16) for s in [(37, 64), (64, 48), (48, 31)]))
    assert made and all(grouper.refusals is None for grouper in made)


# -- attention -----------------------------------------------------------------------------------------------


def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.T) @ v


def needs_weights(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    weights = jax.nn.softmax(q @ k.T)
    return weights @ v, weights * 2


def over_rows(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """A softmax over the rows that the product keeps."""
    return jax.nn.softmax(q @ k.T, axis=0) @ v


NEARLY: dict[str, tuple[Callable[..., Any], list[Any], str]] = {
    "few rows": (attend, [(3, 64), (80, 64), (80, 32)], "attention of few rows takes"),
    "few keys": (attend, [(48, 64), (7, 64), (7, 32)], "it has 7 keys"),
    "weights are needed": (needs_weights, [(48, 64), (80, 64), (80, 32)], "needs its scores or weights, too"),
    "over rows": (over_rows, [(48, 64), (80, 64), (80, 32)], chained.MIXED),
}


@pytest.mark.parametrize("name", NEARLY)
def test_why_attention_is_not_one_kernel(name: str) -> None:
    fn, shapes, want = NEARLY[name]
    (why,) = whys("not attention", fn, *shapes)
    assert want in why


def test_attention_is_not_for_every_machine_and_type() -> None:
    shapes = [(480, 64), (480, 64), (480, 32)]
    assert whys("not attention", attend, *shapes) == []
    (why,) = whys("not attention", attend, *shapes, target="ascend-310")
    assert why == "ascend-310 has no path that brings weights from its vector unit back to the cube"
    assert whys("not attention", chain, (37, 64), (64, 48), (48, 31)) == []


APART: dict[str, tuple[list[Any], str]] = {
    "little between them": ([(4096, 64), (64, 512), (512, 64)], "the 4194304 bytes between the products stay in L2"),
    "long sums": ([(4096, 512), (512, 8192), (8192, 64)], "it sums up 512 elements"),
    "many columns": ([(4096, 64), (64, 8192), (8192, 512)], "has 512 columns"),
    "few rows": ([(512, 64), (64, 65536), (65536, 64)], "rows are no tiles of 128 for half of the 24 cores"),
}


@pytest.mark.parametrize("name", APART)
def test_why_chained_products_are_two_kernels(name: str) -> None:
    shapes, want = APART[name]
    (why,) = whys("not chained", chain, *shapes)
    assert want in why


# -- launches ------------------------------------------------------------------------------------------------


def test_launches_that_would_be_dearer_as_one() -> None:
    """A kernel on one core, and one on all: the small one would wait at a barrier over all cores."""
    found = noted(
        lambda x, y, w: (jnp.tanh(x), jax.nn.relu(y @ w)), (3, 17), (4096, 512), (512, 4096)
    )
    (why,) = (r.why for r in found if r.kind == "not joined")
    assert why.startswith("to start all 2 kernels in one launch")
    together, apart = (float(part.split()[-1]) for part in why.split(" us")[:2])
    assert together > apart


def test_launches_with_a_copy_between_them() -> None:
    def fn(cache: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.tanh(row), jax.lax.dynamic_update_slice(cache, row * 2, (3, 0))

    found = [r for r in noted(fn, (64, 96), (2, 96)) if r.kind == "not joined"]
    assert any("'npu.copy'" in r.why and r.why.endswith("is between them") for r in found)


def test_a_row_that_many_products_would_make_again() -> None:
    """Twenty products of a norm: each would make it for longer than all wait for it once."""

    def fn(x: jax.Array, w: jax.Array) -> list[jax.Array]:
        h = x - x.mean(-1, keepdims=True)
        return [jnp.tanh((h * h) @ w[i]) for i in range(20)]

    found = [r for r in noted(fn, (1, 1024), (20, 1024, 64)) if r.kind == "not recomputed"]
    assert found
    for reason in found:
        assert "us longer: the launches around take" in reason.why
        ((recomputed, apart),) = re.findall(r"take ([\d.]+) us then, and ([\d.]+) as they are", reason.why)
        assert float(recomputed) >= float(apart)


def test_a_row_that_has_no_room() -> None:
    """The tiles of a product with many columns leave no room for all of its row."""

    def fn(x: jax.Array, w: jax.Array) -> jax.Array:
        scale = jax.lax.rsqrt((x * x).mean(-1, keepdims=True, dtype=jnp.float32))
        return (x * scale.astype(x.dtype)) @ w

    on_cubes = tw.Options(schedule={"contract_0": tw.Schedule(base_n=256)})  # one row is left to vector cores else
    found = noted(fn, (1, 4096), (4096, 11008), options=on_cubes)
    assert any(r.kind == "not recomputed" and r.why.endswith("has no room for it on chip") for r in found)
