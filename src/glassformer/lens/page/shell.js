/** The bar above every screen: what is open, where one can go, which input is shown, light or dark. */

import { theme } from "lens/colour.js";
import { h, picker, put } from "lens/dom.js";
import { help } from "lens/help.js";
import { address, now, screens, set } from "lens/state.js";
import { count, whole } from "lens/text.js";

/** @typedef {import("./main.js").Context} Context */

const TITLES = /** @type {Record<string, string>} */ ({
  overview: "Overview", attention: "Attention", generate: "Generate", heads: "Heads", ablations: "Ablations",
  parameters: "Parameters", curves: "Curves",
});

/**
 * @param {HTMLElement} bar
 * @param {Context} context
 */
export function drawBar(bar, { run, traces, trace }) {
  const state = now();
  const { model } = trace.header;
  const links = screens.map((name, i) => {
    const at = { ...state, screen: name };
    return h("a", {
      href: address(at), "aria-current": name === state.screen ? "page" : null, "data-screen": name, "aria-keyshortcuts": String(i + 1), title: `${TITLES[name]}: key ${i + 1}`,
      on: { click: (/** @type {MouseEvent} */ event) => { if (event.metaKey || event.ctrlKey) return; event.preventDefault(); set({ screen: name }, true); } },
    }, TITLES[name]);
  });
  const input = traces.length > 1 && picker("Input", traces.map((each) => [each.id, whole(each.title)]), state.trace,
    (id) => set({ trace: id, q: null, k: null, step: -1 }, true));
  put(bar,
    h("div", { class: "bar-top" },
      h("div", { class: "brand" }, mark(), h("h1", {}, run.name || model.name),
        h("span", { class: "quiet facts" }, `${model.kind} · ${count(model.params)} parameters · d_model ${model.d_model} · ${model.n_heads} heads`)),
      h("span", { class: "grow" }), input, helpButton(), themeButton()),
    h("nav", { "aria-label": "Screens" }, links));
}

/** A pane of glass, three by three, its anti-diagonal lit. */
function mark() {
  const cells = Array.from({ length: 9 }, (_, i) => h("i", { class: [2, 4, 6].includes(i) ? "lit" : "" }));
  return h("span", { class: "mark", "aria-hidden": "true" }, cells);
}

function helpButton() {
  return h("button", { type: "button", class: "help-button", id: "help", "aria-label": "Help", "aria-haspopup": "dialog", "aria-keyshortcuts": "?", title: "Help: key ?", on: { click: help } }, "?");
}

function themeButton() {
  const dark = theme() === "dark";
  return h("button", {
    type: "button", class: "theme", "aria-label": dark ? "Light colours" : "Dark colours", title: dark ? "Light colours" : "Dark colours",
    on: { click: () => { document.documentElement.dataset.theme = dark ? "light" : "dark"; window.dispatchEvent(new Event("themechange")); } },
  }, dark ? "☀" : "☾");
}
