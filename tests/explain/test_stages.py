"""How kernels are placed, as the page and `explain --json` have it: as schedules, IR, report and timelines do."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from explain_models import data, program
from loading import load
from planned import CASES, HERE, Json, cases, made, plan, plans, softmax
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tilewright.cli.main import main
from tilewright.dialects import make_context
from tilewright.dialects.affine import Symbol
from tilewright.dialects.base import text
from tilewright.dialects.graph import FusionOp
from tilewright.dialects.graph.schedules import kind_of, to_schedules
from tilewright.dialects.open_sizes import assuming
from tilewright.dialects.open_text import reading
from tilewright.dialects.text import parse_module
from tilewright.explain import compile_with_levels, page_data
from tilewright.explain.levels import views_of
from tilewright.explain.stages import UNPLANNED, kernel_plans
from tilewright.kernels.text import parse
from tilewright.passes.lower.recomputed import MADE_HERE
from tilewright.passes.pipeline import PIPELINE, run_pipeline
from tilewright.passes.plans import note_plan, plans_asked


def axis(found: Json, name: str) -> Json:
    return next(each for each in found["axes"] if each["name"] == name)


def cuts(found: Json, name: str) -> list[tuple[str, int, int]]:
    return [(c["by"], c["times"], c["elements"]) for c in axis(found, name)["cuts"]]


# -- every kernel --------------------------------------------------------------------------------------------


@cases
def test_every_kernel_says_how_it_is_placed(name: str) -> None:
    """Its schedule is the one on its fusion; what has no stages says why, and only that."""
    schedules = {
        (kind_of(schedule), json.dumps(schedule.chosen()))
        for op in made(name)[1][0].ops
        if isinstance(op, FusionOp) and not op.on_host
        for schedule in to_schedules(op.schedule)
    }
    for found in plans(name).values():
        assert (found["schedule"]["kind"], json.dumps(found["schedule"]["fields"])) in schedules
        assert found["graphs"] or found["unstaged"]
        assert found["axes"] and found["memory"]


@cases
def test_parts_of_an_axis_are_all_of_it(name: str) -> None:
    """Each cut has room for what is cut, and no part more than it needs."""
    for found in plans(name).values():
        for each in found["axes"]:
            whole = each["extent"]
            for cut in each["cuts"]:
                assert cut["times"] > 1
                if "window" in cut["what"]:  # tiles of windows overlap, or leave elements out
                    break
                assert cut["times"] * cut["elements"] >= whole or cut["by"] == "units"
                assert (cut["times"] - 2) * cut["elements"] < whole  # pieces of keys are an even number
                whole = cut["elements"]


@cases
def test_cores_and_memory_are_those_of_the_report_and_the_timeline(name: str) -> None:
    found = made(name)[2]
    cores = {kernel["name"]: kernel["cores"] for kernel in found["report"]["kernels"]}
    for kernel, timeline in found["kernels"].items():
        placed = timeline["plan"]
        by_cores = [c["times"] for a in placed["axes"] for c in a["cuts"] if c["by"] == "cores"]
        assert math.prod(by_cores) == cores[kernel]
        ends: Counter[tuple[str, str]] = Counter()
        for buffer in timeline["buffers"]:
            key = (
                buffer["core"].rstrip("01"),
                buffer["space"],
            )  # of several vector cores each is a row of its own
            ends[key] = max(ends[key], buffer["address"] + buffer["slots"] * buffer["bytes"])
        laid_out = {(m["core"], m["space"]): m["bytes"] for m in placed["memory"]}
        assert ends.items() <= laid_out.items()
        assert all(n <= found["capacity"][space] for (_, space), n in laid_out.items())


@cases
def test_loops_are_those_of_the_text(name: str) -> None:
    text = made(name)[0].ir("tile")
    assert sum(len(found["loops"]) for found in plans(name).values()) <= text.count("scf.for")
    for found in plans(name).values():
        for before, after in pairwise(found["loops"]):
            assert after["depth"] <= before["depth"] + 1 or after["core"] != before["core"]


@cases
def test_stages_read_back(name: str) -> None:
    """The texts of the nodes are a graph, and the edges its operands; the rest says what the texts say."""
    for found in plans(name).values():
        names = {each["name"] for each in found["axes"]}
        for graph in found["graphs"]:
            nodes = graph["nodes"]
            read = parse("stages {\n" + "\n".join(node["text"] for node in nodes) + "\n}")
            assert [node["op"] for node in nodes] == [stage.op.NAME for stage in read]
            links = {(e["to"], e["operand"]): [e["from"], e["result"]] for e in graph["edges"]}
            assert len(links) == len(graph["edges"])
            for i, (node, stage) in enumerate(zip(nodes, read, strict=True)):
                assert [links[i, j] for j, _ in enumerate(stage.operands)] == node["operands"]
                assert len(node["axes"]) == len(set(node["axes"])) <= len(stage.axes)
                assert names.issuperset([*node["axes"], *node["inside"]])
                assert len(node["results"]) == len(stage.elements)
            for edge in graph["edges"]:
                result = nodes[edge["from"]]["results"][edge["result"]]
                assert (edge["tile"], edge["element"]) == (result["tile"], result["element"])


@cases
def test_stages_know_their_op_and_line(name: str) -> None:
    """As far as the op has a line of the user's at all: what JAX compiles as a library function has none."""
    graph = made(name)[1][0]
    for found in plans(name).values():
        for node in (node for each in found["graphs"] for node in each["nodes"]):
            assert node["origin"] is not None
            place = graph.places[node["origin"]]
            assert node["source"] == (None if place is None else str(place))
            assert place is None or place.file == str(HERE)


