"""The machines against the published facts, the loader's errors, and the vector cost rule."""

from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
import tilewright.machine as machine_package
from tilewright.machine import CubeRate, Machine, MachineError, Move
from tilewright.machine.sources import figures

B1 = Machine.load("ascend-910b1")
A310 = Machine.load("ascend-310")
FOLDER = Path(machine_package.__file__).parent

ARITHMETIC = [
    "abs",
    "neg",
    "sign",
    "is_finite",
    "convert",
    "add",
    "sub",
    "mul",
    "div",
    "max",
    "min",
    "pow",
    "rem",
    "clamp",
]
COMPARE = ["eq", "ne", "lt", "le", "gt", "ge", "select"]
FLOAT = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "sqrt",
    "rsqrt",
    "cbrt",
    "tanh",
    "logistic",
    "sin",
    "cos",
    "tan",
    "erf",
    "erfc",
    "atan2",
    "floor",
    "ceil",
    "round_even",
    "round_away",
]
BITS = [
    "and",
    "or",
    "xor",
    "not",
    "shl",
    "shr_logical",
    "shr_arithmetic",
    "popcnt",
    "clz",
    "reduce_and",
    "reduce_or",
]
DATA = [
    "copy",
    "fill",
    "iota",
    "broadcast",
    "transpose",
    "gather",
    "arg_reduce",
    "reduce_sum",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
]


def test_names():
    assert {"ascend-310", "ascend-910b1"} <= set(Machine.names())


def test_910b1_published():
    assert (B1.clock_mhz, B1.fused, B1.cube_cores, B1.vector_cores) == (1850, False, 24, 48)
    sizes = {name: space.bytes for name, space in B1.spaces.items()}
    kib = 1024
    assert sizes == {
        "gm": 64 * kib**3,
        "l1": 512 * kib,
        "l0a": 64 * kib,
        "l0b": 64 * kib,
        "l0c": 128 * kib,
        "ub": 192 * kib,
        "bt": kib,
        "fb": 7 * kib,
    }
    to_l0 = [B1.moves["l1", space] for space in ("l0a", "l0b")]
    assert [(m.pipe, m.bytes_per_cycle, m.fixed_cycles) for m in to_l0] == [
        ("MTE1", 256, 24),
        ("MTE1", 128, 24),
    ]
    assert {dtype: rate.macs for dtype, rate in B1.cube.items()} == {
        "f16": 4096,
        "bf16": 4096,
        "f32": 1024,
        "i8": 8192,
        "i4x2": 16384,
    }
    assert B1.cube_k0 == {"f16": 16, "bf16": 16, "f32": 8, "i8": 32, "i4x2": 64}
    assert B1.l2_bytes == 192 * kib**2
    assert B1.hbm_bytes_per_cycle == pytest.approx(1.49e12 / 1.85e9)
    assert B1.l2_bytes_per_cycle == pytest.approx(6.0e12 / 1.85e9)
    assert ("l0c", "ub") not in B1.moves
    assert B1.flags == 8


def test_310_published():
    assert (A310.clock_mhz, A310.fused, A310.cube_cores, A310.vector_cores) == (680, True, 2, 2)
    assert A310.cube == {"f16": CubeRate(16, 16, 16), "i8": CubeRate(16, 32, 16)}
    assert A310.spaces["l1"].bytes == 1048576
    assert A310.spaces["l0c"].bytes == 262144
    assert A310.spaces["ub"].bytes == 253952
    assert A310.l2_bytes == 8388608
    assert "bt" not in A310.spaces
    assert A310.moves["l0c", "ub"].bytes_per_cycle == 256
    assert A310.moves["l1", "l0a"].bytes_per_cycle == 512
    assert A310.moves["l1", "l0b"].bytes_per_cycle == 256
    assert A310.hbm_bytes_per_cycle == pytest.approx(67, rel=0.01)
    int8_tops = 2 * 8192 * A310.cube_cores * A310.clock_mhz * 1e-6
    assert int8_tops == pytest.approx(22, rel=0.02)


def test_time():
    assert B1.cycles_to_microseconds(1850) == 1
    assert B1.launch_microseconds(1) == 0.5
    whole = B1.launch_us_all
    assert B1.launch_microseconds(24) == B1.launch_microseconds(48) == whole
    assert 0.5 < B1.launch_microseconds(2) < B1.launch_microseconds(12) < whole


