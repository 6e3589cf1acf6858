/** What the model answers to the other inputs: a line for each, which leads to it. */

import { h, mistake, put, whenPainted } from "lens/dom.js";
import { judged } from "lens/judged.js";
import { set } from "lens/state.js";
import { percent, token, whole } from "lens/text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./trace.js").Trace} Trace */

const MOST = 3;
const TOKENS = 24;

/** The inputs beside the one that is shown; their answers come once the page is drawn. @param {Context} context */
export function examples({ traces, trace, source }) {
  const others = traces.filter((each) => each.id !== trace.header.run.id).slice(0, MOST);
  if (!others.length) return null;
  const rows = others.map(({ id, title }) => {
    const said = h("span", { class: "tokens" });
    const later = async () => put(said, answer(await source.trace(id)));
    whenPainted(() => later().catch((error) => put(said, mistake(error))));
    return h("li", {}, h("button", { type: "button", class: "plain-button", "data-trace": id, on: { click: () => set({ trace: id, step: -1, q: null, k: null }, true) } }, whole(title)), said);
  });
  return h("div", { class: "examples" }, h("h3", {}, "Other inputs"), h("ul", {}, rows));
}

/** What was written, and how much of it is right. @param {Trace} trace */
function answer(trace) {
  const { labels } = trace.header;
  if (labels?.length) return ["→ ", h("span", { class: "chip" }, token(labels[0][0])), h("span", { class: "quiet" }, ` ${percent(labels[0][1])}`)];
  const written = trace.written;
  const chips = written.slice(0, TOKENS).map((step) => h("span", { class: `chip${step.gold !== null && step.gold !== undefined && step.gold !== step.chosen ? " wrong" : ""}` }, token(trace.text(step.chosen))));
  return ["→ ", chips, written.length > TOKENS && " …", judged(trace) && h("span", { class: "quiet" }, ` ${judged(trace)}`)];
}
