/** Maps as pictures for a file: one with its sums beside it, or several in a row. */
import { cellsOf, ofLevel, rgb } from "lens/colour.js";
import { s } from "lens/dom.js";
import { ASIDE, LONG, entropyOf, receivedBy } from "lens/inspector.js";
import { number, token } from "lens/text.js";
import { placesOf, wordsOf } from "lens/view.js";

/** @typedef {import("./heatmap.js").MapData} MapData */
/** @typedef {{q: number | null, k: number | null}} Place */
/** @typedef {{left: number, top: number, cell: number}} Frame where the cells of a picture begin, and their side */

const INK = "#1b1d22";
const QUIET = "#5d626c";
const HEADING = { "font-family": "system-ui, sans-serif", "font-size": 13, "font-weight": 600, fill: INK };
const NOTE = { "font-family": "system-ui, sans-serif", "font-size": 11, fill: QUIET };
/** Cells a side up to which each is a shape of its own; more are one picture, or a file takes long and is opened by few programs. */
const SHAPES = 64;
/** Of a letter of a heading, in pixels. */
const LETTER = 7.2;

/**
 * A map as SVG that stands by itself, with labels, the marked cell, and its sums.
 * @param {MapData} data
 * @param {Place} at
 * @param {{title?: string, sums?: boolean}} [more] sums: the entropy of each query, and what each key receives
 * @returns {SVGElement}
 */
export function mapSvg(data, at, { title = data.name, sums = true } = {}) {
  const { rows, columns } = data.part;
  const cell = Math.max(4, Math.min(24, Math.round(900 / Math.max(rows, columns))));
  const letters = (/** @type {(string | null)[]} */ texts) => Math.max(1, ...texts.map((each) => [...token(each ?? "")].length));
  const two = data.predicted.some((each) => each !== null);
  const size = Math.min(12, cell); // no label is taller than its row
  const em = size / 12;
  const left = 20 + letters(data.read) * 7.4 * em + (two ? 30 + letters(data.predicted) * 7.4 * em : 0);
  const top = 46 + letters(data.keys) * 5.4 * em;
  const aside = sums ? ASIDE + 10 : 0;
  const width = left + columns * cell + Math.max(aside, letters(data.keys) * 5.4 * em + 10);
  const height = top + rows * cell + Math.max(aside, 12);
  const frame = { left, top, cell };
  const room = Math.floor((width - 16) / LETTER);
  return s("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` },
    s("defs", {}, s("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse" },
      s("rect", { width: 5, height: 5, fill: "#f1efea" }), s("path", { d: "M0 5L5 0", stroke: "#cbc7bd" }))),
    s("rect", { width, height, fill: "#ffffff" }),
    s("text", { x: 12, y: 20, ...HEADING }, s("title", {}, title), title.length > room ? `${title.slice(0, room - 1)}…` : title),
    s("g", { stroke: "#ffffff", "stroke-width": cell > 8 ? 1 : 0 }, (Math.max(rows, columns) > SHAPES ? image : cells)(data, frame)),
    s("g", { "font-family": "ui-monospace, monospace", "font-size": size, fill: INK }, words(data, frame)),
    sums && beside(data, frame), marked(data, at, frame));
}

/** @param {MapData} data @param {Frame} frame */
function cells(data, { left, top, cell }) {
  const { q0, k0, rows, columns } = data.part;
  const found = [];
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      const fill = data.allowed(q0 + i, k0 + j) ? rgb((data.paint ?? ofLevel)(data.levels[i * columns + j], "light")) : "url(#hatch)";
      found.push(s("rect", { x: left + j * cell, y: top + i * cell, width: cell, height: cell, fill }));
    }
  }
  return found;
}