def test_a_mixed_launch_takes_longer_and_a_barrier_a_third_of_it():
    assert B1.launch_microseconds(1, mixed=True) == 0.5 + 1
    assert B1.launch_microseconds(24, mixed=True) == 9 + 5
    assert B1.barrier_microseconds(24) == pytest.approx(3)
    assert B1.barrier_microseconds(24, mixed=True) == pytest.approx(14 / 3)
    assert A310.launch_microseconds(2, mixed=True) == A310.launch_microseconds(2)
    assert all(Machine.load(name).barrier_microseconds(1) > 0 for name in Machine.names())


def test_banks():
    banks = B1.vector.banks
    assert banks is not None
    assert banks.same_groups(0, 0x10000) and not banks.same_groups(0, 0x10100)
    assert banks.crossed(0, 0x4020) and not banks.crossed(0, 0x4000) and not banks.crossed(0, 0x10020)


def test_vector_published():
    vector = B1.vector
    streamed = vector.streamed_cycles
    assert vector.cycles("add", "f16", 4096) == 32 + streamed
    assert vector.cycles("add", "bf16", 4096) == vector.cycles("add", "f32", 4096) == 64 + streamed
    assert vector.cycles("exp", "f32", 4096) == 128 + streamed
    assert vector.cycles("reduce_sum", "f32", 64) == 3 + streamed  # 0.0418 cycles an element
    assert vector.cycles("clamp", "f32", 64) == 2 * (1 + streamed)


@pytest.mark.parametrize("machine", [B1, A310], ids=lambda machine: machine.name)
def test_vector_covers_every_op(machine: Machine):
    vector = machine.vector
    for op in (*ARITHMETIC, *COMPARE, *DATA):
        assert all(vector.supports(op, dtype) for dtype in ("f16", "f32", "bf16", "i32", "i8")), op
    for op in FLOAT:
        assert all(vector.supports(op, dtype) for dtype in ("f16", "f32", "bf16")), op
        assert not vector.supports(op, "i32"), op
    for op in BITS:
        assert all(vector.supports(op, dtype) for dtype in ("i32", "ui32", "i16", "i8")), op
    for op in ("and", "or", "xor", "not", "reduce_and", "reduce_or", "eq", "select", "copy"):
        assert vector.supports(op, "i1"), op


@pytest.mark.parametrize("name", Machine.names())
def test_every_machine_has_every_function_of_integers(name: str):
    vector = Machine.load(name).vector
    kinds = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64")
    for op in (*ARITHMETIC, *COMPARE, *DATA, *BITS, "bitcast", "div", "rem", "arg_reduce"):
        assert all(vector.supports(op, dtype) for dtype in kinds), op
    assert vector.computes("add", "i16") == "i16" and vector.computes("lt", "i16") == "i32"
    assert vector.computes("lt", "ui32") == "ui32" and vector.computes("and", "ui8") == "i32"


def test_vector_unsupported():
    assert not B1.vector.supports("add", "f64")
    with pytest.raises(KeyError, match="exp on i32"):
        B1.vector.cycles("exp", "i32", 1)


@given(
    st.sampled_from([*ARITHMETIC, *COMPARE, *FLOAT, *DATA]),
    st.sampled_from(["f16", "f32", "bf16"]),
    st.integers(1, 1 << 20),
    st.integers(0, 1 << 20),
)
def test_cycles_monotone(op: str, dtype: str, elements: int, more: int):
    assert 0 < B1.vector.cycles(op, dtype, elements) <= B1.vector.cycles(op, dtype, elements + more)


def test_unknown_target():
    with pytest.raises(MachineError, match=r"unknown target 'gpu': known are ascend-310, .*ascend-910b1, "):
        Machine.load("gpu")
    with pytest.raises(MachineError, match=r"missing\.toml: no such file"):
        Machine.load("missing.toml")


@pytest.mark.parametrize("name", ["ascend-910b", "ascend_910b1", "910b1", "Ascend-910B1"])
def test_a_target_that_is_spelled_like_one_is_asked_for(name: str) -> None:
    with pytest.raises(MachineError, match=r"; did you mean .*ascend-910b1"):
        Machine.load(name)


