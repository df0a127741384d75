"""The page in Debian's Chromium: it draws, lights what belongs together, sorts, and says nothing on the console.

Where there is no Chromium these tests are skipped: see docs/explain.md.
"""

from __future__ import annotations

import itertools
import shutil
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from explain_models import data, model, program
from loading import example_module
from tiering import sampled

import tilewright as tw
from tilewright.explain import render
from tilewright.explain.units import data_size, duration

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine: docs/explain.md says how to get one"
)

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
READY = "html[data-ready=yes]"
SECONDS = 3
"""What a page may take to open; docs/explain.md has what it takes."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


class Opened:
    """A page that is ready, and what it complained of or asked the network for."""

    def __init__(self, browser: Any, path: Path, theme: str = "light", width: int = 1440) -> None:
        self.page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme=theme, offline=True
        )
        self.complaints: list[str] = []
        self.page.on("console", lambda m: m.type in ("error", "warning") and self.complaints.append(m.text))
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))
        self.page.on(
            "request",
            lambda r: r.url.startswith(("file:", "data:", "blob:")) or self.complaints.append(r.url),
        )
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(READY, state="attached")
        self.seconds = self.page.evaluate("performance.now()") / 1e3

    def until(self, holds: str) -> None:
        """Wait until `holds`, an expression in JavaScript, is true.

        `page.wait_for_function` would evaluate it inside the page, which the page's own policy forbids as
        soon as it does not hold at once.
        """
        deadline = time.monotonic() + 30
        while not self.page.evaluate(f"Boolean({holds})"):
            assert time.monotonic() < deadline, f"still false after 30 s: {holds}"
            self.page.wait_for_timeout(20)

    def lit(self, level: str) -> list[str]:
        """The lines of a column that are lit."""
        return self.page.locator(f".column[data-level={level}] .row.lit").all_inner_texts()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("explain") / "report.html"
    made.write_text(render(program("layers")), encoding="utf-8")
    return made


@pytest.fixture
def opened(browser: Any, path: Path) -> Iterator[Opened]:
    found = Opened(browser, path)
    yield found
    assert found.complaints == []
    found.page.close()


def colours(png: bytes) -> int:
    """How many different colours a screenshot has (8-bit RGB or RGBA, not interlaced)."""
    at, packed, width, channels = 8, b"", 0, 3
    while at < len(png):
        (length,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        body = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, channels = struct.unpack(">I", body[:4])[0], {2: 3, 6: 4}[body[9]]
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    raw, stride = zlib.decompress(packed), width * channels + 1
    return len({raw[i : i + stride] for i in range(0, len(raw), stride)})


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everything_is_drawn(browser: Any, path: Path, theme: str) -> None:
    opened = Opened(browser, path, theme)
    page = opened.page
    assert page.locator("html").get_attribute("data-theme") == theme
    for part in ("program-charts", "kernel-charts"):
        assert colours(page.locator(f"#{part}").screenshot()) > 40, part  # rows of pixels that differ
    drawn = page.evaluate("""() => ({
        steps: TW.views.program.steps.data.left.length, memory: TW.views.program.memory.data.left.length,
        events: TW.views.kernel.events.data.left.length,
        spans: TW.views.kernel.spaces.map((s) => s.data.left.length)})""")
    focus = page.evaluate("TW.state.focus")
    found = data("layers")
    assert drawn["memory"] == len(found["memory"])
    assert drawn["steps"] >= len(found["steps"])
    assert drawn["events"] == len(found["kernels"][focus]["events"]) // 6
    assert sum(drawn["spans"]) == len(found["kernels"][focus]["spans"]) // 4
    grids = "Object.values(TW.views).flatMap((v) => v.view.model.children.map((f) => f.center[0].grid_line_color))"
    assert set(page.evaluate(grids)) == {page.evaluate("TW.css('--grid')")}
    assert opened.complaints == []
    page.close()


def test_hovering_lights_what_belongs_together(opened: Opened) -> None:
    page = opened.page
    page.locator(".column[data-level=npu] .row", has_text="npu.mmad").first.hover(position={"x": 120, "y": 8})
    assert any("tile.mma" in line for line in opened.lit("tile"))
    assert any("graph.contract" in line for line in opened.lit("graph"))
    assert any("x @ w + b" in line for line in opened.lit("source"))
    page.locator(".column[data-level=graph] .row", has_text="graph.max").first.hover(
        position={"x": 120, "y": 8}
    )
    assert any("tile.max" in line for line in opened.lit("tile"))
    assert any("npu.vmax" in line for line in opened.lit("npu"))
    assert not any("npu.mmad" in line for line in opened.lit("npu"))
    page.mouse.move(5, 5)
    assert opened.lit("npu") == []


def test_a_value_is_lit_where_it_is_used(opened: Opened) -> None:
    page = opened.page
    row = page.locator(".column[data-level=tile] .row", has_text="tile.mma").first
    row.locator(".v").nth(1).hover()  # its left operand
    lit = page.locator(".column[data-level=tile] .v.lit").all_inner_texts()
    assert len(lit) >= 2 and len(set(lit)) == 1
    assert any("tile.move" in line for line in opened.lit("tile"))


def test_a_click_pins_and_escape_lets_go(opened: Opened) -> None:
    page = opened.page
    page.locator(".column[data-level=source] .row.used", has_text="x @ w + b").click(
        position={"x": 120, "y": 8}
    )
    page.mouse.move(5, 5)
    assert opened.lit("graph") and opened.lit("tile") and opened.lit("npu")
    page.keyboard.press("Escape")
    assert opened.lit("graph") == opened.lit("npu") == []


def test_the_table_sorts(opened: Opened) -> None:
    page = opened.page
    names = page.locator("#cost-table tbody tr[data-kernel]")
    kernels = data("layers")["report"]["kernels"]
    by_time = [k["name"] for k in sorted(kernels, key=lambda k: -k["microseconds"])]

    def order() -> list[str]:
        return [row.get_attribute("data-kernel") for row in names.all()]

    assert order() == by_time
    page.locator("#cost-table th", has_text="time").click()
    assert order() == by_time[::-1]
    page.locator("#cost-table th", has_text="kernel").click()
    assert order() == sorted(by_time)
    assert page.locator("#cost-table th[aria-sort=ascending]").inner_text().startswith("kernel")


def test_a_row_opens_its_kernel(opened: Opened) -> None:
    page = opened.page
    other = next(
        k["name"] for k in data("layers")["report"]["kernels"] if k["name"] != page.evaluate("TW.state.focus")
    )
    page.locator(f"#cost-table tr[data-kernel={other}]").click()
    page.evaluate("TW.drawn")
    assert page.locator("#kernel-name").inner_text() == f"@{other}"
    assert f"@{other}" in page.locator(".column[data-level=npu]").inner_text()
    page.locator("#focus").select_option("")
    assert "func.func" in page.locator(".column[data-level=tile]").inner_text()


def test_stages_are_drawn_and_light_their_ops(opened: Opened) -> None:
    page = opened.page
    kernels = data("layers")["kernels"]
    focus = next(name for name, kernel in kernels.items() if kernel["plan"]["graphs"])
    page.select_option("#focus", focus)
    page.evaluate("TW.drawn")
    nodes = [node for graph in kernels[focus]["plan"]["graphs"] for node in graph["nodes"]]
    boxes = page.locator("#plan-graphs .stage")
    assert boxes.count() == len(nodes)
    number = next(i for i, node in enumerate(nodes) if node["does"] == "max")
    boxes.nth(number).hover()
    assert any("graph.max" in line for line in opened.lit("graph"))
    lit = page.locator("#plan-graphs .stage.lit")
    assert lit.count() == sum(node["origin"] == nodes[number]["origin"] for node in nodes)
    outside = page.evaluate("""() => [...document.querySelectorAll(".drawing .stage")].filter((stage) => {
        const right = (e) => e.getBoundingClientRect().right, box = right(stage.querySelector(".box"));
        return [...stage.querySelectorAll("text")].some((text) => right(text) > box); }).length""")
    assert outside == 0


def test_the_timeline_zooms_pans_and_lights(opened: Opened) -> None:
    page = opened.page
    page.evaluate("document.getElementById('kernel').scrollIntoView({ behavior: 'instant' })")
    place = page.evaluate("""() => {
        const { view, events } = TW.views.kernel, plot = view.child_views[0], d = events.data;
        const i = d.name.findIndex((name) => name === "mmad");
        const box = plot.el.getBoundingClientRect(), f = plot.frame;
        const x = f.x_scale.compute((d.left[i] + d.right[i]) / 2), y = f.y_scale.compute((d.top[i] + d.bottom[i]) / 2);
        return [box.left + x, box.top + y];
    }""")
    page.mouse.move(*place)
    opened.until("document.querySelectorAll('.column[data-level=npu] .row.lit').length > 0")
    assert any("npu.mmad" in line for line in opened.lit("npu"))
    span = "[TW.views.kernel.x_range.start, TW.views.kernel.x_range.end]"
    begin, end = page.evaluate(span)
    page.mouse.wheel(0, -1)  # without Control the wheel is the page's
    assert page.evaluate(span) == [begin, end]
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    opened.until(f"TW.views.kernel.x_range.end - TW.views.kernel.x_range.start < {0.95 * (end - begin)}")
    page.keyboard.up("Control")
    zoomed = page.evaluate(span)
    page.mouse.down()
    page.mouse.move(place[0] - 60, place[1], steps=4)
    page.mouse.up()
    moved = page.evaluate(span)
    assert moved[0] > zoomed[0]
    assert moved[1] - moved[0] == pytest.approx(zoomed[1] - zoomed[0], rel=1e-6)
    page.locator(".zoom[data-for=kernel-charts] button", has_text="all").click()
    assert page.evaluate(span)[0] == 0


@pytest.fixture(scope="module")
def looping(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("explain") / "lstm.html"
    made.write_text(render(program("lstm")), encoding="utf-8")
    return made


def test_the_page_shows_the_figures_of_the_report(browser: Any, looping: Path) -> None:
    """Header, cards and rows, as they stand on the page, are `report()`'s, in the units of units.py."""
    opened = Opened(browser, looping)
    page, report = opened.page, program("lstm").report()
    assert page.locator(".lede").inner_text() == f"{report}."

    def figure(name: str) -> tuple[str, str]:
        value, said = page.locator(f".figure[data-figure={name}]").inner_text().split("\n")
        return value, said

    assert figure("time")[0] == duration(report.microseconds)
    counts = report.counts
    assert figure("launches")[0] == f"{counts.launches} launches"
    assert f"of {counts.launched_kernels} kernels, and {counts.copies} copies" in figure("launches")[1]
    assert figure("hbm")[0] == data_size(sum(k.bytes["hbm"] for k in report.kernels))
    assert figure("memory")[0] == data_size(report.memory.arena_bytes)
    for kernel in report.kernels:
        cells = page.locator(f"#cost-table tr[data-kernel={kernel.name}] td").all_inner_texts()
        moved = kernel.bytes["read"] + kernel.bytes["write"]
        assert cells[:6] == [
            kernel.name,
            kernel.kind,
            kernel.precision,
            str(kernel.launches),
            str(kernel.cores),
            duration(kernel.microseconds),
        ]
        assert cells[6].strip() == f"{100 * kernel.microseconds / report.microseconds:.1f}%"
        assert cells[8:11] == [kernel.bound, data_size(moved), data_size(kernel.bytes["hbm"])]
    assert opened.complaints == []
    page.close()