/** The same cells as one picture, the masked and the gaps between them as shapes. @param {MapData} data @param {Frame} frame */
function image(data, { left, top, cell }) {
  const { q0, k0, rows, columns } = data.part;
  const [width, height] = [columns * cell, rows * cell];
  const hidden = Array.from({ length: rows }, (_, i) => data.hidden(q0 + i).map((run) => {
    const [begin, end] = run.map((k) => Math.min(columns, Math.max(0, k - k0)));
    return `M${left + begin * cell} ${top + i * cell}h${(end - begin) * cell}v${cell}H${left + begin * cell}z`;
  }).join("")).join("");
  const gaps = Array.from({ length: rows }, (_, i) => `M${left} ${top + i * cell}h${width}`).join("") + Array.from({ length: columns }, (_, j) => `M${left + j * cell} ${top}v${height}`).join("");
  return [s("image", { href: cellsOf(data, "light").toDataURL(), x: left, y: top, width, height, preserveAspectRatio: "none", "image-rendering": "pixelated" }),
    hidden && s("path", { d: hidden, fill: "url(#hatch)", stroke: "none" }), s("path", { d: gaps, fill: "none" })];
}

/** @param {MapData} data @param {Frame} frame */
function words(data, { left, top, cell }) {
  const [queries, keys] = placesOf(data);
  return [
    ...keys.map((k, j) => s("text", { transform: `translate(${left + (j + 0.6) * cell} ${top - 6}) rotate(-45)` }, token(data.keys[k]))),
    ...queries.map((q, i) => s("text", { x: left - 8, y: top + (i + 0.5) * cell + Math.min(12, cell) / 3, "text-anchor": "end" },
      data.predicted[q] === null ? token(data.read[q]) : `${token(data.read[q])} → ${token(data.predicted[q] ?? "")}`)),
  ];
}

/** Bars at the right and below, each as long as its figure, which its title tells. @param {MapData} data @param {Frame} frame */
function beside(data, { left, top, cell }) {
  const [queries, keys] = placesOf(data);
  const [right, below] = [left + keys.length * cell + 6, top + queries.length * cell + 6];
  const gap = cell >= 8 ? 1 : 0;
  const most = Math.log(Math.max(2, data.columns));
  const sums = keys.map((k) => receivedBy(data, k).sum);
  const largest = Math.max(1e-9, ...sums);
  const bar = (/** @type {string} */ kind, /** @type {Record<string, number>} */ place, /** @type {string} */ text) =>
    s("rect", { class: kind, fill: QUIET, ...place }, s("title", {}, text));
  const thick = cell - 2 * gap;
  return s("g", {},
    queries.map((q, i) => {
      const { entropy } = entropyOf(data, q);
      return bar("entropy", { x: right, y: top + i * cell + gap, width: Math.max(1, (LONG * entropy) / most), height: thick }, `${number(entropy)} nats`);
    }),
    sums.map((sum, j) => bar("received", { x: left + j * cell + gap, y: below, width: thick, height: Math.max(1, (LONG * sum) / largest) }, number(sum))),
    s("text", { x: right, y: below + 10, ...NOTE }, "entropy"), s("text", { x: left - 8, y: below + 10, "text-anchor": "end", ...NOTE }, wordsOf(data).received));
}

/** @param {MapData} data @param {Place} at @param {Frame} frame */
function marked(data, { q, k }, { left, top, cell }) {
  const { q0, k0 } = data.part;
  const [queries, keys] = placesOf(data);
  return q !== null && k !== null && queries.includes(q) && keys.includes(k)
    && s("rect", { x: left + (k - k0) * cell, y: top + (q - q0) * cell, width: cell, height: cell, fill: "none", stroke: "#c2410c", "stroke-width": 2.5, class: "marked" });
}

/**
 * Pictures beside each other under one heading, with a note below.
 * @param {string} heading
 * @param {SVGElement[]} pictures of `mapSvg`
 * @param {string} note
 * @returns {SVGElement}
 */
export function inRow(heading, pictures, note) {
  const size = (/** @type {SVGElement} */ each, /** @type {string} */ side) => Number(each.getAttribute(side));
  let width = 0;
  for (const each of pictures) {
    each.setAttribute("x", String(width));
    each.setAttribute("y", "30");
    width += size(each, "width") + 12;
  }
  for (const each of pictures.slice(1)) each.querySelector("defs")?.remove(); // one hatching serves all
  const height = 30 + Math.max(...pictures.map((each) => size(each, "height"))) + 24;
  return s("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` },
    s("rect", { width, height, fill: "#ffffff" }), s("text", { x: 12, y: 22, ...HEADING, "font-size": 15 }, heading),
    pictures, s("text", { x: 12, y: height - 10, ...NOTE }, note));
}
