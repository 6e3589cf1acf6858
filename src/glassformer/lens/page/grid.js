/** All heads of one kind at once: rows are layers, columns heads. One canvas is drawn, buttons lie over it. */

import { hatching, table, theme, themed } from "lens/colour.js";
import { announce, h, sized } from "lens/dom.js";
import { headName, percent } from "lens/text.js";

/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./trace.js").Attention} Attention */
/** @typedef {import("./types.js").Block} Block */

const GAP = 10;
const LABEL = 18;

/** The overview of heads. */
export class HeadGrid {
  /** @param {(layer: number, head: number) => void} choose */
  constructor(choose) {
    this.choose = choose;
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { "aria-hidden": "true" }));
    this.cells = h("div", { class: "grid-cells", role: "grid" });
    this.element = h("div", { class: "heads-grid" }, this.canvas, this.cells);
    /** What the canvas shows, and how. @type {Attention | undefined} */
    this.drawn = undefined;
    this.drawnAs = "";
    this.cells.addEventListener("keydown", (event) => this.key(event));
  }

  /**
   * @param {Trace} trace
   * @param {Attention} attention
   * @param {{layer: number, head: number, scale: string}} chosen
   * @param {number} room
   */
  draw(trace, attention, chosen, room) {
    const { layers, heads, q_len, k_len, block } = attention.group;
    this.shape = { layers, heads };
    this.chosen = chosen;
    const wide = Math.max(18, Math.min(112, Math.floor((room - 4) / heads) - GAP));
    const tall = Math.max(18, Math.min(112, Math.round(wide * Math.min(1.5, Math.max(0.6, q_len / k_len)))));
    const width = heads * (wide + GAP);
    const height = layers * (tall + GAP + LABEL);
    const key = [chosen.scale, theme(), width, height, window.devicePixelRatio].join(" ");
    if (this.drawn !== attention || this.drawnAs !== key) this.paint(attention, chosen.scale, wide, tall, sized(this.canvas, width, height));
    [this.drawn, this.drawnAs] = [attention, key];
    this.cells.style.width = `${width}px`;
    this.cells.style.height = `${height}px`;
    this.cells.setAttribute("aria-label", `Heads of the ${block} attention, ${layers} layers by ${heads} heads`);
    const held = this.cells.contains(document.activeElement);
    this.cells.replaceChildren(...Array.from({ length: layers }, (_, layer) =>
      h("div", { role: "row", class: "row" }, Array.from({ length: heads }, (_, head) =>
        this.button(trace, /** @type {Block} */ (block), layer, head, { wide, tall })))));
    if (held) this.hold();
  }

  /**
   * @param {Attention} attention
   * @param {string} scale
   * @param {number} wide
   * @param {number} tall
   * @param {CanvasRenderingContext2D} pen
   */
  paint(attention, scale, wide, tall, pen) {
    const { layers, heads } = attention.group;
    const mask = maskTile(attention, wide, tall);
    for (let layer = 0; layer < layers; layer++) {
      for (let head = 0; head < heads; head++) {
        const small = thumbnail(attention, layer, head, scale, wide * 2, tall * 2);
        const [x, y] = [head * (wide + GAP) + 2, layer * (tall + GAP + LABEL) + 2];
        pen.imageSmoothingEnabled = small.width >= wide;
        pen.drawImage(small, x, y, wide, tall);
        if (mask) pen.drawImage(mask, x, y, wide, tall);
        pen.strokeStyle = themed("line");
        pen.strokeRect(x - 0.5, y - 0.5, wide + 1, tall + 1);
      }
    }
  }

  /**
   * @param {Trace} trace
   * @param {Block} block
   * @param {number} layer
   * @param {number} head
   * @param {{wide: number, tall: number}} size
   */
  button(trace, block, layer, head, { wide, tall }) {
    const facts = trace.head(block, layer, head);
    const role = facts?.role && facts.role.strength !== "none" ? facts.role.label : "";
    const chosen = this.chosen?.layer === layer && this.chosen?.head === head;
    const score = facts?.role ? ` ${percent(facts.role.score)}` : "";
    return h("button", {
      type: "button", role: "gridcell", class: "thumb", tabindex: chosen ? "0" : "-1", "aria-selected": String(chosen),
      "data-at": `${layer} ${head}`, "aria-label": `${headName(block, layer, head)}${role ? `, ${role}${score}` : ""}`,
      style: { left: `${head * (wide + GAP)}px`, top: `${layer * (tall + GAP + LABEL)}px`, width: `${wide + 4}px`, height: `${tall + 4 + LABEL}px` },
      on: { click: () => this.choose(layer, head) },
    }, h("span", { class: "thumb-name" }, `${layer}.${head}`),
    role && wide > 44 && h("span", { class: `role ${facts?.role?.strength ?? ""}` }, role));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (!this.shape || !this.chosen) return;
    const { layers, heads } = this.shape;
    let { layer, head } = this.chosen;
    const moves = /** @type {Record<string, () => void>} */ ({
      ArrowLeft: () => head--, ArrowRight: () => head++, ArrowUp: () => layer--, ArrowDown: () => layer++,
      Home: () => { head = 0; }, End: () => { head = heads - 1; }, PageUp: () => { layer = 0; }, PageDown: () => { layer = layers - 1; },
    });
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
    layer = Math.max(0, Math.min(layers - 1, layer));
    head = Math.max(0, Math.min(heads - 1, head));
    this.choose(layer, head);
  }

  /** Put the focus on the chosen head, and say which one it is. */
  hold() {
    const button = /** @type {HTMLElement | null} */ (this.cells.querySelector("[aria-selected=true]"));
    button?.focus();
    announce(button?.getAttribute("aria-label") ?? "");
  }
}