@cases
def test_units_are_those_of_the_schema(name: str) -> None:
    schema = json.loads((HERE.parents[2] / "docs" / "schemas" / "cli.json").read_text())

    def units(part: Any) -> Iterator[Any]:
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            if key == "unit" and "anyOf" in value:
                yield value["anyOf"]
            elif isinstance(value, dict | list):
                yield from units(value)

    ((named, none),) = units(schema)
    assert none == {"type": "null"}
    nodes = [node for found in plans(name).values() for each in found["graphs"] for node in each["nodes"]]
    assert {node["unit"] for node in nodes} <= {*named["enum"], None}


def test_what_is_loaded_is_in_slots_and_fits() -> None:
    """The buffers of a kernel without in-place tricks: two slots of what crosses pipes, as its schedule says."""
    found = plan("softmax", "reduce")
    (graph,), (memory,) = found["graphs"], found["memory"]
    assert graph["slots"] == {"ub": found["schedule"]["fields"]["ub"]} == {"ub": 2}
    buffers = {(b["type"], b["slots"]) for b in memory["buffers"]}
    for node in graph["nodes"]:
        if node["room"] == "slots":
            (result,) = node["results"]
            kind = "x".join([*map(str, result["tile"]), result["element"]])
            assert (kind, node["slots"]) in buffers
            assert (kind, result["bytes"]) in {(b["type"], b["bytes"]) for b in memory["buffers"]}


# -- kinds of kernels ----------------------------------------------------------------------------------------


def test_a_softmax() -> None:
    found = plan("softmax", "reduce")
    fields = found["schedule"]["fields"]
    rows, columns = found["axes"]
    assert (rows["name"], rows["extent"], rows["tile"], rows["role"]) == ("d0", 512, fields["tile"][0], "")
    assert (columns["extent"], columns["tile"], columns["cuts"], columns["role"]) == (
        1024,
        1024,
        [],
        "reduced",
    )
    trips = math.ceil(math.ceil(512 / rows["tile"]) / fields["grid"][0])
    assert cuts(found, "d0") == [
        ("cores", fields["grid"][0], trips * rows["tile"]),
        ("loop", trips, rows["tile"]),
    ]
    assert [loop["trips"] for loop in found["loops"]] == [trips]
    (graph,) = found["graphs"]
    assert [n["does"] for n in graph["nodes"] if n["unit"] != "V"] == ["load", "store"]
    assert {"max of rows", "exp", "sum of rows", "div"} <= {n["does"] for n in graph["nodes"]}
    for node in graph["nodes"]:
        extents = [rows["tile"] if "d0" in node["axes"] else 1, 1024 if "d1" in node["axes"] else 1]
        assert all(result["tile"] == extents for result in node["results"])
        assert node["inside"] == ([] if node["op"] == "fill" else ["d0"])
        assert not node["walks"] and not node["carried_bytes"]
    assert found["unstaged"] == ""


