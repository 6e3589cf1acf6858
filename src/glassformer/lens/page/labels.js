/** Labels with their chances, the likeliest first: what a classifier answers. */

import { h } from "lens/dom.js";
import { percent, token, whole } from "lens/text.js";

/** @param {[string, number][]} labels @param {number} [most] of them that are shown */
export function labelBars(labels, most = Infinity) {
  return h("ol", { class: "bars", "aria-label": "Probabilities of the labels" }, labels.slice(0, most).map(([name, p]) => h("li", {}, h("span", { class: "chip", title: whole(name) }, token(name)),
    h("span", { class: "bar" }, h("i", { style: { width: `${100 * p}%` } })), h("span", { class: "figure" }, percent(p)))));
}
