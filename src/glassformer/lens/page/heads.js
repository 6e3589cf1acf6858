/** The heads as a table: what each one does, how sure that is, what happens without it, and what another input changes. */

import { apart, besideOf, besidePicker } from "lens/beside.js";
import { csv } from "lens/csv.js";
import { h, put } from "lens/dom.js";
import { onPaper, saving } from "lens/files.js";
import { history } from "lens/history.js";
import { chanceOf, lost, roleName } from "lens/role.js";
import { scatter } from "lens/scatter.js";
import { similar } from "lens/similar.js";
import { set } from "lens/state.js";
import { sortable } from "lens/table.js";
import { headName, number, percent, whole } from "lens/text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {{confidence: number | null, entropy: number | null}} Figures what an input says of a head */
/** @typedef {{block: string, layer: number, head: number, known?: Head, beside?: Figures, apart?: number | null} & Figures} Row */

/** What one input says of a head, and what two inputs are compared by. @type {("confidence" | "entropy")[]} */
const MEASURES = ["confidence", "entropy"];

/** @param {Context} context @returns {import("./main.js").Screen} */
export function heads(context) {
  const { run, source, trace } = context;
  const element = h("div", { class: "screen heads" });
  const past = run.checkpoints ? history(source, run.name) : null;
  /** @type {Trace | null} */
  let other = null;
  let [rows, rowsOf] = [measured(trace, null), ""];
  const ready = async (/** @type {() => boolean} */ wanted) => {
    const found = await besideOf(context);
    const key = found?.header.run.id ?? "";
    if (other === found && rowsOf === key) return;
    const both = found ? [trace, found] : [];
    await Promise.all(both.flatMap((each) => [...each.attention.values()].map((attention) => attention.load(attention.layers))));
    if (wanted()) [other, rows, rowsOf] = [found, measured(trace, found), key];
  };
  const draw = () => {
    const known = rows.some((row) => row.known);
    const points = known ? scatter(rows) : null;
    const drawing = () => onPaper(/** @type {SVGElement} */ (points?.querySelector("svg.scatter")), `${run.name}: role and effect`, points?.querySelector(".keys"));
    put(element,
      points && h("section", { class: "card" }, cardHead("Role and effect", saving("this chart", [run.name, "heads", "roles"], { svg: drawing })),
        h("p", { class: "quiet" }, "Further right: a clearer role. Further up: more is lost without the head."), points),
      h("section", { class: "card" }, cardHead(`${rows.length} heads`, besidePicker(context), saving("this table", [run.name, "heads", ...(other ? ["compared"] : [])], { csv: () => asCsv(rows, other !== null) })),
        other ? compared(trace, other, rows) : findings(run.sentences ?? [], known), table(rows, known, other !== null)),
      similar(run.similar, run.alike ?? 0, trace, run.name), past?.element);
  };
  return { element, ready, draw, leave: () => past?.leave() };
}

/** @param {string} name @param {...import("./dom.js").Child} controls */
function cardHead(name, ...controls) {
  return h("div", { class: "card-head" }, h("h2", {}, name), h("span", { class: "grow" }), controls);
}

/** @param {string[]} sentences @param {boolean} known */
function findings(sentences, known) {
  return known ? h("ul", { class: "findings" }, sentences.map((text) => h("li", {}, text)))
    : h("p", { class: "quiet" }, "The roles have not been tested here; confidence and entropy are of this input only.");
}

/** @param {Trace} one @param {Trace} other @param {Row[]} rows */
function compared(one, other, rows) {
  const some = rows.some((row) => row.apart !== null);
  const all = rows.every((row) => row.apart !== null);
  return h("div", { class: "quiet comparing-note" },
    h("p", {}, h("b", {}, "A"), ` ${whole(one.title)} · `, h("b", {}, "B"), ` ${whole(other.title)}`),
    h("p", {}, some ? "Maps apart: the total variation (0 to 1) between a query’s weights in A and in B, averaged over the queries. Click a head to open both maps." : "Click a head to open both maps.",
      !all && ` Where the texts differ in length, the maps cannot be compared${some ? " (–)" : ""}.`));
}

/** Every head, with what this trace says of it, and the one beside. @param {Trace} trace @param {Trace | null} other @returns {Row[]} */
function measured(trace, other) {
  const rows = [];
  for (const [block, attention] of trace.attention) {
    const { layers, heads: n } = attention.group;
    const second = other?.attention.get(block);
    for (let layer = 0; layer < layers; layer++) {
      for (let head = 0; head < n; head++) {
        const row = { block, layer, head, known: trace.head(block, layer, head), ...figures(attention, layer, head) };
        rows.push(other ? { ...row, beside: figures(second, layer, head), apart: apart(attention, second, layer, head) } : row);
      }
    }
  }
  return rows;
}

