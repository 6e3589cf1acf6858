/** One head as a map: a row for each query, a column for each key; labels stay in sight as it is moved. */
import { cellsOf, hatching, inkFor, ofLevel, shaded, themed } from "lens/colour.js";
import { announce, h, sized } from "lens/dom.js";
import { token, weight, whole } from "lens/text.js";
import { wordsOf } from "lens/view.js";

/* --- how the labels of a map stand: where there is no room for all of them, fewer; none lies over another. */

/**
 * @typedef {object} Widths of the longest labels, in pixels
 * @property {number} read beside the rows: what each of them reads
 * @property {number} predicted behind it: what each predicts; 0: nothing is
 * @property {number} keys above the columns
 */
/**
 * @typedef {object} Layout in pixels
 * @property {number} cell side of a cell
 * @property {boolean} labelled whether there is room for labels at all
 * @property {number} margin width left of the cells
 * @property {number} predicted of it, that of what is predicted; 0 where there is no room for that
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
  for (const predicted of widths.predicted ? [widths.predicted, 0] : [0]) {
    const margin = widths.read + predicted + 14;
    const given = { labelled: true, margin, predicted };
    const [cell, slanted] = [side(margin), side(margin + slope)];
    if (cell < LINE) continue;
    if (widths.keys <= cell - 2) return { ...given, cell, head: 24, overhang: 0, turn: 0 };
    if (slanted >= SLANTED) return { ...given, cell: slanted, head: slope + 22, overhang: slope, turn: Math.PI / 4 };
    return { ...given, cell, head: widths.keys + 16, overhang: 0, turn: Math.PI / 2 };
  }
  return { labelled: false, cell: side(8), margin: 8, predicted: 0, head: 8, overhang: 0, turn: 0 };
}

/* --- one head as a map: a row for each query, a column for each key; labels stay in sight as it is moved. */

/**
 * @typedef {object} MapData
 * @property {string} name for a screen reader
 * @property {number} rows all queries
 * @property {number} columns all keys
 * @property {import("./view.js").Part} part what is shown of them
 * @property {(row: number, column: number) => number} value
 * @property {(row: number, column: number) => boolean} allowed
 * @property {(row: number) => [number, number][]} hidden the columns that a row may not read, in runs
 * @property {Uint8Array} levels colour of each cell that is shown
 * @property {string[]} read the token that each row reads
 * @property {(string | null)[]} predicted the token that each row predicts
 * @property {string[]} keys
 * @property {boolean} [moved] whether values are shares of what is moved, not weights
 * @property {(level: number, theme?: string) => import("./colour.js").Rgb} [paint] other colours than the scale's
 */

/**
 * @typedef {object} Callbacks
 * @property {(row: number | null, column: number | null) => void} hover
 * @property {(row: number, column: number) => void} choose
 */

/** Labels that are drawn anew as the pointer moves. */
const MOST_LABELS = 120;
const FONT = '12px "DejaVu Sans Mono", "SF Mono", Menlo, "Cascadia Mono", monospace';

/**
 * A map on canvases: the cells, and the labels at the left and above. The cross over the cell that is pointed at is
 * three frames that are moved, so that nothing is drawn anew. Places are those of the whole texts.
 */
export class HeatMap {
  /** @param {Callbacks} callbacks */
  constructor(callbacks) {
    this.callbacks = callbacks;
    const canvas = (/** @type {string} */ name) => /** @type {HTMLCanvasElement} */ (h("canvas", { class: name, "aria-hidden": "true" }));
    this.top = canvas("map-top");
    this.left = canvas("map-left");
    this.cells = canvas("map-cells");
    this.cross = { row: h("i", { class: "map-cross" }), column: h("i", { class: "map-cross" }), cell: h("i", { class: "map-cross at" }) };
    this.corner = h("div", { class: "map-corner" });
    this.body = h("div", { class: "map-body", tabindex: "0", role: "application", "aria-roledescription": "attention map" }, this.cells, Object.values(this.cross));
    this.element = h("div", { class: "map" }, this.corner, this.top, this.left, this.body);
    /** @type {{q: number | null, k: number | null}} */
    this.at = { q: null, k: null };
    /** Where the keyboard is: ahead of what is drawn, where keys come faster than frames. @type {{q: number | null, k: number | null}} */
    this.keyed = { q: null, k: null };
    this.cell = 0;
    this.listen();
  }

