/** The next token: how likely each is under settings that can be turned, two steps beside each other, and labels. */
import { begun, writes, writtenBefore } from "lens/ask.js";
import { cardHead, h } from "lens/dom.js";
import { csv, saving } from "lens/files.js";
import { now, set } from "lens/state.js";
import { sortable } from "lens/table.js";
import { number, percent, token, whole } from "lens/text.js";

/* --- from logits to chances, as sampling makes them: temperature, then top-k, then top-p. */

/** @typedef {{id: number, logit: number, p: number, kept: boolean}} Chance */

/**
 * Tokens with their chances, the likeliest first; `kept` says whether the filters leave one to be drawn.
 * @param {{id: number, logit: number}[]} tokens
 * @param {{temperature: number, topK: number, topP: number}} settings top-k 0: all
 * @returns {Chance[]}
 */
export function chances(tokens, { temperature, topK, topP }) {
  const order = [...tokens].sort((a, b) => b.logit - a.logit || a.id - b.id);
  if (temperature === 0) return order.map((each, i) => ({ ...each, p: i === 0 ? 1 : 0, kept: i === 0 }));
  const most = order[0].logit;
  const powers = order.map(({ logit }) => Math.exp((logit - most) / temperature));
  const count = topK > 0 ? Math.min(topK, powers.length) : powers.length;
  const sum = powers.slice(0, count).reduce((a, b) => a + b, 0);
  let before = 0;
  const kept = powers.map((power, i) => {
    const inside = i < count && before / sum < topP;
    before += power;
    return inside;
  });
  const total = powers.reduce((a, power, i) => a + (kept[i] ? power : 0), 0);
  return order.map((each, i) => ({ ...each, p: kept[i] ? powers[i] / total : 0, kept: kept[i] }));
}

/**
 * The tokens of a step with their logits: all of them, where the trace keeps all.
 * @param {import("./trace.js").Trace} trace
 * @param {import("./trace.js").Step} step
 */
export function tokensOf(trace, step) {
  const all = trace.logits(step.pos);
  if (all) return { complete: true, tokens: Array.from(all, (logit, id) => ({ id, logit })) };
  return { complete: false, tokens: step.top.map(([id, , logit]) => ({ id, logit })) };
}

/* --- what a head that is not over tokens answers: labels with their chances, the likeliest first, or numbers by name. */

/** @param {Pick<import("./trace.js").Header, "labels" | "run">} header @param {number} [most] of them that are shown */
export function labelBars({ labels = [], run }, most = Infinity) {
  if (run.mode === "number") return numberRows(labels.slice(0, most));
  return h("ol", { class: "bars", "aria-label": "Probabilities of the labels" }, labels.slice(0, most).map(([name, p]) => h("li", {}, h("span", { class: "chip", title: whole(name) }, token(name)),
    h("span", { class: "bar" }, h("i", { style: { width: `${100 * p}%` } })), h("span", { class: "figure" }, percent(p)))));
}

/** @param {[string, number][]} numbers */
function numberRows(numbers) {
  return h("ol", { class: "bars", "aria-label": "Numbers" }, numbers.map(([name, value]) => h("li", {}, h("span", { class: "chip", title: whole(name) }, token(name)),
    h("span", { class: "figure" }, number(value, 6)))));
}

/* --- the next token: how likely each is under settings that can be turned, and a way to go on with another one. */

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./trace.js").Step} Step */

const BARS = 10;

/** @typedef {{temperature: number, topK: number, topP: number}} Settings how the chances are shown */

/** Lowest, highest, and what it is at first. @type {Record<keyof Settings, [number, number, number]>} */
const RANGES = { temperature: [0, 3, 1], topK: [0, 20, 0], topP: [0.05, 1, 1] };

/** The settings that the address has; what is out of range is as at first. @returns {Settings} */
export function dialled() {
  const state = now();
  return /** @type {Settings} */ (Object.fromEntries(Object.entries(RANGES).map(([key, [low, high, usual]]) => {
    const value = Number(state[/** @type {keyof Settings} */ (key)]);
    return [key, value >= low && value <= high ? value : usual];
  })));
}

