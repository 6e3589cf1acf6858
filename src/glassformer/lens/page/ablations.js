/** What happens without some heads: chosen here and run by the model, or as the run's own test found it. */

import { h, put, putControls, switcher } from "lens/dom.js";
import { saving } from "lens/files.js";
import { forced } from "lens/judged.js";
import { movedHeads } from "lens/moved.js";
import { Outcome } from "lens/outcome.js";
import { effect, lost, rolesCsv } from "lens/role.js";
import { now, set } from "lens/state.js";
import { studyCard } from "lens/study.js";
import { sortable } from "lens/table.js";
import { headName, percent, token } from "lens/text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {{block: string, layer: number, head: number}} Place */

/** @param {Context} context @returns {import("./main.js").Screen} */
export function ablations(context) {
  const element = h("div", { class: "screen ablations" });
  const tested = (context.trace.header.heads ?? []).filter((head) => head.ablation);
  let drawn = false;
  const live = context.source.live ? bench(context) : null;
  const effects = h("div");
  const draw = () => {
    live?.check();
    putControls(effects, table(tested));
    if (drawn) return;
    drawn = true;
    put(element, live ? live.element : h("section", { class: "card" }, h("h2", {}, "Removing heads"),
      h("p", { class: "quiet" }, "This page is a copy without its model. To run the model without some heads, open the run with glassformer explore.")),
    studyCard(context.run.study),
    tested.length ? h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, "One head at a time"), h("span", { class: "grow" }),
      saving("this table", [context.run.name, "ablations"], { csv: () => rolesCsv(tested) })), effects) : null);
  };
  return { element, draw };
}

/** @param {import("./types.js").Head[]} heads */
function table(heads) {
  return sortable("Effect of removing each head", [
    { name: "head", cell: (row) => h("code", {}, headName(row.block, row.layer, row.head)), by: (row) => row.id },
    { name: "lost", figure: true, cell: (row) => percent(lost(row)), by: lost },
    { name: "what happens", cell: (row) => effect(row) },
    { name: "verdict", cell: (row) => row.ablation?.verdict ?? "" },
  ], heads, { sorted: "lost", choose: ({ block, layer, head }) => set({ screen: "attention", block, layer, head, q: null, k: null }, true) });
}

/** @param {Context} context */
function bench(context) {
  const { trace, source, run } = context;
  /** @type {Map<string, {box: HTMLInputElement, place: Place}>} by what the address calls them */
  const all = new Map();
  const outcome = new Outcome();
  const boxes = [...trace.attention.values()].map(({ group: { block, layers, heads } }) => h("fieldset", {}, h("legend", {}, `${block} attention`),
    Array.from({ length: layers }, (_, layer) => h("div", { class: "row" }, h("span", { class: "label" }, `layer ${layer}`), Array.from({ length: heads }, (_, head) => {
      const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", "data-head": `${block} ${layer} ${head}` }));
      all.set(`${block}-${layer}-${head}`, { box, place: { block, layer, head } });
      box.addEventListener("change", () => set({ out: checked().map(([name]) => name).join("_") }));
      const role = trace.head(block, layer, head)?.role;
      return h("label", { class: "head-box" }, box, h("span", {}, String(head)), role && role.strength !== "none" && h("small", { class: "quiet" }, role.label));
    })))));
  const how = h("div", { class: "controls" });
  const kind = () => (now().kind === "mean" ? "mean" : "zero");
  const checked = () => [...all].filter(([, { box }]) => box.checked);
  const go = async () => {
    const out = checked().map(([, { place }]) => place);
    outcome.show();
    if (!out.length) return outcome.fail("Choose at least one head.");
    outcome.say("Running …");
    try {
      const { source: read, target } = trace.header.sequences;
      const called = kind() === "mean" ? "with their mean" : "without them";
      const told = await source.post("ablate", { heads: out, kind: kind(), trace: idOf(trace, run) });
      const moved = await movedHeads(context, told.same, new Set(out.map(({ block, layer, head }) => headName(block, layer, head))));
      const same = told.before.join("\n") === told.after.join("\n");
      outcome.say(trace.header.labels ? `It gives ${same ? "the same" : "another"} ${trace.header.run.mode} ${called}.`
        : forced(trace) ? `${same ? "The same" : "Other"} tokens are the most likely ones ${called}.` : `It writes ${same ? "the same" : "other"} tokens ${called}.`);
      outcome.show(compared(told, read ?? target, called), moved);
    } catch (error) {
      outcome.fail(error);
    }
  };
  /** Check the boxes of the heads that the address has. */
  const check = () => {
    putControls(how, switcher("In their place", [["zero", "Nothing"], ["mean", "Their mean"]], kind(), (value) => set({ kind: value })));
    const names = new Set(now().out.split("_"));
    for (const [name, { box }] of all) box.checked = names.has(name);
  };
  const element = h("section", { class: "card" }, h("h2", {}, "Run the model without some heads"),
    h("p", { class: "quiet" }, "Tick heads to remove. They then add nothing, or their mean over held-out texts; everything else stays."), h("div", { class: "boxes" }, boxes),
    h("div", { class: "controls" }, h("span", { class: "label" }, "in their place"), how, h("span", { class: "grow" }),
      h("button", { type: "button", class: "strong-button", id: "ablate", on: { click: go } }, "Run without them")), outcome.element);
  return { element, check };
}

/** Which trace is shown, as the server knows it. @param {import("./trace.js").Trace} trace @param {import("./types.js").RunInfo} run */
function idOf(trace, run) {
  return trace.header.run.id ?? run.name;
}

/**
 * @param {{before: string[], after: string[], same: string, metrics?: {name: string, before: number, after: number, n: number}}} told
 * @param {import("./types.js").Sequence | undefined} read
 * @param {string} name of what was written then
 */
function compared({ before, after, metrics }, read, name) {
  const line = (/** @type {string} */ label, /** @type {string[]} */ tokens, /** @type {string[] | null} */ other) => h("div", { class: "strip" }, h("span", { class: "label" }, label),
    h("div", { class: "tokens big" }, tokens.map((text, i) => h("span", { class: `chip${other && other[i] !== text ? " wrong" : ""}` }, token(text)))));
  return [line("reads", read?.text ?? [], null), line("with all heads", before, null), line(name, after, before),
    metrics && h("p", { class: "sentence" }, `${metrics.name.replaceAll("_", " ")}: `, h("output", { id: "before" }, percent(metrics.before)), " with all heads, ",
      h("output", { id: "after" }, percent(metrics.after)), ` ${name} (${metrics.n} samples).`)];
}
