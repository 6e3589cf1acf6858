/** Each head as a point: how sure its role is, and what is lost without it. */

import { h, s, scroller } from "lens/dom.js";
import { lost } from "lens/role.js";
import { headName, percent } from "lens/text.js";

/** @typedef {import("./heads.js").Row} Row */

/** @param {Row[]} rows those without a role have no point */
export function scatter(rows) {
  const [width, height, pad] = [640, 260, 40];
  const known = rows.filter((row) => row.known?.role);
  const most = Math.max(0.05, ...known.map((row) => lost(row.known)));
  const x = (/** @type {Row} */ row) => pad + Math.max(0, row.known?.role?.score ?? 0) * (width - pad - 20);
  const y = (/** @type {Row} */ row) => height - pad - (Math.max(0, lost(row.known)) / most) * (height - pad - 44);
  const named = namable(known.filter((row) => lost(row.known) > most / 4), x, y);
  const shapes = /** @type {Record<string, string>} */ ({ encoder: "M-5-5H5V5H-5Z", decoder: "M0-6L6 5H-6Z", cross: "M0-6L6 0L0 6L-6 0Z" });
  return scroller("Role and effect", s("svg", { viewBox: `0 0 ${width} ${height}`, class: "scatter", role: "img", "aria-label": "Role score and effect of each head" },
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
function namable(rows, x, y) {
  /** @type {Set<Row>} */
  const kept = new Set();
  for (const row of rows.sort((a, b) => lost(b.known) - lost(a.known))) {
    if (![...kept].some((other) => Math.abs(y(row) - y(other)) < 14 && Math.abs(x(row) - x(other)) < 110)) kept.add(row);
  }
  return kept;
}