def test_the_page_of_the_documentation_has_it() -> None:
    """All but places in the source, and what it leaves out."""
    said = (HERE.parents[2] / "docs" / "explain.md").read_text().split("## How a kernel is placed")[1]
    shown = json.loads(said.split("```json")[1].split("```")[0])
    found = plan("softmax", "reduce")
    assert shown.keys() == found.keys()
    for key in ("schedule", "axes", "unstaged", "loops"):
        assert shown[key] == found[key]
    (graph,), (shown_graph,) = found["graphs"], shown["graphs"]
    node, edge = shown_graph["nodes"][0], shown_graph["edges"][0]
    assert graph["nodes"][node["id"]] | {"origin": 3, "source": "model.py:12"} == node
    assert graph["edges"][0] == edge
    (memory,), (shown_memory,) = found["memory"], shown["memory"]
    assert memory["buffers"][:2] == shown_memory["buffers"][:2] and memory["bytes"] == shown_memory["bytes"]


def test_rows_in_pieces() -> None:
    """A softmax of long rows walks over them three times; its maximum and its sum go from piece to piece."""
    found = plan("long", "reduce")
    piece = found["schedule"]["fields"]["tile"][1]
    assert cuts(found, "d1") == [("loop", 300_000 // piece, piece)]
    (graph,) = found["graphs"]
    nodes = {node["does"]: node for node in graph["nodes"]}
    assert nodes["load"]["walks"] == [1, 2, 3] and nodes["store"]["walks"] == [3]
    for does, walk in (("max of rows", 1), ("sum of rows", 2)):
        assert (nodes[does]["room"], nodes[does]["walks"]) == ("carried", [walk])
        carried = found["loops"][walk]["carries"]
        assert carried == [f"1x{piece}xf32 in ub"]
        assert nodes[does]["carried_bytes"] == 4 * piece
    assert nodes["exp"]["room"] == "temporary"  # it is computed in both walks that need it
    assert [loop["depth"] for loop in found["loops"]] == [0, 1, 1, 1]


@pytest.mark.parametrize(("name", "unit"), [("epilogue", "MTE2"), ("drained", "V")])
def test_a_product_with_an_epilogue(name: str, unit: str) -> None:
    """The sums of the cube come through a workspace, or right out of l0c where cores are of one kind."""
    found = plan(name, "contract")
    fields = found["schedule"]["fields"]
    assert [a["name"] for a in found["axes"]] == ["m", "n", "k"]
    assert [a["tile"] for a in found["axes"]] == fields["step"]
    assert [a["extent"] for a in found["axes"]] == [512, 384, 256]
    product, graph = found["graphs"]
    assert (product["part"], graph["part"], found["unstaged"]) == ("product", "epilogue", "")
    assert [n["op"] for n in product["nodes"]][-1] == ("hand_over" if name == "epilogue" else "multiply")
    sums = graph["nodes"][0]
    assert (sums["does"], sums["unit"]) == ("sums of the cube", unit)
    assert sums["results"][0]["tile"] == fields["epilogue"]
    units = [c for a in found["axes"] for c in a["cuts"] if c["by"] == "units"]
    assert len(units) == (name == "epilogue")
    behind = [c for c in axis(found, "m")["cuts"] if c["by"] != "cores"][-1:] or [axis(found, "m")]
    assert behind[0].get("elements", fields["step"][0]) == fields["epilogue"][0]


def test_a_product_alone() -> None:
    found = plan("product", "contract")
    fields = found["schedule"]["fields"]
    (graph,) = found["graphs"]
    assert graph["part"] == "product" and found["unstaged"] == ""
    units = {node["does"]: node["unit"] for node in graph["nodes"]}
    assert units["load_l1"] == "MTE2" and units["move to l0a"] == units["move to l0b"] == "MTE1"
    assert units["multiply"] == "M" and units["store_sums"] == "FIX"
    nodes = {(node["op"], node["input"]): node for node in graph["nodes"]}
    rows, columns, _ = fields["step"]
    assert nodes["load_l1", 0]["results"][0]["tile"] == [rows, fields["lhs"][2]]
    assert nodes["load_l1", 1]["results"][0]["tile"] == [fields["rhs"][2], columns]
    assert nodes["multiply", None]["results"][0] == {
        "element": "f32", "tile": [rows, columns], "space": "l0c", "bytes": 4 * rows * columns
    }  # fmt: skip
    assert nodes["multiply", None]["room"] == "carried" and nodes["multiply", None]["inside"][-1] == "k"
    assert "k" not in nodes["store_sums", None]["inside"]
    loads = [("loop", -(-512 // fields["lhs"][2]), fields["lhs"][2])] if fields["lhs"][2] < 512 else []
    steps = ("loop", fields["lhs"][2] // fields["step"][2], fields["step"][2])
    assert fields["lhs"] == fields["rhs"]
    assert cuts(found, "k") == [*loads, steps]
    trips = [c[1] for name in ("n", "m", "k") for c in cuts(found, name) if c[0] == "loop"]
    assert [loop["trips"] for loop in found["loops"]] == trips
    assert {m["space"] for m in found["memory"]} == {"l1", "l0a", "l0b", "l0c"}


def test_a_pooled_product() -> None:
    """The stages before the windows are reduced have all elements, those behind it one for each window."""
    found = plan("pooled", "conv")
    fields = found["schedule"]["fields"]
    _, graph = found["graphs"]
    assert [a["name"] for a in found["axes"]] == ["m0", "m1", "m2", "n", "k0", "k1", "k2"]
    assert axis(found, "m1")["cuts"][0]["what"] == "tile of whole windows"
    tiles = {node["does"]: node["results"][0]["tile"] for node in graph["nodes"] if node["results"]}
    batch, rows, columns, channels = fields["epilogue"]
    assert tiles["sums of the cube"] == [batch, 2 * rows, 2 * columns, channels]
    assert tiles["extract"] == [batch, rows, columns, channels]


def test_attention() -> None:
    found = plan("attention", "attention")
    fields = found["schedule"]["fields"]
    assert [a["name"] for a in found["axes"]] == ["rows", "keys", "columns", "features"]
    assert cuts(found, "rows")[-1] == ("units", 2, fields["rows"] // 2)
    assert cuts(found, "keys")[0] == ("loop", 2048 // fields["keys"], fields["keys"])
    (graph,) = found["graphs"]
    does = [n["does"] for n in graph["nodes"]]
    loads = [n for n in graph["nodes"] if n["does"] == "load of workspace 0"]
    assert loads and all(n["results"][0]["tile"] == [fields["keys"], fields["rows"] // 2] for n in loads)
    assert all(n["input"] is None and set(n["axes"]) == {"keys", "rows"} for n in loads)
    assert does.count("multiply") == 1 + does.count("load_handed of workspace 1")
    assert {"fill 8", "max of rows", "exp", "sum of rows"} <= {*does}
    assert {"store_sums to workspace 0", "store to workspace 1", "store"} <= {*does}
    assert found["unstaged"] == ""
    kept = [n["room"] for n in graph["nodes"]].count("carried")
    assert kept >= 7
    carried = max((loop["carries"] for loop in found["loops"]), key=len)
    assert len(carried) == 7  # the maximum, the sum, and what the last pieces have to be corrected by


def test_attention_of_few_rows() -> None:
    found = next(p for p in plans("decoding").values() if p["schedule"]["kind"] == "row_attention_schedule")
    fields = found["schedule"]["fields"]
    (graph,) = found["graphs"]
    loaded = [n for n in graph["nodes"] if n["op"] == "load" and "keys" in n["axes"]]
    assert loaded and all(fields["keys"] in n["results"][0]["tile"] for n in loaded)
    assert axis(found, "keys")["tile"] == fields["keys"]
    assert {"exp", "max of rows", "sum of rows"} <= {n["does"] for n in graph["nodes"]}
    assert found["unstaged"] == "" and "carried" in {n["room"] for n in graph["nodes"]}


def test_a_copy_of_a_box() -> None:
    """Where it begins is a number that the core reads itself; the tile is loaded, and stored as it is."""
    found = plan("copy", "update")
    (graph,) = found["graphs"]
    start, load, store = graph["nodes"]
    assert (start["does"], start["unit"], start["room"]) == ("scalar", "S", "none")
    assert start["results"] == [{"element": "i32", "tile": [], "space": "scalar", "bytes": 0}]
    assert (load["room"], load["operands"], store["operands"]) == ("slots", [], [[1, 0], [0, 0]])
    assert load["results"][0]["tile"] == found["schedule"]["fields"]["tile"]
    assert found["unstaged"] == "" and [m["space"] for m in found["memory"]] == ["ub"]


def test_a_sort() -> None:
    """It has axes that its tiles have besides those that it walks: the elements that are kept, and what it works in."""
    found = plan("sort", "sort")
    rows, columns, kept, work = found["axes"]
    assert [rows["tile"], columns["tile"]] == found["schedule"]["fields"]["tile"]
    assert (kept["role"], kept["tile"], kept["cuts"]) == ("kept", 512, [])
    assert (work["role"], work["tile"], work["cuts"]) == ("worked in", 4 * 512, [])
    (graph,) = found["graphs"]
    load, made, store = graph["nodes"]
    assert (load["axes"], made["axes"]) == ([rows["name"], columns["name"]], [rows["name"], kept["name"]])
    assert [load["unit"], made["unit"], store["unit"]] == ["MTE2", "V", "MTE3"]
    assert all(node["inside"] == [rows["name"]][: len(found["loops"])] for node in graph["nodes"])


@pytest.mark.parametrize(
    ("name", "axis", "does"), [("running", 1, "running sum"), ("scattered", 2, "scatter by set")]
)
def test_tiles_carried_along_an_axis(name: str, axis: int, does: str) -> None:
    """What goes from piece to piece is what the loop of the text carries; all of a piece is in that loop."""
    found = plan(name, {"running": "cumulate", "scattered": "scatter"}[name])
    along = found["axes"][axis]
    ((by, trips, piece),) = cuts(found, along["name"])
    assert (by, along["role"], piece) == ("loop", "in order", found["schedule"]["fields"]["tile"][axis])
    (graph,), loop = found["graphs"], found["loops"][-1]
    assert loop["trips"] == trips and len(loop["carries"]) == 1
    (carrying,) = (node for node in graph["nodes"] if node["carried_bytes"])
    assert carrying["does"] == does and carrying["room"] == "carried"
    shape, element = loop["carries"][0].removesuffix(" in ub").rsplit("x", 1)
    elements = math.prod(map(int, shape.split("x")))
    width = {"f16": 2, "f32": 4}[element]
    assert 0 <= carrying["carried_bytes"] - elements * width < 32 * int(shape.split("x")[0])
    store = graph["nodes"][-1]
    assert (along["name"] in store["inside"]) == (name == "running")


def test_windows_and_what_they_reach() -> None:
    """A tile of results, the border that is loaded around it, and the loops through the places of a window."""
    found = plan("windows", "reduce_window")
    (graph,) = found["graphs"]
    load, fill, piece, made, _ = graph["nodes"]
    tile = found["schedule"]["fields"]["tile"]
    assert load["results"][0]["tile"] == [tile[0] + 8, tile[1] + 4]
    assert all(node["results"][0]["tile"] == tile for node in (fill, piece, made))
    places = [each["name"] for each in found["axes"] if each["role"] == "place in the window"]
    assert [cuts(found, name) for name in places] == [[("loop", 9, 1)], [("loop", 5, 1)]]
    assert piece["inside"][-2:] == places and not set(places) & {
        *load["inside"],
        *graph["nodes"][-1]["inside"],
    }


# -- other programs ------------------------------------------------------------------------------------------


def test_kernels_that_make_rows_themselves_have_plans() -> None:
    """They are placed as the kernels of their readers are."""
    fn, args = load("gpt2:tiny_token")
    compiled, views = compile_with_levels(fn, *args)
    found = page_data(compiled, views=views)["kernels"]
    assert all(kernel["plan"]["schedule"] is not None for kernel in found.values())
    graph, tile = views[0], views[1]
    made_here = set()
    for op in tile.module.ops:
        if "grid" in op.properties:  # a kernel with ops of several fusions has taken some of them in
            homes = {
                graph.ops[i].parent_op() for inner in op.walk() for i in tile.origins[tile.number[inner]]
            }
            fusions = [home for home in homes if isinstance(home, FusionOp)]
            made_here |= {text(op.properties["sym_name"])} if len(fusions) > 1 else set()
    said = {name for name, kernel in found.items() if MADE_HERE in kernel["plan"]["unstaged"]}
    assert said and said >= made_here & set(found)


def test_no_plan_is_made_unless_it_is_asked_for() -> None:
    def fail() -> Any:
        raise AssertionError("nobody asked for a plan")

    note_plan("kernel", fail)
    with plans_asked() as found:
        tw.compile(softmax, *CASES["softmax"][1])
    assert list(found) == ["reduce_0"]
    note_plan("kernel", fail)


OPEN = """
func.func @main(%x: tensor<?x1024xf16, #graph.sizes<["n"]>>) -> tensor<?xf16, #graph.sizes<["n"]>> {
  %y = graph.exp %x : tensor<?x1024xf16, #graph.sizes<["n"]>>
  %z = graph.reduce %y {dims = [1], kind = "max"}
    : (tensor<?x1024xf16, #graph.sizes<["n"]>>) -> tensor<?xf16, #graph.sizes<["n"]>>
  func.return %z : tensor<?xf16, #graph.sizes<["n"]>>
}
"""


def test_open_sizes_are_text() -> None:
    """They are what a compilation for all sizes has, and who asks for plans lets it assume no more of them."""

    def parsed() -> ModuleOp:
        return parse_module(make_context(), OPEN, "open.mlir")

    with reading({"n": Symbol("n", 2, 100_000)}):
        with assuming({"n": 50_000}) as unasked:
            run_pipeline(parsed(), "ascend-910b1")
        with assuming({"n": 50_000}) as asked:
            views = views_of(parsed(), "ascend-910b1", PIPELINE)
        (found,) = kernel_plans(views).values()
    assert asked.made == unasked.made
    assert found == json.loads(json.dumps(found, allow_nan=False))
    rows, columns = found["axes"]
    assert (rows["extent"], columns["extent"]) == ("n", 1024)
    trips = next(c["times"] for c in rows["cuts"] if c["by"] == "loop")
    assert "n" in trips and [loop["trips"] for loop in found["loops"]] == [trips]


@pytest.mark.parametrize("start", ["tile", "npu"])
def test_kernels_that_were_written(start: str, tmp_path: Path) -> None:
    """There is no plan, but loops and memory are in the text."""
    path = tmp_path / "program.mlir"
    path.write_text(program("layers").ir(start))
    found = page_data(tw.compile(path))["kernels"]
    assert found
    for name, kernel in found.items():
        placed, other = kernel["plan"], data("layers")["kernels"][name]["plan"]
        assert (placed["schedule"], placed["axes"], placed["graphs"]) == (None, [], [])
        assert placed["unstaged"] == UNPLANNED
        assert placed["memory"] == other["memory"]
        assert [loop["trips"] for loop in placed["loops"]] == [loop["trips"] for loop in other["loops"]]


def test_json_has_the_plans_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.html"
    shapes = "f16[512,256],f16[256,384],f16[384]"
    assert main(["explain", f"{HERE}:epilogue", "--shapes", shapes, "--json", "-o", str(out)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["kernels"] == json.loads(json.dumps(plans("epilogue")))
    assert printed["apart"] == made("epilogue")[2]["apart"]
