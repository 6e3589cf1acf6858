/** The next token: how likely each is under settings that can be turned, and a way to go on with another one. */

import { begun, writes, writtenBefore } from "lens/ask.js";
import { chances, tokensOf } from "lens/chances.js";
import { h } from "lens/dom.js";
import { now, set } from "lens/state.js";
import { number, percent, token, whole } from "lens/text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./types.js").Step} Step */

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
