/** One head as data that map, arcs, table and files all draw from. */

import { whole } from "lens/text.js";

/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./trace.js").Attention} Attention */
/** @typedef {import("./heatmap.js").MapData} MapData */

const TOP = 5;

/**
 * @param {Trace} trace
 * @param {Attention} attention
 * @param {number} layer
 * @param {number} head
 * @param {string} scale
 * @returns {MapData}
 */
export function mapData(trace, attention, layer, head, scale) {
  const { group } = attention;
  return {
    name: `${group.block} attention, layer ${layer}, head ${head}`,
    rows: group.q_len,
    columns: group.k_len,
    value: (q, k) => attention.weight(layer, head, q, k),
    allowed: (q, k) => attention.allowed(q, k),
    levels: attention.levels(layer, head, scale),
    read: trace.tokens(group.q),
    said: group.block === "encoder" && trace.header.sequences.target ? trace.tokens(group.q).map(() => null) : trace.predicted(group.q),
    keys: trace.tokens(group.k),
  };
}

/** The weights as comma-separated values: a line for each pair that may be read. @param {MapData} data */
export function asCsv(data) {
  const quoted = (/** @type {string} */ text) => {
    const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text; // a spreadsheet would take it for a formula
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const lines = ["query,query_token,predicted_token,key,key_token,weight"];
  for (let q = 0; q < data.rows; q++) {
    for (let k = 0; k < data.columns; k++) {
      if (!data.allowed(q, k)) continue;
      lines.push([q, quoted(whole(data.read[q])), quoted(whole(data.said[q] ?? "")), k, quoted(whole(data.keys[k])), data.value(q, k).toFixed(6)].join(","));
    }
  }
  return `${lines.join("\n")}\n`;
}

/** The strongest keys of a query. @param {MapData} data @param {number} q */
export function strongest(data, q) {
  return Array.from({ length: data.columns }, (_, k) => ({ k, value: data.value(q, k) }))
    .filter(({ k }) => data.allowed(q, k)).sort((a, b) => b.value - a.value).slice(0, TOP);
}
