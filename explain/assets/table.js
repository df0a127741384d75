// The figures at the top, the cost table, and what is said of the kernel in focus.
"use strict";
(() => {
  const { data, state, listeners, focus, bytes, time, many, placed, PALETTE } = TW;
  const report = data.report, said = data.advice;
  const body = document.querySelector("#cost-table tbody");
  const head = document.querySelector("#cost-table thead");
  const rows = [
    ...report.kernels.map((k) => ({ ...k, moved: k.bytes.read + k.bytes.write, hbm: k.bytes.hbm, efficiency: k.efficiency ?? 0, starting: k.launch_microseconds / (k.microseconds || 1),
      opens: k.kind !== "copy", advice: k.kind === "copy" ? said.copies : said.kernels[k.name] || [] })),
    ...report.host_ops.map((h, i) => ({ name: h.name, kind: "host", launches: h.calls, cores: 0, microseconds: h.microseconds, starting: 0,
      bound: "host", moved: h.bytes, hbm: h.bytes, efficiency: 0, macs: 0, source: h.source, opens: false, advice: said.host_ops[i] })),
    ...(report.host_scalars.operations ? [{ name: "numbers", kind: "host", launches: 0, cores: 0, microseconds: report.host_scalars.microseconds,
      starting: 0, bound: "host", moved: 0, hbm: 0, efficiency: 0, macs: 0, source: null, opens: false, advice: said.host_scalars }] : []),
  ];
  const total = report.microseconds || 1;
  // A kernel has the colour of the first types that it computes in; the same in the legend.
  const precisionColour = new Map(report.by_precision.map((p, i) => [p.precision, PALETTE[i % PALETTE.length]]));
  const swatch = (types) => { const i = document.createElement("i"); i.className = "swatch"; i.style.background = precisionColour.get(types.split(", ")[0]); return i; };
  const COLUMNS = [
    ["kernel", "name", (r, td) => code(td, r.name)],
    ["kind", "kind"],
    ["precision", "precision", computes],
    ["runs", "launches", (r, td) => cell(td, r.launches ? r.launches.toLocaleString("en") : "")],
    ["cores", "cores", (r, td) => cell(td, r.cores || "")],
    ["time", "microseconds", (r, td) => cell(td, time(r.microseconds))],
    ["share", "microseconds", (r, td) => { bar(td, r.microseconds / total); }],
    ["starting", "starting", (r, td) => cell(td, r.starting ? `${(100 * r.starting).toFixed(0)}%` : "")],
    ["bound by", "bound", (r, td) => { const t = document.createElement("span"); t.className = "tag"; t.textContent = r.bound; td.append(t); }],
    ["moved", "moved", (r, td) => cell(td, r.moved ? bytes(r.moved) : "")],
    ["HBM", "hbm", (r, td) => cell(td, r.moved ? bytes(r.hbm) : "")],
    ["eff.", "efficiency", (r, td) => { if (r.opens) { cell(td, `${(100 * r.efficiency).toFixed(0)}%`); td.title = floors(r); } }],
    ["MACs", "macs", (r, td) => cell(td, r.macs ? many(r.macs) : "")],
    ["source", "source", (r, td) => code(td, (r.opens && placed(data.kernels[r.name].sources)) || (r.source || "").replace(/^[^:]*\//, ""))],
  ];
  const NUMBERS = new Set(["runs", "cores", "time", "starting", "moved", "HBM", "eff.", "MACs"]);
  let sorted = { column: COLUMNS.findIndex(([title]) => title === "time"), down: true };

  // What a kernel's time is compared with: the resource that needs longest at the chip's peak.
  function floors(r) {
    const needs = Object.entries(r.floors).sort((a, b) => b[1] - a[1]).map(([name, us]) => `${name} ${time(us)}`);
    return `floor ${time(r.floor_microseconds)}${needs.length ? `: ${needs.join(", ")} at the chip's peak` : ""}`;
  }
  function cell(td, text) { td.textContent = text; }
  function code(td, text) { const c = document.createElement("code"); c.textContent = text; td.append(c); }
  function bar(td, share) {
    const outer = document.createElement("span"), inner = document.createElement("i");
    outer.className = "bar";
    inner.style.width = `${(100 * share).toFixed(1)}%`;
    outer.append(inner);
    td.append(outer, `${(100 * share).toFixed(1)}%`);
  }
  function computes(r, td) {
    if (!r.precision) return;
    td.append(swatch(r.precision), r.precision);
    const modes = Object.entries(r.modes);
    if (!modes.length) return;
    const t = document.createElement("span");
    t.className = "tag mode";
    t.textContent = [...new Set(modes.map(([, mode]) => mode))].join(", ");
    t.title = modes.map(([name, mode]) => `${name}: ${mode}`).join("\n");
    td.append(" ", t);
  }
  // What is said of launches is said once, of the program; a row has what else there is.
  function says(r, td) {
    td.className = "wide";
    td.colSpan = COLUMNS.length;
    const first = r.advice.find((f) => f.rule !== "launch") || r.advice[0];
    if (!first) return;
    td.append(first.what + ". ");
    if (first.help && first.rule !== "launch") { const em = document.createElement("em"); em.textContent = sentence(first.help); td.append(em); }
  }
  const sentence = (text) => /^\w*[_=]/.test(text) ? `${text}.` : `${text[0].toUpperCase()}${text.slice(1)}.`; // base_m=256 is no word

  function drawHead() {
    const tr = document.createElement("tr");
    COLUMNS.forEach(([title, key, fill], i) => {
      const th = document.createElement("th");
      th.textContent = title;
      th.scope = "col";
      if (NUMBERS.has(title)) th.className = "num";
      if (key) {
        th.tabIndex = 0;
        const sort = () => { sorted = { column: i, down: sorted.column === i ? !sorted.down : typeof rows[0]?.[key] === "number" }; draw(); };
        th.addEventListener("click", sort);
        th.addEventListener("keydown", (e) => { if (e.key === "Enter") sort(); });
      }
      tr.append(th);
    });
    head.replaceChildren(tr);
  }

  function draw() {
    const key = COLUMNS[sorted.column][1];
    const sign = sorted.down ? -1 : 1;
    rows.sort((a, b) => sign * (typeof a[key] === "number" ? a[key] - b[key] : String(a[key] ?? "").localeCompare(String(b[key] ?? ""))));
    head.querySelectorAll("th").forEach((th, i) => th.removeAttribute("aria-sort") ?? (i === sorted.column && th.setAttribute("aria-sort", sorted.down ? "descending" : "ascending")));
    body.replaceChildren(...rows.flatMap((r) => {
      const tr = document.createElement("tr"), below = document.createElement("tr"), said = document.createElement("td");
      tr.dataset.kernel = r.name;
      for (const [title, key, fill] of COLUMNS) {
        const td = document.createElement("td");
        td.dataset.label = title;
        if (NUMBERS.has(title)) td.className = "num";
        if (fill) fill(r, td); else td.textContent = r[key];
        tr.append(td);
      }
      says(r, said);
      below.className = "said";
      below.append(said);
      for (const row of [tr, below]) {
        row.classList.toggle("opens", r.opens);
        row.classList.toggle("here", r.opens && r.name === state.focus);
        if (r.opens) row.addEventListener("click", () => focus(r.name));
      }
      return [tr, below];
    }));
  }

  function figures() {
    const counts = report.counts;
    const hbm = report.kernels.reduce((n, k) => n + k.bytes.hbm, 0);
    const macs = report.kernels.reduce((n, k) => n + k.macs, 0);
    const starting = report.kernels.reduce((n, k) => n + k.launch_microseconds, 0);
    const plural = (n, one, more) => `${n.toLocaleString("en")} ${n === 1 ? one : more}`;
    const found = [
      [time(report.microseconds), "first command to the end of the last", "time"],
      [plural(counts.launches, "launch", "launches"), `of ${plural(counts.launched_kernels, "kernel", "kernels")}` +
        (counts.kernels > counts.launched_kernels ? ` (${counts.kernels - counts.launched_kernels} more not launched)` : "") +
        (counts.copies ? `, and ${plural(counts.copies, "copy", "copies")}` : "") +
        (counts.host_calls ? `, ${plural(counts.host_calls, "host call", "host calls")}` : "") +
        (counts.joined ? `; ${plural(counts.joined, "more run", "more runs")} of kernels behind barriers` : ""), "launches"],
      [`${(100 * starting / total).toFixed(0)}%`, `of the time (${time(starting)}) starts launches${counts.copies ? " and copies" : ""}`, "starting"],
      [macs ? `${many(2e6 * macs / total)}op/s` : "none", "multiplications and additions on the cubes", "rate"],
      [bytes(hbm), "across HBM", "hbm"],
      [report.efficiency === null ? "none" : `${(100 * report.efficiency).toFixed(0)}%`, `of the time is the floor: ${time(report.floor_microseconds)} with all work at the chip's peak`, "floor"],
      [`${(report.energy_joules * 1e3).toPrecision(3)} mJ`, "modelled energy", "energy"],
      [bytes(report.memory.arena_bytes), `device memory of ${bytes(report.memory.capacity_bytes)}`, "memory"],
      [`${(100 * report.npu_flops_fraction).toFixed(0)}%`, "of the operations on the NPU", "npu"],
    ];
    document.getElementById("figures").replaceChildren(...found.map(([value, what, name]) => {
      const box = document.createElement("div");
      box.className = "figure";
      box.dataset.figure = name;
      const b = document.createElement("b"), s = document.createElement("span");
      b.textContent = value; s.textContent = what;
      box.append(b, s);
      return box;
    }));
  }

  // Share of the time and of the multiplications by the types that kernels compute in, as one bar and its legend.
  function precisions() {
    const place = document.getElementById("precisions"), shares = report.by_precision;
    place.hidden = !shares.length;
    if (!shares.length) return;
    const macs = shares.reduce((n, p) => n + p.macs, 0);
    const strip = document.createElement("span"), legend = document.createElement("span"), of = document.createElement("span");
    strip.className = "strip"; legend.className = "legend"; of.className = "of"; of.textContent = "precision";
    for (const p of shares) {
      const part = document.createElement("i"), entry = document.createElement("span");
      const share = `${(100 * p.microseconds / total).toFixed(1)}% of the time` + (p.macs ? `, ${(100 * p.macs / macs).toFixed(1)}% of the MACs` : "");
      part.style.width = `${(100 * p.microseconds / total).toFixed(2)}%`;
      part.style.background = precisionColour.get(p.precision);
      part.title = `${p.precision}: ${share}`;
      entry.dataset.precision = p.precision;
      entry.append(swatch(p.precision), `${p.precision}: ${share}`);
      strip.append(part);
      legend.append(entry);
    }
    place.replaceChildren(of, strip, legend);
  }

  function list(id, findings) {
    document.getElementById(id).replaceChildren(...findings.map((f) => {
      const li = document.createElement("li"), more = document.createElement("span");
      li.append(f.what + ".");
      if (f.help) { more.textContent = sentence(f.help); li.append(more); }
      return li;
    }));
  }

  // Why a kernel is not one with those whose values it reads, or that read its own, and not in the launch before it.
  const APART = { "not fused": "Not fused", "not attention": "Not attention in one kernel", "not chained": "Not one kernel with the product before it", "not joined": "Not in one launch", "not recomputed": "Not made by what reads it",
    "transposed": "An operand is transposed in memory", "not transposed": "No operand is transposed in memory", "padded": "Rows are padded in memory", "not padded": "No rows are padded in memory",
    "cut": "Sums are cut into parts", "not cut": "Sums are not cut into parts" };
  const BETWEEN = ["not fused", "not joined", "not recomputed"];
  function apart(kernel) {
    const rows = data.apart.filter((a) => a.to === kernel || a.from === kernel);
    const box = document.getElementById("apart");
    box.hidden = !rows.length;
    document.getElementById("apart-count").textContent = rows.length;
    list("apart-list", rows.map((a) => {
      const other = !BETWEEN.includes(a.kind) ? "" : ` with ${a.to === kernel ? `@${a.from} before` : `@${a.to} behind`} it`;
      const value = a.value ? `, by ${a.value} (${bytes(a.bytes)})` : "";
      return { what: `${APART[a.kind]}${other}${value}${a.times > 1 ? `, ${a.times} times` : ""}`, help: a.why };
    }));
  }

  function advice(kernel) {
    list("advice", said.kernels[kernel] || []);
    apart(kernel);
    body.querySelectorAll("tr[data-kernel]").forEach((tr) => {
      const here = tr.classList.contains("opens") && tr.dataset.kernel === kernel;
      for (const row of [tr, tr.nextSibling]) row.classList.toggle("here", here);
    });
  }

  listeners.focus.push(advice);
  drawHead();
  draw();
  figures();
  precisions();
  list("program-advice", said.program);
})();