  /** @param {MapData} data @param {number} room width in CSS pixels @param {number} [tall] height */
  draw(data, room, tall = 560) {
    this.data = data;
    const pen = sized(this.left, 1, 1);
    pen.font = FONT;
    const { q0, k0, rows, columns } = data.part;
    const wide = (/** @type {string[]} */ texts) => Math.ceil(Math.max(0, ...[...new Set(texts)].map((each) => pen.measureText(token(each)).width)));
    const predicted = data.predicted.slice(q0, q0 + rows);
    this.frame = layout({
      read: wide(data.read.slice(q0, q0 + rows)),
      predicted: predicted.some((each) => each !== null) ? wide(predicted.map((each) => each ?? "")) + 24 : 0,
      keys: wide(data.keys.slice(k0, k0 + columns)),
    }, rows, columns, room, tall);
    this.cell = this.frame.cell;
    this.body.setAttribute("aria-label", `${data.name}: ${data.rows} queries by ${data.columns} keys. Arrow keys move, Enter locks, Escape unlocks.`);
    this.drawCells();
    this.drawLabels();
    const box = (/** @type {HTMLElement} */ frame, /** @type {number} */ w, /** @type {number} */ t) => Object.assign(frame.style, { width: `${w}px`, height: `${t}px` });
    box(this.cross.row, columns * this.cell, this.cell);
    box(this.cross.column, this.cell, rows * this.cell);
    box(this.cross.cell, this.cell, this.cell);
    this.mark(this.at.q, this.at.k);
  }

  drawCells() {
    const { data, cell } = /** @type {{data: MapData, cell: number}} */ (this);
    const { rows, columns } = data.part;
    const pen = sized(this.cells, columns * cell, rows * cell);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(cellsOf(data), 0, 0, columns * cell, rows * cell);
    this.drawMasked(pen);
    if (cell >= 8) this.drawGaps(pen);
    if (cell >= 28) this.drawNumbers(pen);
  }

  /** @param {CanvasRenderingContext2D} pen */
  drawMasked(pen) {
    const { data, cell } = /** @type {{data: MapData, cell: number}} */ (this);
    const { q0, k0, rows, columns } = data.part;
    pen.fillStyle = hatching(pen);
    for (let i = 0; i < rows; i++) {
      for (const run of data.hidden(q0 + i)) {
        const [begin, end] = run.map((k) => Math.min(columns, Math.max(0, k - k0)));
        pen.fillRect(begin * cell, i * cell, (end - begin) * cell, cell);
      }
    }
  }

  /** @param {CanvasRenderingContext2D} pen */
  drawGaps(pen) {
    const { data: { part: { rows, columns } }, cell } = /** @type {{data: MapData, cell: number}} */ (this);
    pen.fillStyle = themed("gap");
    for (let i = 0; i <= rows; i++) pen.fillRect(0, i * cell - 0.5, columns * cell, 1);
    for (let j = 0; j <= columns; j++) pen.fillRect(j * cell - 0.5, 0, 1, rows * cell);
  }

