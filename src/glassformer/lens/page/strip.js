/** The two texts as lines of tokens, shaded by what the marked query reads. */

import { shaded } from "lens/colour.js";
import { h } from "lens/dom.js";
import { token, whole } from "lens/text.js";

/** @typedef {import("./heatmap.js").MapData} MapData */

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