/** @param {import("./trace.js").Attention | undefined} attention @param {number} layer @param {number} head @returns {Figures} */
function figures(attention, layer, head) {
  const { confidence, entropy } = attention?.group ?? {};
  return { confidence: confidence?.[layer]?.[head] ?? null, entropy: entropy?.[layer]?.[head] ?? null };
}

/** What A has more than B. @param {Row} row @param {"confidence" | "entropy"} name */
function gap(row, name) {
  const [a, b] = [row[name], row.beside?.[name] ?? null];
  return a === null || b === null ? null : a - b;
}

/** @param {Row[]} rows @param {boolean} known @param {boolean} paired */
function table(rows, known, paired) {
  /** @type {(name: string, of: (row: Row) => number | null | undefined, said?: (value: number | null | undefined, row: Row) => import("./dom.js").Child) => import("./table.js").Column} */
  const figure = (name, of, said = (value) => value?.toFixed(3) ?? "–") => ({ name, figure: true, cell: (row) => said(of(row), row), by: (row) => of(row) ?? -Infinity });
  const role = { name: "role", cell: (/** @type {Row} */ { known: head }) => head?.role && h("span", { class: `role ${head.role.strength}` }, roleName(head.role)), by: (/** @type {Row} */ row) => row.known?.role?.label ?? "" };
  const roles = known ? [role, figure("score", (row) => row.known?.role?.score, percent),
    !paired && figure("chance", (row) => chanceOf(row.known), percent),
    figure("lost without it", (row) => lost(row.known), (_, row) => cut(row.known)),
    !paired && figure("gradient", (row) => row.known?.grad_importance, (value) => number(value))] : [];
  const measures = MEASURES.flatMap((name) => (paired
    ? [figure(`${name} A`, (row) => row[name]), figure(`${name} B`, (row) => row.beside?.[name]), figure(`${name} A − B`, (row) => gap(row, name), signed)]
    : [figure(name, (row) => row[name])]));
  const open = (/** @type {Row} */ { block, layer, head }) => set({ screen: "attention", block, layer, head, q: null, k: null, ...(paired ? { view: "map" } : {}) }, true);
  /** @type {import("./table.js").Column} */
  const place = { name: "head", cell: (row) => h("code", {}, headName(row.block, row.layer, row.head)), by: (row) => `${row.block} ${String(row.layer).padStart(3, "0")} ${String(row.head).padStart(3, "0")}` };
  const columns = [place, paired && figure("maps apart", (row) => row.apart), ...roles, ...measures].filter((each) => each !== false);
  return sortable("Heads", columns, rows, { choose: open, sorted: paired && rows.some((row) => row.apart !== null) ? "maps apart" : known ? "lost without it" : paired ? "confidence A" : "confidence" });
}

/** @param {number | null | undefined} value */
function signed(value) {
  if (value === null || value === undefined) return "–";
  const text = Math.abs(value).toFixed(3);
  return Number(text) === 0 ? text : `${value < 0 ? "−" : "+"}${text}`;
}

/** @param {Head | undefined} head */
function cut(head) {
  if (!head?.ablation) return "–";
  const { value, ci95: [low, high] } = head.ablation;
  return h("span", { title: `${head.ablation.metric} falls to ${percent(value)} [${percent(low)}, ${percent(high)}], n ${head.ablation.n}` }, percent(lost(head)));
}

/** @param {Row[]} rows @param {boolean} paired */
function asCsv(rows, paired) {
  const names = ["block", "layer", "head", "role", "score", "chance", "base", "without", "low", "high", "gradient", "confidence", "entropy"];
  const more = ["confidence_b", "entropy_b", "confidence_a_minus_b", "entropy_a_minus_b", "maps_apart"];
  return csv(paired ? [...names, ...more] : names, rows.map((row) => {
    const { block, layer, head, known, confidence, entropy } = row;
    const [low, high] = known?.ablation?.ci95 ?? [];
    const own = [block, layer, head, roleName(known?.role), known?.role?.score, chanceOf(known), known?.ablation?.base, known?.ablation?.value,
      low, high, known?.grad_importance, confidence, entropy];
    return paired ? [...own, ...MEASURES.map((name) => row.beside?.[name]), ...MEASURES.map((name) => gap(row, name)), row.apart] : own;
  }));
}
