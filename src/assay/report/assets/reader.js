"use strict";
// All text enters the page as text nodes: completions are hostile until proven otherwise.
const data = JSON.parse(document.getElementById("data").textContent);
const DRAWN = 1, HACKED = 2, UNPAID = 4, DIFFERENT = 8, PAGE = 24;
const VIEWS = {
  drawn: ["a random sample", (flags) => flags & DRAWN],
  hacked: ["rewarded and not true", (flags) => flags & HACKED],
  unpaid: ["true and not rewarded", (flags) => flags & UNPAID],
  differ: ["reward and truth differ", (flags) => flags & DIFFERENT],
  all: ["everything kept", () => true],
};
const control = (name) => document.getElementById(`reader-${name}`);
let shown = PAGE;

function node(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}
function option(value, text) {
  const element = node("option", "", text);
  element.value = value;
  return element;
}
function score(value) { return value === null ? "none" : String(Math.round(value * 1000) / 1000); }

function marked(text, query) {
  const place = node("pre");
  if (!query) { place.textContent = text; return place; }
  const lower = text.toLowerCase(), wantedText = query.toLowerCase();
  let from = 0, at = lower.length === text.length ? lower.indexOf(wantedText) : -1;
  while (at >= 0) {
    place.append(text.slice(from, at), node("mark", "", text.slice(at, at + query.length)));
    from = at + query.length;
    at = lower.indexOf(wantedText, from);
  }
  place.append(text.slice(from));
  return place;
}
function sampleCard(step, row, query) {
  const [prompt, completion, number, reward, truth, length, finish, rewardWhy, truthWhy, flags] = row;
  const right = truth !== null && truth >= 0.5 && !(flags & (HACKED | UNPAID));
  const kind = flags & HACKED ? " hacked" : flags & UNPAID ? " unpaid" : right ? " right" : "";
  const card = node("article", `sample${kind}`);
  const meta = node("div", "meta");
  for (const [className, name, value] of [["r", "reward ", reward], ["t", "truth ", truth]]) {
    const part = node("span", className, name);
    part.append(node("b", "", score(value)));
    meta.append(part);
  }
  if (flags & HACKED) meta.append(node("span", "chip hacking", "rewarded and not true"));
  if (flags & UNPAID) meta.append(node("span", "chip warn", "true and not rewarded"));
  meta.append(node("span", "", `step ${step}, sample ${number}`));
  if (length !== null) meta.append(node("span", "", `${length} tokens${finish ? `, ended by ${finish}` : ""}`));
  card.append(meta);
  for (const [name, why] of [["reward", rewardWhy], ["truth", truthWhy]]) {
    if (why !== null) card.append(node("div", "meta", `${name}: ${data.texts[why]}`));
  }
  card.append(node("div", "label", "prompt"), marked(data.texts[prompt], query));
  card.append(node("div", "label", "completion"), marked(data.texts[completion], query));
  return card;
}
function matches() {
  const arm = data.arms[control("arm").value], step = control("step").value;
  const keep = VIEWS[control("show").value][1], query = control("search").value.toLowerCase();
  const found = [];
  for (const entry of arm.steps) {
    if (step !== "all" && String(entry.step) !== step) continue;
    for (const row of entry.rows) {
      if (!keep(row[9])) continue;
      if (query && !data.texts[row[1]].toLowerCase().includes(query) && !data.texts[row[0]].toLowerCase().includes(query)) continue;
      found.push([entry.step, row]);
    }
  }
  return found;
}
function render() {
  const found = matches(), query = control("search").value, list = document.getElementById("samples");
  list.replaceChildren(...found.slice(0, shown).map(([step, row]) => sampleCard(step, row, query)));
  const arm = data.arms[control("arm").value], step = control("step").value;
  const entries = arm.steps.filter((entry) => step === "all" || String(entry.step) === step);
  const of = entries.reduce((sum, entry) => sum + entry.of, 0);
  const show = control("show").value;
  let text = `${found.length} samples (${VIEWS[show][0]}), of ${of} evaluated`;
  const total = { hacked: "hacked", unpaid: "unpaid", differ: "differ" }[show];
  if (total && !query) {
    const all = entries.reduce((sum, entry) => sum + entry[total], 0);
    if (all > found.length) text += `; ${all - found.length} more are in the evals folder, left out of this page for its size`;
  }
  document.getElementById("count").textContent = `${text}.`;
  document.getElementById("more").hidden = found.length <= shown;
  const state = new URLSearchParams({ arm: arm.name, step, show });
  if (query) state.set("q", query);
  return state;
}
function changed() {
  shown = PAGE;
  history.replaceState(null, "", `#${render()}`);
}
function fillSteps() {
  const arm = data.arms[control("arm").value], before = control("step").value;
  const steps = arm.steps.map((entry) => option(String(entry.step), `step ${entry.step}`));
  control("step").replaceChildren(...steps, option("all", "all steps"));
  const last = arm.steps.length ? String(arm.steps[arm.steps.length - 1].step) : "all";
  control("step").value = [...control("step").options].some((item) => item.value === before) ? before : last;
}
function fromHash() {
  const state = new URLSearchParams(location.hash.slice(1));
  const arm = data.arms.findIndex((item) => item.name === state.get("arm"));
  control("arm").value = String(Math.max(arm, 0));
  fillSteps();
  if (state.has("step")) control("step").value = state.get("step");
  if (!control("step").value) fillSteps();
  const show = state.get("hacked") === "1" ? "hacked" : state.get("show");
  control("show").value = show in VIEWS ? show : "drawn";
  control("search").value = state.get("q") ?? "";
  shown = PAGE;
  render();
}
function readAll(arm, show) {
  control("arm").value = String(arm);
  fillSteps();
  control("step").value = "all";
  control("show").value = show;
  control("search").value = "";
  changed();
  document.getElementById("reader").scrollIntoView();
}
function differences() {
  const place = document.getElementById("differences");
  data.arms.forEach((arm, at) => {
    const sum = (key) => arm.steps.reduce((total, entry) => total + entry[key], 0);
    const line = node("p");
    line.append(node("b", "", arm.name), `: reward and truth differ on ${sum("differ")} of ${sum("of")} samples; ` +
      `${sum("hacked")} are rewarded and not true, ${sum("unpaid")} true and not rewarded. `);
    if (sum("differ")) {
      const button = node("button", "", "Read them");
      button.addEventListener("click", () => readAll(at, "differ"));
      line.append(button);
    }
    place.append(line);
    if (sum("differ") && sum("differ") <= 12) {
      for (const entry of arm.steps) for (const row of entry.rows) {
        if (row[9] & DIFFERENT) place.append(sampleCard(entry.step, row, ""));
      }
    }
  });
}
control("arm").append(...data.arms.map((arm, at) => option(String(at), arm.name)));
control("show").append(...Object.entries(VIEWS).map(([key, [text]]) => option(key, text)));
control("arm").addEventListener("change", () => { fillSteps(); changed(); });
for (const name of ["step", "show"]) control(name).addEventListener("change", changed);
control("search").addEventListener("input", changed);
document.getElementById("more").addEventListener("click", () => { shown += PAGE; render(); });
window.addEventListener("hashchange", () => { if (location.hash.includes("=")) fromHash(); });
differences();
fromHash();
root.dataset.reader = "ready";
