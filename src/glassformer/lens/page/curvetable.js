/** What was measured, as a table: each line of the dev split, and lines of training at even distances. */

import { h, scroller } from "lens/dom.js";
import { number, whole } from "lens/text.js";

/** @typedef {import("./types.js").Metric} Metric */
/** @typedef {{name: string, metrics: Metric[]}} Run */

/** Lines of training that are shown of each run; the CSV has all. */
const MOST = 60;

/** @param {Run[]} runs @param {string[]} names of the figures @param {(name: string) => string} said how a figure is called */
export function curveTable(runs, names, said) {
  const several = runs.length > 1;
  const rows = runs.flatMap(({ name, metrics }) => thinned(metrics).map((line) => h("tr", {}, several && h("td", {}, whole(name)),
    h("th", { scope: "row", class: "figure" }, String(line.step)), h("td", {}, line.kind), names.map((each) => h("td", { class: "figure" }, number(line[each], 4))))));
  const all = runs.reduce((sum, { metrics }) => sum + metrics.length, 0);
  const head = [...(several ? ["run"] : []), "step", "split", ...names.map(said)];
  return h("section", { class: "card" }, h("h2", {}, "What was measured"),
    h("p", { class: "quiet" }, rows.length < all ? `${rows.length} of ${all} lines: all of the dev split, and lines of training at even distances. The CSV has every line.` : `All ${all} lines.`),
    scroller("What was measured", h("table", { class: "plain" }, h("caption", { class: "unseen" }, "Figures by step"),
      h("thead", {}, h("tr", {}, head.map((each, i) => h("th", { scope: "col", class: each === "step" || i > head.length - names.length - 1 ? "figure" : "" }, each)))), h("tbody", {}, rows))));
}

/** @param {Metric[]} metrics */
function thinned(metrics) {
  const train = metrics.filter((line) => line.kind === "train");
  const every = Math.max(1, Math.ceil(train.length / MOST));
  const kept = new Set(train.filter((_, i) => i % every === 0 || i === train.length - 1));
  return metrics.filter((line) => line.kind !== "train" || kept.has(line));
}
