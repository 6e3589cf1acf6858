/** The page: opens its source, shows the screen that the address names, and keeps it in step with the state. */

import { AttentionScreen } from "lens/attention.js";
import { opening } from "lens/data.js";
import { byId, h, keepFocus, mistake, put } from "lens/dom.js";
import { shortcuts } from "lens/help.js";
import { screen } from "lens/screens.js";
import { drawBar } from "lens/shell.js";
import { listen, locked, now, read, set } from "lens/state.js";
import { tooltip } from "lens/tip.js";

/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./data.js").Source} Source */
/** @typedef {{source: Source, run: import("./types.js").RunInfo, traces: import("./types.js").TraceInfo[], trace: Trace}} Context */
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