def write_changed(folder: Path, old: str, new: str) -> str:
    text = (FOLDER / "ascend-910b1.toml").read_text()
    assert old in text
    path = folder / "changed.toml"
    path.write_text(text.replace(old, new, 1))
    return str(path)


def test_load_path(tmp_path: Path):
    changed = Machine.load(write_changed(tmp_path, "clock_mhz = 1850", "clock_mhz = 925"))
    assert changed != B1
    assert changed.l2_bytes_per_cycle == 2 * B1.l2_bytes_per_cycle
    assert Machine.load(str(FOLDER / "ascend-910b1.toml")) == B1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("vector = 48", "vector = 7", "key 'cores.vector' must be at least cores.cube"),
        ("clock_mhz = 1850", "", "changed.toml: key 'clock_mhz' is missing"),
        ("clock_mhz = 1850", "clock_mhz = 0", "'clock_mhz' must be a positive number"),
        ("clock_mhz = 1850", "clock_mhz = inf", "'clock_mhz' must be a positive number"),
        ("clock_mhz = 1850", "clock_mhz = 1850\nspeed = 1", "'speed' is not known"),
        ("vector = 48", "vector = 48\nscalar = 24", "'cores.scalar' is not known"),
        ("cube = 24", "cube = 24.5", "'cores.cube' must be a positive integer"),
        ("fused = false", "fused = 0", "'fused' must be true or false"),
        ("fused = false", "fused = true", "'moves' lacks l0c.ub"),
        ("ub = { bytes = 196608", "uc = { bytes = 196608", "'spaces.ub' is missing"),
        ("bt = { bytes = 1024", "bu = { bytes = 1024", "'spaces.bu.core' is missing"),
        ('l0a = { pipe = "MTE1"', 'l0c = { pipe = "MTE1"', "'moves.l1.l0a' is missing"),
        ('l0a = { pipe = "MTE1"', 'l0a = { pipe = "MTE9"', "'moves.l1.l0a.pipe' must be one of"),
        ('l0a = { pipe = "MTE1"', 'l9 = { pipe = "MTE1"', "'moves.l1.l9' joins a memory space"),
        ('neg = ["mul"]', 'neg = ["abs"]', "'vector.expansions.(neg|abs)' expands into itself"),
        ('neg = ["mul"]', 'neg = ["nope"]', "'vector.expansions.neg' uses 'nope'"),
        ('neg = ["mul"]', "neg = []", "'vector.expansions.neg' must be a list of strings"),
        ("erfc = { f32 = [", "erfc = { f99 = [", "'vector.expansions.erfc.f99' is for no native dtype"),
        ('"fma", "div",\n], f16', '"fmb", "div",\n], f16', "'vector.expansions.erf' uses 'fmb'"),
        ('bf16 = "f32"', 'bf16 = "f64"', "'vector.compute_as.bf16' is computed as 'f64'"),
        ("[accumulate]", "[accumulate]\nmul = ['f32']", "'accumulate.mul' is not known"),
        ("i8 = 0.045", "", "'energy.pj_per_mac.i8' is missing"),
        ("i16 = 0.0645", "", "'energy.pj_per_lane.i16' is missing"),
        ("l0 = 0.5", "l9 = 0.5", "'energy.pj_per_byte.l0' is missing"),
        ("align = 64 }", "align = 48 }", "'spaces.l0c.align' must be a power of two"),
        ("[cores]", "[cores", "changed.toml: "),
    ],
)
def test_malformed(tmp_path: Path, old: str, new: str, message: str):
    with pytest.raises(MachineError, match=message) as caught:
        Machine.load(write_changed(tmp_path, old, new))
    assert "\n" not in str(caught.value)


CHIPS = [
    "ascend-310",
    "ascend-310p3",
    "ascend-910a",
    "ascend-910b1",
    "ascend-910b3",
    "ascend-910b4",
    "ascend-950pr",
    "systolic-tpu1",
]


def test_all_chips_are_here():
    assert Machine.names() == CHIPS


