/** Asking the model: a text to answer or to go on from, and how. What it writes is shown as it comes. */

import { answered, writes } from "lens/ask.js";
import { h } from "lens/dom.js";

/** @typedef {import("./main.js").Context} Context */

/** The settings, as they were typed last: the form is made anew with every answer. @type {Record<string, string>} */
const typed = { temperature: "0", top_k: "", top_p: "", seed: "1", max_new_tokens: "", beam: "1" };
/** @type {string | undefined} */
let typedText;

/** @param {Context} context @param {import("./ask.js").Line} line where it is told of */
export function prompt(context, line) {
  const { run } = context;
  const text = /** @type {HTMLTextAreaElement} */ (h("textarea", { rows: 2, id: "prompt", "aria-label": "Text for the model", spellcheck: "false", placeholder: run.examples?.[0] ?? "" }));
  text.value = typedText ?? run.examples?.[0] ?? "";
  // What gives labels or fills in what is missing is read once: it writes in no manner.
  const numbers = /** @type {Record<string, HTMLInputElement>} */ (Object.fromEntries((writes(context.trace) ? Object.entries(typed) : []).map(([name, value]) =>
    [name, h("input", { type: "number", step: "any", min: "0", value, id: `ask-${name}` })])));
  const ask = (/** @type {Event} */ event) => {
    event.preventDefault();
    typedText = text.value;
    for (const [name, input] of Object.entries(numbers)) typed[name] = input.value;
    /** @type {Record<string, number>} */
    const decode = {};
    for (const [name, input] of Object.entries(numbers)) if (input.value !== "") decode[name] = Number(input.value);
    answered(context, { text: text.value, ...(writes(context.trace) ? { decode } : {}) }, line);
  };
  return h("form", { class: "card prompt", on: { submit: ask } }, h("h2", {}, run.writes ?? "Ask the model"), text,
    h("div", { class: "controls" }, Object.entries(numbers).map(([name, input]) => h("label", { class: "picker" }, h("span", {}, name.replaceAll("_", " ")), input)),
      h("span", { class: "grow" }), h("button", { type: "submit", class: "strong-button" }, "Run")), line.element);
}
