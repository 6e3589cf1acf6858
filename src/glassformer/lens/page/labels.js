/** What a head that is not over tokens answers: labels with their chances, the likeliest first, or numbers by name. */

import { h } from "lens/dom.js";
import { number, percent, token, whole } from "lens/text.js";

/** @param {Pick<import("./types.js").Header, "labels" | "run">} header @param {number} [most] of them that are shown */
export function labelBars({ labels = [], run }, most = Infinity) {
  if (run.mode === "number") return numberRows(labels.slice(0, most));
  return h("ol", { class: "bars", "aria-label": "Probabilities of the labels" }, labels.slice(0, most).map(([name, p]) => h("li", {}, h("span", { class: "chip", title: whole(name) }, token(name)),
    h("span", { class: "bar" }, h("i", { style: { width: `${100 * p}%` } })), h("span", { class: "figure" }, percent(p)))));
}

/** @param {[string, number][]} numbers */
function numberRows(numbers) {
  return h("ol", { class: "bars", "aria-label": "Numbers" }, numbers.map(([name, value]) => h("li", {}, h("span", { class: "chip", title: whole(name) }, token(name)),
    h("span", { class: "figure" }, number(value, 6)))));
}