def test_precision_is_shown_by_row_and_in_all(browser: Any, tmp_path: Path) -> None:
    def net(w: jax.Array, v: jax.Array, x: jax.Array) -> jax.Array:
        return jax.nn.softmax(x @ w) @ v

    config = tw.QuantConfig("w8a8-dynamic", {"v": "f16"})
    inputs = [jax.ShapeDtypeStruct(s, "float32") for s in ((256, 256), (256, 128), (256, 256))]
    made = tw.compile(net, *inputs, options=tw.Options(quantization=config, weights=("w", "v")))
    (tmp_path / "mixed.html").write_text(render(made), encoding="utf-8")
    shown, report = Opened(browser, tmp_path / "mixed.html"), made.report()
    assert not shown.complaints
    head = shown.page.locator("#cost-table th").all_inner_texts()
    place = head.index("precision")
    for kernel in report.kernels:
        row = shown.page.locator(f"#cost-table tr[data-kernel={kernel.name}] td").nth(place)
        said = row.inner_text()
        assert said.startswith(kernel.precision) and all(mode in said for mode in kernel.modes.values())
        shown.page.locator(f"#cost-table tr[data-kernel={kernel.name}]").click()
        note = shown.page.locator("#kernel-note")
        for types in (*kernel.macs_by_precision, *kernel.lanes_by_precision):
            assert types in note.inner_text()
        assert all(f"{name} in {mode}" in note.inner_text() for name, mode in kernel.modes.items())
    legend = shown.page.locator("#precisions .legend > span").all_inner_texts()
    assert len(legend) == len(report.by_precision) > 1
    macs = sum(row.macs for row in report.by_precision)
    for row, text in zip(report.by_precision, legend, strict=True):
        assert text.startswith(
            f"{row.precision}: {100 * row.microseconds / report.microseconds:.1f}% of the time"
        )
        assert not row.macs or f"{100 * row.macs / macs:.1f}% of the MACs" in text
    colours = shown.page.locator("#precisions .swatch").evaluate_all(
        "all => all.map(e => e.style.background)"
    )
    assert len(set(colours)) == len(colours)


