// What the page knows and shows: the data, the kernel in focus, what is lit.
"use strict";
const TW = (() => {
  // before anything is drawn: drawings take their colours from the theme
  document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const data = JSON.parse(document.getElementById("data").textContent);
  const listeners = { focus: [], light: [], theme: [] };
  const state = { data, focus: null, lit: null, pinned: null };
  const names = data.levels.map((level) => level.name);

  // children[l][op]: ops of level l + 1 that came from it; byLine: "file:line" -> [[level, op]]
  const children = data.levels.map(() => new Map());
  const byLine = new Map();
  data.levels.forEach((level, l) => {
    for (const [op, origin] of Object.entries(level.origins))
      for (const above of origin) push(children[l - 1], above, Number(op));
    level.places.forEach((place, op) => place && push(byLine, place.join(":"), [l, op]));
  });
  const aliases = new Map();
  for (const [a, b] of data.aliases) { push(aliases, a, b); push(aliases, b, a); }

  function push(map, key, value) {
    const found = map.get(key);
    if (found) found.push(value); else map.set(key, [value]);
  }

  // The ops at every level that an op of level l came from and became, and the lines they are of.
  function family(l, ops) {
    const found = data.levels.map(() => new Set());
    ops.forEach((op) => found[l].add(op));
    for (let i = l; i > 0; i--)
      for (const op of found[i]) (data.levels[i].origins[op] || []).forEach((above) => found[i - 1].add(above));
    for (let i = l; i + 1 < found.length; i++)
      for (const op of found[i]) (children[i].get(op) || []).forEach((below) => found[i + 1].add(below));
    const lines = new Set();
    const nearest = found[l].size ? [l] : names.keys();
    for (const i of nearest)
      for (const op of found[i]) { const place = data.levels[i].places[op]; if (place) lines.add(place.join(":")); }
    return { ops: found, lines, values: new Set() };
  }

  // A value, and what it is called with or called inside.
  function sameValues(value) {
    const found = new Set([value]);
    const todo = [value];
    while (todo.length && found.size < 400)
      for (const other of aliases.get(todo.pop()) || []) if (!found.has(other)) { found.add(other); todo.push(other); }
    return found;
  }

  function light(what, pin) {
    if (pin) state.pinned = what;
    state.lit = what || state.pinned;
    listeners.light.forEach((f) => f(state.lit, Boolean(pin)));
  }

  function focus(kernel) {
    state.focus = kernel;
    state.pinned = null;
    listeners.focus.forEach((f) => f(kernel));
    light(null);
  }

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Quantities in the unit that suits their size: the rules of units.py.
  function time(us) {
    for (const [unit, size] of [["ns", 1e-3], ["\u00b5s", 1], ["ms", 1e3]]) {
      const n = us / size;
      if (n < 999.5) return `${n.toFixed(unit === "ns" ? 0 : n < 9.995 ? 2 : 1)} ${unit}`;
    }
    return `${(us / 1e6).toFixed(2)} s`;
  }
  function bytes(n) {
    for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["KB", 1e3]]) if (n >= 0.9995 * size) return `${(n / size).toFixed(1)} ${unit}`;
    return `${n.toFixed(0)} B`;
  }
  function many(n) {
    for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) if (n >= size) return `${(n / size).toPrecision(3)} ${unit}`;
    return n.toPrecision(3).replace(/\.0+$/, "");
  }

  // `model.py:12-14, 20; net.onnx:/fc/Gemm`: places as [file, line], by the names of their files: the rules of source_places.py.
  function placed(places) {
    const said = new Map();
    for (const [number, line] of places) {
      const file = data.files[number];
      if (!said.has(file)) said.set(file, []);
      said.get(file).push(line);
    }
    return [...said].map(([file, lines]) => {
      const parts = file.nodes ? lines.map((line) => file.lines.find(([n]) => n === line)[1]) : ranges(lines);
      return `${file.name.split("/").pop()}:${parts.join(", ")}`;
    }).join("; ");
  }
  function ranges(lines) {
    const runs = [];
    for (const line of lines) {
      const last = runs[runs.length - 1];
      if (last && line === last[1] + 1) last[1] = line; else runs.push([line, line]);
    }
    return runs.map(([from, to]) => from === to ? `${from}` : `${from}-${to}`);
  }

  // The kernels that take longest have a colour of their own, the others share one.
  const PALETTE = ["#3f6fd1", "#e8862a", "#2f9e74", "#c9405a", "#8560b8", "#1493a5", "#b07f12", "#d465a0", "#66842a", "#99613a", "#b04fc4"];
  const OTHER = "#7f93b2";
  const kernelColour = new Map();
  [...data.report.kernels].filter((k) => k.kind !== "copy").sort((a, b) => b.microseconds - a.microseconds)
    .forEach((k, i) => kernelColour.set(k.name, PALETTE[i] || OTHER));
  const KINDS = { copy: "#a3adbb", transfer: "#8794ab", "host call": "#59647a", numbers: "#c0c7d1" };
  const MEMORY = { argument: "#b9c6d8", constant: "#d3d7de", workspace: "#f0a53c", tensor: "#3aa57d", result: "#d1495b" };
  const PIPES = { S: "#8c97a8", V: "#3aa57d", M: "#d1495b", MTE1: "#8e6bc1", MTE2: "#4e79d8", MTE3: "#17a2b8", FIX: "#f2a33a" };
  return { data, state, names, byLine, listeners, family, sameValues, light, focus, css, time, bytes, many, placed, kernelColour, KINDS, MEMORY, PALETTE, OTHER, PIPES };
})();
