/** The page: opens its source, shows the screen that the address names, and keeps it in step with the state. */
import { ablations } from "lens/ablations.js";
import { AttentionScreen } from "lens/attention.js";
import { theme } from "lens/colour.js";
import { curves } from "lens/curves.js";
import { opening } from "lens/data.js";
import { byId, h, keepFocus, mistake, picker, put, tooltip } from "lens/dom.js";
import { generate } from "lens/generate.js";
import { heads } from "lens/heads.js";
import { help, keysAreOn, shortcuts } from "lens/help.js";
import { overview } from "lens/overview.js";
import { parameters } from "lens/parameters.js";
import { address, listen, locked, now, onScreen, read, screens, set } from "lens/state.js";
import { count, whole } from "lens/text.js";

/* --- every screen but attention, by its name. */

/** @type {Record<string, (context: Context) => Screen>} */
const MAKERS = { overview, generate, heads, ablations, parameters, curves };

/** @param {string} name @param {Context} context */
export function screen(name, context) {
  return MAKERS[name](context);
}

/* --- beside or above every screen: what is open, which input is shown, where one can go, help, light or dark. */

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

/* --- the page: opens its source, shows the screen that the address names, and keeps it in step with the state. */

/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./data.js").Source} Source */
/** @typedef {{source: Source, run: import("./trace.js").RunInfo, traces: import("./trace.js").TraceInfo[], trace: Trace}} Context */
/** @typedef {{element: HTMLElement, draw: () => void, ready?: (wanted: () => boolean) => Promise<void>, light?: () => void, leave?: () => void}} Screen */

/** @type {Screen | undefined} */
let shown;
let shownFor = "";
/** How often the state has changed: what was asked for before the last time is neither drawn nor told of. */
let turn = 0;

/** @param {Context} context @param {() => boolean} wanted whether nothing else was asked for since */
async function show(context, wanted) {
  const state = now();
  if (!context.traces.some((each) => each.id === state.trace)) return set({ trace: context.traces[0]?.id ?? "0" });
  document.body.dataset.busy = "yes";
  const trace = await context.source.trace(state.trace);
  if (!wanted()) return;
  const key = `${state.screen} ${state.trace}`;
  if (key !== shownFor || !shown) {
    shown?.leave?.();
    shownFor = key;
    const own = { ...context, trace }; // which trace it is of does not change below it
    shown = state.screen === "attention" ? new AttentionScreen(own) : screen(state.screen, own);
    document.title = `${state.screen} · ${context.run.name} · glassformer`;
  }
  await shown.ready?.(wanted);
  if (!wanted()) return;
  const { element } = /** @type {Screen} */ (shown);
  keepFocus(document.body, () => {
    put(byId("main"), element);
    drawBar(byId("bar"), { ...context, trace });
    shown?.draw();
  });
  delete document.body.dataset.busy;
}

async function begin() {
  /** @type {Context} */
  const context = await opening();
  const safely = () => {
    byId("tip").hidden = true;
    const mine = ++turn;
    const wanted = () => mine === turn;
    return show(context, wanted).catch((error) => wanted() && fail(error));
  };
  listen((what) => (what === "state" ? safely() : shown?.light?.()));
  window.addEventListener("popstate", read);
  window.addEventListener("hashchange", read);
  window.addEventListener("resize", later(safely));
  window.addEventListener("themechange", safely);
  window.addEventListener("keyschange", safely);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", safely);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && locked()) set({ q: null, k: null });
  });
  shortcuts((name) => set({ screen: name }, true));
  tooltip();
  await safely();
  document.body.dataset.ready ??= "yes";
  requestAnimationFrame(() => setTimeout(() => performance.mark("painted")));
}

/** @param {() => void} f */
function later(f) {
  let waiting = 0;
  return () => {
    clearTimeout(waiting);
    waiting = setTimeout(f, 120);
  };
}

/** @param {unknown} error */
function fail(error) {
  put(byId("main"), h("div", { class: "card problem", role: "alert" }, h("h2", {}, "This cannot be shown"), h("p", {}, mistake(error))));
  document.body.dataset.ready = "failed";
  delete document.body.dataset.busy;
}

begin().catch(fail);