def test_every_row_says_something_and_launches_are_said_once(browser: Any, looping: Path) -> None:
    opened = Opened(browser, looping)
    said = opened.page.locator("#cost-table td.wide").all_inner_texts()
    assert all(said)
    assert not any("Launch bound" in text for text in said)
    assert opened.page.locator("#program-advice li").count() == 1
    opened.page.close()


def test_units_are_the_same_on_the_page(opened: Opened) -> None:
    times = [0, 0.0004, 0.25, 0.9994, 0.9996, 9.994, 9.996, 42.42, 999.4, 999.6, 12345.6, 2.5e6]
    sizes = [0, 1, 999, 1000, 4096, 999_499, 999_600, 2.5e6, 7.7e9]
    assert opened.page.evaluate(f"{times}.map(TW.time)") == [duration(t) for t in times]
    assert opened.page.evaluate(f"{sizes}.map(TW.bytes)") == [data_size(n) for n in sizes]


def test_no_time_is_blank_in_a_loop(browser: Any, looping: Path) -> None:
    """The bars of the compute stream, as drawn, cover the whole program."""
    opened = Opened(browser, looping)
    bars = opened.page.evaluate("""() => { const d = TW.views.program.steps.data;
        return d.left.map((from, i) => [from, d.right[i], d.top[i]]); }""")
    top = max(bar[2] for bar in bars)
    compute = sorted((begin, end) for begin, end, at in bars if at == top)
    blank = compute[0][0] + sum(max(0.0, begin - end) for (_, end), (begin, _) in itertools.pairwise(compute))
    total = program("lstm").report().microseconds
    assert compute[-1][1] == pytest.approx(total, abs=1e-3)
    assert blank < 0.001 * total
    opened.page.close()


