/** One head as a map: a row for each query, a column for each key; labels stay in sight as it is moved. */

import { css, hatching, inkOn, table, themed } from "lens/colour.js";
import { announce, h, sized } from "lens/dom.js";
import { token, weight, whole } from "lens/text.js";

/**
 * @typedef {object} MapData
 * @property {string} name for a screen reader
 * @property {number} rows
 * @property {number} columns
 * @property {(row: number, column: number) => number} value
 * @property {(row: number, column: number) => boolean} allowed
 * @property {Uint8Array} levels colour of each cell
 * @property {string[]} read the token that each row reads
 * @property {(string | null)[]} said the token that each row predicts
 * @property {string[]} keys
 * @property {(level: number) => string} [paint] other colours than the scale's
 */

/**
 * @typedef {object} Callbacks
 * @property {(row: number | null, column: number | null) => void} hover
 * @property {(row: number, column: number) => void} choose
 */

/** Labels that are drawn anew as the pointer moves. */
const MOST_LABELS = 120;
const FONT = '12px ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", Menlo, monospace';

/** A map on canvases: the cells, the labels at the left and above, and the cross over the cell that is pointed at. */
export class HeatMap {
  /** @param {Callbacks} callbacks */
  constructor(callbacks) {
    this.callbacks = callbacks;
    const canvas = (/** @type {string} */ name) => /** @type {HTMLCanvasElement} */ (h("canvas", { class: name, "aria-hidden": "true" }));
    this.top = canvas("map-top");
    this.left = canvas("map-left");
    this.cells = canvas("map-cells");
    this.cross = canvas("map-cross");
    this.corner = h("div", { class: "map-corner" });
    this.body = h("div", { class: "map-body", tabindex: "0", role: "application", "aria-roledescription": "attention map" }, this.cells, this.cross);
    this.element = h("div", { class: "map" }, this.corner, this.top, this.left, this.body);
    /** @type {{q: number | null, k: number | null}} */
    this.at = { q: null, k: null };
    /** Where the keyboard is: ahead of what is drawn, where keys come faster than frames. @type {{q: number | null, k: number | null}} */
    this.keyed = { q: null, k: null };
    this.saidWidth = 0;
    this.overhang = 0;
    this.listen();
  }

  /** @param {MapData} data @param {number} room width in CSS pixels @param {number} [tall] height */
  draw(data, room, tall = 560) {
    this.data = data;
    const pen = sized(this.left, 1, 1);
    pen.font = FONT;
    const wide = (/** @type {string[]} */ texts) => Math.ceil(Math.max(0, ...texts.map((each) => pen.measureText(token(each)).width)));
    this.saidWidth = data.said.some((each) => each !== null) ? wide(data.said.map((each) => each ?? "")) + 24 : 0;
    const margin = wide(data.read) + this.saidWidth + 14;
    const longest = wide(data.keys);
    const fit = (/** @type {number} */ beyond) => Math.max(4, Math.min(44, Math.floor(Math.min((room - margin - beyond) / data.columns, tall / data.rows))));
    this.cell = longest <= fit(0) - 2 ? fit(0) : fit(Math.ceil(longest * 0.72));
    this.upright = longest <= this.cell - 2;
    this.head = this.cell < 10 ? 8 : this.upright ? 24 : Math.ceil(longest * 0.72) + 22;
    this.overhang = this.upright || this.cell < 10 ? 0 : Math.ceil(longest * 0.72);
    this.margin = this.cell < 10 ? 8 : margin;
    this.body.setAttribute("aria-label", `${data.name}: ${data.rows} queries by ${data.columns} keys. Arrow keys move, Enter locks, Escape frees.`);
    this.drawCells();
    this.drawLabels();
    sized(this.cross, data.columns * this.cell, data.rows * this.cell);
    this.mark(this.at.q, this.at.k);
  }

