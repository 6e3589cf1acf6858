/** Beside the map: sums of rows and columns, strips of tokens, and what is known of the token and cell pointed at. */
import { shaded, themed } from "lens/colour.js";
import { h, sized } from "lens/dom.js";
import { number, percent, token, weight, whole } from "lens/text.js";
import { placesOf, wordsOf } from "lens/view.js";

/* --- beside a map: how spread out each query's attention is, and how much each key receives of all. */

/** @typedef {import("./heatmap.js").MapData} MapData */

/** Room for the bars at the right and below, in CSS pixels. */
export const ASIDE = 54;
/** The longest bar. */
export const LONG = 40;

/** What one query does in all: the entropy of its row as shares of 1, in nats, and the most that it could be. @param {MapData} data @param {number} q */
export function entropyOf(data, q) {
  let [sum, inside, keys] = [0, 0, 0];
  for (let k = 0; k < data.columns; k++) {
    if (!data.allowed(q, k)) continue;
    const value = data.value(q, k);
    keys++;
    sum += value;
    if (value > 0) inside += value * Math.log(value);
  }
  return { entropy: sum > 0 ? Math.max(0, Math.log(sum) - inside / sum) : 0, most: keys ? Math.log(keys) : 0 };
}

/** What one key receives: the sum over the queries that may read it, and how many they are. @param {MapData} data @param {number} k */
export function receivedBy(data, k) {
  let [sum, readers] = [0, 0];
  for (let q = 0; q < data.rows; q++) {
    if (!data.allowed(q, k)) continue;
    sum += data.value(q, k);
    readers++;
  }
  return { sum, readers };
}

/** The bars of a map, each as long as its figure; what it says is told where the pointer is. */
export class Marginals {
  /** @param {{hover: (q: number | null, k: number | null) => void, choose: (q: number | null, k: number | null) => void}} callbacks */
  constructor(callbacks) {
    const canvas = (/** @type {string} */ name) => /** @type {HTMLCanvasElement} */ (h("canvas", { class: name, "aria-hidden": "true" }));
    this.right = canvas("map-entropy");
    this.below = canvas("map-received");
    this.name = h("span", { class: "map-below-name label" });
    this.elements = [h("span", { class: "map-right-name label" }, "entropy"), this.right, this.name, this.below];
    /** @type {MapData | undefined} */
    this.data = undefined;
    this.cell = 1;
    for (const [each, down] of /** @type {[HTMLCanvasElement, boolean][]} */ ([[this.right, true], [this.below, false]])) {
      const place = (/** @type {MouseEvent} */ event) => this.under(event, down);
      each.addEventListener("pointermove", (event) => {
        const at = place(event);
        each.dataset.tip = at === null ? "" : this.words(at, down);
        callbacks.hover(down ? at : null, down ? null : at);
      });
      each.addEventListener("pointerleave", () => callbacks.hover(null, null));
      each.addEventListener("click", (event) => callbacks.choose(down ? place(event) : null, down ? null : place(event)));
    }
  }

  /** @param {MouseEvent} event @param {boolean} down */
  under(event, down) {
    if (!this.data) return null;
    const box = (down ? this.right : this.below).getBoundingClientRect();
    const i = Math.floor((down ? event.clientY - box.top : event.clientX - box.left) / this.cell);
    const places = placesOf(this.data)[down ? 0 : 1];
    return places[i] ?? null;
  }

  /** @param {number} at @param {boolean} down */
  words(at, down) {
    const data = /** @type {MapData} */ (this.data);
    if (down) {
      const { entropy, most } = entropyOf(data, at);
      return `${whole(data.read[at])} at ${at}: entropy ${number(entropy)} nats, at most ${number(most)}`;
    }
    const { sum, readers } = receivedBy(data, at);
    const { receives, from } = wordsOf(data);
    return `${whole(data.keys[at])} at ${at} ${receives} ${number(sum)} in total, ${from} ${readers} ${readers === 1 ? "query" : "queries"}`;
  }

