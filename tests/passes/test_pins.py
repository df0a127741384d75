"""Pinned schedules: read, obeyed, refused with the reason; values do not change under them."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tiering import examples

import tilewright as tw
from tilewright.passes.errors import PassError
from tilewright.passes.pins import Schedule, parse_pins, pins_text

RNG = np.random.default_rng(3)


def array(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


# -- text ---------------------------------------------------------------------------------------------------


@given(
    st.builds(
        Schedule,
        base_m=st.none() | st.integers(1, 512),
        split_n=st.none() | st.integers(1, 24),
        l1=st.none() | st.integers(1, 4),
        inner=st.none() | st.sampled_from("mn"),
        tile=st.none() | st.lists(st.integers(1, 99), min_size=1, max_size=3).map(tuple),
    )
)
def test_text_reads_back(schedule: Schedule) -> None:
    assert Schedule.parse(str(schedule)) == schedule
    named = {"contract_0": schedule, "add_1": Schedule(ub=1)}
    assert parse_pins(pins_text(named)) == {k: v for k, v in named.items() if v != Schedule()}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("base_q=3", "there is no choice 'base_q'; did you mean base_n or base_m or base_k?"),
        ("base_m", "base_m needs a value, as in base_m=64"),
        ("inner", "inner needs a value, as in inner=m"),
        ("what=1", "there is no choice 'what'; there are bands, base_k, "),
        ("base_m=big", "base_m must be a positive integer, not 'big'"),
        ("base_m=0", "base_m must be a positive integer, not 0"),
        ("tile=8x", "tile must be positive integers, as in 8x512, not '8x'"),
        ("l0a=5", "l0a must be 1 to 4 buffers, not 5"),
        ("inner=k", "inner must be m or n, not 'k'"),
        ("a:base_m=1;base_n=2", "'base_n=2' names no kernel"),
    ],
)
def test_bad_text_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(PassError) as error:
        parse_pins(text)
    assert said in str(error.value) and "\n" not in str(error.value)


# -- refused ------------------------------------------------------------------------------------------------


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    return a @ b


def compile_product(
    schedule: Schedule | dict[str, Schedule], m: int = 512, n: int = 512, k: int = 512
) -> tw.Program:
    shapes = [jax.ShapeDtypeStruct(s, "float16") for s in ((m, k), (k, n))]
    return tw.compile(product, *shapes, options=tw.Options(schedule=schedule))


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (Schedule(base_m=256, base_n=256), "an accumulator of 256 x 256 takes 262144 bytes of l0c"),
        (Schedule(base_m=128, base_k=256), "a step of 128 x 256 takes 65536 x 2 buffers bytes of l0a"),
        (
            Schedule(base_n=256, base_k=128, base_m=128),
            "a step of 128 x 256 takes 65536 x 2 buffers bytes of l0b",
        ),
        (Schedule(base_k=128, step_k_a=4, step_k_b=4, l1=4), "x 4 buffers bytes of l1"),
        (Schedule(base_k=128, step_k_a=8), "step_k_a=8 is more than the 4 mma steps along k"),
        (Schedule(base_m=1024), "base_m=1024 is more than the 512 rows that there are"),
        (Schedule(base_k=1024), "base_k=1024 is more than the 512 of k that there are"),
        (Schedule(cores=25), "cores=25 is more than the 24 cube cores of ascend-910b1"),
        (Schedule(base_n=100), "base_n=100 is not a multiple of the cube's 16"),
        (Schedule(base_k=100), "base_k=100 is not a multiple of the cube's 16"),
        (Schedule(base_k=64, step_k_a=3, step_k_b=2), "one step_k must divide the other"),
        (Schedule(base_m=32, base_n=32, split_m=4, split_n=8), "needs more than the 24 cores there are"),
        (Schedule(base_m=128, base_n=128, deal=1, cores=2), "deal=1 gives tiles to 16 cores, not to 2"),
        (Schedule(base_m=128, split_m=3), "split_m=3 leaves cores without work, as the axis has 4 tiles"),
    ],
)
def test_refused_with_the_reason(schedule: Schedule, said: str) -> None:
    with pytest.raises(tw.CompileError) as error:
        compile_product(schedule)
    message = str(error.value)
    assert message.startswith("@contract_0 cannot obey its pinned schedule: ") and said in message, message


@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310", "ascend-950pr"])
@pytest.mark.parametrize(("m", "base_m"), [(100, 25), (197, 99), (33, 7)])
def test_rows_of_a_step_may_be_any_number(m: int, base_m: int, target: str) -> None:
    """As the compiler itself chooses, so that groups of cores have equal tiles."""
    rng = np.random.default_rng(m)
    a, b = (rng.normal(size=s).astype("f2") for s in ((m, 48), (48, 80)))
    options = tw.Options(schedule=Schedule(base_m=base_m))
    program = tw.compile(product, a, b, target=target, options=options)
    assert f"step = [{base_m}, " in program.ir("graph")
    np.testing.assert_allclose(program(a, b), a.astype("f4") @ b.astype("f4"), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-950pr"])
@pytest.mark.parametrize(("m", "k", "n"), [(1000, 768, 3072), (3001, 512, 700)])
def test_the_compilers_own_choice_can_be_pinned(m: int, k: int, n: int, target: str) -> None:
    shapes = [jax.ShapeDtypeStruct(s, "float16") for s in ((m, k), (k, n))]
    free = tw.compile(product, *shapes, target=target)
    found = re.search(r"step = \[(\d+), (\d+), (\d+)\].*? grid = \[(\d+), (\d+), 1\]", free.ir("graph"))
    assert found is not None
    base_m, base_n, base_k, split_m, split_n = map(int, found.groups())
    assert base_m % 16
    pins = Schedule(base_m=base_m, base_n=base_n, base_k=base_k, split_m=split_m, split_n=split_n)
    pinned = tw.compile(product, *shapes, target=target, options=tw.Options(schedule=pins))
    assert pinned.report().microseconds == pytest.approx(free.report().microseconds)


def test_a_kernel_named_must_exist_and_obey() -> None:
    with pytest.raises(tw.CompileError, match="there is no kernel 'contract_7'; there are contract_0"):
        compile_product({"contract_7": Schedule(base_m=64)})
    with pytest.raises(tw.CompileError, match="@contract_0 cannot obey the pinned tile"):
        compile_product({"contract_0": Schedule(tile=(8, 8))})


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (Schedule(tile=(64, 1024)), "a tile of 64 x 1024 takes"),
        (Schedule(tile=(1, 2, 3, 4)), "its domain has 2 axes, and the tile 4"),
        (Schedule(tile=(8, 1024), grid=(3, 2)), "axis 1 cannot be split over 2 cores, as it is reduced"),
        (Schedule(tile=(8, 1024), grid=(49, 1)), "a grid of 49 cores is more than the 48 there are"),
    ],
)
def test_vector_refused_with_the_reason(schedule: Schedule, said: str) -> None:
    with pytest.raises(tw.CompileError) as error:
        tw.compile(
            jax.nn.softmax,
            jax.ShapeDtypeStruct((512, 1024), "float32"),
            options=tw.Options(schedule=schedule),
        )
    assert said in str(error.value)


# -- obeyed -------------------------------------------------------------------------------------------------


def test_base_blocks_steps_and_split_are_obeyed() -> None:
    pins = Schedule(
        base_m=64, base_n=128, base_k=32, step_k_a=8, step_k_b=2, split_m=2, split_n=4, l1=1, l0c=1
    )
    text = compile_product(pins).ir("tile")
    assert "grid = [2, 4]" in text and "slots = [1, 2, 2, 1, 2]" in text
    assert "tile<64x256xf16, l1>" in text and "tile<64x128xf16, l1>" in text
    assert "tile<64x32xf16, l0a>" in text and "tile<32x128xf16, l0b>" in text


def test_one_step_pinned_lengthens_the_other_as_far_as_l1_goes() -> None:
    text = compile_product(Schedule(base_m=128, base_n=256, base_k=64, step_k_a=2), k=4096).ir("tile")
    assert "tile<128x128xf16, l1>" in text and "tile<256x256xf16, l1>" in text


def test_a_free_side_fits_beside_a_pinned_depth() -> None:
    """128 x 256 would be the better step of this product, but with 128 of k it does not fit l0b twice."""
    assert "tile<128x128xf32, l0c>" in compile_product(Schedule(base_k=128)).ir("tile")


def test_deal_gives_each_tile_a_grid_point() -> None:
    assert "grid = [4, 8]" in compile_product(Schedule(base_m=128, base_n=64, deal=1)).ir("tile")


def test_only_the_named_kernel_is_pinned() -> None:
    def two(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.exp(a @ b) @ b

    shapes = [jax.ShapeDtypeStruct((256, 256), "float16")] * 2
    pins = {"contract_1": Schedule(base_m=32)}
    text = tw.compile(two, *shapes, options=tw.Options(schedule=pins)).ir("tile")
    first, second = (text.split(f"@contract_{i} {{")[1].split("tile.kernel")[0] for i in (0, 1))
    assert "f32, l0c>" in first
    assert "tile<32x128xf32, l0c>" in second and "tile<32x128xf32, l0c>" not in first


def test_copy_length_and_buffers_are_obeyed() -> None:
    shape = jax.ShapeDtypeStruct((4096, 64), "float16")
    pins = Schedule(copy_length=4096, ub=1, cores=3)
    text = tw.compile(lambda x: jnp.exp(x), shape, options=tw.Options(schedule=pins)).ir("tile")
    assert "tile<4096xf16, ub>" in text and "slots = [1, 1, 1, 1, 1]" in text
    grid = int(text.split("grid = [")[1].split("]")[0])
    assert grid <= 3


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_piecewise_reduces_each_piece_by_itself(kind: str) -> None:
    """Free, pieces of a row are combined lane by lane, and their lanes once behind all pieces."""
    x = np.asarray(np.random.default_rng(3).normal(size=(3, 5000)), "float32")
    function = {"sum": jnp.sum, "max": jnp.max}[kind]
    for piecewise, carried in ((None, "1x512xf32"), (1, "1x1xf32")):
        pins = Schedule(tile=(1, 512), piecewise=piecewise)
        program = tw.compile(lambda x: function(x, 1), x, options=tw.Options(schedule=pins))
        assert f"iter_args(%10 = %7) -> (!tile.tile<{carried}, ub>)" in program.ir("tile"), piecewise
        np.testing.assert_allclose(program(x), function(x, 1), rtol=1e-5)


def rows_of(x: jax.Array, i: jax.Array) -> jax.Array:
    """Rows of x [100, 16], or of as many such tables as there are lists of places."""
    return x[i] if i.ndim == 1 else jax.vmap(rows_of)(x, i)


def compile_gather(batches: tuple[int, ...], tile: tuple[int, ...]) -> tw.Program:
    args = jax.ShapeDtypeStruct((*batches, 100, 16), "float32"), jax.ShapeDtypeStruct((*batches, 40), "int32")
    return tw.compile(rows_of, *args, options=tw.Options(schedule={"gather_0": Schedule(tile=tile)}))


@pytest.mark.parametrize(("batches", "tile"), [((), (8, 4)), ((3,), (1, 8, 4)), ((3, 4), (1, 1, 8, 4))])
def test_a_gather_obeys_a_tile_of_some_places_and_parts_of_rows(
    batches: tuple[int, ...], tile: tuple[int, ...]
) -> None:
    program = compile_gather(batches, tile)
    assert "!tile.tile<8xi32, ub>) -> !tile.tile<8x4xf32, ub>" in program.ir("tile")
    x, i = array(*batches, 100, 16), RNG.integers(0, 100, (*batches, 40)).astype(np.int32)
    np.testing.assert_array_equal(program(x, i), rows_of(jnp.asarray(x), jnp.asarray(i)))


@pytest.mark.parametrize(
    ("batches", "tile", "said"),
    [
        ((3,), (3, 8, 16), "a tile has one place along axes 0 to 0"),
        ((3, 4), (1, 2, 8, 16), "a tile has one place along axes 0 to 1"),
        ((3, 4), (3, 1, 8, 16), "a tile has one place along axes 0 to 1"),
        ((), (8, 12), "slices are cut into equal parts"),
    ],
)
def test_a_gather_says_which_tiles_it_has_not(
    batches: tuple[int, ...], tile: tuple[int, ...], said: str
) -> None:
    with pytest.raises(tw.CompileError) as error:
        compile_gather(batches, tile)
    assert str(error.value).startswith(f"@gather_0 cannot obey its pinned schedule: {said}")


# -- values -------------------------------------------------------------------------------------------------

BASE = st.none() | st.sampled_from([16, 32, 48, 64, 128])
STEPS = st.none() | st.sampled_from([1, 2, 4, 8])
SLOTS = st.none() | st.integers(1, 3)


@examples(25)
@given(
    st.tuples(*[st.sampled_from([1, 16, 40, 130, 257])] * 3),
    st.builds(
        Schedule,
        base_m=BASE,
        base_n=BASE,
        base_k=BASE,
        step_k_a=STEPS,
        step_k_b=STEPS,
        split_m=st.none() | st.integers(1, 3),
        split_n=st.none() | st.integers(1, 3),
        l1=SLOTS,
        l0a=SLOTS,
        l0b=SLOTS,
        l0c=SLOTS,
        inner=st.none() | st.sampled_from("mn"),
        deal=st.none() | st.just(1),
    ),
    st.booleans(),
    st.booleans(),
)
def test_products_do_not_change_under_pins(
    extents: tuple[int, int, int], pins: Schedule, transposed: bool, epilogue: bool
) -> None:
    m, n, k = extents
    a, b = array(m, k), array(*((n, k) if transposed else (k, n)))

    def function(a: jax.Array, b: jax.Array) -> jax.Array:
        y = a @ (b.T if transposed else b)
        return jnp.maximum(y, 0) + 1 if epilogue else y

    try:
        program = tw.compile(function, a, b, options=tw.Options(schedule=pins))
    except tw.CompileError as error:
        assume("cannot obey its pinned schedule" not in str(error))
        raise
    np.testing.assert_allclose(program(a, b), function(jnp.asarray(a), jnp.asarray(b)), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    "pins", [Schedule(base_m=16, base_k=16, step_k_b=1), Schedule(base_k=16, step_k_a=1)]
)
def test_an_operand_loaded_in_parts_is_loaded_for_each_tile(pins: Schedule) -> None:
    """Only what one load brings whole is kept for the tiles of a core."""
    a, b = array(40, 40), array(40, 300)
    program = tw.compile(product, a, b, options=tw.Options(schedule=pins))
    np.testing.assert_allclose(program(a, b), product(jnp.asarray(a), jnp.asarray(b)), rtol=2e-4, atol=2e-4)


def gated(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.sum(x * jax.nn.sigmoid(y), axis=1), x * y


def columns(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.max(x + y, axis=0)


@examples(20)
@given(
    st.sampled_from([gated, columns, jnp.add]),
    st.tuples(st.integers(1, 60), st.integers(1, 90)),
    st.integers(1, 2),
    st.integers(1, 48),
    st.booleans(),
)
def test_vector_kernels_do_not_change_under_pins(
    function: object, tile: tuple[int, int], ub: int, cores: int, flat: bool
) -> None:
    assert callable(function)
    x, y = array(70, 90), array(70, 90)
    pins = Schedule(ub=ub, cores=cores, **({"copy_length": tile[0] * tile[1]} if flat else {"tile": tile}))
    program = tw.compile(function, x, y, options=tw.Options(schedule=pins))
    for got, want in zip(jax.tree.leaves(program(x, y)), jax.tree.leaves(function(x, y)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


# -- what reduces rows of a product -----------------------------------------------------------------------------


def normalized(x: np.ndarray, w: np.ndarray) -> jax.Array:
    return jax.nn.softmax(x @ w)


@pytest.mark.parametrize(("tail", "kernels"), [(1, ["contract_0"]), (2, ["contract_0", "reduce_0"])])
def test_tail_says_in_which_kernel_rows_are_reduced(tail: int, kernels: list[str]) -> None:
    args = array(48, 40), array(40, 33)
    for pins in (Schedule(tail=tail, base_n=16), {"contract_0": Schedule(tail=tail, base_n=16)}):
        program = tw.compile(normalized, *args, options=tw.Options(schedule=pins))
        assert [k.name for k in program.report().kernels] == kernels
        np.testing.assert_allclose(program(*args), normalized(*args), atol=1e-5)


def test_a_kernel_with_whole_rows_may_be_pinned_by_its_name() -> None:
    """Pins by name leave it to the compiler whether there is such a kernel."""
    args = [jax.ShapeDtypeStruct(s, "float16") for s in ((512, 64), (64, 64))]
    pins = {"contract_0": Schedule(base_m=32, split_m=8)}
    fn = lambda x, w: jax.nn.softmax((x @ w).astype(jnp.float32))  # noqa: E731
    program = tw.compile(fn, *args, options=tw.Options(schedule=pins))
    (kernel,) = program.report().kernels
    assert kernel.cores == 8 and "grid = [8]" in program.ir("tile")


@pytest.mark.parametrize(
    ("pin", "said"),
    [
        ({"split_n": 2}, "split_n=2 leaves cores without work"),
        ({"inner": "m"}, "the inner loop must be n, not m"),
    ],
)
def test_rows_are_whole(pin: dict[str, int | str], said: str) -> None:
    args = [jax.ShapeDtypeStruct(s, "float16") for s in ((512, 64), (64, 64))]
    options = tw.Options(schedule={"contract_0": Schedule(tail=1, base_n=16, **pin)})
    with pytest.raises(tw.CompileError, match=said):
        tw.compile(normalized, *args, options=options)


def test_what_cannot_be_one_kernel_is_refused_by_name() -> None:
    args = [jax.ShapeDtypeStruct(s, "float16") for s in ((512, 64), (64, 64))]
    options = tw.Options(schedule={"contract_0": Schedule(tail=1)})
    with pytest.raises(tw.CompileError, match="tail=1: it sums over rows of a product"):
        tw.compile(lambda x, w: jax.nn.softmax(x @ w, 0), *args, options=options)
    with pytest.raises(tw.CompileError, match="tail=1: no kernel behind it reduces its rows"):
        tw.compile(lambda x, w: x @ w, *args, options=options)
