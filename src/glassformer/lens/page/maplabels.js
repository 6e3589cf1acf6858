/** How the labels of a map stand: where there is no room for all of them, fewer; none lies over another. */

/**
 * @typedef {object} Widths of the longest labels, in pixels
 * @property {number} read beside the rows: what each of them reads
 * @property {number} said behind it: what each predicts; 0: nothing is
 * @property {number} keys above the columns
 */
/**
 * @typedef {object} Layout in pixels
 * @property {number} cell side of a cell
 * @property {boolean} labelled whether there is room for labels at all
 * @property {number} margin width left of the cells
 * @property {number} said of it, that of what is predicted; 0 where there is no room for that
 * @property {number} head height above the cells
 * @property {number} overhang width that labels above need beyond the last column
 * @property {number} turn how far those are turned, in radians against the clock
 */

const SMALLEST = 4;
const LARGEST = 44;
/** A line of text: no labels stand closer. */
const LINE = 10;
/** Cells from which on slanted labels are a line apart. */
const SLANTED = Math.ceil(LINE * Math.SQRT2);
const SLOPE = 0.72;

/**
 * Labels above are level where they fit, else slanted, else on end. Where the labels of the rows leave too little room
 * for cells that can have any, first what is predicted is left out, and then all labels, whose room the cells get.
 * @param {Widths} widths @param {number} rows @param {number} columns
 * @param {number} room width @param {number} tall height of the cells
 * @returns {Layout}
 */
export function layout(widths, rows, columns, room, tall) {
  const side = (/** @type {number} */ taken) => Math.max(SMALLEST, Math.min(LARGEST, Math.floor(Math.min((room - taken) / columns, tall / rows))));
  const slope = Math.ceil(widths.keys * SLOPE);
  for (const said of widths.said ? [widths.said, 0] : [0]) {
    const margin = widths.read + said + 14;
    const given = { labelled: true, margin, said };
    const [cell, slanted] = [side(margin), side(margin + slope)];
    if (cell < LINE) continue;
    if (widths.keys <= cell - 2) return { ...given, cell, head: 24, overhang: 0, turn: 0 };
    if (slanted >= SLANTED) return { ...given, cell: slanted, head: slope + 22, overhang: slope, turn: Math.PI / 4 };
    return { ...given, cell, head: widths.keys + 16, overhang: 0, turn: Math.PI / 2 };
  }
  return { labelled: false, cell: side(8), margin: 8, said: 0, head: 8, overhang: 0, turn: 0 };
}
