/** Beside or above every screen: what is open, which input is shown, where one can go, help, light or dark. */

import { theme } from "lens/colour.js";
import { h, picker, put } from "lens/dom.js";
import { help, keysAreOn } from "lens/help.js";
import { address, now, onScreen, screens, set } from "lens/state.js";
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
  const keys = keysAreOn();
  const links = screens.map((name, i) => {
    return h("a", {
      href: address(onScreen(name)), "aria-current": name === state.screen ? "page" : null, "data-screen": name, "aria-keyshortcuts": keys ? String(i + 1) : null, title: keys ? `${TITLES[name]}: key ${i + 1}` : null,
      on: { pointerover: fresh, focus: fresh, click: (/** @type {MouseEvent} */ event) => { if (event.metaKey || event.ctrlKey) return; event.preventDefault(); set({ screen: name }, true); } },
    }, TITLES[name]);
  });
  const input = traces.length > 1 && picker("Input", traces.map((each) => [each.id, whole(each.title)]), state.trace,
    (id) => set({ trace: id, q: null, k: null, step: -1 }, true));
  const facts = [model.kind, `${count(model.params)} parameters`, `d_model ${model.d_model}`, `${model.n_heads} heads`];
  put(bar,
    h("div", { class: "brand" }, mark(), h("h1", {}, run.name || model.name),
      h("p", { class: "quiet facts" }, facts.map((fact, i) => [i > 0 && h("i", {}, " · "), h("span", {}, fact)]))),
    input,
    h("nav", { "aria-label": "Screens" }, links),
    h("div", { class: "tools" }, helpButton(keys), themeButton()));
}

/** The link of the open screen leads to what is shown now, also where the page was not drawn anew since. @param {Event} event */
function fresh(event) {
  const link = /** @type {HTMLAnchorElement} */ (event.currentTarget);
  if (link.ariaCurrent === "page") link.setAttribute("href", address(now()));
}

/** A pane of glass, three by three, its anti-diagonal lit. */
function mark() {
  const cells = Array.from({ length: 9 }, (_, i) => h("i", { class: [2, 4, 6].includes(i) ? "lit" : "" }));
  return h("span", { class: "mark", "aria-hidden": "true" }, cells);
}

/** @param {boolean} keys */
function helpButton(keys) {
  return h("button", { type: "button", class: "help-button", id: "help", "aria-label": "Help", "aria-haspopup": "dialog", "aria-keyshortcuts": keys ? "?" : null, title: keys ? "Help: key ?" : null, on: { click: help } }, "?");
}

function themeButton() {
  const dark = theme() === "dark";
  return h("button", {
    type: "button", class: "theme", "aria-label": dark ? "Light colours" : "Dark colours", title: dark ? "Light colours" : "Dark colours",
    on: { click: () => { document.documentElement.dataset.theme = dark ? "light" : "dark"; window.dispatchEvent(new Event("themechange")); } },
  }, dark ? "☀" : "☾");
}