@pytest.mark.parametrize("name", CHIPS)
def test_a_chip_runs_a_model(name: str):
    """Each chip compiles a layer with a product and a softmax, gives its values, and says what it costs."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import tilewright as tw

    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.nn.softmax(jnp.maximum(x @ w, 0))

    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype("float16") for s in ((96, 80), (80, 112)))
    program = tw.compile(layer, x, w, target=name)
    np.testing.assert_allclose(
        np.asarray(program(x, w), "float32"), np.asarray(layer(x, w), "float32"), atol=2e-3
    )
    report = program.report()
    assert report.target == name and report.microseconds > 0 and report.energy_joules > 0
    assert 0 < report.energy["idle"] < report.energy_joules


PEAK_TOPS = {"ascend-310p3": 140, "ascend-910a": 524, "systolic-tpu1": 92}
"""Published int8 peaks: two operations for each multiply-accumulate."""


@pytest.mark.parametrize("name", PEAK_TOPS)
def test_published_peak(name: str):
    machine = Machine.load(name)
    tops = 2 * machine.cube["i8"].macs * machine.cube_cores * machine.clock_mhz * 1e-6
    assert tops == pytest.approx(PEAK_TOPS[name], rel=0.03)


TDP_WATTS = {
    "ascend-910b1": 310,
    "ascend-910a": 310,
    "ascend-310": 8,
    "ascend-310p3": 72,
    "systolic-tpu1": 75,
}
"""Published power: Huawei for the 910, 310 and the 310P's card; secondary sources for the 910B; Jouppi et al., ISCA
2017."""


@pytest.mark.parametrize("name", TDP_WATTS)
def test_a_saturated_chip_draws_about_what_is_published(name: str):
    """A large product draws more than a third of the chip's power, and nothing draws more than all of it."""
    import jax
    import jax.numpy as jnp

    import tilewright as tw

    def busy(x: jax.Array) -> jax.Array:
        return jnp.exp(x) * x / (1 + x * x)

    square = jax.ShapeDtypeStruct((4096, 4096), "float16")
    reports = [
        tw.compile(f, *a, target=name).report() for f, a in ((jnp.matmul, [square] * 2), (busy, [square]))
    ]
    product, vector = (1e6 * report.energy_joules / report.microseconds for report in reports)
    assert TDP_WATTS[name] / 3 < product < TDP_WATTS[name]
    assert vector < TDP_WATTS[name]
    assert reports[0].energy["vector"] == 0 < reports[1].energy["vector"]


def test_a_chip_extends_another(tmp_path: Path):
    path = tmp_path / "half.toml"
    path.write_text('extends = "ascend-910b1"\nname = "half"\n[cores]\ncube = 12\n')
    half = Machine.load(str(path))
    assert (half.name, half.cube_cores, half.vector_cores) == ("half", 12, 48)
    assert half.cube == B1.cube and half.vector == B1.vector
    path.write_text('extends = "gpu"\n')
    with pytest.raises(MachineError, match=r"key 'extends' must name another target: ascend-310, "):
        Machine.load(str(path))


def test_a_move_takes_the_longer_of_runs_and_bytes():
    move = Move("gm", "ub", "MTE2", 64, 10, run_cycles=8, overlap_factor=1.5)
    assert move.cycles(64 * 100) == 110
    assert move.cycles(64 * 100, runs=5) == 110
    assert move.cycles(64 * 100, runs=20) == 170
    assert move.cycles(64 * 100, runs=20, overlapped=True) == 255


@pytest.mark.parametrize("name", Machine.names())
def test_each_figure_has_its_source(name: str) -> None:
    _, found = figures(name)
    assert [f"{f.file}: {f.key}" for f in found if f.key != "name" and not f.source] == []


def test_a_machine_is_a_target(tmp_path: Path) -> None:
    """One that was loaded, by name or from a file; not one that was changed, which no file has."""
    path = tmp_path / "fast.toml"
    path.write_text('extends = "ascend-910b1"\n[memory]\nhbm_tb_per_s = 2.9\n')
    x = np.ones((64, 64), np.float32)
    for named in ("ascend-310", str(path), path):
        machine = Machine.load(named)
        program = tw.compile(jnp.tanh, x, target=machine)
        assert program.target == str(named)
        assert tw.verify(jnp.tanh, x, target=machine, quick=True).ok
        assert tw.jit(jnp.tanh, target=machine).target == str(named)
    with pytest.raises(MachineError, match=r"was not loaded as it is: write what differs to a \.toml"):
        tw.compile(jnp.tanh, x, target=replace(Machine.load("ascend-310"), clock_mhz=1.0))
