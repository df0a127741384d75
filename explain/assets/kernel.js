// Inside a kernel: one launch, the pipes of its heaviest core and what is where in each on-chip memory.
"use strict";
(() => {
  const { data, state, listeners, time, bytes, css, PALETTE, PIPES, chart } = TW;
  const texts = new Map();
  for (const [text, op] of data.levels[chart.npu].lines) if (op >= 0 && !texts.has(op)) texts.set(op, text.trim());
  const opText = (op) => { const found = /![\w.]+<([^>]*)>\s*$/.exec(texts.get(op) || ""); return found ? found[1] : opName(op); };
  const shape = (op) => opText(op).split(",")[0];
  const opName = (op) => (/(?:npu|scf)\.([\w.]+)/.exec(texts.get(op) || "") || [])[1] || "";
  const place = (op) => { const at = data.levels[chart.npu].places[op]; return at ? TW.placed([at]) : ""; };
  const cycles = (c) => `${c.toLocaleString("en")} cycles, ${time(c / data.clock_mhz)}`;

  function pipes(k, x_range) {
    const d = chart.empty("name", "slots", "bytes", "time", "line");
    const busy = k.lanes.map(() => 0);
    for (let i = 0; i < k.events.length; i += 6) {
      const [lane, op, from, to, moved, slots] = k.events.slice(i, i + 6);
      d.left.push(from); d.right.push(to); d.top.push(-lane + 0.4); d.bottom.push(-lane - 0.4);
      d.color.push(PIPES[k.lanes[lane].split(" ").pop()]); d.alpha.push(0.9); d.op.push(op);
      const text = opName(op);
      d.name.push(text); d.label.push(text); d.slots.push(k.texts[slots] || "-"); d.bytes.push(moved ? bytes(moved) : "-");
      d.time.push(`${from.toLocaleString("en")} to ${to.toLocaleString("en")} (${cycles(to - from)})`); d.line.push(place(op));
      busy[lane] += to - from;
    }
    const events = new Bokeh.ColumnDataSource({ data: d });
    const fig = chart.figure({ height: 40 + 22 * k.lanes.length, x_range, y_range: new Bokeh.Range1d({ start: -k.lanes.length + 0.45, end: 0.55 }), x_axis_location: "above" });
    chart.lanes(fig, k.lanes.map((name, i) => `${name}  ${chart.percent(busy[i] / Math.max(1, k.shown))}`));
    chart.ticks(fig.above[0], chart.across(), chart.inCycles);
    chart.tools(fig, [chart.quads(fig, events)], [["", "name"], ["in", "slots"], ["cycles", "time"], ["device memory", "bytes"], ["from", "line"]]);
    if (!k.complete) fig.add_layout(new Bokeh.BoxAnnotation({ left: k.shown, fill_color: css("--dim"), fill_alpha: 0.12 }));
    chart.follow(events, chart.pin(d));
    return { fig, events };
  }

  function space(k, key, members, x_range, last) {
    const m = chart.empty("name", "size", "at", "time");
    let peak = 0;
    for (let i = 0; i < k.spans.length; i += 4) {
      const [n, slot, from, to] = k.spans.slice(i, i + 4);
      const at = members.indexOf(n);
      if (at < 0) continue;
      const b = k.buffers[n], start = b.address + slot * b.bytes;
      m.left.push(from); m.right.push(to); m.bottom.push(start); m.top.push(start + b.bytes);
      m.color.push(PALETTE[at % PALETTE.length]); m.alpha.push(slot % 2 ? 0.6 : 0.85); m.op.push(b.op);
      const text = `${opText(b.op)}${b.slots > 1 ? `, slot ${slot} of ${b.slots}` : ""}`;
      m.name.push(text); m.label.push(b.slots > 1 ? `${shape(b.op)} [${slot}]` : shape(b.op)); m.size.push(bytes(b.bytes)); m.at.push(`0x${start.toString(16)}`);
      m.time.push(`${from.toLocaleString("en")} to ${to.toLocaleString("en")}`);
    }
    members.forEach((n) => { const b = k.buffers[n]; peak = Math.max(peak, b.address + b.bytes * b.slots); });
    const capacity = data.capacity[k.buffers[members[0]].space];
    const source = new Bokeh.ColumnDataSource({ data: m });
    const map = chart.figure({ height: last ? 112 : 92, min_border_bottom: 9, x_range, y_range: new Bokeh.Range1d({ start: 0, end: peak * 1.35 || 1 }) });
    map.left[0].ticker = new Bokeh.FixedTicker({ ticks: [0, peak / 2, peak] });
    map.left[0].formatter = new Bokeh.BasicTickFormatter();
    map.left[0].formatter.doFormat = chart.inKib;
    chart.ticks(map.below[0], chart.across(), chart.inCycles);
    chart.tools(map, [chart.quads(map, source)], [["", "name"], ["size", "size"], ["at", "at"], ["cycles", "time"]]);
    const most = `${(peak / 1024).toFixed(1)}`, part = `(${(100 * peak / capacity).toFixed(0)}%)`;
    chart.mark(map, peak, `${key}: peak ${chart.narrow() ? most : `${most} of ${capacity / 1024}`} KiB ${part}`);
    chart.follow(source, chart.pin(m));
    if (!last) map.below[0].visible = false;
    return { map, source };
  }

  // What a kernel computes in, and the products that a configuration of quantization chose a mode for.
  function computes(r) {
    const [products, lanes] = [r.macs_by_precision, r.lanes_by_precision].map((counts) => Object.keys(counts).sort((a, b) => counts[b] - counts[a]).join(", "));
    const modes = Object.entries(r.modes).map(([product, mode]) => `${product} in ${mode}`).join(", ");
    const said = [products && `products in ${products}${modes && ` (${modes})`}`, lanes && `vector instructions in ${lanes}`].filter(Boolean).join(", ");
    return said ? ` It computes ${said}.` : " It computes nothing.";
  }

  function note(k, name) {
    const r = data.report.kernels.find((x) => x.name === name && x.kind !== "copy");
    return `${r.launches > 1 ? `The longest of ${r.launches.toLocaleString("en")} launches` : "The one launch"}: ${cycles(k.cycles)} on ${r.cores > 1 ? `the heaviest of ${r.cores} cores` : "one core"}, after ${time(r.launch_microseconds / r.launches)} of launch.` + computes(r) +
      " A row per pipe, with the share of the time that it works; below, the memories of the core, address over time, one colour per buffer." +
      (k.complete ? "" : ` Instructions are shown up to cycle ${k.shown.toLocaleString("en")}.`) +
      (k.complete && k.shown > k.cycles ? ` The last cores get more of the bandwidth than is drawn: the launch ends ${k.shown - k.cycles} cycles earlier.` : "");
  }

  function draw(name) {
    const k = data.kernels[name];
    const all = Math.max(k.cycles, k.shown, 1);
    const x_range = new Bokeh.Range1d({ start: 0, end: k.shown || 1, bounds: [-0.02 * k.shown, all * 1.02] });
    const { fig, events } = pipes(k, x_range);
    const groups = new Map();
    k.buffers.forEach((b, i) => { if (b.address !== null) { const key = `${b.core} ${b.space}`; groups.set(key, [...(groups.get(key) || []), i]); } });
    const ordered = [...groups].sort(([a], [b]) => a.localeCompare(b));
    const spaces = ordered.map(([key, members], i) => space(k, key, members, x_range, i === ordered.length - 1));
    chart.buttons("kernel-charts", x_range, all);
    chart.legend("pipe-legend", Object.entries(PIPES).filter(([pipe]) => k.lanes.some((lane) => lane.endsWith(` ${pipe}`))));
    TW.views.kernel = { events, spaces: spaces.map((s) => s.source), x_range };
    document.getElementById("kernel-name").textContent = `@${name}`;
    document.getElementById("kernel-note").textContent = note(k, name);
    const naming = [[0, chart.names(fig, events)], ...spaces.map((s, i) => [i + 1, chart.names(s.map, s.source)])];
    return chart.mount("kernel-charts", [fig, ...spaces.map((s) => s.map)], naming).then((view) => { TW.views.kernel.view = view; });
  }

  let pending = Promise.resolve();
  const queue = (work) => { pending = pending.then(work); return pending; };
  listeners.focus.push((name) => { if (name !== null) TW.drawn = queue(() => draw(name)); });
  listeners.theme.push(() => { TW.drawn = queue(async () => { await TW.drawProgram(); if (state.focus !== null) await draw(state.focus); }); });
  TW.drawn = queue(TW.drawProgram);
})();
