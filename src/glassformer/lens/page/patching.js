/** Between two inputs: what of the run with A, put into a run with B, brings A's answer back (activation patching). */

import { difference, ground } from "lens/colour.js";
import { h, put, scroller } from "lens/dom.js";
import { Outcome } from "lens/outcome.js";
import { set } from "lens/state.js";
import { headName, number, token, whole } from "lens/text.js";

/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {{one: number, other: number, heads: {id: string, block: string, layer: number, head: number, effect: number}[],
 *   streams: {side: string, effects: number[][]}[]}} Patching */

const SHOWN = 10;

/** A card that asks the model when it is told to, or a copy for what it holds; it stays as long as the two inputs do. */
export class Patches {
  /** @param {import("./data.js").Source} source */
  constructor(source) {
    this.source = source;
    this.element = h("div", { class: "patches" });
    this.shown = "";
  }

  /** @param {Trace} one @param {Trace} other */
  draw(one, other) {
    const ids = [one, other].map((trace) => trace.header.run.id);
    if (this.shown === ids.join(" ")) return;
    this.shown = ids.join(" ");
    const outcome = new Outcome();
    const ask = async () => {
      outcome.say("Running …");
      outcome.show();
      try {
        const found = await this.source.patching(ids[0], ids[1]);
        outcome.say(`Log probability of A’s answer: ${number(found.one)} with input A, ${number(found.other)} with input B.`);
        outcome.show(told(found, one));
      } catch (error) {
        outcome.fail(error, this.source.live);
      }
    };
    put(this.element, h("h3", {}, "What carries the difference"),
      h("p", { class: "quiet" }, "The model reads B, and one part of its run with A is put in. Shown is how much of A’s answer this brings back: 0 is nothing, 1 is all of it."),
      this.source.live && h("button", { type: "button", id: "patch", on: { click: ask } }, "Patch every head and every position"), outcome.element);
    if (!this.source.live) ask();
  }
}

/** @param {Patching} found @param {Trace} one */
function told(found, one) {
  const open = (/** @type {{block: string, layer: number, head: number}} */ { block, layer, head }) => set({ block, layer, head, q: null, k: null }, true);
  const bars = h("ol", { class: "bars terms", "aria-label": "Share that each head brings back" }, found.heads.slice(0, SHOWN).map((each) => h("li", {},
    h("button", { type: "button", class: "plain-button", on: { click: () => open(each) } }, headName(each.block, each.layer, each.head)),
    h("span", { class: `signed${each.effect < 0 ? " below" : ""}` }, h("i", { style: { width: `${50 * Math.min(1, Math.abs(each.effect))}%` } })),
    h("span", { class: "figure", "data-id": each.id }, each.effect.toFixed(3)))));
  return [bars, ...found.streams.map((stream) => streams(stream, one))];
}

/** A stack's stream, behind so many blocks, place by place. @param {{side: string, effects: number[][]}} stream @param {Trace} one */
function streams({ side, effects }, one) {
  const tokens = one.tokens(side === "decoder" ? "target_in" : "source");
  const cell = (/** @type {number} */ effect, /** @type {number} */ at, /** @type {number} */ depth) => {
    const share = Math.max(-1, Math.min(1, effect));
    return h("td", { title: `${whole(tokens[at])} at ${at}, after ${depth} blocks: ${effect.toFixed(3)}`,
      style: ground((name) => difference(share, name)) }, Math.abs(effect) >= 0.005 ? effect.toFixed(2) : "");
  };
  return [h("h4", {}, `Residual stream of the ${side}`), scroller(`What each position of the ${side} brings back`, h("table", { class: "lens" },
    h("thead", {}, h("tr", {}, h("th", {}, "after"), tokens.map((text) => h("th", { scope: "col" }, h("span", { class: "chip" }, token(text)))))),
    h("tbody", {}, effects.map((row, depth) => h("tr", {}, h("th", { scope: "row" }, depth ? `block ${depth - 1}` : "input"), row.map((effect, at) => cell(effect, at, depth)))).reverse())))];
}
