// How a kernel is placed: what its axes are bound to, its loops and memories, and its stages as a drawing.
"use strict";
(() => {
  const { data, listeners, family, light, css, bytes, PIPES, chart } = TW;
  const GAP = 26, DOWN = 34, PAD = 11, LINE = 15;
  const first = data.levels[0].name === "graph" ? 0 : -1;
  let boxes = []; // [the op of the first level, the group of a stage] of what is drawn

  const size = (n) => typeof n === "number" ? bytes(n) : `${n} B`;
  const times = (n, one, more) => `${n} ${n === 1 ? one : more}`;
  function tag(name, text, cls) {
    const e = document.createElement(name);
    if (text !== undefined) e.textContent = text;
    if (cls) e.className = cls;
    return e;
  }
  function svg(name, attributes, ...children) {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
    e.append(...children);
    return e;
  }

  // -- axes, loops and memories --------------------------------------------------------------------------

  const BY = { cores: "cores", units: "vector cores of each cube core" };
  const cut = (c) => c.by === "loop" ? `${c.times} turns of a loop (${c.what}: ${c.elements})` : `${c.times} ${BY[c.by]}, ${c.elements} each`;
  const bound = (axis) => axis.cuts.length ? axis.cuts.map(cut) : ["whole in a tile"];

  function axes(plan) {
    const table = tag("table"), head = tag("tr"), body = tag("tbody"), top = tag("thead");
    for (const title of ["axis", "elements", "bound to", "at once"]) head.append(tag("th", title));
    top.append(head);
    for (const axis of plan.axes) {
      const row = tag("tr"), name = tag("td"), to = tag("td");
      name.append(tag("code", axis.name), axis.role ? ` ${axis.role}` : "");
      to.append(...bound(axis).map((text) => tag("div", text)));
      row.append(name, tag("td", axis.extent), to, tag("td", axis.tile));
      body.append(row);
    }
    table.append(top, body);
    return table;
  }

  const listed = (value) => Array.isArray(value) ? `[${value.map(listed).join(", ")}]` : `${value}`;
  const schedule = ({ kind, fields }) => `${kind.replace(/_/g, " ")}: ${Object.entries(fields).map(([name, value]) => `${name} ${listed(value)}`).join(", ")}`;

  // Equal types once: `6 x 1x48xf32 in ub`.
  function counted(types) {
    const found = new Map();
    for (const type of types) found.set(type, (found.get(type) || 0) + 1);
    return [...found].map(([type, n]) => n > 1 ? `${n} \u00d7 ${type}` : type).join(", ");
  }
  function loop(l) {
    const line = tag("li", `${l.trips === null ? "as often as a number says" : times(l.trips, "turn", "turns")}${l.carries.length ? `, carrying ${counted(l.carries)}` : ""}`);
    line.style.marginLeft = `${14 * l.depth}px`;
    return line;
  }
  function loops(plan) {
    const cores = new Map();
    for (const l of plan.loops) cores.set(l.core, [...(cores.get(l.core) || []), l]);
    return [...cores].flatMap(([core, inside]) => [tag("h4", `Loops of the ${core === "mixed" ? "cube core and its vector cores" : `${core} core`}`), list(inside.map(loop))]);
  }
  const buffer = (b) => `${b.count > 1 ? `${b.count} \u00d7 ` : ""}${b.type}, ${b.slots > 1 ? `${b.slots} slots of ` : ""}${bytes(b.bytes)}`;
  function memories(plan) {
    return plan.memory.flatMap((m) => [tag("h4", `${m.core} ${m.space}: ${bytes(m.bytes)}`), list(m.buffers.map((b) => tag("li", buffer(b))))]);
  }
  function list(items) {
    const found = tag("ul");
    found.append(...items);
    return found;
  }

  // -- stages --------------------------------------------------------------------------------------------

  const ROOM = { kept: "kept over loops", carried: "carried", temporary: "", none: "" };

  // What a box says: what is done, the tile that comes of it, where it is kept, and in which loops it is done.
  function lines(node) {
    const [r] = node.results;
    const end = node.input !== null ? ` input ${node.input}` : node.output !== null ? ` output ${node.output}` : "";
    const kept = !r || node.room === "none" ? "" : node.room === "slots" && node.slots > 1 ? `${node.slots} slots of ${size(r.bytes)}`
      : [size(r.bytes), node.room === "carried" ? `${size(node.carried_bytes)} carried` : ROOM[node.room]].filter(Boolean).join(", ");
    const walks = node.walks.length ? `, ${node.walks.length > 1 ? "walks" : "walk"} ${node.walks.join(", ")}` : "";
    return [`${node.does}${end}`, node.results.map((x) => `${x.tile.join("\u00d7")} ${x.element}`).join(", "), kept, node.inside.length ? `in ${node.inside.join(", ")}${walks}` : "once"].filter(Boolean);
  }

  function drawing(graph, number) {
    const said = graph.nodes.map(lines);
    const wide = Math.ceil(Math.max(96, ...said.flat().map((text) => chart.widthOf(text) * 1.08)) + 2 * PAD + 4);
    const high = 4 * LINE + 12;
    const left = Math.min(0, ...places(graph).map(([, column]) => column)), right = Math.max(0, ...places(graph).map(([, column]) => column));
    const x = (column) => (column - left) * (wide + GAP) + wide / 2 + 2, y = (row) => row * (high + DOWN) + 2;
    const width = (right - left) * (wide + GAP) + wide + 4, height = Math.max(0, ...graph.nodes.map((n) => y(n.at[0]) + high)) + 4;
    const head = `arrow-${number}`;
    const marker = svg("marker", { id: head, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0,0L8,4L0,8z", class: "head" }));
    const all = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Stages${graph.part ? ` of ${graph.part}` : ""}` }, svg("defs", {}, marker));
    for (const e of graph.edges) {
      const from = graph.nodes[e.from], to = graph.nodes[e.to];
      const path = [`M${x(from.at[1])},${y(from.at[0]) + high}`];
      let [atX, atY] = [x(from.at[1]), y(from.at[0]) + high];
      const go = (toX, toY) => { const half = (atY + toY) / 2; path.push(`C${atX},${half} ${toX},${half} ${toX},${toY}`); [atX, atY] = [toX, toY]; };
      for (const [row, column] of e.through) { go(x(column), y(row)); path.push(`L${x(column)},${y(row) + high}`); atY = y(row) + high; }
      go(x(to.at[1]), y(to.at[0]));
      all.append(svg("path", { d: path.join(""), class: "edge", "marker-end": `url(#${head})` }, svg("title", {}, `${e.value}: ${e.tile.join("\u00d7")} ${e.element}`)));
    }
    graph.nodes.forEach((node, i) => all.append(box(node, said[i], x(node.at[1]) - wide / 2, y(node.at[0]), wide, high)));
    return all;
  }
  const places = (graph) => [...graph.nodes.map((n) => n.at), ...graph.edges.flatMap((e) => e.through)];

  function box(node, said, left, top, wide, high) {
    const group = svg("g", { class: "stage" }, svg("title", {}, [node.text, node.source].filter(Boolean).join("\n")),
      svg("rect", { x: left, y: top, width: wide, height: high, rx: 6, class: "box" }),
      svg("rect", { x: left, y: top, width: 5, height: high, rx: 2, fill: PIPES[node.unit] || css("--faint") }),
      ...said.map((text, i) => svg("text", { x: left + PAD + 4, y: top + LINE * (i + 1), class: i ? "" : "does" }, text)));
    if (first >= 0 && node.origin !== null) {
      const lit = { ...family(first, [node.origin]), label: node.text };
      group.addEventListener("mouseenter", () => light(lit));
      group.addEventListener("mouseleave", () => light(null));
      group.addEventListener("click", () => { TW.state.pinned = null; light(lit, true); });
      boxes.push([node.origin, group]);
    }
    return group;
  }

  function show(lit) {
    for (const [op, group] of boxes) group.classList.toggle("lit", Boolean(lit && lit.ops[first].has(op)));
  }

  // -- on the page ---------------------------------------------------------------------------------------

  const capital = (text) => `${text[0].toUpperCase()}${text.slice(1)}`;
  function note(plan) {
    const graphs = plan.graphs.length ? "" : "No stages are drawn: ";
    return `${plan.schedule ? `${capital(schedule(plan.schedule))}. ` : ""}${plan.unstaged ? `${capital(`${graphs}${plan.unstaged}`)}.` : ""}`;
  }

  function draw(name) {
    const plan = data.kernels[name].plan;
    boxes = [];
    document.getElementById("plan-note").textContent = note(plan);
    document.getElementById("plan-axes").replaceChildren(...(plan.axes.length ? [axes(plan)] : []));
    const columns = [loops(plan), memories(plan)].filter((c) => c.length).map((children) => { const c = tag("div"); c.append(...children); return c; });
    document.getElementById("plan-loops").replaceChildren(...columns);
    document.getElementById("plan-graphs").replaceChildren(...plan.graphs.flatMap((graph, i) => {
      const scroll = tag("div", undefined, "drawing");
      scroll.append(drawing(graph, i));
      return [tag("h4", graph.part ? `Stages: ${graph.part}` : "Stages"), scroll];
    }));
    const units = new Set(plan.graphs.flatMap((graph) => graph.nodes.map((n) => n.unit)));
    chart.legend("plan-legend", [...Object.entries(PIPES).filter(([pipe]) => units.has(pipe)), ...(units.has(null) ? [["made by another part", css("--faint")]] : [])]);
  }

  listeners.focus.push((name) => { if (name !== null) draw(name); });
  listeners.light.push(show);
  listeners.theme.push(() => { if (TW.state.focus !== null) draw(TW.state.focus); });
})();
