/** Figures as comma-separated values, which spreadsheets read. */

import { entropyOf, receivedBy } from "lens/marginals.js";
import { whole } from "lens/text.js";
import { placesOf } from "lens/view.js";
import { wordsOf } from "lens/words.js";

/** @typedef {import("./heatmap.js").MapData} MapData */
/** @typedef {string | number | boolean | null | undefined} Field */

/** What stands in each line of a map. @param {MapData} data */
const columns = (data) => ["query", "query_token", "predicted_token", "key", "key_token", wordsOf(data).column, "query_entropy", "key_received"];

/** A line for each row, below one of names. @param {string[]} names @param {Field[][]} rows */
export function csv(names, rows) {
  return `${[names, ...rows].map((row) => row.map(field).join(",")).join("\n")}\n`;
}

/** @param {Field} value */
function field(value) {
  if (typeof value !== "string") return value ?? "";
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value; // a spreadsheet would take it for a formula
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** The weights of a map, a line for each pair that may be read, with the sums that stand beside the map. @param {MapData} data */
export function mapCsv(data) {
  return csv(columns(data), pairs(data));
}

/** The same of several maps, told apart by their names in a first column. @param {[string, MapData][]} maps */
export function mapsCsv(maps) {
  return csv(["input", ...columns(maps[0][1])], maps.flatMap(([name, data]) => pairs(data).map((row) => [name, ...row])));
}

/** @param {MapData} data @returns {Field[][]} */
function pairs(data) {
  const [queries, keys] = placesOf(data);
  const figure = (/** @type {number} */ value) => Number(value.toFixed(6));
  const received = keys.map((k) => (data.paint ? null : figure(receivedBy(data, k).sum))); // of differences there are no sums
  return queries.flatMap((q) => {
    const entropy = data.paint ? null : figure(entropyOf(data, q).entropy);
    return keys.flatMap((k, j) => (data.allowed(q, k)
      ? [[q, whole(data.read[q]), whole(data.said[q] ?? ""), k, whole(data.keys[k]), figure(data.value(q, k)), entropy, received[j]]] : []));
  });
}
