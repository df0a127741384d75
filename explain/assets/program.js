// The program in time: its commands by queue, the same spans as in the trace, and device memory.
"use strict";
TW.drawProgram = () => {
  const { data, focus, time, bytes, kernelColour, KINDS, MEMORY, OTHER, css, chart } = TW;
  const report = data.report;
  const end = report.microseconds || 1;
  const x_range = new Bokeh.Range1d({ start: 0, end, bounds: [-0.02 * end, 1.02 * end] });
  const steps = data.steps.map(([name, kind, op, from, to, starting, queue, passes]) => ({ name, kind, op, from, to, starting, queue, passes }));
  const queues = ["compute", "copy_in", "copy_out", "host", "program"].filter((q) => steps.some((s) => s.queue === q));
  if (!queues.length) queues.push("compute");
  const open = (name) => { focus(name); document.getElementById("kernel").scrollIntoView(); };

  // -- commands ------------------------------------------------------------------------------------------

  const commands = chart.empty("name", "kind", "at", "us", "starting"), rest = chart.empty("name", "at", "us"), foot = chart.empty();
  const put = (d, s, to, top, color, alpha) => {
    const lane = -queues.indexOf(s.queue);
    d.left.push(s.from); d.right.push(to); d.top.push(lane + top); d.bottom.push(lane - 0.38);
    d.color.push(color); d.alpha.push(alpha); d.op.push(s.op); d.label.push(s.name);
  };
  for (const s of steps) {
    const d = s.kind === "passes" ? rest : commands;
    put(d, s, s.to, 0.38, s.kind === "passes" ? OTHER : KINDS[s.kind] || kernelColour.get(s.name) || OTHER, s.kind === "passes" ? 0.22 : 0.95);
    d.name.push(s.name); d.at.push(time(s.from)); d.us.push(time(s.to - s.from));
    if (d === rest) continue;
    d.kind.push(s.kind); d.starting.push(s.starting ? time(s.starting) : "-");
    if (s.starting) put(foot, s, Math.min(s.to, s.from + s.starting), -0.25, "#10151d", 0.55);
  }
  const source = new Bokeh.ColumnDataSource({ data: commands }), passes = new Bokeh.ColumnDataSource({ data: rest });
  const strip = chart.figure({ height: 34 + 36 * queues.length, x_range, y_range: new Bokeh.Range1d({ start: 0.46 - queues.length, end: 0.54 }), x_axis_location: "above" });
  chart.lanes(strip, queues.map((q) => `${q}  ${chart.percent((report.queues[q] || 0) / end)}`));
  chart.ticks(strip.above[0], chart.across(), chart.inTime);
  const bars = chart.quads(strip, source);
  const sums = chart.quads(strip, passes, { hatch_pattern: "right_diagonal_line", hatch_color: css("--dim"), hatch_alpha: 0.5, hatch_scale: 8, hatch_weight: 0.6 });
  chart.quads(strip, new Bokeh.ColumnDataSource({ data: foot }), { line_color: null });
  chart.tools(strip, [bars], [["", "name"], ["kind", "kind"], ["from", "at"], ["takes", "us"], ["of which starting", "starting"]]);
  strip.add_tools(new Bokeh.HoverTool({ renderers: [sums], tooltips: [["", "@name"], ["from", "@at"], ["takes", "@us"]] }));
  chart.follow(source, (i) => { if (data.kernels[commands.name[i]] && commands.kind[i] === "kernel") open(commands.name[i]); });

  const ranked = [...kernelColour].filter(([name]) => steps.some((s) => s.kind === "kernel" && s.name === name));
  const own = ranked.filter(([, hue]) => hue !== OTHER);
  const kinds = Object.entries(KINDS).filter(([kind]) => steps.some((s) => s.kind === kind));
  chart.legend("program-legend", [
    ...own.map(([name, hue]) => [name, hue, "", () => open(name)]),
    ...(own.length < ranked.length ? [[`${ranked.length - own.length} other kernel${ranked.length - own.length > 1 ? "s" : ""}`, OTHER]] : []),
    ...kinds,
    ...(rest.left.length ? [["more passes of a loop", "", "hatch"]] : []),
    ["dark foot: starting the command", "", "foot"],
  ]);

  // -- memory --------------------------------------------------------------------------------------------

  const m = chart.empty("name", "kind", "size", "at", "span");
  const peak = report.memory.arena_bytes || Math.max(0, ...data.memory.map((t) => t.address + t.bytes));
  for (const t of data.memory) {
    m.left.push(t.begin); m.right.push(t.end); m.bottom.push(t.address); m.top.push(t.address + t.bytes);
    m.color.push(MEMORY[t.kind]); m.alpha.push(0.9); m.op.push(t.op); m.label.push(`${t.name} ${t.type}`.trim());
    m.name.push(`${t.name} ${t.type}`.trim()); m.kind.push(t.kind); m.size.push(bytes(t.bytes)); m.at.push("0x" + t.address.toString(16));
    m.span.push(`${time(t.begin)} to ${time(t.end)}`);
  }
  const memory = new Bokeh.ColumnDataSource({ data: m });
  const map = chart.figure({ height: 250, x_range, y_range: new Bokeh.Range1d({ start: 0, end: peak * 1.12 || 1 }) });
  chart.ticks(map.left[0], 5, chart.inBytes);
  chart.ticks(map.below[0], chart.across(), chart.inTime);
  chart.tools(map, [chart.quads(map, memory)], [["", "name"], ["", "kind"], ["size", "size"], ["at", "at"], ["lives", "span"]]);
  const used = new Bokeh.ColumnDataSource({ data: { x: data.packing.in_use.map(([at]) => at), y: data.packing.in_use.map(([, n]) => n) } });
  map.line({ x: { field: "x" }, y: { field: "y" }, line_color: css("--ink"), line_width: 1.2, line_alpha: 0.8, source: used });
  chart.mark(map, peak, `device memory: ${bytes(peak)} of ${bytes(report.memory.capacity_bytes)}`);
  chart.follow(memory, () => {});
  // Arguments and constants stay all the time, and may dwarf what comes and goes.
  const moving = data.memory.filter((t) => t.kind !== "argument" && t.kind !== "constant");
  const button = document.getElementById("memory-zoom");
  button.hidden = !moving.length || moving.length === data.memory.length;
  const fit = (only) => {
    const low = only ? Math.min(...moving.map((t) => t.address)) : 0, high = only ? Math.max(...moving.map((t) => t.address + t.bytes)) : peak;
    button.setAttribute("aria-pressed", String(only));
    map.y_range.setv({ start: low, end: low + (high - low) * 1.12 || 1 });
  };
  button.onclick = () => fit(button.getAttribute("aria-pressed") !== "true");
  fit(false);
  chart.legend("memory-legend", Object.entries(MEMORY).filter(([kind]) => m.kind.includes(kind)));

  const packing = data.packing.sentences.map(([what, more]) => {
    const li = document.createElement("li"), span = document.createElement("span");
    span.textContent = more;
    li.append(what, span);
    return li;
  });
  document.getElementById("packing").replaceChildren(...packing);

  chart.buttons("program-charts", x_range, end);
  TW.views.program = { steps: source, passes, memory, used, x_range };
  const naming = [[0, chart.names(strip, source, 2)], [0, chart.names(strip, passes)], [1, chart.names(map, memory)]];
  return chart.mount("program-charts", [strip, map], naming).then((view) => { TW.views.program.view = view; });
};
