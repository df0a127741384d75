// Starts the page: theme, the kernel picker, and the most expensive kernel in focus.
"use strict";
(() => {
  const { data, listeners, focus } = TW;
  const root = document.documentElement;
  const button = document.getElementById("theme");
  function theme(name) {
    root.dataset.theme = name;
    button.textContent = name === "dark" ? "Light" : "Dark";
  }
  theme(root.dataset.theme);
  button.addEventListener("click", () => {
    theme(root.dataset.theme === "dark" ? "light" : "dark");
    listeners.theme.forEach((f) => f());
  });

  const pick = document.getElementById("focus");
  const names = data.report.kernels.filter((k) => k.kind !== "copy").sort((a, b) => b.microseconds - a.microseconds).map((k) => k.name);
  pick.append(new Option("whole program", ""), ...names.map((name) => new Option(name, name)));
  pick.addEventListener("change", () => focus(pick.value || null));
  listeners.focus.push((name) => {
    pick.value = name ?? "";
    document.getElementById("kernel").hidden = name === null;
  });
  focus(names.length ? names[0] : null);
  TW.drawn.then(() => { root.dataset.ready = "yes"; });
})();
