// The columns: the user's source and the levels, with everything that belongs together lit together.
"use strict";
(() => {
  const { data, state, byLine, listeners, family, sameValues, light, focus } = TW;
  const columns = document.getElementById("columns");
  const status = document.getElementById("status");
  const types = document.getElementById("types");
  const source = column("source", "your program");
  const panes = data.levels.map((level) => column(level.name, ""));
  const rowsOf = data.levels.map(() => new Map()); // op -> its rows
  const tokensOf = new Map(); // value -> its spans
  const sourceRows = new Map(); // "file:line" -> row
  let marked = [];

  function column(title, note) {
    const box = element("div", "column", columns);
    box.dataset.level = title;
    const head = element("h3", "", box);
    head.append(title);
    const said = element("span", "", head);
    said.textContent = note;
    const code = element("div", "code", box);
    toggle(title, box);
    return { code, said };
  }

  // A button that hides a pane and brings it back; one pane stays.
  function toggle(title, box) {
    const button = element("button", "", document.getElementById("panes"));
    button.type = "button";
    button.textContent = title;
    button.title = `Show or hide ${title}`;
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const hide = !box.hidden;
      if (hide && columns.querySelectorAll(".column:not([hidden])").length === 1) return;
      box.hidden = hide;
      button.setAttribute("aria-pressed", String(!hide));
    });
  }

  function element(tag, cls, parent) {
    const e = document.createElement(tag);
    if (cls) e.className = cls;
    if (parent) parent.append(e);
    return e;
  }

  function drawSource() {
    const rows = element("div", "rows", null);
    data.files.forEach((file, f) => {
      const head = element("div", "row file", rows);
      head.textContent = file.name;
      let last = 0;
      for (const [number, text] of file.lines) {
        if (!file.nodes && last && number !== last + 1) element("div", "row gap", rows).textContent = "      \u22ef";
        last = number;
        const row = element("div", file.nodes ? "row source node" : "row source", rows);
        if (!file.nodes) element("span", "no", row).textContent = number;
        row.append(text);
        const key = `${f}:${number}`;
        if (byLine.has(key)) { row.classList.add("used"); row.dataset.line = key; }
        sourceRows.set(key, row);
      }
    });
    source.code.replaceChildren(rows);
  }

  // Where ` : types` begins, outside brackets and strings; the length where there are none.
  function typesAt(text) {
    let depth = 0, quoted = false;
    for (let i = 0; i < text.length; i++) {
      const c = text[i];
      if (c === '"' && text[i - 1] !== "\\") quoted = !quoted;
      if (quoted) continue;
      if ("([{<".includes(c)) depth++;
      else if (")]}".includes(c) || (c === ">" && text[i - 1] !== "-")) depth--;
      else if (depth === 0 && text.startsWith(" : ", i)) return i;
    }
    return text.length;
  }

  function drawLine(l, [text, op, names], rows) {
    const row = element("div", "row", rows);
    if (op >= 0) {
      row.dataset.level = l;
      row.dataset.op = op;
      const found = rowsOf[l].get(op);
      if (found) found.push(row); else rowsOf[l].set(op, [row]);
    }
    const clip = element("span", "clip", row);
    const cut = typesAt(text);
    const tail = / \{$/.test(text) && cut < text.length ? " {" : "";
    let at = 0;
    for (let i = 0; i < names.length; i += 2) {
      if (names[i] < at || names[i] >= text.length) continue;
      plain(clip, text, at, names[i], cut);
      const end = names[i] + /^[%^][\w$.]+/.exec(text.slice(names[i]))[0].length;
      const token = element("span", names[i] >= cut ? "v t" : "v", clip);
      token.textContent = text.slice(names[i], end);
      token.dataset.value = names[i + 1];
      const found = tokensOf.get(names[i + 1]);
      if (found) found.push(token); else tokensOf.set(names[i + 1], [token]);
      at = end;
    }
    plain(clip, text, at, text.length, cut);
    if (tail) element("span", "p", clip).textContent = "";
    return row;
  }

  const WORDS = /(@[\w$.]+)|\b((?:graph|tile|npu|scf|arith|func)\.[\w.]+)|(\{[^{}]*\})/g;
  function plain(parent, text, from, to, cut) {
    if (from >= to) return;
    if (from < cut && to > cut) { plain(parent, text, from, cut, cut); from = cut; }
    const part = text.slice(from, to);
    if (from >= cut) { element("span", "t", parent).textContent = part; return; }
    let at = 0;
    for (const found of part.matchAll(WORDS)) {
      parent.append(part.slice(at, found.index));
      const name = found[1] && found[1].slice(1);
      const kernel = name && data.kernels[name];
      element("span", kernel ? "k" : found[1] || found[2] ? "o" : "p", parent).textContent = found[0];
      if (kernel) parent.lastChild.dataset.kernel = name;
      at = found.index + found[0].length;
    }
    parent.append(part.slice(at));
  }

  function draw() {
    tokensOf.clear();
    data.levels.forEach((level, l) => {
      rowsOf[l].clear();
      const rows = element("div", "rows", null);
      const wanted = level.blocks.filter((b) => state.focus === null ? !b.kernels.length || level.name === "graph" : b.kernels.includes(state.focus));
      let count = 0;
      if (state.focus !== null) // the launches of the kernel, above it
        callers(l).forEach((line) => { drawLine(l, line, rows); count++; });
      for (const block of wanted)
        for (let i = block.lines[0]; i < block.lines[1]; i++) { drawLine(l, level.lines[i], rows); count++; }
      panes[l].said.textContent = `${count} of ${level.lines.length} lines`;
      panes[l].code.replaceChildren(rows);
      panes[l].code.scrollTop = 0;
    });
  }

  function callers(l) {
    const level = data.levels[l];
    const main = level.blocks.filter((b) => !b.kernels.length);
    const found = [];
    for (const block of main)
      for (let i = block.lines[0]; i < block.lines[1] && found.length < 3; i++)
        if (new RegExp(`launch @${state.focus.replace(/[.$]/g, "\\$&")}\\b`).test(level.lines[i][0])) found.push(level.lines[i]);
    return found;
  }

  // -- what is lit ------------------------------------------------------------------------------------------

  function ofRow(row) {
    if (row.dataset.line) {
      const what = { ops: data.levels.map(() => new Set()), lines: new Set([row.dataset.line]), values: new Set() };
      for (const [l, op] of byLine.get(row.dataset.line)) what.ops[l].add(op);
      return { ...what, label: row.classList.contains("node") ? row.textContent : `line ${row.dataset.line.split(":")[1]}` };
    }
    const l = Number(row.dataset.level), op = Number(row.dataset.op);
    return { ...family(l, [op]), label: `${TW.names[l]} op` };
  }

  function ofValue(token) {
    const value = Number(token.dataset.value);
    const what = ofRow(token.closest(".row"));
    const values = sameValues(value);
    const made = data.levels.map(() => []);
    // the ops that define the value or one that it stands for
    for (const v of values)
      for (const t of tokensOf.get(v) || []) {
        const row = t.closest(".row");
        if (row.dataset.op && defines(row, t)) made[Number(row.dataset.level)].push(Number(row.dataset.op));
      }
    const ops = data.levels.map(() => new Set()), lines = new Set();
    made.forEach((some, l) => {
      if (!some.length) return;
      const more = family(l, some);
      more.ops.forEach((set, i) => set.forEach((op) => ops[i].add(op)));
      more.lines.forEach((line) => lines.add(line));
    });
    const any = ops.some((set) => set.size);
    return { ops: any ? ops : what.ops, lines: any ? lines : what.lines, values, label: `value ${token.textContent}` };
  }

  function defines(row, token) {
    const before = [];
    for (let node = token.previousSibling; node; node = node.previousSibling) before.push(node.textContent);
    const text = row.textContent;
    const at = before.reverse().join("").length;
    const equals = text.indexOf(" = ");
    return equals > at;
  }

  function show(what, pin) {
    marked.forEach((e) => e.classList.remove("lit", "pinned"));
    marked = [];
    status.textContent = what ? what.label || "" : "";
    if (!what) return;
    const mark = (e) => { e.classList.add("lit"); if (what === state.pinned) e.classList.add("pinned"); marked.push(e); };
    what.ops.forEach((set, l) => {
      const rows = [...set].flatMap((op) => rowsOf[l].get(op) || []);
      rows.forEach(mark);
      reveal(panes[l].code, rows);
    });
    const lines = [...what.lines].map((line) => sourceRows.get(line)).filter(Boolean);
    lines.forEach(mark);
    reveal(source.code, lines);
    for (const value of what.values) (tokensOf.get(value) || []).forEach((t) => { t.classList.add("lit"); marked.push(t); });
  }

  // Scrolls a column so that something lit is in it, unless something is already.
  function reveal(code, rows) {
    if (!rows.length || code.matches(":hover")) return;
    const box = code.getBoundingClientRect();
    const seen = rows.some((r) => { const b = r.getBoundingClientRect(); return b.top >= box.top && b.bottom <= box.bottom; });
    if (!seen) code.scrollTop += rows[0].getBoundingClientRect().top - box.top - box.height / 3;
  }

  function under(event) {
    const token = event.target.closest(".v");
    if (token) return ofValue(token);
    const row = event.target.closest(".row");
    return row && (row.dataset.op || row.dataset.line) ? ofRow(row) : null;
  }

  columns.addEventListener("mouseover", (event) => light(under(event)));
  columns.addEventListener("mouseleave", () => light(null));
  columns.addEventListener("click", (event) => {
    const kernel = event.target.closest(".k");
    if (kernel && kernel.dataset.kernel !== state.focus) { focus(kernel.dataset.kernel); return; }
    state.pinned = null;
    light(under(event), true);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { state.pinned = null; light(null); }
  });
  types.addEventListener("change", () => panes.forEach((p) => p.code.classList.toggle("types", types.checked)));
  listeners.light.push(show);
  listeners.focus.push(draw);
  drawSource();
})();