/** @param {Settings} settings @param {() => void} changed */
export function dials(settings, changed) {
  /** @param {string} name @param {keyof Settings} key @param {number} step @param {(v: number) => string} shown */
  const dial = (name, key, step, shown) => {
    const [min, max] = RANGES[key];
    const value = h("output", {}, shown(settings[key]));
    const input = /** @type {HTMLInputElement} */ (h("input", { type: "range", min, max, step, value: settings[key], "aria-label": name, "data-dial": key }));
    input.addEventListener("input", () => { settings[key] = Number(input.value); value.textContent = shown(settings[key]); changed(); });
    input.addEventListener("change", () => set({ [key]: input.value }));
    return h("label", { class: "dial" }, h("span", {}, name), input, value);
  };
  return h("div", { class: "dials" },
    dial("temperature", "temperature", 0.05, (v) => (v === 0 ? "0, the most likely" : v.toFixed(2))),
    dial("top-k", "topK", 1, (v) => (v === 0 ? "all" : String(v))),
    dial("top-p", "topP", 0.05, (v) => v.toFixed(2)));
}

/** @param {Context} context @param {Step} step @param {Settings} settings @param {import("./ask.js").Line} line where a branch is told of */
export function bars(context, step, settings, line) {
  const { trace, source } = context;
  const { tokens, complete } = tokensOf(trace, step);
  const found = chances(tokens, settings);
  const shown = found.slice(0, BARS);
  const rest = found.slice(BARS).reduce((sum, each) => sum + each.p, 0);
  const row = (/** @type {Node | string} */ name, /** @type {number} */ p, /** @type {number | null} */ logit, /** @type {string} */ kind) => h("li", { class: kind }, name,
    h("span", { class: "at" }, logit === null ? "" : number(logit)), h("span", { class: "bar" }, h("i", { style: { width: `${100 * p}%` } })), h("span", { class: "figure" }, percent(p)));
  const mayBegin = source.live && writes(trace) && step.pos >= (trace.header.sequences.target?.n_prompt ?? 1) - 1;
  const branch = (/** @type {number} */ id) => begun(context, [...writtenBefore(trace, step.pos), id], line);
  const chip = (/** @type {number} */ id) => {
    const text = trace.text(id);
    if (!mayBegin || id === step.chosen) return h("span", { class: "chip", title: whole(text) }, token(text));
    return h("button", { type: "button", class: "chip", title: `Continue with ${whole(text)} here`, "data-branch": id, on: { click: () => branch(id) } }, token(text));
  };
  return [h("ol", { class: "bars chances", "aria-label": "Probabilities of the next token" },
    shown.map((each) => row(chip(each.id), each.p, each.logit,
      `${each.id === step.chosen ? "marked" : ""}${each.kept ? "" : " out"}`)),
    row(h("span", { class: "quiet" }, complete ? `${Math.max(0, found.length - BARS)} others` : "others are not stored"), rest, null, "rest")),
  h("p", { class: "quiet" }, complete ? "Token, logit, and probability under these settings. The model is not run again." : "Among the most likely tokens only, because the vocabulary is large.",
    mayBegin ? " Click another token, and the model continues with it." : "")];
}

/* --- two answers, step by step: the chances of the next token in one and in the other, and their difference. */

/** @typedef {import("./trace.js").Trace} Trace */
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
  const choices = same ? h("p", {}, "Here A reads ", chip(trace.text(step.input)), " and chooses ", chip(trace.text(step.chosen)), "; B reads ", chip(other.text(same.input)), " and chooses ", chip(other.text(same.chosen)), ".")
    : h("p", { class: "quiet" }, "B has no step at this position.");
  const asCsv = () => csv(["token", "chance_a", "chance_b", "difference"], rows.map((row) => [whole(text(row.id)), row.a, row.b, delta(row)]));
  const text = (/** @type {number} */ id) => trace.header.vocab[String(id)] ?? other.text(id);
  return h("section", { class: "card two-steps" }, cardHead("A and B at this position",
    same && saving("the probabilities of both", [run.name, "generate", "A-B", step.pos], { csv: asCsv })),
  h("p", { class: "quiet" }, `A: ${whole(trace.title)} (as above). B: ${whole(other.title)}.`), others(trace, other, step.pos), choices,
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
