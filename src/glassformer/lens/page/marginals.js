/** Beside a map: how spread out each query's attention is, and how much each key receives of all. */

import { themed } from "lens/colour.js";
import { h, sized } from "lens/dom.js";
import { number, whole } from "lens/text.js";
import { placesOf } from "lens/view.js";
import { wordsOf } from "lens/words.js";

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
