/** Beside the map: the token that is pointed at, what it reads, and the exact weight. */

import { shaded } from "lens/colour.js";
import { h } from "lens/dom.js";
import { entropyOf, receivedBy } from "lens/marginals.js";
import { number, percent, token, weight, whole } from "lens/text.js";
import { wordsOf } from "lens/words.js";

/** @typedef {import("./heatmap.js").MapData} MapData */
/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {{weight: number, score: {score: number, off: number, below: boolean} | null, moved: number | null}} Cell what more is known of the cell */

const KEYS = 6;
/** Of each encoding: how far a weight may be off. @type {Record<string, (value: number) => string>} */
const OFF = {
  sqrt255: (value) => `± ${Math.max(Math.sqrt(value) / 255, 1 / 260100).toPrecision(1)}`,
  u16: () => "± 0.000008",
  f32: () => "exact",
};

/**
 * @param {Trace} trace
 * @param {MapData} data
 * @param {{q: number | null, k: number | null}} at
 * @param {{isLocked: boolean, encoding: string, axis: string, cell: Cell | null}} more
 */
export function inspector(trace, data, at, { isLocked, encoding, axis, cell }) {
  const { q, k } = at;
  const words = wordsOf(data);
  if (q === null && k === null) {
    return h("aside", { class: "card inspector" }, h("h3", {}, "Point at a cell"),
      h("p", { class: "quiet" }, "A row is a token that reads (a query), a column a token that is read (a key). Click or Enter locks a cell, Esc unlocks it."));
  }
  const parts = [];
  if (q !== null && q < data.rows) {
    const said = data.said[q];
    const step = axis === "target_in" || !trace.header.sequences.target ? trace.stepAt.get(q) : undefined;
    parts.push(h("h3", {}, h("span", { class: "chip" }, token(data.read[q])), h("span", { class: "quiet" }, ` at ${q} `),
      said !== null && h("span", {}, h("span", { class: "quiet" }, "predicts "), h("span", { class: "chip strong" }, token(said)))));
    if (step) parts.push(h("p", { class: "quiet" }, `probability ${percent(step.p)}, entropy ${step.entropy?.toFixed(3)} nats`));
  }
  if (q !== null && k !== null && q < data.rows && k < data.columns) {
    const value = data.value(q, k);
    parts.push(h("p", { class: "weight" },
      h("output", { id: "weight", "data-q": q, "data-k": k }, data.allowed(q, k) ? weight(value) : "masked"),
      h("span", { class: "quiet" }, data.allowed(q, k) ? ` ${words.of} ` : " may not read "), h("span", { class: "chip" }, token(data.keys[k])),
      h("span", { class: "quiet" }, ` at ${k}`), data.allowed(q, k) && !data.moved && h("small", { class: "quiet" }, ` ${OFF[encoding](value)}`)), facts(data, q, k, cell, encoding));
  }
  if (q !== null && q < data.rows) parts.push(h("p", { class: "label" }, words.most), bars((i) => data.value(q, i), allowed(data.columns, (i) => data.allowed(q, i)), data.keys, k));
  else if (k !== null && k < data.columns) {
    parts.push(h("h3", {}, h("span", { class: "chip" }, token(data.keys[k])), h("span", { class: "quiet" }, ` at ${k}`)),
      h("p", { class: "label" }, words.by), bars((i) => data.value(i, k), allowed(data.rows, (i) => data.allowed(i, k)), data.read, null));
  }
  return h("aside", { class: `card inspector${isLocked ? " locked" : ""}` }, parts,
    h("p", { class: "foot quiet" }, isLocked ? "Locked. Esc or a second click unlocks it." : "Click to lock."));
}

/**
 * Whether the cell may be read, its score before softmax, what it moves, and the sums of its row and its column.
 * @param {MapData} data
 * @param {number} q
 * @param {number} k
 * @param {Cell | null} cell
 * @param {string} encoding
 */
function facts(data, q, k, cell, encoding) {
  const may = data.allowed(q, k);
  const { entropy, most } = entropyOf(data, q);
  const { sum, readers } = receivedBy(data, k);
  const words = wordsOf(data);
  /** @type {[string, string, string][]} */
  const rows = [["mask", "mask", may ? "may be read" : "masked: the weight is always 0"], ["entropy", words.entropy, `${number(entropy)} of at most ${number(most)} nats`],
    ["received", words.key, `${number(sum)} ${words.from} ${readers} ${readers === 1 ? "query" : "queries"}`]];
  if (may && cell && data.moved) rows.splice(1, 0, ["weight", "attention weight", `${weight(cell.weight)} ${OFF[encoding](cell.weight)}`]);
  else if (may && cell && cell.moved !== null) rows.splice(1, 0, ["moved", "weighted by value", weight(cell.moved)]);
  if (cell?.score) rows.unshift(["score", "score before softmax", told(cell.score)]);
  return h("dl", { class: "cell-facts" }, rows.map(([name, text, value]) => [h("dt", {}, text), h("dd", { "data-fact": name }, value)]));
}

/** @param {{score: number, off: number, below: boolean}} score */
function told({ score, off, below }) {
  if (below) return `below ${score.toFixed(1)}`;
  return off ? `${score.toFixed(off < 0.05 ? 2 : 1)} ± ${off.toPrecision(1)}` : score.toFixed(3);
}

/** The places that may read, or be read. @param {number} length @param {(i: number) => boolean} may */
function allowed(length, may) {
  return Array.from({ length }, (_, i) => i).filter(may);
}

/**
 * @param {(i: number) => number} value
 * @param {number[]} places that are listed, if their values are among the largest
 * @param {string[]} names
 * @param {number | null} marked
 */
function bars(value, places, names, marked) {
  const order = places.sort((a, b) => value(b) - value(a)).slice(0, KEYS);
  return h("ol", { class: "bars" }, order.map((i) => h("li", { class: i === marked ? "marked" : "" },
    h("span", { class: "chip", title: whole(names[i]) }, token(names[i])), h("span", { class: "at" }, String(i)),
    h("span", { class: "bar" }, h("i", { style: { width: `${Math.max(0.5, 100 * value(i))}%`, ...shaded(90 + 140 * value(i)) } })),
    h("span", { class: "figure" }, weight(value(i))))));
}
