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
  const bytes = (n) => n >= 1e9 ? (n / 1e9).toFixed(2) + " GB" : n >= 1e6 ? (n / 1e6).toFixed(2) + " MB" : n >= 1e3 ? (n / 1e3).toFixed(1) + " KB" : n + " B";
  const micro = (n) => n >= 1e4 ? (n / 1e3).toFixed(2) + " ms" : n.toFixed(n < 10 ? 2 : 1) + " \u00b5s";
  const PALETTE = ["#4e79d8", "#f28e2b", "#3aa57d", "#d1495b", "#8e6bc1", "#17a2b8", "#b8860b", "#e377a8", "#6b8e23", "#a0673c", "#5f7fa3", "#c45ad0"];
  const PIPES = { S: "#8c97a8", V: "#3aa57d", M: "#d1495b", MTE1: "#8e6bc1", MTE2: "#4e79d8", MTE3: "#17a2b8", FIX: "#f2a33a" };
  return { data, state, names, byLine, listeners, family, sameValues, light, focus, css, bytes, micro, PALETTE, PIPES };
})();
