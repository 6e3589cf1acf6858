/** One head as data that map, arcs, table and files all draw from. */
import { partLevels } from "lens/trace.js";

/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./trace.js").Attention} Attention */
/** @typedef {import("./heatmap.js").MapData} MapData */
/** @typedef {{q0: number, k0: number, rows: number, columns: number}} Part of a map: from these places on, so many cells */

const TOP = 5;
/** Tokens a side that are shown at once; of longer texts a part is, of `PART` a side. */
const WHOLE = 512;
const PART = 256;

/**
 * What of a map is shown, for where it is asked to begin.
 * @param {Attention} attention
 * @param {{q0: number, k0: number}} from
 * @returns {Part}
 */
export function partOf({ group: { q_len, k_len } }, { q0, k0 }) {
  const large = Math.max(q_len, k_len) > WHOLE;
  const [rows, columns] = [q_len, k_len].map((length) => (large ? Math.min(length, PART) : length));
  return { q0: Math.min(q0, q_len - rows), k0: Math.min(k0, k_len - columns), rows, columns };
}

/**
 * @param {Trace} trace
 * @param {Attention} attention its layer is loaded
 * @param {number} layer
 * @param {number} head
 * @param {string} scale
 * @param {Part} part
 * @returns {MapData}
 */
export function mapData(trace, attention, layer, head, scale, part) {
  const { group } = attention;
  return {
    name: `${group.block} attention, layer ${layer}, head ${head}`,
    rows: group.q_len,
    columns: group.k_len,
    part,
    value: (q, k) => attention.weight(layer, head, q, k),
    allowed: (q, k) => attention.allowed(q, k),
    hidden: (q) => attention.hidden(q),
    levels: attention.levels(layer, head, scale, part),
    read: trace.tokens(group.q),
    predicted: group.block === "encoder" && trace.header.sequences.target ? trace.tokens(group.q).map(() => null) : trace.predicted(group.q),
    keys: trace.tokens(group.k),
  };
}

/**
 * The same head, each weight times the size of what it moves; as it is where the trace does not know the sizes.
 * @param {MapData} data
 * @param {Attention} attention its layer and its sizes are loaded
 * @param {number} layer
 * @param {number} head
 * @param {string} scale
 * @returns {MapData}
 */
export function movedData(data, attention, layer, head, scale) {
  const moved = attention.moved(layer, head);
  if (!moved) return data;
  const { rows, columns, part } = data;
  return {
    ...data,
    name: `${data.name}, value-weighted`,
    moved: true,
    value: (q, k) => moved[q * columns + k],
    levels: partLevels(moved, "f32", scale, [rows, columns], part),
  };
}

/** The places along the rows and the columns of a part. @param {MapData} data @returns {[number[], number[]]} */
export function placesOf({ part: { q0, k0, rows, columns } }) {
  return [Array.from({ length: rows }, (_, i) => q0 + i), Array.from({ length: columns }, (_, i) => k0 + i)];
}

/** The strongest keys of a query. @param {MapData} data @param {number} q */
export function strongest(data, q) {
  return Array.from({ length: data.columns }, (_, k) => ({ k, value: data.value(q, k) }))
    .filter(({ k }) => data.allowed(q, k)).sort((a, b) => b.value - a.value).slice(0, TOP);
}

/* --- in which words the values of a map are told: as attention weights, or as shares of what is moved. */

/** @typedef {typeof WEIGHTS} Words */

const WEIGHTS = {
  value: "weight", column: "weight", reads: "reads", of: "of its attention on", most: "reads most", by: "is read most by",
  entropy: "entropy of the query", key: "the key receives", receives: "receives", from: "from", received: "received",
};
/** @type {Words} */
const SHARES = {
  value: "value-weighted share", column: "moved_share", reads: "takes from", of: "of what is moved to it, from", most: "takes most from", by: "gives most to",
  entropy: "entropy of its shares", key: "the key gives", receives: "gives", from: "to", received: "given",
};

/** @param {MapData} data @returns {Words} */
export function wordsOf({ moved }) {
  return moved ? SHARES : WEIGHTS;
}
