/** Saving what is shown: PNG and SVG of a map, any SVG, CSV. */

import { css } from "lens/colour.js";
import { s } from "lens/dom.js";
import { token } from "lens/text.js";
import { placesOf } from "lens/view.js";

/** @typedef {import("./heatmap.js").MapData} MapData */

/**
 * @param {string} name
 * @param {Blob} blob
 */
export function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** @param {string} name @param {string} text @param {string} kind */
export function saveText(name, text, kind) {
  save(name, new Blob([text], { type: kind }));
}

/**
 * A map as SVG that stands by itself, with labels and the marked cell.
 * @param {MapData} data
 * @param {{q: number | null, k: number | null}} at
 * @returns {SVGElement}
 */
export function mapSvg(data, at) {
  const { q0, k0, rows, columns } = data.part;
  const [queries, keys] = placesOf(data);
  const cell = Math.max(4, Math.min(24, Math.round(900 / Math.max(rows, columns))));
  const letters = (/** @type {(string | null)[]} */ texts) => Math.max(1, ...texts.map((each) => [...token(each ?? "")].length));
  const two = data.said.some((each) => each !== null);
  const left = 20 + letters(data.read) * 7.4 + (two ? 30 + letters(data.said) * 7.4 : 0);
  const top = 46 + letters(data.keys) * 5.4;
  const [width, height] = [left + columns * cell + letters(data.keys) * 5.4 + 10, top + rows * cell + 12];
  const ink = "#1b1d22";
  const cells = [];
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      const fill = data.allowed(q0 + i, k0 + j) ? (data.paint ?? css)(data.levels[i * columns + j]) : "url(#hatch)";
      cells.push(s("rect", { x: left + j * cell, y: top + i * cell, width: cell, height: cell, fill }));
    }
  }
  const words = [
    ...keys.map((k, j) => s("text", { transform: `translate(${left + (j + 0.6) * cell} ${top - 6}) rotate(-45)` }, token(data.keys[k]))),
    ...queries.map((q, i) => s("text", { x: left - 8, y: top + (i + 0.5) * cell + 4, "text-anchor": "end" },
      data.said[q] === null ? token(data.read[q]) : `${token(data.read[q])} → ${token(data.said[q] ?? "")}`)),
  ];
  const marked = at.q !== null && at.k !== null && queries.includes(at.q) && keys.includes(at.k)
    && s("rect", { x: left + (at.k - k0) * cell, y: top + (at.q - q0) * cell, width: cell, height: cell, fill: "none", stroke: "#c2410c", "stroke-width": 2.5, class: "marked" });
  return s("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` },
    s("defs", {}, s("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse" },
      s("rect", { width: 5, height: 5, fill: "#f1efea" }), s("path", { d: "M0 5L5 0", stroke: "#cbc7bd" }))),
    s("rect", { width, height, fill: "#ffffff" }),
    s("text", { x: 12, y: 20, "font-family": "system-ui, sans-serif", "font-size": 13, "font-weight": 600, fill: ink }, data.name),
    s("g", { stroke: "#ffffff", "stroke-width": cell > 8 ? 1 : 0 }, cells),
    s("g", { "font-family": "ui-monospace, monospace", "font-size": 12, fill: ink }, words), marked);
}

/** An SVG as the text of a file. @param {SVGElement} svg */
export function svgText(svg) {
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(svg)}\n`;
}

/**
 * An SVG as a picture of points, twice as large.
 * @param {SVGElement} svg
 * @returns {Promise<Blob>}
 */
export async function png(svg) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(svg))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = 2 * Number(svg.getAttribute("width"));
  canvas.height = 2 * Number(svg.getAttribute("height"));
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png"));
}
