/** Weights as they are stored, and as levels of a colour scale. */

/** @typedef {import("./container.js").Stored} Stored */

/** Of each encoding: from what is stored to the weight. @type {Record<string, (stored: number) => number>} */
export const DECODE = {
  sqrt255: (stored) => (stored / 255) ** 2,
  u16: (stored) => stored / 65535,
  f32: (stored) => stored,
};

/**
 * The levels of a part of a map.
 * @param {Stored} stored
 * @param {string} encoding
 * @param {string} scale
 * @param {[number, number]} shape of the whole
 * @param {import("./view.js").Part} [part] without it all
 */
export function partLevels(stored, encoding, scale, [q_len, k_len], part) {
  if (!part || (part.rows === q_len && part.columns === k_len)) return levelsOf(stored, encoding, scale, q_len, k_len);
  const cut = stored.slice(0, part.rows * part.columns);
  for (let i = 0; i < part.rows; i++) {
    const at = (part.q0 + i) * k_len + part.k0;
    cut.set(stored.subarray(at, at + part.columns), i * part.columns);
  }
  return levelsOf(cut, encoding, scale, part.rows, part.columns);
}

/**
 * @param {Stored} stored
 * @param {string} encoding
 * @param {string} scale
 * @param {number} rows
 * @param {number} columns
 * @returns {Uint8Array} levels of a colour scale; not to be written to
 */
export function levelsOf(stored, encoding, scale, rows, columns) {
  if (scale === "sqrt" && stored instanceof Uint8Array) return stored;
  const decode = DECODE[encoding];
  const levels = new Uint8Array(rows * columns);
  for (let q = 0; q < rows; q++) {
    let most = 1;
    if (scale === "row") {
      most = 1e-9;
      for (let k = 0; k < columns; k++) most = Math.max(most, decode(stored[q * columns + k]));
    }
    for (let k = 0; k < columns; k++) {
      const at = q * columns + k;
      const share = decode(stored[at]) / most;
      levels[at] = Math.round(255 * (scale === "sqrt" ? Math.sqrt(share) : share));
    }
  }
  return levels;
}
