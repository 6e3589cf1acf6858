/** In which words the values of a map are told: as attention weights, or as shares of what is moved. */

/** @typedef {import("./heatmap.js").MapData} MapData */
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