  /** @param {CanvasRenderingContext2D} pen */
  drawNumbers(pen) {
    const { data, cell } = /** @type {{data: MapData, cell: number}} */ (this);
    const { q0, k0, rows, columns } = data.part;
    pen.font = `${cell >= 40 ? 11 : 10}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let i = 0; i < rows; i++) {
      for (let j = 0; j < columns; j++) {
        const value = data.value(q0 + i, k0 + j);
        if (!data.allowed(q0 + i, k0 + j) || Math.abs(value) < 0.005) continue;
        pen.fillStyle = inkFor((data.paint ?? ofLevel)(data.levels[i * columns + j]));
        pen.fillText(value.toFixed(2).replace("0.", "."), (j + 0.5) * cell, (i + 0.5) * cell + 0.5);
      }
    }
  }

  drawLabels() {
    const { data, frame } = /** @type {{data: MapData, frame: import("./heatmap.js").Layout}} */ (this);
    const { q0, k0, rows, columns } = data.part;
    const { cell, margin, head } = frame;
    const top = sized(this.top, columns * cell + frame.overhang, head);
    const left = sized(this.left, margin, rows * cell);
    this.corner.style.width = `${margin}px`;
    this.corner.style.height = `${head}px`;
    if (!frame.labelled) return;
    for (const pen of [top, left]) {
      pen.font = FONT;
      pen.textBaseline = "middle";
    }
    const [mark, quiet, ink] = ["mark", "quiet", "ink"].map(themed);
    for (let j = 0; j < columns; j++) {
      top.fillStyle = k0 + j === this.at.k ? mark : quiet;
      top.save();
      top.translate((j + 0.5) * cell, head - 8);
      top.rotate(-frame.turn);
      top.textAlign = frame.turn ? "left" : "center";
      top.fillText(token(data.keys[k0 + j]), 0, frame.turn ? 0 : -4);
      top.restore();
    }
    left.textAlign = "right";
    for (let i = 0; i < rows; i++) {
      const [q, y] = [q0 + i, (i + 0.5) * cell];
      const predicted = data.predicted[q];
      left.fillStyle = q === this.at.q ? mark : quiet;
      left.fillText(token(data.read[q]), margin - 8 - frame.predicted, y);
      if (predicted === null || !frame.predicted) continue;
      left.fillText("→", margin - 8 - frame.predicted + 19, y);
      left.fillStyle = q === this.at.q ? mark : ink;
      left.fillText(token(predicted), margin - 8, y);
    }
  }

  /** Put the cross over a cell; null: none. @param {number | null} q @param {number | null} k @param {boolean} [fixed] */
  mark(q, k, fixed = false) {
    const { data, cell } = this;
    if (!data || !cell) return;
    const { q0, k0, rows, columns } = data.part;
    const moved = this.at.q !== q || this.at.k !== k;
    this.at = { q, k };
    this.keyed = { q, k };
    if (moved && this.frame?.labelled && rows + columns < MOST_LABELS) this.drawLabels();
    const [i, j] = [q === null ? -1 : q - q0, k === null ? -1 : k - k0];
    const [row, column] = [i >= 0 && i < rows, j >= 0 && j < columns];
    /** @param {HTMLElement} frame @param {boolean} shown @param {number} x @param {number} y */
    const place = (frame, shown, x, y) => {
      frame.style.visibility = shown ? "visible" : "hidden";
      if (shown) frame.style.transform = `translate(${x}px, ${y}px)`;
      frame.classList.toggle("fixed", fixed);
    };
    place(this.cross.row, row, 0, i * cell);
    place(this.cross.column, column, j * cell, 0);
    place(this.cross.cell, row && column, j * cell, i * cell);
  }

  /** What a cell is, in words. @param {number} q @param {number} k */
  words(q, k) {
    const data = /** @type {MapData} */ (this.data);
    const predicted = data.predicted[q] === null ? "" : `, which predicts ${whole(data.predicted[q] ?? "")},`;
    const what = data.allowed(q, k) ? weight(data.value(q, k)) : "masked: may not be read";
    return `${whole(data.read[q])} at ${q}${predicted} ${wordsOf(data).reads} ${whole(data.keys[k])} at ${k}${data.paint ? ", A − B" : ""}: ${what}`;
  }

  /** The cell under an event. @param {PointerEvent | MouseEvent} event */
  under(event) {
    const box = this.cells.getBoundingClientRect();
    const { data, cell } = /** @type {{data: MapData, cell: number}} */ (this);
    const { q0, k0, rows, columns } = data.part;
    const j = Math.floor((event.clientX - box.left) / cell);
    const i = Math.floor((event.clientY - box.top) / cell);
    return i >= 0 && j >= 0 && i < rows && j < columns ? { q: q0 + i, k: k0 + j } : null;
  }

  listen() {
    this.body.addEventListener("pointermove", (event) => {
      const found = this.data ? this.under(event) : null;
      this.body.dataset.tip = found ? this.words(found.q, found.k) : "";
      this.callbacks.hover(found ? found.q : null, found ? found.k : null);
    });
    this.body.addEventListener("pointerleave", () => this.callbacks.hover(null, null));
    this.body.addEventListener("click", (event) => {
      const found = this.data ? this.under(event) : null;
      if (found) this.callbacks.choose(found.q, found.k);
    });
    this.body.addEventListener("keydown", (event) => this.key(event));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (!this.data) return;
    const { q0, k0, rows, columns } = this.data.part;
    let q = this.keyed.q ?? q0;
    let k = this.keyed.k ?? k0;
    const first = this.keyed.q === null;
    const steps = /** @type {Record<string, [number, number]>} */ ({
      ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-8, 0], PageDown: [8, 0],
      Home: [0, -columns], End: [0, columns],
    });
    if (event.key === "Enter" || event.key === " ") this.callbacks.choose(q, k);
    else if (steps[event.key]) {
      if (!first) [q, k] = [q + steps[event.key][0], k + steps[event.key][1]];
      [q, k] = [Math.max(q0, Math.min(q0 + rows - 1, q)), Math.max(k0, Math.min(k0 + columns - 1, k))];
      this.keyed = { q, k };
      this.callbacks.hover(q, k);
      announce(this.words(q, k));
    } else return;
    event.preventDefault();
  }
}

/** A legend of the scale. @param {string} scale @param {{moved?: boolean, masked: boolean}} has weights times what they move; cells that may not be read */
export function legend(scale, { moved = false, masked }) {
  const steps = Array.from({ length: 24 }, (_, i) => h("i", { style: shaded((i / 23) * 255) }));
  const names = /** @type {Record<string, string>} */ ({ sqrt: "square root of the weight", linear: "weight", row: "weight; each row's largest is darkest" });
  return h("div", { class: "legend" }, h("span", {}, "0"), h("span", { class: "ramp", "aria-hidden": "true" }, steps),
    h("span", {}, scale === "row" ? "row's largest" : "1"), h("span", { class: "quiet" }, moved ? `${names[scale].replace("weight", "value-weighted share")} (Kobayashi et al. 2020)` : names[scale]),
    masked && h("span", { class: "masked" }, h("span", { class: "hatched", "aria-hidden": "true" }), h("span", { class: "quiet" }, "may not be read")));
}
