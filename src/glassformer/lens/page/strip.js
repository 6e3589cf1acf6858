/** The two texts as lines of tokens, shaded by what the marked query reads. */

import { css, inkOn } from "lens/colour.js";
import { h } from "lens/dom.js";
import { token, whole } from "lens/text.js";

/** @typedef {import("./heatmap.js").MapData} MapData */

/**
 * @param {import("./dom.js").Child} name
 * @param {string[]} tokens
 * @param {{marked: number | null, shade?: (i: number) => number, hover: (i: number | null) => void, choose: (i: number) => void}} more
 */
export function strip(name, tokens, { marked, shade, hover, choose }) {
  const chips = tokens.map((text, i) => {
    const level = shade ? Math.round(255 * shade(i)) : 0;
    return h("button", {
      type: "button", class: `chip token${i === marked ? " marked" : ""}`, title: `${whole(text)} at ${i}`, "data-i": i,
      style: shade ? { background: css(level), color: inkOn(level) } : {},
      on: { pointerenter: () => hover(i), pointerleave: () => hover(null), focus: () => hover(i), click: () => choose(i) },
    }, token(text));
  });
  return h("div", { class: "strip" }, h("span", { class: "label" }, name), h("div", { class: "tokens" }, chips));
}