def test_names_stand_on_bars_where_they_fit(browser: Any, looping: Path) -> None:
    """None for 196 bars at once; zoomed in, whole names; on a narrow bar the beginning."""
    opened = Opened(browser, looping)
    page = opened.page
    shown = """TW.views.program.view.model.children[0].renderers.filter((r) => r.glyph.type === "Text")
        .flatMap((r) => r.data_source.data.text)"""
    before = page.evaluate(shown)
    page.evaluate("TW.views.program.x_range.setv({ start: 100, end: 112 })")
    opened.until(f"({shown}).includes('contract_1')")
    names = page.evaluate(shown)
    kernels = {k["name"] for k in data("lstm")["report"]["kernels"]}
    assert len(before) < len(names) and not kernels & set(before)
    assert {"contract_0", "contract_1", "mul_0"} <= set(names)
    for name in names:
        assert name in kernels or any(name.endswith("\u2026") and k.startswith(name[:-1]) for k in kernels)
    opened.page.close()


def test_legends_name_the_colours(browser: Any, looping: Path) -> None:
    opened = Opened(browser, looping)
    page = opened.page
    entries = page.evaluate("""[...document.querySelectorAll("#program-legend > *")].map(
        (e) => [e.textContent, getComputedStyle(e.querySelector("i")).backgroundColor])""")
    colours = dict(entries)
    drawn = page.evaluate("""() => { const d = TW.views.program.steps.data, out = {};
        d.name.forEach((n, i) => { const c = d.color[i]; out[n] =
            `rgb(${[1, 3, 5].map((k) => parseInt(c.slice(k, k + 2), 16)).join(", ")})`; }); return out; }""")
    assert drawn.items() <= colours.items()
    assert len(set(drawn.values())) == len(drawn)
    kinds = {m["kind"] for m in data("lstm")["memory"]}
    assert set(page.locator("#memory-legend > *").all_inner_texts()) == kinds
    lanes = {lane.split()[-1] for lane in data("lstm")["kernels"][page.evaluate("TW.state.focus")]["lanes"]}
    assert set(page.locator("#pipe-legend > *").all_inner_texts()) == lanes
    page.locator("#program-legend button", has_text="mul_0").click()
    assert page.evaluate("TW.state.focus") == "mul_0"
    opened.page.close()


