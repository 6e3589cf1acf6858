/** Asking the model: a text to answer or to go on from, and how. */

import { h, put } from "lens/dom.js";
import { set } from "lens/state.js";

/** @typedef {import("./main.js").Context} Context */

/** @param {Context} context */
export function prompt(context) {
  const { run, source } = context;
  const text = /** @type {HTMLTextAreaElement} */ (h("textarea", { rows: 2, id: "prompt", "aria-label": "Text for the model", spellcheck: "false", placeholder: run.examples?.[0] ?? "" }));
  text.value = run.examples?.[0] ?? "";
  const numbers = /** @type {Record<string, HTMLInputElement>} */ (Object.fromEntries([["temperature", "0"], ["seed", "1"], ["max_new_tokens", ""]].map(([name, value]) =>
    [name, h("input", { type: "number", step: "any", min: "0", value, id: `ask-${name}` })])));
  const told = h("p", { class: "told", role: "status" });
  const ask = async (/** @type {Event} */ event) => {
    event.preventDefault();
    put(told, "Running …");
    /** @type {Record<string, number>} */
    const decode = {};
    for (const [name, input] of Object.entries(numbers)) if (input.value !== "") decode[name] = Number(input.value);
    try {
      const { id } = await source.post("trace", { text: text.value, decode });
      context.traces = await source.traces();
      put(told, "");
      set({ trace: id, step: -1, q: null, k: null }, true);
    } catch (error) {
      put(told, error instanceof Error ? error.message : String(error));
    }
  };
  return h("form", { class: "card prompt", on: { submit: ask } }, h("h2", {}, run.writes ?? "Ask the model"), text,
    h("div", { class: "controls" }, Object.entries(numbers).map(([name, input]) => h("label", { class: "picker" }, h("span", {}, name.replaceAll("_", " ")), input)),
      h("span", { class: "grow" }), h("button", { type: "submit", class: "strong-button" }, "Run")), told);
}
