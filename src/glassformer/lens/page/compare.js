/** The same head on two inputs: one beside the other, and their difference where the texts are of one length. */

import { difference } from "lens/colour.js";
import { mapsCsv } from "lens/csv.js";
import { h, put } from "lens/dom.js";
import { HeatMap } from "lens/heatmap.js";
import { inRow, mapSvg } from "lens/picture.js";
import { whole } from "lens/text.js";
import { mapData, partOf } from "lens/view.js";

/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./heatmap.js").MapData} MapData */
/** @typedef {import("./heatmap.js").Callbacks} Callbacks */
/** @typedef {{block: string, layer: number, head: number, scale: string, q0: number, k0: number}} Chosen */

const LEAST = 240;

/** Up to three maps that are pointed at together. */
export class Comparison {
  /** @param {Callbacks} callbacks */
  constructor(callbacks) {
    this.maps = [new HeatMap(callbacks), new HeatMap(callbacks), new HeatMap(callbacks)];
    this.titles = this.maps.map(() => h("h3", {}));
    this.sections = this.maps.map((map, i) => h("section", {}, this.titles[i], h("div", { class: "scroll" }, map.element)));
    this.row = h("div", { class: "maps" });
    this.said = h("p", { class: "quiet" });
    this.element = h("div", { class: "beside" }, this.row, this.said);
    /** @type {MapData[]} */
    this.shown = [];
    /** @type {string[]} */
    this.names = [];
    this.note = "";
  }

  /** @param {Trace} one @param {Trace} other @param {Chosen} chosen @param {number} room @param {number} tall */
  draw(one, other, chosen, room, tall) {
    const data = [one, other].map((trace) => dataOf(trace, chosen)).filter((each) => each !== null);
    const delta = data.length === 2 ? minus(data[0], data[1]) : null;
    if (delta) data.push(delta);
    this.shown = data;
    const names = this.names = [`A: ${whole(one.title)}`, `B: ${whole(other.title)}`, "A − B"];
    this.note = delta ? "Blue: A reads more. Orange: B reads more." : "There is no difference to show: the texts differ in length.";
    data.forEach((_, i) => {
      this.sections[i].setAttribute("aria-label", names[i]);
      put(this.titles[i], names[i]);
    });
    put(this.row, this.sections.slice(0, data.length));
    put(this.said, this.note);
    const columns = Math.max(1, Math.min(data.length, Math.floor(room / LEAST)));
    data.forEach((each, i) => this.maps[i].draw(each, room / columns - 44, tall));
  }

  /** @param {{q: number | null, k: number | null}} at @param {boolean} fixed */
  mark({ q, k }, fixed) {
    for (const map of this.maps.slice(0, this.shown.length)) map.mark(q, k, fixed);
  }

  /** All that is shown, as one picture. @param {{q: number | null, k: number | null}} at */
  svg(at) {
    return inRow(this.shown[0].name, this.shown.map((data, i) => mapSvg(data, at, { title: this.names[i], sums: false })), this.note);
  }

  csv() {
    return mapsCsv(this.shown.map((data, i) => [["A", "B", "A-B"][i], data]));
  }
}

/** @param {Trace} trace @param {Chosen} chosen @returns {MapData | null} */
function dataOf(trace, { block, layer, head, scale, q0, k0 }) {
  const attention = trace.attention.get(/** @type {import("./types.js").Block} */ (block));
  return attention && layer < attention.group.layers && head < attention.group.heads ? mapData(trace, attention, layer, head, scale, partOf(attention, { q0, k0 })) : null;
}

/** What one reads more than the other, from -1 to 1; none where the maps differ in size. @param {MapData} one @param {MapData} other */
function minus(one, other) {
  if (one.rows !== other.rows || one.columns !== other.columns) return null;
  const value = (/** @type {number} */ q, /** @type {number} */ k) => one.value(q, k) - other.value(q, k);
  const { q0, k0, rows, columns } = one.part;
  const levels = Uint8Array.from({ length: rows * columns }, (_, i) => 128 + Math.round(127 * value(q0 + Math.floor(i / columns), k0 + (i % columns))));
  return { ...one, name: `${one.name}, difference`, value, levels, paint: (/** @type {number} */ level, /** @type {string | undefined} */ theme) => difference((level - 128) / 127, theme) };
}
