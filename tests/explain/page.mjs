// A page without a browser: as much of a document as its scripts for stages need. Reads {"data", "scripts", "kernels"}
// from stdin; prints, for each kernel, what each part of its pane holds, as HTML.
import { readFileSync } from "node:fs";
import vm from "node:vm";

const { data, scripts, kernels } = JSON.parse(readFileSync(0, "utf-8"));

class Element {
  constructor(name) { this.name = name; this.children = []; this.attributes = {}; this.style = {}; this.dataset = {}; this.listeners = {}; this.classes = new Set(); }
  get classList() { return { toggle: (name, on) => { if (on) this.classes.add(name); else this.classes.delete(name); } }; }
  set className(names) { this.classes = new Set(names.split(" ")); }
  set textContent(text) { this.children = [`${text}`]; }
  get textContent() { return this.children.map((c) => typeof c === "string" ? c : c.textContent).join(""); }
  append(...children) { this.children.push(...children.map((c) => c instanceof Element ? c : `${c}`)); }
  replaceChildren(...children) { this.children = []; this.append(...children); }
  setAttribute(key, value) { if (key === "class") this.className = `${value}`; else this.attributes[key] = `${value}`; }
  addEventListener(kind, call) { this.listeners[kind] = call; }
  getContext() { return { measureText: (text) => ({ width: 6 * text.length }) }; }
  toString() {
    const safe = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/"/g, "&quot;");
    const given = { ...this.attributes, ...(this.classes.size ? { class: [...this.classes].join(" ") } : {}) };
    const said = Object.entries(given).map(([key, value]) => ` ${key}="${safe(value)}"`).join("");
    return `<${this.name}${said}>${this.children.map((c) => typeof c === "string" ? safe(c) : c.toString()).join("")}</${this.name}>`;
  }
}

const byId = new Map([["data", Object.assign(new Element("script"), { children: [JSON.stringify(data)] })]]);
const document = {
  documentElement: new Element("html"),
  createElement: (name) => new Element(name),
  createElementNS: (_, name) => new Element(name),
  getElementById: (id) => { if (!byId.has(id)) byId.set(id, new Element("div")); return byId.get(id); },
};
const page = vm.createContext({ document, Bokeh: { Plotting: {} }, matchMedia: () => ({ matches: false }), innerWidth: 1440, console,
  getComputedStyle: () => ({ getPropertyValue: () => "#667085" }) });
vm.runInContext(`${scripts.join("\n")}\nglobalThis.TW = TW;`, page);

const found = {};
for (const kernel of kernels) {
  page.TW.focus(kernel);
  const shown = (id) => byId.get(id).children.map(String).join("");
  found[kernel] = Object.fromEntries(["note", "axes", "loops", "legend", "graphs"].map((part) => [part, shown(`plan-${part}`)]));
}
// what is under the pointer lights its box
const stages = (element) => element instanceof Element ? [...(element.classes.has("stage") ? [element] : []), ...element.children.flatMap(stages)] : [];
const last = stages(byId.get("plan-graphs"));
const lit = last.map((stage) => {
  if (!stage.listeners.mouseenter) return 0;
  stage.listeners.mouseenter();
  const count = last.filter((other) => other.classes.has("lit")).length;
  stage.listeners.mouseleave();
  return count;
});
console.log(JSON.stringify({ kernels: found, lit, left: last.filter((stage) => stage.classes.has("lit")).length }));
