/** Where a text is too long to be shown at once: which part of it is, over a small picture of the whole head. */

import { h } from "lens/dom.js";
import { thumbnail } from "lens/grid.js";

/** @typedef {import("./heatmap.js").MapData} MapData */
/** @typedef {import("./trace.js").Attention} Attention */

/** Of the small picture, in CSS pixels. */
const SIDE = 128;

/**
 * Two sliders and a picture that is clicked; none where all is shown.
 * @param {Attention} attention
 * @param {{layer: number, head: number, scale: string}} chosen
 * @param {MapData} data
 * @param {(from: {q0?: number, k0?: number}) => void} move
 */
export function ranges(attention, { layer, head, scale }, data, move) {
  const { part: { q0, k0, rows, columns } } = data;
  if (rows === data.rows && columns === data.columns) return null;
  const picture = thumbnail(attention, layer, head, scale, SIDE);
  picture.setAttribute("aria-hidden", "true");
  const share = (/** @type {number} */ part, /** @type {number} */ whole) => `${(100 * part) / whole}%`;
  const frame = h("i", { style: { left: share(k0, data.columns), top: share(q0, data.rows), width: share(columns, data.columns), height: share(rows, data.rows) } });
  const small = h("div", { class: "whole-map", on: { click: (/** @type {MouseEvent} */ event) => {
    const box = small.getBoundingClientRect();
    const at = (/** @type {number} */ place, /** @type {number} */ length, /** @type {number} */ shown) => Math.max(0, Math.min(length - shown, Math.round(place * length - shown / 2)));
    move({ q0: at((event.clientY - box.top) / box.height, data.rows, rows), k0: at((event.clientX - box.left) / box.width, data.columns, columns) });
  } } }, picture, frame);
  /** @param {string} name @param {number} from @param {number} shown @param {number} length @param {(from: number) => void} set */
  const slider = (name, from, shown, length, set) => {
    const input = /** @type {HTMLInputElement} */ (h("input", { type: "range", min: 0, max: length - shown, step: 1, value: from,
      disabled: shown === length, "aria-label": `${name} from`, "data-range": name }));
    input.addEventListener("change", () => set(Number(input.value)));
    return h("label", { class: "dial" }, h("span", {}, name), input, h("output", {}, `${from} to ${from + shown - 1} of ${length}`));
  };
  return h("div", { class: "ranges" }, small, h("div", { class: "dials" },
    h("p", { class: "quiet" }, "This text is too long to be shown at once. Move the part that is shown with these sliders, or click into the picture."),
    slider("Queries", q0, rows, data.rows, (from) => move({ q0: from })), slider("Keys", k0, columns, data.columns, (from) => move({ k0: from }))));
}
