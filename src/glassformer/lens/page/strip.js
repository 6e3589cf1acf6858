/** The two texts as lines of tokens, shaded by what the marked query reads. */

import { css, inkOn } from "lens/colour.js";
import { h } from "lens/dom.js";
import { token, whole } from "lens/text.js";

/** @typedef {import("./heatmap.js").MapData} MapData */

/**
 * @param {import("./dom.js").Child} name
 * @param {string[]} tokens
 * @param {{hover: (i: number | null) => void, choose: (i: number) => void}} does
 */
export function strip(name, tokens, { hover, choose }) {
  const chips = tokens.map((text, i) => h("button", {
    type: "button", class: "chip token", title: `${whole(text)} at ${i}`,
    on: { pointerenter: () => hover(i), pointerleave: () => hover(null), focus: () => hover(i), click: () => choose(i) },
  }, token(text)));
  return h("div", { class: "strip" }, h("span", { class: "label" }, name), h("div", { class: "tokens" }, chips));
}

/**
 * Mark and shade the tokens of two lines, keys and queries; they stay where they are, under the pointer.
 * @param {HTMLElement} strips
 * @param {MapData} data
 * @param {{q: number | null, k: number | null}} at
 */
export function shade(strips, data, { q, k }) {
  const [keys, queries] = strips.querySelectorAll(".tokens");
  const reads = q !== null && q < data.rows;
  [...keys.children].forEach((chip, i) => {
    const level = reads ? Math.round(255 * Math.sqrt(data.value(q, i))) : 0;
    const { style } = /** @type {HTMLElement} */ (chip);
    style.background = reads ? css(level) : "";
    style.color = reads ? inkOn(level) : "";
    chip.classList.toggle("marked", i === k);
  });
  [...queries.children].forEach((chip, i) => chip.classList.toggle("marked", i === q));
}
