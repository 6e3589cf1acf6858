/** The roles of the heads over the checkpoints of a run: a curve for each head that has one. */

import { chart } from "lens/chart.js";
import { h, put, sentence } from "lens/dom.js";
import { headName, percent } from "lens/text.js";

/** @typedef {{id: string, block: string, layer: number, head: number, role: string, scores: (number | null)[]}} Curve */
/** @typedef {{steps: number[], heads: Curve[]}} History */

/** Between two looks at a run that may still be in training. */
const POLL = 20_000;
const CHARTS = 6;
const LINES = 4;

/**
 * A card that asks for the history when it is told to, and from then on follows the run; a copy shows what it holds.
 * @param {import("./data.js").Source} source
 */
export function history(source) {
  const outcome = h("div", { class: "outcome", "aria-live": "polite" });
  let waiting = 0;
  let shown = "";
  const look = async () => {
    try {
      const found = await source.history();
      const text = JSON.stringify(found);
      if (text !== shown) put(outcome, curves(found));
      shown = text;
      if (source.live) waiting = setTimeout(look, POLL);
    } catch (error) {
      put(outcome, h("p", source.live ? { class: "told", role: "alert" } : {}, sentence(error instanceof Error ? error.message : String(error))));
    }
  };
  const begin = () => {
    clearTimeout(waiting);
    put(outcome, h("p", { class: "quiet" }, "Looking at each checkpoint …"));
    shown = "";
    look();
  };
  const element = h("section", { class: "card" }, h("h2", {}, "Over training"),
    h("p", { class: "quiet" }, "How each head came to its role: the role’s score at every checkpoint that the run has kept."),
    source.live && h("button", { type: "button", id: "history", on: { click: begin } }, "Look at every checkpoint"), outcome);
  if (!source.live) look();
  return { element, leave: () => clearTimeout(waiting) };
}

/** A chart for each role, the best heads of it. @param {History} found */
function curves({ steps, heads }) {
  /** @type {Map<string, Curve[]>} */
  const byRole = new Map();
  for (const head of heads) byRole.set(head.role, [...byRole.get(head.role) ?? [], head]);
  const last = (/** @type {Curve} */ head) => head.scores[head.scores.length - 1] ?? -1;
  const roles = [...byRole].map(([role, of]) => ({ role, of: of.sort((a, b) => last(b) - last(a)).slice(0, LINES) }))
    .sort((a, b) => last(b.of[0]) - last(a.of[0])).slice(0, CHARTS);
  return h("div", { class: "charts" }, roles.map(({ role, of }) => h("figure", { class: "by-role" }, h("h3", {}, role),
    h("div", { class: "keys" }, of.map((head, i) => h("span", {}, h("i", { class: `key c${i}` }), `${headName(head.block, head.layer, head.head)}: ${percent(Math.max(0, last(head)))}`))),
    chart(of.map((head) => ({ name: headName(head.block, head.layer, head.head), marks: true, points: pointsOf(head, steps) })),
      { label: `Score of the role ${role} by step`, height: 180 }))));
}

/** @param {Curve} head @param {number[]} steps @returns {[number, number][]} */
function pointsOf(head, steps) {
  return /** @type {[number, number][]} */ (steps.map((step, i) => [step, head.scores[i]]).filter(([, score]) => score !== null && score !== undefined));
}
