/** One head as arcs between two lines of tokens: the keys above, the queries below. */

import { acts, h, put, s } from "lens/dom.js";
import { token, weight, whole } from "lens/text.js";
import { placesOf } from "lens/view.js";
import { wordsOf } from "lens/words.js";

/** @typedef {import("./heatmap.js").MapData} MapData */
/** @typedef {{q: number | null, k: number | null}} At */

/** From token to token, in CSS pixels; where there is not the room for the least, the picture is scrolled. */
const STEP = 46;
const LEAST_STEP = 22;
/** Left and right of all tokens. */
const ASIDE = 40;
const TALL = 260;
const LEAST = 0.1;
const MOST = 3;

/** The picture stays where it is, and is scrolled to, as long as the screen does; only its lines are drawn anew. */
export class Arcs {
  /** @param {{hover: (q: number | null, k: number | null) => void, choose: (q: number | null, k: number | null) => void}} callbacks */
  constructor(callbacks) {
    this.callbacks = callbacks;
    this.place = h("div", { class: "scroll" });
    this.note = h("figcaption", { class: "quiet" });
    this.element = h("figure", { class: "arcs" }, this.place, this.note);
    this.lines = s("g", { class: "lines" });
    /** @type {{text: SVGElement, isKey: boolean, i: number}[]} */
    this.labels = [];
    /** Where a query stands, and a key. @type {[(q: number) => number, (k: number) => number]} */
    this.x = [() => 0, () => 0];
    /** @type {MapData | undefined} */
    this.data = undefined;
  }

  /** The two lines of tokens. @param {MapData} data @param {number} room in CSS pixels */
  draw(data, room) {
    this.data = data;
    const { q0, k0, rows, columns } = data.part;
    const step = Math.max(LEAST_STEP, Math.min(STEP, (room - ASIDE) / Math.max(rows, columns)));
    const width = Math.max(rows, columns) * step + ASIDE;
    const [shiftQ, shiftK] = [(width - rows * step) / 2 - q0 * step, (width - columns * step) / 2 - k0 * step];
    this.x = [(q) => shiftQ + (q + 0.5) * step, (k) => shiftK + (k + 0.5) * step];
    const [queries, keys] = placesOf(data);
    this.labels = [...keys.map((k) => this.label(data.keys[k], k, true, null)), ...queries.map((q) => this.label(data.read[q], q, false, data.said[q]))];
    put(this.place, s("svg", { viewBox: `0 0 ${width} ${TALL}`, width, height: TALL, role: "group", "aria-label": data.name }, this.lines, this.labels.map(({ text }) => text)));
  }

  /** @param {string} text @param {number} i @param {boolean} isKey @param {string | null} said */
  label(text, i, isKey, said) {
    /** @type {[number | null, number | null]} */
    const at = isKey ? [null, i] : [i, null];
    return { isKey, i, text: s("text", {
      x: this.x[isKey ? 1 : 0](i), y: isKey ? 20 : TALL - 12, "text-anchor": "middle", tabindex: "0", role: "button", class: "arc-token",
      "aria-label": `${isKey ? "key" : "query"} ${i}: ${whole(text)}${said ? `, predicts ${whole(said)}` : ""}`,
      on: { pointerenter: () => this.callbacks.hover(...at), pointerleave: () => this.callbacks.hover(null, null), ...acts(() => this.callbacks.choose(...at)) },
    }, token(text)) };
  }

  /** The arcs of the query (or key) that is pointed at; without one the strongest of each query. @param {At} at */
  mark(at) {
    const data = /** @type {MapData} */ (this.data);
    put(this.lines, drawn(data, at).map(({ q, k, value }) => {
      const [from, to] = [this.x[0](q), this.x[1](k)];
      return s("path", {
        d: `M${from} ${TALL - 30} C${from} ${TALL / 2} ${to} ${TALL / 2} ${to} 30`, class: "arc", "stroke-width": 0.75 + 5 * value,
        "stroke-opacity": 0.25 + 0.75 * value,
      }, s("title", {}, `${whole(data.read[q])} ${wordsOf(data).reads} ${whole(data.keys[k])}: ${weight(value)}`));
    }));
    for (const { text, isKey, i } of this.labels) text.classList.toggle("marked", (isKey ? at.k : at.q) === i);
    const shown = at.q === null && at.k === null ? `the ${MOST} strongest arcs of each query, if at least ${LEAST}` : "all arcs of the marked token";
    put(this.note, `Keys above, queries below. Shown: ${shown}. The thicker the arc, the larger the ${wordsOf(data).value}.`);
  }
}

/**
 * @param {MapData} data
 * @param {At} at
 * @returns {{q: number, k: number, value: number}[]}
 */
function drawn(data, at) {
  const found = [];
  const [queries, keys] = placesOf(data);
  for (const q of queries) {
    if (at.q !== null && at.q !== q) continue;
    const row = [];
    for (const k of keys) {
      const value = data.value(q, k);
      if (data.allowed(q, k) && value > 0.005 && (at.k === null || at.k === k || at.q !== null)) row.push({ q, k, value });
    }
    row.sort((a, b) => b.value - a.value);
    found.push(...(at.q === null && at.k === null ? row.filter((each) => each.value >= LEAST).slice(0, MOST) : row));
  }
  return found;
}