/**
 * One head small; where there are more cells than pixels, the largest weight of each is shown, so that no line is lost.
 * @param {Attention} attention
 * @param {number} layer
 * @param {number} head
 * @param {string} scale
 * @param {number} wide
 * @param {number} tall
 */
export function thumbnail(attention, layer, head, scale, wide, tall) {
  const { q_len, k_len } = attention.group;
  const levels = attention.levels(layer, head, scale);
  const [columns, rows] = [Math.min(k_len, wide), Math.min(q_len, tall)];
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const picture = pen.createImageData(columns, rows);
  const pixels = new Uint32Array(picture.data.buffer);
  const most = new Uint8Array(columns * rows);
  for (let q = 0; q < q_len; q++) {
    const row = Math.floor((q * rows) / q_len) * columns;
    for (let k = 0; k < k_len; k++) {
      const at = row + Math.floor((k * columns) / k_len);
      if (levels[q * k_len + k] > most[at]) most[at] = levels[q * k_len + k];
    }
  }
  const colours = table();
  for (let i = 0; i < pixels.length; i++) pixels[i] = colours[most[i]];
  pen.putImageData(picture, 0, 0);
  return canvas;
}

/**
 * The hatching of what may not be read, drawn once for all heads; none where all may be.
 * @param {Attention} attention
 * @param {number} wide
 * @param {number} tall
 */
function maskTile(attention, wide, tall) {
  const { q_len, k_len, mask } = attention.group;
  if (mask === "none") return null;
  const tile = document.createElement("canvas");
  const pen = sized(tile, wide, tall);
  pen.fillStyle = hatching(pen);
  for (let q = 0; q < q_len; q++) {
    for (let k = 0; k < k_len; k++) {
      if (attention.allowed(q, k)) continue;
      let end = k;
      while (end < k_len && !attention.allowed(q, end)) end++;
      pen.fillRect((k * wide) / k_len, (q * tall) / q_len, ((end - k) * wide) / k_len, tall / q_len + 0.2);
      k = end;
    }
  }
  return tile;
}
