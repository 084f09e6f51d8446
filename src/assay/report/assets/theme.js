"use strict";
const root = document.documentElement;
const wanted = window.matchMedia("(prefers-color-scheme: dark)");
window.addEventListener("error", (event) => { root.dataset.error = String(event.message); });
window.addEventListener("unhandledrejection", (event) => { root.dataset.error = String(event.reason); });
const themed = [];
function setTheme(name) {
  root.dataset.theme = name;
  for (const draw of themed) draw(name);
}
setTheme(wanted.matches ? "dark" : "light");
wanted.addEventListener("change", () => setTheme(wanted.matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
