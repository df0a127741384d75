// The figures at the top, the cost table, and what is said of the kernel in focus.
"use strict";
(() => {
  const { data, state, listeners, focus, bytes, micro } = TW;
  const report = data.report;
  const body = document.querySelector("#cost-table tbody");
  const head = document.querySelector("#cost-table thead");
  const moved = (k) => k.bytes.read + k.bytes.write;
  const rows = [
    ...report.kernels.map((k) => ({ ...k, moved: moved(k), hbm: k.bytes.hbm, advice: data.advice[k.name] || [] })),
    ...report.host_ops.map((h) => ({ name: h.name, kind: "host", launches: h.calls, cores: 0, microseconds: h.microseconds,
      bound: "host", moved: h.bytes, hbm: h.bytes, macs: 0, source: h.source, advice: [] })),
    ...(report.host_scalars.operations ? [{ name: "numbers", kind: "host", launches: report.host_scalars.operations, cores: 0,
      microseconds: report.host_scalars.microseconds, bound: "host", moved: 0, hbm: 0, macs: 0, source: null, advice: [] }] : []),
  ];
  const total = report.microseconds || 1;
  const COLUMNS = [
    ["kernel", "name", (r, td) => code(td, r.name)],
    ["kind", "kind"],
    ["launches", "launches", number],
    ["cores", "cores", (r, td) => cell(td, r.cores || "")],
    ["time", "microseconds", (r, td) => cell(td, micro(r.microseconds))],
    ["share", "microseconds", (r, td) => { bar(td, r.microseconds / total); }],
    ["bound by", "bound", (r, td) => { const t = document.createElement("span"); t.className = "tag"; t.textContent = r.bound; td.append(t); }],
    ["moved", "moved", (r, td) => cell(td, bytes(r.moved))],
    ["HBM", "hbm", (r, td) => cell(td, bytes(r.hbm))],
    ["M MACs", "macs", (r, td) => cell(td, r.macs ? (r.macs / 1e6).toLocaleString("en", { maximumSignificantDigits: 4 }) : "")],
    ["what binds it, what would help", null, says],
    ["source", "source", (r, td) => code(td, (r.source || "").split("/").pop())],
  ];
  const NUMBERS = new Set(["launches", "cores", "time", "moved", "HBM", "M MACs"]);
  let sorted = { column: 4, down: true };

  function cell(td, text) { td.textContent = text; }
  function number(r, td) { td.textContent = r.launches; }
  function code(td, text) { const c = document.createElement("code"); c.textContent = text; td.append(c); }
  function bar(td, share) {
    const outer = document.createElement("span"), inner = document.createElement("i");
    outer.className = "bar";
    inner.style.width = `${(100 * share).toFixed(1)}%`;
    outer.append(inner);
    td.append(outer, `${(100 * share).toFixed(1)}%`);
  }
  function says(r, td) {
    td.className = "wide";
    const first = r.advice[0];
    if (!first) return;
    td.append(first.what + ". ");
    if (first.help) { const em = document.createElement("em"); em.textContent = first.help; td.append(em); }
  }

  function drawHead() {
    const tr = document.createElement("tr");
    COLUMNS.forEach(([title, key, fill], i) => {
      const th = document.createElement("th");
      th.textContent = title;
      th.scope = "col";
      if (NUMBERS.has(title)) th.className = "num";
      if (fill === says) th.className = "wide";
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
    body.replaceChildren(...rows.map((r) => {
      const tr = document.createElement("tr");
      tr.dataset.kernel = r.name;
      tr.classList.toggle("here", r.name === state.focus);
      for (const [title, key, fill] of COLUMNS) {
        const td = document.createElement("td");
        if (NUMBERS.has(title)) td.className = "num";
        if (fill) fill(r, td); else td.textContent = r[key];
        tr.append(td);
      }
      if (data.kernels[r.name]) tr.addEventListener("click", () => focus(r.name));
      return tr;
    }));
  }

  function figures() {
    const launches = report.kernels.reduce((n, k) => n + k.launches, 0);
    const hbm = report.kernels.reduce((n, k) => n + k.bytes.hbm, 0);
    const macs = report.kernels.reduce((n, k) => n + k.macs, 0);
    const found = [
      [micro(report.microseconds), "first launch to last result"],
      [`${launches}`, `launches of ${report.kernels.length} kernels`],
      [`${(2e-6 * macs / total).toPrecision(3)} T`, "operations per second on the cubes"],
      [bytes(hbm), "across HBM"],
      [`${(report.energy_joules * 1e3).toPrecision(3)} mJ`, "modelled energy"],
      [bytes(report.memory.arena_bytes), `device memory of ${bytes(report.memory.capacity_bytes)}`],
      [`${(100 * report.npu_flops_fraction).toFixed(0)}%`, "of the work on the NPU"],
    ];
    document.getElementById("figures").replaceChildren(...found.map(([value, what]) => {
      const box = document.createElement("div");
      box.className = "figure";
      const b = document.createElement("b"), s = document.createElement("span");
      b.textContent = value; s.textContent = what;
      box.append(b, s);
      return box;
    }));
  }

  function advice(kernel) {
    const list = document.getElementById("advice");
    list.replaceChildren(...(data.advice[kernel] || []).map((f) => {
      const li = document.createElement("li"), more = document.createElement("span");
      li.append(f.what + ".");
      more.textContent = f.help;
      if (f.help) li.append(more);
      return li;
    }));
    body.querySelectorAll("tr").forEach((tr) => tr.classList.toggle("here", tr.dataset.kernel === kernel));
  }

  listeners.focus.push(advice);
  drawHead();
  draw();
  figures();
})();
