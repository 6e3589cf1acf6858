/** Two answers, step by step: the chances of the next token in one and in the other, and their difference. */

import { chances, tokensOf } from "lens/chances.js";
import { csv } from "lens/csv.js";
import { h } from "lens/dom.js";
import { saving } from "lens/files.js";
import { set } from "lens/state.js";
import { sortable } from "lens/table.js";
import { number, percent, token, whole } from "lens/text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./types.js").Step} Step */
/** @typedef {{id: number, a: number | null, b: number | null}} Row */

const SHOWN = 12;

/**
 * A card: the other answer's tokens, and the chances at the same place.
 * @param {Context} context
 * @param {Trace} other its logits are loaded
 * @param {Step} step of the one that is shown
 * @param {{temperature: number, topK: number, topP: number}} settings
 */
export function twoSteps({ trace, run }, other, step, settings) {
  const same = other.stepAt.get(step.pos);
  const both = same ? [of(trace, step, settings), of(other, same, settings)] : [];
  const rows = same ? rowsOf(both[0].p, both[1].p) : [];
  const chip = (/** @type {string} */ text) => h("span", { class: "chip", title: whole(text) }, token(text));
  const delta = (/** @type {Row} */ row) => (row.a === null || row.b === null ? null : row.a - row.b);
  const share = (/** @type {number | null} */ value) => (value === null ? "not stored" : percent(value));
  const told = same ? h("p", {}, "Here A reads ", chip(trace.text(step.input)), " and chooses ", chip(trace.text(step.chosen)), "; B reads ", chip(other.text(same.input)), " and chooses ", chip(other.text(same.chosen)), ".")
    : h("p", { class: "quiet" }, "B has no step at this position.");
  const asCsv = () => csv(["token", "chance_a", "chance_b", "difference"], rows.map((row) => [whole(text(row.id)), row.a, row.b, delta(row)]));
  const text = (/** @type {number} */ id) => trace.header.vocab[String(id)] ?? other.text(id);
  return h("section", { class: "card two-steps" }, h("div", { class: "card-head" }, h("h2", {}, "A and B at this position"), h("span", { class: "grow" }),
    same && saving("the probabilities of both", [run.name, "generate", "A-B", step.pos], { csv: asCsv })),
  h("p", { class: "quiet" }, `A: ${whole(trace.title)} (as above). B: ${whole(other.title)}.`), others(trace, other, step.pos), told,
  same && sortable("Probabilities of the next token in both", [
    { name: "token", cell: (row) => chip(text(row.id)) },
    { name: "A", figure: true, cell: (row) => share(row.a), by: (row) => row.a ?? -1 },
    { name: "B", figure: true, cell: (row) => share(row.b), by: (row) => row.b ?? -1 },
    { name: "A − B", figure: true, cell: (row) => { const value = delta(row); return value === null ? "–" : `${number(100 * value)} points`; }, by: (row) => delta(row) ?? -2 },
  ], rows, { name: "both", sorted: "A" }),
  both.some((each) => !each.complete) && h("p", { class: "quiet" }, "Among the most likely tokens of each only, because the vocabulary is large."));
}

/** The tokens of the other answer; marked where another one stands in the first. @param {Trace} trace @param {Trace} other @param {number} pos */
function others(trace, other, pos) {
  return h("div", { class: "steps", role: "group", "aria-label": "Tokens of B" }, other.header.steps.map((step) => {
    const differs = trace.text(trace.stepAt.get(step.pos)?.chosen) !== other.text(step.chosen);
    return h("button", { type: "button", class: `step${step.pos === pos ? " marked" : ""}${differs ? " differs" : ""}`, "aria-pressed": String(step.pos === pos),
      title: `position ${step.pos}: probability ${percent(step.p)}${differs ? "; differs from A" : ""}`, on: { click: () => set({ step: step.pos }) } },
    h("span", { class: "chip" }, token(other.text(step.chosen))));
  }));
}

/** Chance by token, and whether all tokens are among them. @param {Trace} trace @param {Step} step @param {{temperature: number, topK: number, topP: number}} settings */
function of(trace, step, settings) {
  const { tokens, complete } = tokensOf(trace, step);
  return { complete, p: new Map(chances(tokens, settings).map(({ id, p }) => [id, p])) };
}

/** The tokens that are likeliest in one or the other. @param {Map<number, number>} a @param {Map<number, number>} b @returns {Row[]} */
function rowsOf(a, b) {
  const rows = [...new Set([...a.keys(), ...b.keys()])].map((id) => ({ id, a: a.get(id) ?? null, b: b.get(id) ?? null }));
  return rows.sort((one, two) => Math.max(two.a ?? 0, two.b ?? 0) - Math.max(one.a ?? 0, one.b ?? 0)).slice(0, SHOWN);
}