  /** @param {MapData} data @param {number} cell side of a cell of the map, in CSS pixels */
  draw(data, cell) {
    [this.data, this.cell] = [data, cell];
    const [right, below] = this.keepRoom(data, cell);
    const [queries, keys] = placesOf(data);
    const gap = cell >= 8 ? 1 : 0;
    const most = Math.log(Math.max(2, data.columns));
    right.fillStyle = below.fillStyle = themed("quiet");
    queries.forEach((q, i) => right.fillRect(6, i * cell + gap, Math.max(1, (LONG * entropyOf(data, q).entropy) / most), cell - 2 * gap));
    const sums = keys.map((k) => receivedBy(data, k).sum);
    const largest = Math.max(1e-9, ...sums);
    sums.forEach((sum, j) => below.fillRect(j * cell + gap, 6, cell - 2 * gap, Math.max(1, (LONG * sum) / largest)));
  }

  /** All but the figures, which may be for later: what is beside them stays where it is. @param {MapData} data @param {number} cell */
  keepRoom(data, cell) {
    this.name.textContent = wordsOf(data).received;
    const [queries, keys] = placesOf(data);
    return [sized(this.right, ASIDE, queries.length * cell), sized(this.below, keys.length * cell, ASIDE)];
  }
}

/* --- beside the map: the token that is pointed at, what it reads, and the exact weight. */

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
    const predicted = data.predicted[q];
    const step = axis === "target_in" || !trace.header.sequences.target ? trace.stepAt.get(q) : undefined;
    parts.push(h("h3", {}, h("span", { class: "chip" }, token(data.read[q])), h("span", { class: "quiet" }, ` at ${q} `),
      predicted !== null && h("span", {}, h("span", { class: "quiet" }, "predicts "), h("span", { class: "chip strong" }, token(predicted)))));
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
  if (cell?.score) rows.unshift(["score", "score before softmax", scoreText(cell.score)]);
  return h("dl", { class: "cell-facts" }, rows.map(([name, text, value]) => [h("dt", {}, text), h("dd", { "data-fact": name }, value)]));
}

/** @param {{score: number, off: number, below: boolean}} score */
function scoreText({ score, off, below }) {
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

/* --- the two texts as lines of tokens, shaded by what the marked query reads. */

/**
 * @param {import("./dom.js").Child} name
 * @param {string[]} tokens of the whole text
 * @param {number[]} places that are shown
 * @param {{hover: (i: number | null) => void, choose: (i: number) => void}} does
 */
export function strip(name, tokens, places, { hover, choose }) {
  const chips = places.map((i) => h("button", { type: "button", class: "chip token", "data-i": i, title: `${whole(tokens[i])} at ${i}` }, token(tokens[i])));
  const line = h("div", { class: "tokens" }, chips);
  /** @param {(i: number) => void} does @returns {(event: Event) => void} */
  const of = (does) => ({ target }) => {
    const chip = target instanceof Element ? target.closest("[data-i]") : null;
    if (chip) does(Number(chip.getAttribute("data-i")));
  };
  line.addEventListener("pointerover", of(hover));
  line.addEventListener("pointerleave", () => hover(null));
  line.addEventListener("focusin", of(hover));
  line.addEventListener("click", of(choose));
  return h("div", { class: "strip" }, h("span", { class: "label" }, name), line);
}

/**
 * Mark and shade the tokens of two lines, keys and queries; they stay where they are, and none is touched in vain.
 * @param {HTMLElement} strips
 * @param {MapData} data
 * @param {{q: number | null, k: number | null}} at
 */
export function shade(strips, data, { q, k }) {
  const [keys, queries] = strips.querySelectorAll(".tokens");
  if (!queries) return;
  const { q0, k0 } = data.part;
  const reads = q !== null && q < data.rows;
  const chips = /** @type {HTMLElement[]} */ ([...keys.children]);
  chips.forEach((chip, j) => {
    const level = reads ? String(Math.round(255 * Math.sqrt(data.value(q, k0 + j)))) : "";
    if ((chip.dataset.level ?? "") === level) return;
    chip.dataset.level = level;
    Object.assign(chip.style, reads ? shaded(Number(level)) : { background: "", color: "" });
  });
  for (const [line, at] of /** @type {[Element, number][]} */ ([[keys, (k ?? -1) - k0], [queries, (q ?? -1) - q0]])) {
    const [before, now] = [line.querySelector(".marked"), line.children[at]];
    if (before === now) continue;
    before?.classList.remove("marked");
    now?.classList.add("marked");
  }
}
