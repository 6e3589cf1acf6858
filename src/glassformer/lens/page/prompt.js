/** Asking the model: a text to answer or to go on from, and how. What it writes is shown as it comes. */

import { answered } from "lens/ask.js";
import { h, put } from "lens/dom.js";
import { token } from "lens/text.js";

/** @typedef {import("./main.js").Context} Context */

/** The settings, as they were typed last: the form is made anew with every answer. @type {Record<string, string>} */
const typed = { temperature: "0", top_k: "", top_p: "", seed: "1", max_new_tokens: "", beam: "1" };
/** @type {string | undefined} */
let typedText;

/** @param {Context} context */
export function prompt(context) {
  const { run } = context;
  const text = /** @type {HTMLTextAreaElement} */ (h("textarea", { rows: 2, id: "prompt", "aria-label": "Text for the model", spellcheck: "false", placeholder: run.examples?.[0] ?? "" }));
  text.value = typedText ?? run.examples?.[0] ?? "";
  const numbers = /** @type {Record<string, HTMLInputElement>} */ (Object.fromEntries(Object.entries(typed).map(([name, value]) =>
    [name, h("input", { type: "number", step: "any", min: "0", value, id: `ask-${name}` })])));
  const told = h("p", { class: "told", role: "status" });
  const stop = h("button", { type: "button", id: "stop", hidden: true, on: { click: () => leaving?.abort() } }, "Stop");
  /** @type {AbortController | undefined} */
  let leaving;
  const ask = async (/** @type {Event} */ event) => {
    event.preventDefault();
    leaving?.abort();
    const mine = leaving = new AbortController();
    typedText = text.value;
    for (const [name, input] of Object.entries(numbers)) typed[name] = input.value;
    /** @type {Record<string, number>} */
    const decode = {};
    for (const [name, input] of Object.entries(numbers)) if (input.value !== "") decode[name] = Number(input.value);
    const written = h("span", { class: "stream" });
    put(told, "Running … ", written);
    stop.hidden = false;
    try {
      await answered(context, { text: text.value, decode }, { heard: (each) => written.append(h("span", { class: "chip" }, token(each))), signal: mine.signal });
      put(told, "");
    } catch (error) {
      if (leaving === mine) put(told, mine.signal.aborted ? "Stopped." : error instanceof Error ? error.message : String(error));
    }
    if (leaving === mine) stop.hidden = true;
  };
  return h("form", { class: "card prompt", on: { submit: ask } }, h("h2", {}, run.writes ?? "Ask the model"), text,
    h("div", { class: "controls" }, Object.entries(numbers).map(([name, input]) => h("label", { class: "picker" }, h("span", {}, name.replaceAll("_", " ")), input)),
      h("span", { class: "grow" }), stop, h("button", { type: "submit", class: "strong-button" }, "Run")), told);
}
