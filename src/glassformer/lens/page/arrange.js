/** Which heads are shown together, and in which order. */

import { lost } from "lens/role.js";

/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./trace.js").Attention} Attention */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {{layer: number, head: number}} Place */
/** @typedef {{at: Place, facts?: Head, confidence: number, entropy: number}} Known */

/** A role from this score on counts as sure. */
const SURE = 0.5;

/** What heads are sorted by: whose figure is largest comes first. @type {Record<string, (known: Known) => number>} */
const FIGURES = {
  score: ({ facts }) => facts?.role?.score ?? -Infinity,
  effect: ({ facts }) => (facts?.ablation ? lost(facts) : -Infinity),
  confidence: ({ confidence }) => confidence,
  entropy: ({ entropy }) => entropy,
};

/** What heads may be left by: each a test, by the name that the address has. @type {Record<string, (known: Known) => boolean>} */
const TESTS = {
  sure: ({ facts }) => (facts?.role?.score ?? 0) >= SURE,
  needed: ({ facts }) => /needs it$|^needed/.test(facts?.ablation?.verdict ?? ""),
};

/** The role of a head, where it has one. @param {Head | undefined} facts */
function roleOf(facts) {
  return facts?.role && facts.role.strength !== "none" ? facts.role.label : "";
}

/** @param {Trace} trace @param {Attention} attention @returns {Known[]} */
function all(trace, { block, group: { layers, heads, confidence, entropy } }) {
  return Array.from({ length: layers * heads }, (_, i) => {
    const [layer, head] = [Math.floor(i / heads), i % heads];
    return { at: { layer, head }, facts: trace.head(block, layer, head), confidence: confidence?.[layer][head] ?? NaN, entropy: entropy?.[layer][head] ?? NaN };
  });
}

/** Whether a head stays, by `role:NAME`, `layer:NUMBER` or a test's name; by anything else all do. @param {string} only */
function stays(only) {
  const [kind, name] = only.split(":");
  if (kind === "role" && name) return (/** @type {Known} */ { facts }) => roleOf(facts) === name;
  if (kind === "layer" && name) return (/** @type {Known} */ { at }) => at.layer === Number(name);
  return Object.hasOwn(TESTS, only) ? TESTS[only] : () => true;
}

/**
 * The heads in rows: one for each layer, or as many to a row as a layer has, in the order of a figure.
 * @param {Trace} trace
 * @param {Attention} attention
 * @param {{sort: string, only: string}} asked
 * @returns {Place[][]}
 */
export function arranged(trace, attention, { sort, only }) {
  const { layers, heads } = attention.group;
  const found = all(trace, attention).filter(stays(only));
  if (sort !== "role" && !Object.hasOwn(FIGURES, sort)) {
    return Array.from({ length: layers }, (_, layer) => found.filter(({ at }) => at.layer === layer).map(({ at }) => at)).filter((row) => row.length);
  }
  const figure = FIGURES[sort === "role" ? "score" : sort];
  const byRole = (/** @type {Known} */ a, /** @type {Known} */ b) => {
    const [one, other] = [roleOf(a.facts), roleOf(b.facts)];
    return one === other ? 0 : !one ? 1 : !other ? -1 : one < other ? -1 : 1;
  };
  found.sort((a, b) => (sort === "role" && byRole(a, b)) || figure(b) - figure(a) || 0);
  return Array.from({ length: Math.ceil(found.length / heads) }, (_, row) => found.slice(row * heads, (row + 1) * heads).map(({ at }) => at));
}

/**
 * What may be asked of these heads: orders, and what they may be left by, value and text of each.
 * @param {Trace} trace
 * @param {Attention} attention
 * @returns {{orders: [string, string][], filters: [string, string][]}}
 */
export function arrangements(trace, attention) {
  const found = all(trace, attention);
  const roles = [...new Set(found.map(({ facts }) => roleOf(facts)).filter(Boolean))].sort();
  const tested = found.some(({ facts }) => facts?.ablation);
  const told = found.some(({ facts }) => facts?.role);
  /** @type {([string, string] | false)[]} */
  const orders = [["layer", "layer"], told && ["role", "role"], told && ["score", "score"], tested && ["effect", "effect"], ["confidence", "confidence"], ["entropy", "entropy"]];
  /** @type {([string, string] | false)[]} */
  const filters = [["", "all heads"], ...roles.map((role) => /** @type {[string, string]} */ ([`role:${role}`, role])), told && ["sure", `score of at least ${100 * SURE} %`], tested && ["needed", "needed"],
    ...(attention.group.layers > 1 ? attention.layers.map((layer) => /** @type {[string, string]} */ ([`layer:${layer}`, `layer ${layer}`])) : [])];
  const kept = (/** @type {([string, string] | false)[]} */ each) => /** @type {[string, string][]} */ (each.filter(Boolean));
  return { orders: kept(orders), filters: kept(filters) };
}
