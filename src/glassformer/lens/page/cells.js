/** The cells of a map as a picture of one point each, which whoever shows it makes as large as it is to be. */

import { table, theme } from "lens/colour.js";

/** @param {import("./heatmap.js").MapData} data @param {string} [name] of the theme; without it the page's */
export function cellsOf({ part: { rows, columns }, levels, paint }, name = theme()) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const picture = pen.createImageData(columns, rows);
  const colours = table(name, paint);
  new Uint32Array(picture.data.buffer).set(Uint32Array.from(levels, (level) => colours[level]));
  pen.putImageData(picture, 0, 0);
  return canvas;
}