  drawCells() {
    const { data, cell } = /** @type {{data: MapData, cell: number}} */ (this);
    const pen = sized(this.cells, data.columns * cell, data.rows * cell);
    const small = document.createElement("canvas");
    small.width = data.columns;
    small.height = data.rows;
    const ink = /** @type {CanvasRenderingContext2D} */ (small.getContext("2d"));
    if (data.paint) {
      data.levels.forEach((level, i) => {
        ink.fillStyle = /** @type {(level: number) => string} */ (data.paint)(level);
        ink.fillRect(i % data.columns, Math.floor(i / data.columns), 1, 1);
      });
    } else {
      const picture = ink.createImageData(data.columns, data.rows);
      const pixels = new Uint32Array(picture.data.buffer);
      const colours = table();
      for (let i = 0; i < pixels.length; i++) pixels[i] = colours[data.levels[i]];
      ink.putImageData(picture, 0, 0);
    }
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, 0, 0, data.columns * cell, data.rows * cell);
    this.drawMasked(pen);
    if (cell >= 8) this.drawGaps(pen);
    if (cell >= 28) this.drawNumbers(pen);
  }

  /** @param {CanvasRenderingContext2D} pen */
  drawMasked(pen) {
    const { data, cell } = /** @type {{data: MapData, cell: number}} */ (this);
    pen.fillStyle = hatching(pen);
    for (let q = 0; q < data.rows; q++) {
      let begin = -1;
      for (let k = 0; k <= data.columns; k++) {
        const hidden = k < data.columns && !data.allowed(q, k);
        if (hidden && begin < 0) begin = k;
        if (!hidden && begin >= 0) {
          pen.fillRect(begin * cell, q * cell, (k - begin) * cell, cell);
          begin = -1;
        }
      }
    }
  }

  /** @param {CanvasRenderingContext2D} pen */
  drawGaps(pen) {
    const { data, cell } = /** @type {{data: MapData, cell: number}} */ (this);
    pen.fillStyle = themed("gap");
    for (let q = 0; q <= data.rows; q++) pen.fillRect(0, q * cell - 0.5, data.columns * cell, 1);
    for (let k = 0; k <= data.columns; k++) pen.fillRect(k * cell - 0.5, 0, 1, data.rows * cell);
  }

  /** @param {CanvasRenderingContext2D} pen */
  drawNumbers(pen) {
    const { data, cell } = /** @type {{data: MapData, cell: number}} */ (this);
    pen.font = `${cell >= 40 ? 11 : 10}px ui-sans-serif, system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let q = 0; q < data.rows; q++) {
      for (let k = 0; k < data.columns; k++) {
        const value = data.value(q, k);
        if (!data.allowed(q, k) || Math.abs(value) < 0.005) continue;
        pen.fillStyle = data.paint ? themed("ink") : inkOn(data.levels[q * data.columns + k]);
        pen.fillText(value.toFixed(2).replace("0.", "."), (k + 0.5) * cell, (q + 0.5) * cell + 0.5);
      }
    }
  }

  drawLabels() {
    const { data, cell, margin, head } = /** @type {{data: MapData, cell: number, margin: number, head: number}} */ (this);
    const width = data.columns * cell;
    const top = sized(this.top, width + this.overhang, head);
    const left = sized(this.left, margin, data.rows * cell);
    this.corner.style.width = `${margin}px`;
    this.corner.style.height = `${head}px`;
    if (cell < 10) return;
    for (const pen of [top, left]) {
      pen.font = FONT;
      pen.textBaseline = "middle";
    }
    for (let k = 0; k < data.columns; k++) {
      top.fillStyle = themed(k === this.at.k ? "mark" : "quiet");
      top.save();
      top.translate((k + 0.5) * cell, head - 8);
      if (!this.upright) top.rotate(-Math.PI / 4);
      top.textAlign = this.upright ? "center" : "left";
      top.fillText(token(data.keys[k]), 0, this.upright ? -4 : 0);
      top.restore();
    }
    left.textAlign = "right";
    for (let q = 0; q < data.rows; q++) {
      const y = (q + 0.5) * cell;
      const said = data.said[q];
      left.fillStyle = themed(q === this.at.q ? "mark" : "quiet");
      left.fillText(token(data.read[q]), margin - 8 - this.saidWidth, y);
      if (said === null || !this.saidWidth) continue;
      left.fillText("→", margin - 8 - this.saidWidth + 19, y);
      left.fillStyle = themed(q === this.at.q ? "mark" : "ink");
      left.fillText(token(said), margin - 8, y);
    }
  }

  /** Draw the cross over a cell; null: none. @param {number | null} q @param {number | null} k @param {boolean} [fixed] */
  mark(q, k, fixed = false) {
    const { data, cell } = this;
    if (!data || !cell) return;
    const moved = this.at.q !== q || this.at.k !== k;
    this.at = { q, k };
    this.keyed = { q, k };
    const pen = /** @type {CanvasRenderingContext2D} */ (this.cross.getContext("2d"));
    pen.clearRect(0, 0, data.columns * cell, data.rows * cell);
    if (moved && data.rows + data.columns < MOST_LABELS) this.drawLabels();
    pen.strokeStyle = themed("mark");
    pen.lineWidth = fixed ? 2 : 1.25;
    if (q !== null && q < data.rows) pen.strokeRect(0.5, q * cell + 0.5, data.columns * cell - 1, cell - 1);
    if (k !== null && k < data.columns) pen.strokeRect(k * cell + 0.5, 0.5, cell - 1, data.rows * cell - 1);
    if (q === null || k === null) return;
    pen.lineWidth = fixed ? 3.5 : 2.5;
    pen.strokeRect(k * cell + 0.5, q * cell + 0.5, cell - 1, cell - 1);
  }

  /** What a cell is, in words. @param {number} q @param {number} k */
  words(q, k) {
    const data = /** @type {MapData} */ (this.data);
    const said = data.said[q] === null ? "" : `, which predicts ${whole(data.said[q] ?? "")},`;
    const what = data.allowed(q, k) ? weight(data.value(q, k)) : "masked: may not be read";
    return `${whole(data.read[q])} at ${q}${said} reads ${whole(data.keys[k])} at ${k}: ${what}`;
  }

  /** The cell under an event. @param {PointerEvent | MouseEvent} event */
  under(event) {
    const box = this.cells.getBoundingClientRect();
    const { data, cell } = /** @type {{data: MapData, cell: number}} */ (this);
    const k = Math.floor((event.clientX - box.left) / cell);
    const q = Math.floor((event.clientY - box.top) / cell);
    return q >= 0 && k >= 0 && q < data.rows && k < data.columns ? { q, k } : null;
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
    const { rows, columns } = this.data;
    let q = this.keyed.q ?? 0;
    let k = this.keyed.k ?? 0;
    const first = this.keyed.q === null;
    const steps = /** @type {Record<string, [number, number]>} */ ({
      ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-8, 0], PageDown: [8, 0],
      Home: [0, -columns], End: [0, columns],
    });
    if (event.key === "Enter" || event.key === " ") this.callbacks.choose(q, k);
    else if (steps[event.key]) {
      if (!first) [q, k] = [q + steps[event.key][0], k + steps[event.key][1]];
      [q, k] = [Math.max(0, Math.min(rows - 1, q)), Math.max(0, Math.min(columns - 1, k))];
      this.keyed = { q, k };
      this.callbacks.hover(q, k);
      announce(this.words(q, k));
    } else return;
    event.preventDefault();
  }
}

/** A legend of the scale. @param {string} scale */
export function legend(scale) {
  const steps = Array.from({ length: 24 }, (_, i) => h("i", { style: { background: css((i / 23) * 255) } }));
  const names = /** @type {Record<string, string>} */ ({ sqrt: "square root of the weight", linear: "weight", row: "weight, each row's largest = full" });
  return h("div", { class: "legend" }, h("span", {}, "0"), h("span", { class: "ramp", "aria-hidden": "true" }, steps),
    h("span", {}, scale === "row" ? "row's largest" : "1"), h("span", { class: "quiet" }, names[scale]),
    h("span", { class: "hatched", "aria-hidden": "true" }), h("span", { class: "quiet" }, "may not be read"));
}
