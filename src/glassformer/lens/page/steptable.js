/** All steps of an answer as a table: what each one reads and writes, how sure it was, and what was right. */

import { csv } from "lens/csv.js";
import { h } from "lens/dom.js";
import { saving } from "lens/files.js";
import { set } from "lens/state.js";
import { sortable } from "lens/table.js";
import { number, percent, token, whole } from "lens/text.js";

/** @typedef {import("./types.js").Step} Step */

/** A card with the table; a step is opened by its row. @param {import("./main.js").Context} context */
export function stepTable({ trace, run }) {
  const { steps } = trace.header;
  if (!steps.length) return null;
  const chip = (/** @type {number | null | undefined} */ id) => id !== null && id !== undefined && h("span", { class: "chip", title: whole(trace.text(id)) }, token(trace.text(id)));
  /** @type {(name: string, of: (step: Step) => number | null | undefined, said: (value: number | null | undefined) => string) => import("./table.js").Column} */
  const figure = (name, of, said) => ({ name, figure: true, cell: (step) => said(of(step)), by: (step) => of(step) ?? -Infinity });
  const table = sortable("Steps", [
    { name: "position", cell: (step) => String(step.pos), by: (step) => -step.pos },
    { name: "reads", cell: (step) => chip(step.input) },
    { name: "writes", cell: (step) => chip(step.chosen) },
    figure("probability", (step) => step.p, percent), figure("rank", (step) => step.rank + 1, (value) => number(value)), figure("entropy", (step) => step.entropy, (value) => number(value)),
    { name: "correct token", cell: (step) => chip(step.gold) },
    figure("its probability", (step) => step.gold_p, percent), figure("loss", (step) => step.loss, (value) => number(value)),
  ], steps, { choose: (step) => set({ step: step.pos }) });
  const asCsv = () => csv(["place", "reads", "writes", "chance", "rank", "entropy_nats", "right", "chance_of_right", "loss_nats"],
    steps.map((step) => [step.pos, whole(trace.text(step.input)), whole(trace.text(step.chosen)), step.p, step.rank + 1, step.entropy,
      step.gold === null || step.gold === undefined ? null : whole(trace.text(step.gold)), step.gold_p, step.loss]));
  return h("section", { class: "card all-steps" }, h("div", { class: "card-head" }, h("h2", {}, "All steps"), h("span", { class: "grow" }),
    saving("all steps", [run.name, "generate", trace.title], { csv: asCsv })), table);
}
