// The drawings: the program's steps and device memory, a kernel's pipes and on-chip memories. Drawn by BokehJS.
"use strict";
(() => {
  const { data, state, listeners, family, light, focus, css, bytes, micro, PALETTE, PIPES } = TW;
  const P = Bokeh.Plotting;
  const npu = data.levels.length - 1;
  const FONT = "Inter, Segoe UI, system-ui, sans-serif";
  const colour = new Map();
  data.report.kernels.forEach((k, i) => colour.set(k.name, PALETTE[i % PALETTE.length]));
  TW.views = {};

  function figure(options) {
    const ink = css("--dim"), line = css("--line");
    const fig = P.figure({
      sizing_mode: "stretch_width", toolbar_location: null, tools: [], background_fill_color: null, border_fill_color: null,
      outline_line_color: null, min_border_left: 92, min_border_right: 12, min_border_bottom: 4, min_border_top: 4, lod_threshold: null, ...options,
    });
    for (const axis of [...fig.left, ...fig.below, ...fig.above]) {
      Object.assign(axis, { axis_line_color: line, major_tick_line_color: line, minor_tick_line_color: null,
        major_label_text_color: ink, axis_label_text_color: ink, major_label_text_font: FONT, axis_label_text_font: FONT,
        major_label_text_font_size: "11px", axis_label_text_font_size: "11px", axis_label_text_font_style: "normal" });
    }
    const ticks = Math.max(2, Math.min(8, Math.round((innerWidth - 160) / 110)));
    for (const axis of [...fig.below, ...fig.above]) {
      axis.formatter = plain();
      axis.ticker = new Bokeh.BasicTicker({ desired_num_ticks: ticks });
    }
    for (const grid of fig.center) grid.grid_line_color = css("--grid");
    return fig;
  }

  // 20,000 for 20000, and no more decimals than needed
  const plain = () => new Bokeh.NumeralTickFormatter({ format: "0,0.[000]" });

  function tools(fig, renderers, tooltip) {
    const pan = new Bokeh.PanTool({ dimensions: "width" });
    const zoom = new Bokeh.WheelZoomTool({ dimensions: "width", modifiers: { ctrl: true } });
    const tap = new Bokeh.TapTool({ renderers });
    const hover = new Bokeh.HoverTool({ renderers, tooltips: tooltip, attachment: "vertical", point_policy: "follow_mouse" });
    fig.add_tools(pan, zoom, tap, hover);
    fig.toolbar.active_drag = pan;
    fig.toolbar.active_scroll = zoom;
  }

  function lanes(fig, names) {
    Object.assign(fig.left[0], {
      ticker: new Bokeh.FixedTicker({ ticks: names.map((_, i) => -i) }),
      major_label_overrides: new Map(names.map((name, i) => [-i, name])),
      major_tick_line_color: null, axis_line_color: null,
    });
    fig.center[1].grid_line_color = null;
  }

  const quads = (fig, source, extra) => fig.quad({ left: { field: "left" }, right: { field: "right" }, top: { field: "top" }, bottom: { field: "bottom" },
    fill_color: { field: "color" }, fill_alpha: { field: "alpha" }, line_color: css("--card"), line_width: 0.6,
    hover_line_color: css("--ink"), hover_fill_color: { field: "color" }, nonselection_fill_alpha: { field: "alpha" }, source, ...extra });

  function tip(rows) {
    return `<div style="font:12px ${FONT};max-width:380px">${rows.map(([k, f]) => `<div><span style="color:#888">${k}</span> <b>@${f}</b></div>`).join("")}</div>`;
  }

  // Lights the op under the pointer; opens what is clicked.
  function follow(source, onClick) {
    let last = -1;
    source.inspect.connect(() => {
      const i = source.inspected.indices[0];
      const op = i === undefined ? -1 : source.data.op[i];
      if (op === last) return;
      last = op;
      light(op >= 0 ? { ...family(npu, [op]), label: source.data.label ? source.data.label[i] : "" } : null);
    });
    source.selected.properties.indices.change.connect(() => {
      const i = source.selected.indices[0];
      if (i !== undefined) onClick(i);
    });
  }

  function mount(id, children) {
    const box = document.getElementById(id);
    box.replaceChildren();
    return P.show(new Bokeh.Column({ children, sizing_mode: "stretch_width" }), box);
  }

  // Buttons that zoom a time axis about its middle, or show all of it.
  function buttons(id, range, all) {
    const zoom = (factor) => {
      const middle = (range.start + range.end) / 2, half = factor * (range.end - range.start) / 2;
      range.setv(factor ? { start: Math.max(0, middle - half), end: Math.min(all, middle + half) } : { start: 0, end: all });
    };
    const box = document.querySelector(`.zoom[data-for="${id}"]`);
    box.replaceChildren(...[["+", "Zoom in", 0.5], ["\u2212", "Zoom out", 2], ["all", "Show all", 0]].map(([text, title, factor]) => {
      const b = document.createElement("button");
      b.type = "button";
      b.textContent = text;
      b.title = title;
      b.addEventListener("click", () => zoom(factor));
      return b;
    }));
  }

  const empty = (keys) => Object.fromEntries(keys.map((k) => [k, []]));

  // -- the program ----------------------------------------------------------------------------------------

  function program() {
    const end = data.report.microseconds || 1;
    const x_range = new Bokeh.Range1d({ start: 0, end, bounds: [-0.02 * end, 1.02 * end] });
    const queues = ["compute", "copy_in", "copy_out", "host", "program"].filter((q) => data.steps.some((s) => s[7] === q));
    if (!queues.length) queues.push("compute");
    const d = empty(["left", "right", "top", "bottom", "color", "alpha", "op", "label", "name", "kind", "us", "times"]);
    const put = (s, from, to, alpha) => {
      const lane = -queues.indexOf(s[7]);
      d.left.push(from); d.right.push(to); d.top.push(lane + 0.36); d.bottom.push(lane - 0.36);
      d.color.push(s[1] === "host" ? "#8c97a8" : colour.get(s[0]) || "#8c97a8"); d.alpha.push(alpha); d.op.push(s[2]);
      d.label.push(s[0]); d.name.push(s[0]); d.kind.push(s[1]); d.us.push(micro(s[4] - s[3])); d.times.push(s[5]);
    };
    for (const s of data.steps) {
      const start = Math.min(s[4], s[3] + s[6] * s[5]);
      if (s[6]) put(s, s[3], start, 0.28);
      if (start < s[4]) put(s, start, s[4], 0.95);
    }
    const source = new Bokeh.ColumnDataSource({ data: d });
    const strip = figure({ height: 46 + 36 * queues.length, x_range, y_range: new Bokeh.Range1d({ start: 0.5 - queues.length, end: 0.5 }) });
    lanes(strip, queues);
    tools(strip, [quads(strip, source)], tip([["", "name"], ["kind", "kind"], ["time", "us"], ["times", "times"]]));
    follow(source, (i) => { if (data.kernels[d.name[i]]) { focus(d.name[i]); document.getElementById("kernel").scrollIntoView(); } });

    const m = empty(["left", "right", "top", "bottom", "color", "alpha", "op", "label", "name", "kind", "size", "at"]);
    const kinds = { argument: "#5f7fa3", constant: "#98a2b3", workspace: "#f2a33a", tensor: "#3aa57d", result: "#d1495b" };
    const peak = Math.max(0, ...data.memory.map((t) => t.address + t.bytes));
    const [unit, size] = peak >= 1e9 ? ["GB", 1e9] : peak >= 1e6 ? ["MB", 1e6] : ["KB", 1e3];
    for (const t of data.memory) {
      m.left.push(t.begin); m.right.push(t.end); m.bottom.push(t.address / size); m.top.push((t.address + t.bytes) / size);
      m.color.push(kinds[t.kind]); m.alpha.push(t.kind === "argument" || t.kind === "constant" ? 0.35 : 0.85); m.op.push(t.op);
      m.label.push(t.type); m.name.push(`${t.name} ${t.type}`.trim()); m.kind.push(t.kind); m.size.push(bytes(t.bytes)); m.at.push("0x" + t.address.toString(16));
    }
    const memory = new Bokeh.ColumnDataSource({ data: m });
    const map = figure({ height: 250, x_range, y_range: new Bokeh.Range1d({ start: 0, end: (peak / size) * 1.12 || 1 }), x_axis_label: "\u00b5s", y_axis_label: `device memory, ${unit}` });
    tools(map, [quads(map, memory)], tip([["", "name"], ["", "kind"], ["size", "size"], ["at", "at"]]));
    mark(map, peak / size, `peak ${bytes(peak)} of ${bytes(data.report.memory.capacity_bytes)}`);
    follow(memory, () => {});
    strip.below[0].visible = false;
    buttons("program-charts", x_range, end);
    TW.views.program = { steps: source, memory, x_range };
    return mount("program-charts", [strip, map]).then((view) => { TW.views.program.view = view; });
  }

  function mark(fig, peak, text) {
    fig.add_layout(new Bokeh.Span({ location: peak, dimension: "width", line_color: "#d1495b", line_dash: [4, 3], line_width: 1.2 }));
    fig.add_layout(new Bokeh.Label({ x: 6, y: peak, x_units: "screen", text, text_color: "#d1495b", text_font: FONT, text_font_size: "11px", text_baseline: "bottom", y_offset: 1 }));
  }

  // -- one kernel -----------------------------------------------------------------------------------------

  function kernel(name) {
    const k = data.kernels[name];
    const cycles = (c) => `${c} cycles, ${micro(c / data.clock_mhz)}`;
    const x_range = new Bokeh.Range1d({ start: 0, end: k.shown || 1, bounds: [-0.02 * k.shown, Math.max(k.cycles, k.shown, 1) * 1.02] });
    const d = empty(["left", "right", "top", "bottom", "color", "alpha", "op", "label", "name", "slots", "bytes", "time", "line"]);
    for (let i = 0; i < k.events.length; i += 6) {
      const [lane, op, from, to, moved, slots] = k.events.slice(i, i + 6);
      d.left.push(from); d.right.push(to); d.top.push(-lane + 0.38); d.bottom.push(-lane - 0.38);
      d.color.push(PIPES[k.lanes[lane].split(" ").pop()]); d.alpha.push(0.9); d.op.push(op);
      const text = opName(op);
      d.name.push(text); d.label.push(`${text} ${k.texts[slots]}`); d.slots.push(k.texts[slots]); d.bytes.push(moved ? bytes(moved) : "-");
      d.time.push(`${from} to ${to} (${cycles(to - from)})`); d.line.push(place(op));
    }
    const events = new Bokeh.ColumnDataSource({ data: d });
    const fig = figure({ height: 34 + 25 * k.lanes.length, x_range, y_range: new Bokeh.Range1d({ start: -k.lanes.length + 0.4, end: 0.6 }), x_axis_location: "above" });
    lanes(fig, k.lanes);
    tools(fig, [quads(fig, events)], tip([["", "name"], ["in", "slots"], ["cycles", "time"], ["device memory", "bytes"], ["from", "line"]]));
    if (!k.complete) fig.add_layout(new Bokeh.BoxAnnotation({ left: k.shown, fill_color: css("--dim"), fill_alpha: 0.12 }));
    follow(events, (i) => { state.pinned = null; light({ ...family(npu, [d.op[i]]), label: d.label[i] }, true); });

    const figures = [fig];
    const sources = [];
    const groups = new Map();
    k.buffers.forEach((b, i) => { if (b.address !== null) { const key = `${b.core} ${b.space}`; groups.set(key, [...(groups.get(key) || []), i]); } });
    const ordered = [...groups].sort(([a], [b]) => a.localeCompare(b));
    ordered.forEach(([key, members], g) => {
      const m = empty(["left", "right", "top", "bottom", "color", "alpha", "op", "label", "name", "size", "at"]);
      let peak = 0;
      for (let i = 0; i < k.spans.length; i += 4) {
        const [n, slot, from, to] = k.spans.slice(i, i + 4);
        const at = members.indexOf(n);
        if (at < 0) continue;
        const b = k.buffers[n], start = b.address + slot * b.bytes;
        m.left.push(from); m.right.push(to); m.bottom.push(start / 1024); m.top.push((start + b.bytes) / 1024);
        m.color.push(PALETTE[at % PALETTE.length]); m.alpha.push(slot % 2 ? 0.62 : 0.88); m.op.push(b.op);
        const text = `${opText(b.op)}${b.slots > 1 ? `, slot ${slot} of ${b.slots}` : ""}`;
        m.name.push(text); m.label.push(text); m.size.push(bytes(b.bytes)); m.at.push(`0x${start.toString(16)}`);
      }
      members.forEach((n) => { const b = k.buffers[n]; peak = Math.max(peak, (b.address + b.bytes * b.slots) / 1024); });
      const capacity = data.capacity[k.buffers[members[0]].space] / 1024;
      const source = new Bokeh.ColumnDataSource({ data: m });
      const last = g === ordered.length - 1;
      const map = figure({ height: last ? 148 : 114, min_border_bottom: 9, x_range, y_range: new Bokeh.Range1d({ start: 0, end: peak * 1.28 || 1 }), y_axis_label: `${key}, KiB`, ...(last ? { x_axis_label: "cycles" } : {}) });
      tools(map, [quads(map, source)], tip([["", "name"], ["size", "size"], ["at", "at"]]));
      mark(map, peak, `${key}: peak ${peak.toFixed(1)} of ${capacity} KiB (${(100 * peak / capacity).toFixed(0)}%)`);
      map.left[0].ticker = new Bokeh.BasicTicker({ desired_num_ticks: 3 });
      follow(source, (i) => { state.pinned = null; light({ ...family(npu, [m.op[i]]), label: m.label[i] }, true); });
      if (!last) map.below[0].visible = false;
      figures.push(map);
      sources.push(source);
    });
    buttons("kernel-charts", x_range, Math.max(k.cycles, k.shown, 1));
    TW.views.kernel = { events, spaces: sources, x_range };
    document.getElementById("kernel-name").textContent = `@${name}`;
    const r = data.report.kernels.find((x) => x.name === name);
    document.getElementById("kernel-note").textContent =
      `One launch, the longest: ${cycles(k.cycles)} on ${r.cores > 1 ? `the heaviest of ${r.cores} cores` : "one core"}, after ${micro(r.launch_microseconds / r.launches)} of launch. ` +
      `The pipes of a core by row; below, its memories, address over time, one colour per buffer.` +
      (k.complete ? "" : ` Instructions are shown up to cycle ${k.shown}.`) +
      (k.complete && k.shown > k.cycles ? ` The last cores get more of the bandwidth than is drawn: the launch ends ${k.shown - k.cycles} cycles earlier.` : "");
    return mount("kernel-charts", figures).then((view) => { TW.views.kernel.view = view; });
  }

  const texts = new Map();
  for (const [text, op] of data.levels[npu].lines) if (op >= 0 && !texts.has(op)) texts.set(op, text.trim());
  const opText = (op) => { const found = /![\w.]+<([^>]*)>\s*$/.exec(texts.get(op) || ""); return found ? found[1] : opName(op); };
  const opName = (op) => (/(?:npu|scf)\.([\w.]+)/.exec(texts.get(op) || "") || [])[1] || "";
  function place(op) {
    const at = data.levels[npu].places[op];
    return at ? `${data.files[at[0]].name.split("/").pop()}:${at[1]}` : "";
  }

  function legend() {
    const box = document.getElementById("pipe-legend");
    box.replaceChildren(...Object.entries(PIPES).map(([pipe, hue]) => {
      const s = document.createElement("span"), i = document.createElement("i");
      i.style.background = hue;
      s.append(i, pipe);
      return s;
    }));
  }

  let pending = Promise.resolve();
  const queue = (work) => { pending = pending.then(work); return pending; };
  listeners.focus.push((name) => { if (name !== null) TW.drawn = queue(() => kernel(name)); });
  listeners.theme.push(() => { TW.drawn = queue(async () => { await program(); if (state.focus !== null) await kernel(state.focus); }); });
  legend();
  TW.drawn = queue(program);
})();
