// What all drawings share: figures, axes, hover, zoom, names on bars, legends. Drawn by BokehJS.
"use strict";
TW.chart = (() => {
  const { data, state, family, light, css, time, bytes } = TW;
  const P = Bokeh.Plotting;
  const npu = data.levels.length - 1;
  const FONT = "Inter, Segoe UI, system-ui, -apple-system, Helvetica Neue, Arial, sans-serif";
  const LEFT = 128;
  TW.views = {};

  function figure(options) {
    const ink = css("--dim"), line = css("--line");
    const fig = P.figure({
      sizing_mode: "stretch_width", toolbar_location: null, tools: [], background_fill_color: null, border_fill_color: null,
      outline_line_color: null, min_border_left: LEFT, min_border_right: 12, min_border_bottom: 4, min_border_top: 4, lod_threshold: null, ...options,
    });
    for (const axis of [...fig.left, ...fig.below, ...fig.above]) {
      Object.assign(axis, { axis_line_color: line, major_tick_line_color: line, minor_tick_line_color: null,
        major_label_text_color: ink, axis_label_text_color: ink, major_label_text_font: FONT, axis_label_text_font: FONT,
        major_label_text_font_size: "11px", axis_label_text_font_size: "11px", axis_label_text_font_style: "normal" });
    }
    for (const grid of fig.center) grid.grid_line_color = css("--grid");
    return fig;
  }

  // Ticks of an axis in words: `inWords` takes all ticks that are shown.
  function ticks(axis, count, inWords) {
    axis.ticker = new Bokeh.BasicTicker({ desired_num_ticks: count });
    axis.formatter = new Bokeh.BasicTickFormatter();
    axis.formatter.doFormat = inWords;
  }
  // Whether what is written into a chart has room for few words.
  const narrow = () => innerWidth < 520;
  const across = () => Math.max(2, Math.min(9, Math.round((innerWidth - 160) / 130)));

  // One unit for all ticks, and as many decimals as tell them apart.
  const scaled = (units) => (values) => {
    const top = Math.max(...values.map(Math.abs), 0);
    const [unit, size] = units.find(([, one]) => top >= one) || units[units.length - 1];
    const step = values.length > 1 ? Math.abs(values[1] - values[0]) / size : 1;
    const decimals = Math.max(0, Math.min(4, -Math.floor(Math.log10(step) + 1e-9)));
    return values.map((v) => v === 0 ? "0" : `${(v / size).toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals })}${unit}`);
  };
  const inTime = scaled([[" s", 1e6], [" ms", 1e3], [" \u00b5s", 1], [" ns", 1e-3]]);
  const inBytes = scaled([[" GB", 1e9], [" MB", 1e6], [" KB", 1e3], [" B", 1]]);
  const inKib = (values) => values.map((v) => v === 0 ? "0" : `${(v / 1024).toFixed(v % 1024 ? 1 : 0)} KiB`);
  const plain = scaled([["", 1]]);
  const inCycles = (values) => plain(values).map((text, i) => i ? text : `${text} cycles`);

  function tools(fig, renderers, tooltip) {
    const pan = new Bokeh.PanTool({ dimensions: "width" });
    const zoom = new Bokeh.WheelZoomTool({ dimensions: "width", modifiers: { ctrl: true } });
    const tap = new Bokeh.TapTool({ renderers });
    const rows = tooltip.map(([k, f]) => `<div>${k ? `<span style="color:#888">${k}</span> ` : ""}<b>@${f}</b></div>`);
    const hover = new Bokeh.HoverTool({ renderers, tooltips: `<div style="font:12px ${FONT};max-width:380px">${rows.join("")}</div>`, attachment: "vertical", point_policy: "follow_mouse" });
    fig.add_tools(pan, zoom, tap, hover);
    fig.toolbar.active_drag = pan;
    fig.toolbar.active_scroll = zoom;
  }

  // A row for each name, with what is said of it behind.
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

  const pin = (d) => (i) => { state.pinned = null; light({ ...family(npu, [d.op[i]]), label: d.label[i] }, true); };

  // -- names on bars -------------------------------------------------------------------------------------

  const pencil = document.createElement("canvas").getContext("2d");
  pencil.font = `11px ${FONT}`;
  const widths = new Map();
  function widthOf(text) {
    if (!widths.has(text)) widths.set(text, pencil.measureText(text).width);
    return widths.get(text);
  }

  // The text, or its beginning, as far as it fits into so many pixels; "" for less than three letters of it.
  function fitted(text, room) {
    if (widthOf(text) <= room) return text;
    const letters = Math.floor((room - widthOf("\u2026")) / (widthOf(text) / text.length));
    return letters >= 3 ? `${text.slice(0, letters)}\u2026` : "";
  }

  // Dark or white, whichever is legible on a colour that is laid over the card so strongly.
  function inkOn(colour, alpha) {
    const card = css("--card");
    const at = (hex, i) => parseInt(hex.slice(1 + 2 * i, 3 + 2 * i), 16);
    const [r, g, b] = [0, 1, 2].map((i) => alpha * at(colour, i) + (1 - alpha) * at(card, i));
    return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#10151d" : "#ffffff";
  }

  // Names on the boxes of `source` that are wide and high enough for them, in what is shown now.
  function names(fig, source, lift = 0) {
    const d = source.data;
    const shown = new Bokeh.ColumnDataSource({ data: { x: [], y: [], text: [], ink: [] } });
    fig.text({ x: { field: "x" }, y: { field: "y" }, text: { field: "text" }, text_color: { field: "ink" }, text_font: FONT, text_font_size: "11px",
      text_baseline: "middle", x_offset: 4, y_offset: -lift, source: shown, level: "annotation" });
    const inks = new Map();
    const ink = (i) => {
      const key = `${d.color[i]} ${d.alpha[i]}`;
      if (!inks.has(key)) inks.set(key, inkOn(d.color[i], d.alpha[i]));
      return inks.get(key);
    };
    return (frame) => {
      const { start, end } = fig.x_range, made = { x: [], y: [], text: [], ink: [] };
      const perX = frame.bbox.width / (end - start), perY = frame.bbox.height / (fig.y_range.end - fig.y_range.start);
      for (let i = 0; i < d.left.length; i++) {
        const from = Math.max(d.left[i], start), to = Math.min(d.right[i], end);
        const low = Math.max(d.bottom[i], fig.y_range.start), high = Math.min(d.top[i], fig.y_range.end);
        if ((to - from) * perX < 20 || (high - low) * perY < 12) continue;
        const text = fitted(d.label[i], (to - from) * perX - 8);
        if (!text) continue;
        made.x.push(from); made.y.push((low + high) / 2); made.text.push(text); made.ink.push(ink(i));
      }
      shown.data = made;
    };
  }

  // -- on the page ---------------------------------------------------------------------------------------

  // Shows figures one below the other; `naming` are the functions of `names`, by the number of the figure.
  async function mount(id, children, naming) {
    const box = document.getElementById(id);
    box.replaceChildren();
    const view = await P.show(new Bokeh.Column({ children, sizing_mode: "stretch_width" }), box);
    let asked = false;
    const name = () => {
      asked = false;
      naming.forEach(([i, write]) => { const plot = view.child_views[i]; if (plot && plot.frame.bbox.width > 1) write(plot.frame); });
    };
    const ask = () => { if (!asked) { asked = true; requestAnimationFrame(name); } };
    children[0].x_range.change.connect(ask);
    children.forEach((fig) => fig.y_range.change.connect(ask));
    children[0].properties.inner_width.change.connect(ask);
    name();
    return view;
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

  // [text, colour, class, click] of each entry.
  function legend(id, entries) {
    document.getElementById(id).replaceChildren(...entries.map(([text, hue, cls, click]) => {
      const s = document.createElement(click ? "button" : "span"), i = document.createElement("i");
      if (click) { s.type = "button"; s.addEventListener("click", click); }
      i.style.background = hue;
      if (cls) i.className = cls;
      s.append(i, text);
      return s;
    }));
  }

  function mark(fig, peak, text) {
    fig.add_layout(new Bokeh.Span({ location: peak, dimension: "width", line_color: css("--peak"), line_dash: [4, 3], line_width: 1.2 }));
    fig.add_layout(new Bokeh.Label({ x: 6, y: peak, x_units: "screen", text, text_color: css("--peak"), text_font: FONT, text_font_size: "11px", text_baseline: "bottom", y_offset: 1 }));
  }

  const empty = (...keys) => Object.fromEntries(["left", "right", "top", "bottom", "color", "alpha", "op", "label", ...keys].map((k) => [k, []]));
  const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)}%`;
  return { npu, FONT, figure, ticks, narrow, across, inTime, inBytes, inKib, inCycles, tools, lanes, quads, follow, pin, widthOf, names, mount, buttons, legend, mark, empty, percent, time, bytes };
})();
