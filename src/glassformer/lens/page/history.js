/** The roles of the heads over the checkpoints of a run: a curve for each head that has one. */

import { chart } from "lens/chart.js";
import { csv } from "lens/csv.js";
import { h, scroller } from "lens/dom.js";
import { onPaper, saving } from "lens/files.js";
import { Outcome } from "lens/outcome.js";
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
 * @param {string} run its name
 */
export function history(source, run) {
  const outcome = new Outcome();
  let waiting = 0;
  let shown = "";
  /** How often it was asked for: an old look is not shown, and leads to no other. */
  let turn = 0;
  const look = async () => {
    const mine = ++turn;
    try {
      const found = await source.history();
      if (mine !== turn) return;
      const text = JSON.stringify(found);
      outcome.say(`The roles at ${found.steps.length} checkpoints.`);
      if (text !== shown) outcome.show(curves(found, run), table(found, run, outcome.shown.querySelector("details")?.open ?? false));
      shown = text;
    } catch (error) {
      if (mine !== turn) return;
      outcome.fail(error, source.live);
    }
    if (source.live) waiting = setTimeout(look, POLL); // what failed once may go well the next time
  };
  const begin = () => {
    clearTimeout(waiting);
    outcome.say("Analysing each checkpoint …");
    outcome.show();
    shown = "";
    look();
  };
  const element = h("section", { class: "card" }, h("h2", {}, "Over training"),
    h("p", { class: "quiet" }, "How each head got its role: the role’s score at every checkpoint that the run has kept."),
    source.live && h("button", { type: "button", id: "history", on: { click: begin } }, "Analyse every checkpoint"), outcome.element);
  if (!source.live) look();
  return { element, leave: () => { turn++; clearTimeout(waiting); } };
}

/** A chart for each role, the best heads of it. @param {History} found @param {string} run */
function curves({ steps, heads }, run) {
  /** @type {Map<string, Curve[]>} */
  const byRole = new Map();
  for (const head of heads) byRole.set(head.role, [...byRole.get(head.role) ?? [], head]);
  const last = (/** @type {Curve} */ head) => head.scores[head.scores.length - 1] ?? -1;
  const roles = [...byRole].map(([role, of]) => ({ role, of: of.sort((a, b) => last(b) - last(a)).slice(0, LINES) }))
    .sort((a, b) => last(b.of[0]) - last(a.of[0])).slice(0, CHARTS);
  return h("div", { class: "charts" }, roles.map(({ role, of }) => {
    const drawn = chart(of.map((head) => ({ name: headName(head.block, head.layer, head.head), marks: true, points: pointsOf(head, steps) })),
      { label: `Score of the role ${role} by step`, height: 180 });
    const legend = h("div", { class: "keys" }, of.map((head, i) => h("span", {}, h("i", { class: `key c${i}` }), `${headName(head.block, head.layer, head.head)}: ${percent(Math.max(0, last(head)))}`)));
    const drawing = () => onPaper(/** @type {SVGElement} */ (drawn.querySelector("svg")), `${run}: ${role}`, legend);
    return h("figure", { class: "by-role" }, h("div", { class: "card-head" }, h("h3", {}, role), h("span", { class: "grow" }), saving(`the chart of ${role}`, [run, "heads", role, "by-step"], { svg: drawing })),
      legend, drawn);
  }));
}

/** Every head, its role and that role's score at each step. @param {History} found @param {string} run @param {boolean} open */
function table({ steps, heads }, run, open) {
  const cell = (/** @type {number | null} */ score) => h("td", { class: "figure" }, score === null ? "–" : percent(Math.max(0, score)));
  return h("details", { open }, h("summary", {}, "As a table"),
    saving("the table", [run, "heads", "by-step"], { csv: () => csv(["head", "role", ...steps.map((step) => `step_${step}`)], heads.map((head) => [head.id, head.role, ...head.scores])) }),
    scroller("Scores at each step", h("table", { class: "plain" }, h("caption", { class: "unseen" }, "Score of each head’s role at each step"),
      h("thead", {}, h("tr", {}, ["head", "role", ...steps.map((step) => `step ${step}`)].map((name, i) => h("th", { scope: "col", class: i > 1 ? "figure" : "" }, name)))),
      h("tbody", {}, heads.map((head) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, headName(head.block, head.layer, head.head))), h("td", {}, head.role), head.scores.map(cell)))))));
}

/** @param {Curve} head @param {number[]} steps @returns {[number, number][]} */
function pointsOf(head, steps) {
  return /** @type {[number, number][]} */ (steps.map((step, i) => [step, head.scores[i]]).filter(([, score]) => score !== null && score !== undefined));
}
