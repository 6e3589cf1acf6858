/** One head as arcs between two lines of tokens: the keys above, the queries below. */

import { h, s } from "lens/dom.js";
import { token, weight, whole } from "lens/text.js";
import { placesOf } from "lens/view.js";
import { wordsOf } from "lens/words.js";

/** @typedef {import("./heatmap.js").MapData} MapData */

/** From token to token, in CSS pixels; where there is not the room for the least, the picture is scrolled. */
const STEP = 46;
const LEAST_STEP = 22;
/** Left and right of all tokens. */
const ASIDE = 40;
const TALL = 260;
const LEAST = 0.1;
const MOST = 3;

/**
 * The arcs of the query (or key) that is pointed at; without one the strongest of each query.
 * @param {MapData} data
 * @param {{q: number | null, k: number | null}} at
 * @param {number} room in CSS pixels
 * @param {{hover: (q: number | null, k: number | null) => void, choose: (q: number | null, k: number | null) => void}} callbacks
 */
export function arcs(data, at, room, callbacks) {
  const { q0, k0, rows, columns } = data.part;
  const step = Math.max(LEAST_STEP, Math.min(STEP, (room - ASIDE) / Math.max(rows, columns)));
  const width = Math.max(rows, columns) * step + ASIDE;
  const [shiftQ, shiftK] = [(width - rows * step) / 2 - q0 * step, (width - columns * step) / 2 - k0 * step];
  const x = (/** @type {number} */ i, /** @type {number} */ shift) => shift + (i + 0.5) * step;
  const lines = drawn(data, at).map(({ q, k, value }) => {
    const [from, to] = [x(q, shiftQ), x(k, shiftK)];
    return s("path", {
      d: `M${from} ${TALL - 30} C${from} ${TALL / 2} ${to} ${TALL / 2} ${to} 30`, class: "arc", "stroke-width": 0.75 + 5 * value,
      "stroke-opacity": 0.25 + 0.75 * value,
    }, s("title", {}, `${whole(data.read[q])} ${wordsOf(data).reads} ${whole(data.keys[k])}: ${weight(value)}`));
  });
  /** @param {string} text @param {number} i @param {boolean} isKey @param {string | null} said */
  const label = (text, i, isKey, said) => s("text", {
    x: x(i, isKey ? shiftK : shiftQ), y: isKey ? 20 : TALL - 12, "text-anchor": "middle", tabindex: "0", role: "button",
    class: `arc-token${(isKey ? at.k : at.q) === i ? " marked" : ""}`,
    "aria-label": `${isKey ? "key" : "query"} ${i}: ${whole(text)}${said ? `, predicts ${whole(said)}` : ""}`,
    on: {
      pointerenter: () => callbacks.hover(isKey ? null : i, isKey ? i : null), pointerleave: () => callbacks.hover(null, null),
      click: () => callbacks.choose(isKey ? null : i, isKey ? i : null),
      keydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter") callbacks.choose(isKey ? null : i, isKey ? i : null); },
    },
  }, token(text));
  const note = at.q === null && at.k === null ? `the ${MOST} strongest of each query, from ${LEAST} on` : "all of the marked token";
  return h("figure", { class: "arcs" },
    h("div", { class: "scroll" }, s("svg", { viewBox: `0 0 ${width} ${TALL}`, width, height: TALL, role: "group", "aria-label": data.name },
      s("g", { class: "lines" }, lines), placesOf(data)[1].map((k) => label(data.keys[k], k, true, null)),
      placesOf(data)[0].map((q) => label(data.read[q], q, false, data.said[q])))),
    h("figcaption", { class: "quiet" }, `Keys above, queries below. Shown: ${note}, as heavy as the ${wordsOf(data).value}.`));
}

/**
 * @param {MapData} data
 * @param {{q: number | null, k: number | null}} at
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