def test_panes_of_levels_can_be_hidden(opened: Opened) -> None:
    page = opened.page

    def visible() -> list[str]:
        return [c.get_attribute("data-level") for c in page.locator(".column:visible").all()]

    def press(name: str) -> None:
        page.locator("#panes button", has_text=name).click()

    width = page.locator(".column[data-level=npu]").bounding_box()["width"]
    press("source")
    press("graph")
    assert visible() == ["tile", "npu"]
    assert page.locator(".column[data-level=npu]").bounding_box()["width"] > 1.8 * width
    assert page.locator("#panes button", has_text="graph").get_attribute("aria-pressed") == "false"
    press("graph")
    assert visible() == ["graph", "tile", "npu"]
    for name in ("graph", "tile", "npu"):
        press(name)
    assert visible() == ["npu"]  # the last one stays


def test_memory_can_leave_out_what_stays(opened: Opened) -> None:
    page = opened.page
    range_ = "(({ start, end }) => [start, end])(TW.views.program.view.model.children[1].y_range)"
    low, high = page.evaluate(range_)
    page.locator("#memory-zoom").click()
    found = [m for m in data("layers")["memory"] if m["kind"] not in ("argument", "constant")]
    assert low == 0 and high > max(m["address"] + m["bytes"] for m in found)
    assert page.evaluate(range_)[0] == min(m["address"] for m in found) > 0
    page.locator("#memory-zoom").click()
    assert page.evaluate(range_) == [low, high]


def test_the_page_may_not_use_the_network(opened: Opened) -> None:
    """The browser itself refuses it: what a page tries to load or fetch is blocked by its own policy."""
    tried = opened.page.evaluate("""async () => {
        const blocked = [];
        document.addEventListener("securitypolicyviolation", (e) => blocked.push(e.effectiveDirective));
        await fetch("https://example.org/x").catch(() => 0);
        const image = new Image();
        await new Promise((done) => { image.onerror = done; image.src = "https://example.org/x.png"; });
        return blocked; }""")
    assert sorted(tried) == ["connect-src", "img-src"]
    opened.complaints.clear()  # the browser says what it refused


FITS = """() => [...document.querySelectorAll("main *")]
    .filter((e) => !e.closest(".code, .drawing") && e.checkVisibility() && (
        e.getBoundingClientRect().right > innerWidth + 1
        || (getComputedStyle(e).overflowX !== "visible" && e.scrollWidth > e.clientWidth + 1)))
    .map((e) => `${e.tagName} ${e.id} ${e.className}: ${e.textContent.slice(0, 60)}`)"""
"""What is cut off or goes over the edge of the page: of levels and of stages only the panes, which scroll."""

CONTRAST = """() => {
    const parts = (c) => { const p = c.match(/[\\d.]+/g).map(Number); return p.length < 4 ? [...p, 1] : p; };
    const over = (a, b) => [0, 1, 2].map((i) => a[3] * a[i] + (1 - a[3]) * b[i]);
    const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const light = (c) => { const [r, g, b] = c.map((v) => linear(v / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const behind = (e) => { const layers = [];
        for (let n = e; n; n = n.parentElement) layers.push(parts(getComputedStyle(n).backgroundColor));
        return layers.reduceRight((b, c) => over(c, b), [255, 255, 255]); };
    const found = [], texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    for (let t; (t = texts.nextNode());) {
        const e = t.parentElement;
        if (!t.textContent.trim() || !e.checkVisibility()) continue;
        const back = behind(e), [x, y] = [light(over(parts(getComputedStyle(e).color), back)), light(back)];
        const ratio = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
        if (ratio < 4.5) found.push(`${e.tagName} ${e.className} ${ratio.toFixed(2)}: ${t.textContent.slice(0, 40)}`);
    }
    return found; }"""
