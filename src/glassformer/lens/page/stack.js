/** The stacks of the model as boxes, from the tokens below to the answer above; each attention opens its maps. */

import { h, s } from "lens/dom.js";
import { set } from "lens/state.js";

/** @typedef {import("./trace.js").Trace} Trace */

/** @param {Trace} trace */
export function plan(trace) {
  const { model } = trace.header;
  const stack = (/** @type {string} */ side) => {
    const both = side === "decoder" && model.layers.encoder;
    return h("div", { class: "stack" }, h("span", { class: "label" }, side), Array.from({ length: model.layers[side] }, (_, layer) =>
      h("div", { class: model.parallel_branches ? "block parallel" : "block" },
        box("self-attention", side, layer, trace), both ? box("cross-attention", "cross", layer, trace) : null, h("span", { class: "box" }, "feed-forward"))));
  };
  return h("div", { class: "plan", role: "group", "aria-label": "Blocks of the model" }, Object.keys(model.layers).map(stack));
}

/** @param {string} text @param {string} block @param {number} layer @param {Trace} trace */
function box(text, block, layer, trace) {
  const there = trace.attention.has(/** @type {import("./types.js").Block} */ (block));
  return h("button", { type: "button", class: "box", disabled: !there, title: `${block} attention of layer ${layer}`,
    on: { click: () => set({ screen: "attention", block, layer, head: 0, q: null, k: null }, true) } }, text);
}

/** The same as a picture: every box where it stands on the page, in the light colours. @param {HTMLElement} shown it is on the page */
export function planSvg(shown) {
  const all = shown.getBoundingClientRect();
  const [width, height] = [Math.ceil(all.width) + 24, Math.ceil(all.height) + 24];
  const frame = (/** @type {Element} */ each) => {
    const { left, top, width: w, height: t } = each.getBoundingClientRect();
    return { x: left - all.left + 12, y: top - all.top + 12, width: w, height: t };
  };
  const pieces = [...shown.querySelectorAll(".block, .box, .label")].map((each) => {
    const place = frame(each);
    const fill = each.matches("button") ? "#e4ebfb" : each.matches(".box") ? "#f0eee9" : "none";
    const text = { x: place.x + (each.matches(".box") ? place.width / 2 : 0), y: place.y + place.height / 2 + 4, "text-anchor": each.matches(".box") ? "middle" : "start" };
    return [!each.matches(".label") && s("rect", { ...place, rx: 7, fill, stroke: each.matches(".block") ? "#e3e0d9" : "none" }),
      !each.matches(".block") && s("text", { ...text, "font-family": "system-ui, sans-serif", "font-size": 12.5, fill: each.matches("button") ? "#1b1d22" : "#5d626c" }, each.textContent)];
  });
  return s("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` }, s("rect", { width, height, fill: "#ffffff" }), pieces);
}
