/** What wrote a token: the terms of its logit, by head, feed-forward and input (direct logit attribution). */

import { h } from "lens/dom.js";
import { set } from "lens/state.js";

/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./types.js").Step} Step */

const SHOWN = 12;
const KINDS = /** @type {Record<string, string>} */ ({ e: "encoder", d: "decoder", x: "cross" });

/** The largest terms of a step, and their sum; nothing where the trace has none. @param {Trace} trace @param {Step} step */
export function writers(trace, step) {
  const told = trace.header.attribution;
  const terms = trace.terms(trace.header.steps.indexOf(step));
  if (!told || !terms) return h("p", { class: "quiet" }, "The logits of this model are not a sum over its parts, so there are no terms to show.");
  const order = told.names.map((name, i) => ({ name, value: terms[i] })).sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const most = Math.max(...order.map(({ value }) => Math.abs(value)), 1e-9);
  const shown = order.slice(0, SHOWN);
  const rest = order.slice(SHOWN).reduce((sum, { value }) => sum + value, 0);
  const row = (/** @type {Node | string} */ name, /** @type {number} */ value, /** @type {string} */ kind) => h("li", { class: kind }, name,
    h("span", { class: `signed${value < 0 ? " below" : ""}` }, h("i", { style: { width: `${(50 * Math.min(most, Math.abs(value))) / most}%` } })),
    h("span", { class: "figure" }, value.toFixed(3)));
  return [h("ol", { class: "bars terms", "aria-label": "Terms of the logit" }, shown.map(({ name, value }) => row(link(name, step), value, "")),
    order.length > SHOWN ? row(h("span", { class: "quiet" }, `${order.length - SHOWN} others`), rest, "rest") : null,
    row(h("b", {}, "logit"), terms.reduce((a, b) => a + b, 0), "sum")),
  h("p", { class: "quiet" }, "What each part adds directly to the logit, with each norm frozen at this input (Elhage et al. 2021). Its effect through other parts is not included.")];
}

/** A head leads to its map, at this query. @param {string} name @param {Step} step */
function link(name, step) {
  const [letter, layer, head] = name.split(".");
  if (!head) return h("span", {}, name);
  if (head === "feed_forward") return h("span", {}, `feed-forward ${layer}`);
  const open = () => set({ screen: "attention", block: KINDS[letter], layer: Number(layer), head: Number(head), q: step.pos, k: null }, true);
  return h("button", { type: "button", class: "plain-button", on: { click: open } }, `${KINDS[letter]} ${layer}.${head}`);
}