"""Texts that are hard to read on what is behind them: less than 4.5 to 1, as WCAG 2 counts it."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of different kinds of programs."""
    made = {}
    for name in ("split", "placed", "scan", "loop", "model"):
        made[name] = tmp_path_factory.mktemp("explain") / f"{name}.html"
        made[name].write_text(render(model() if name == "model" else program(name)), encoding="utf-8")
    return made


LABELS = """(() => {
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = `11px ${TW.chart.FONT}`;
    const plots = Object.values(TW.views).flatMap(({ view }) => view.child_views).filter((p) => p.frame);
    const labels = plots.flatMap((p) => p.model.center.filter((l) => l.text).map((l) => [l.text, p.frame.bbox.width]));
    return [labels.length, labels.filter(([text, room]) => 6 + pen.measureText(text).width > room)];
})()"""
"""How many labels the charts have, and those that are longer than their chart is wide."""


@sampled(4)
@pytest.mark.parametrize("width", [1440, 400])
@pytest.mark.parametrize("name", ["split", "placed", "scan", "loop", "model"])
def test_nothing_is_cut(browser: Any, pages: dict[str, Path], name: str, width: int) -> None:
    opened = Opened(browser, pages[name], width=width)
    opened.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert opened.page.evaluate(FITS) == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    count, cut = opened.page.evaluate(LABELS)
    assert count and cut == []
    assert all(row.is_visible() for row in opened.page.locator("#cost-table td.wide").all())
    assert opened.complaints == []
    opened.page.close()


@sampled(2)
@pytest.mark.parametrize("name", ["split", "placed", "scan", "loop", "model"])
def test_each_kernel_fills_every_pane(browser: Any, pages: dict[str, Path], name: str) -> None:
    opened = Opened(browser, pages[name])
    page = opened.page
    for kernel in page.evaluate("Object.keys(TW.data.kernels)"):
        page.locator("#focus").select_option(kernel)
        page.evaluate("TW.drawn")
        counts = page.evaluate("""[...document.querySelectorAll(".column")].map(
            (c) => [c.dataset.level, c.querySelectorAll(".row").length])""")
        assert len(counts) == 4 and all(count for _, count in counts), (kernel, counts)
        assert "undefined" not in page.locator("#kernel").inner_text()
    opened.page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_are_legible(browser: Any, pages: dict[str, Path], theme: str) -> None:
    opened = Opened(browser, pages["placed"], theme)
    page = opened.page
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    page.locator("#types").check()
    assert page.evaluate(CONTRAST) == []
    row = page.locator(".column[data-level=npu] .row[data-op]").nth(6)
    row.hover(position={"x": 120, "y": 8})
    assert opened.lit("npu") and page.evaluate(CONTRAST) == []
    row.click(position={"x": 120, "y": 8})
    assert page.evaluate(CONTRAST) == []
    opened.page.close()


def test_the_nodes_of_a_model_are_its_source(browser: Any, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["model"])
    page = opened.page
    assert page.locator(".row.node").all_inner_texts() == ["/a/Exp", "Tanh 'x2'", "/b/Softmax"]
    page.locator(".row.node", has_text="/a/Exp").hover(position={"x": 40, "y": 8})
    assert any("npu.vexp" in line for line in opened.lit("npu"))
    assert page.locator("#status").inner_text() == "/a/Exp"
    sources = page.locator("#cost-table tr[data-kernel] td:last-child").all_inner_texts()
    assert sources == ["net.onnx:/a/Exp, Tanh 'x2', /b/Softmax"]
    opened.page.close()


def test_gpt2_opens_in_time(browser: Any, tmp_path: Path) -> None:
    """The whole of GPT-2 small: its page is small and opens within the time, the best of three loads."""
    gpt2 = example_module("gpt2")
    args = jax.eval_shape(gpt2.forward_inputs)
    made = tmp_path / "gpt2.html"
    made.write_text(render(tw.compile(gpt2.forward, *args)), encoding="utf-8")
    assert made.stat().st_size < 2.2e6
    seconds = []
    for _ in range(3):
        opened = Opened(browser, made)
        seconds.append(opened.seconds)
        assert opened.complaints == []
        opened.page.close()
    assert min(seconds) < SECONDS, seconds
