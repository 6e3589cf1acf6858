/** The heads as a table: what each one does, how sure that is, and what happens without it. */

import { h, put, s } from "lens/dom.js";
import { saveText } from "lens/files.js";
import { history } from "lens/history.js";
import { lost } from "lens/role.js";
import { similar } from "lens/similar.js";
import { set } from "lens/state.js";
import { sortable } from "lens/table.js";
import { headName, number, percent } from "lens/text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {{block: string, layer: number, head: number, confidence: number | null, entropy: number | null, known?: Head}} Row */

/** @param {Context} context @returns {import("./main.js").Screen} */
export function heads({ trace, run, source }) {
  const element = h("div", { class: "screen heads" });
  const rows = measured(trace);
  const known = rows.some((row) => row.known);
  const past = run.checkpoints ? history(source) : null;
  const draw = () => put(element,
    known ? h("section", { class: "card" }, h("h2", {}, "Role and effect"), h("p", { class: "quiet" }, "To the right: sure of its role. Above: much is lost without it."), scatter(rows)) : null,
    h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, `${rows.length} heads`), h("span", { class: "grow" }),
      h("button", { type: "button", on: { click: () => saveText("heads.csv", csv(rows), "text/csv") } }, "CSV")),
    known ? h("ul", { class: "findings" }, (run.sentences ?? []).map((text) => h("li", {}, text)))
      : h("p", { class: "quiet" }, "Roles have not been tested here; confidence and entropy are those of this input alone."),
    table(rows, known)), similar(run.similar, run.alike ?? 0, trace), past?.element);
  return { element, draw, leave: () => past?.leave() };
}

/** Every head, with what this trace says of it. @param {Trace} trace @returns {Row[]} */
function measured(trace) {
  const rows = [];
  for (const [block, attention] of trace.attention) {
    const { layers, heads: n, confidence, entropy } = attention.group;
    for (let layer = 0; layer < layers; layer++) {
      for (let head = 0; head < n; head++) {
        rows.push({ block, layer, head, confidence: confidence?.[layer][head] ?? null, entropy: entropy?.[layer][head] ?? null, known: trace.head(block, layer, head) });
      }
    }
  }
  return rows;
}

/** @param {Row[]} rows @param {boolean} known */
function table(rows, known) {
  /** @type {import("./table.js").Column[]} */
  const roles = known ? [
    { name: "role", cell: ({ known: head }) => head?.role && h("span", { class: `role ${head.role.strength}` }, head.role.label), by: (row) => row.known?.role?.label ?? "" },
    { name: "score", figure: true, cell: (row) => percent(row.known?.role?.score), by: (row) => row.known?.role?.score ?? -1 },
    { name: "chance", figure: true, cell: (row) => percent(row.known?.chance?.[row.known.role?.label]), by: (row) => row.known?.chance?.[row.known.role?.label] ?? -1 },
    { name: "lost without it", figure: true, cell: (row) => cut(row.known), by: (row) => lost(row.known) },
    { name: "gradient", figure: true, cell: (row) => number(row.known?.grad_importance), by: (row) => row.known?.grad_importance ?? -1 },
  ] : [];
  return sortable("Heads", [
    { name: "head", cell: (row) => h("code", {}, headName(row.block, row.layer, row.head)), by: (row) => `${row.block} ${String(row.layer).padStart(3, "0")} ${String(row.head).padStart(3, "0")}` },
    ...roles,
    { name: "confidence", figure: true, cell: (row) => row.confidence?.toFixed(3) ?? "–", by: (row) => row.confidence ?? -1 },
    { name: "entropy", figure: true, cell: (row) => row.entropy?.toFixed(3) ?? "–", by: (row) => row.entropy ?? -1 },
  ], rows, { choose: ({ block, layer, head }) => set({ screen: "attention", block, layer, head, q: null, k: null }, true), sorted: known ? "lost without it" : "confidence" });
}

/** @param {Head | undefined} head */
function cut(head) {
  if (!head?.ablation) return "–";
  const { value, ci95: [low, high] } = head.ablation;
  return h("span", { title: `${head.ablation.metric} falls to ${percent(value)} [${percent(low)}, ${percent(high)}], n ${head.ablation.n}` }, percent(lost(head)));
}

/** @param {Row[]} rows */
function scatter(rows) {
  const [width, height, pad] = [640, 260, 40];
  const known = rows.filter((row) => row.known?.role);
  const most = Math.max(0.05, ...known.map((row) => lost(row.known)));
  const x = (/** @type {Row} */ row) => pad + Math.max(0, row.known?.role?.score ?? 0) * (width - pad - 20);
  const y = (/** @type {Row} */ row) => height - pad - (Math.max(0, lost(row.known)) / most) * (height - pad - 44);
  const named = apart(known.filter((row) => lost(row.known) > most / 4), x, y);
  const shapes = /** @type {Record<string, string>} */ ({ encoder: "M-5-5H5V5H-5Z", decoder: "M0-6L6 5H-6Z", cross: "M0-6L6 0L0 6L-6 0Z" });
  return h("div", { class: "scroll" }, s("svg", { viewBox: `0 0 ${width} ${height}`, class: "scatter", role: "img", "aria-label": "Role score and effect of each head" },
    s("line", { class: "rule", x1: pad, x2: width - 20, y1: height - pad, y2: height - pad }), s("line", { class: "rule", x1: pad, x2: pad, y1: 16, y2: height - pad }),
    s("text", { x: width - 20, y: height - 12, "text-anchor": "end" }, "score of its role →"), s("text", { x: pad + 6, y: 14 }, `↑ lost without it, up to ${percent(most)}`),
    known.map((row) => s("g", { transform: `translate(${x(row)} ${y(row)})`, class: `point ${row.block}` }, s("path", { d: shapes[row.block] }),
      s("title", {}, `${headName(row.block, row.layer, row.head)}: ${row.known?.role?.label}`),
      named.has(row) && s("text", { x: x(row) > width - 130 ? -10 : 10, y: 4, "text-anchor": x(row) > width - 130 ? "end" : "start" }, headName(row.block, row.layer, row.head))))),
  h("p", { class: "keys quiet" }, Object.entries(shapes).filter(([block]) => known.some((row) => row.block === block)).map(([block, d]) =>
    h("span", {}, s("svg", { viewBox: "-7 -7 14 14", width: 12, height: 12, class: `point ${block}`, "aria-hidden": "true" }, s("path", { d })), block))));
}

/**
 * Those whose names can be written without one over the other: of two that are close, the one without which more is lost.
 * @param {Row[]} rows
 * @param {(row: Row) => number} x
 * @param {(row: Row) => number} y
 */
function apart(rows, x, y) {
  /** @type {Set<Row>} */
  const kept = new Set();
  for (const row of rows.sort((a, b) => lost(b.known) - lost(a.known))) {
    if (![...kept].some((other) => Math.abs(y(row) - y(other)) < 14 && Math.abs(x(row) - x(other)) < 110)) kept.add(row);
  }
  return kept;
}

/** @param {Row[]} rows */
function csv(rows) {
  const lines = rows.map(({ block, layer, head, confidence, entropy, known }) => [block, layer, head, known?.role?.label ?? "", known?.role?.score ?? "",
    known?.ablation?.base ?? "", known?.ablation?.value ?? "", confidence ?? "", entropy ?? ""].join(","));
  return `block,layer,head,role,score,base,without,confidence,entropy\n${lines.join("\n")}\n`;
}
