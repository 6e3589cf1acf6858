/** The screen of attention: all heads of a kind, and one of them in detail. */

import { Arcs } from "lens/arcs.js";
import { arranged, arrangements } from "lens/arrange.js";
import { besideOf, besidePicker } from "lens/beside.js";
import { Comparison } from "lens/compare.js";
import { mapCsv } from "lens/csv.js";
import { h, picker, put, putControls, switcher, whenIdle, whenPainted } from "lens/dom.js";
import { onPaper, saving } from "lens/files.js";
import { HeadGrid } from "lens/grid.js";
import { HeatMap, legend } from "lens/heatmap.js";
import { inspector } from "lens/inspector.js";
import { ASIDE, Marginals } from "lens/marginals.js";
import { Patches } from "lens/patching.js";
import { mapSvg } from "lens/picture.js";
import { ranges } from "lens/range.js";
import { roleLine } from "lens/role.js";
import { focus, lock, locked, now, point, set } from "lens/state.js";
import { shade, strip } from "lens/strip.js";
import { headTable } from "lens/table.js";
import { mapData, movedData, partOf, placesOf } from "lens/view.js";

/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./trace.js").Attention} Attention */
/** @typedef {import("./heatmap.js").MapData} MapData */

const NAMES = { encoder: "Encoder", decoder: "Decoder", cross: "Cross" };
/** Tokens up to which both texts are written below the map at once; of longer ones, when there is time. */
const SOON = 64;
/** Up to this width the map has all the room; what would stand beside it is told of each cell. */
const NARROW = 364;
const AXES = /** @type {Record<string, string>} */ ({ source: "source", target_in: "target" });

/** Draws and redraws the screen; `draw` for a new state, `light` where only what is pointed at changed. */
export class AttentionScreen {
  /** @param {import("./main.js").Context} context */
  constructor(context) {
    this.context = context;
    this.trace = context.trace;
    this.comparison = new Comparison({ hover: point, choose: lock });
    /** The trace beside the one that is shown. @type {Trace | null} */
    this.other = null;
    this.patches = new Patches(context.source);
    this.grid = new HeadGrid((layer, head) => set({ layer, head }));
    this.map = new HeatMap({ hover: point, choose: lock });
    this.marginals = new Marginals({ hover: point, choose: lock });
    this.map.element.append(...this.marginals.elements);
    this.arcs = new Arcs({ hover: point, choose: lock });
    this.place = h("div", { class: "scroll" }, this.map.element);
    this.legend = h("div", {});
    /** What is shown, and what the strips were made of. @type {MapData | undefined} */
    this.data = undefined;
    /** @type {MapData | undefined} */
    this.striped = undefined;
    this.stripsOf = "";
    /** What the shown head moves. @type {Float32Array | null} */
    this.moved = null;
    this.movedOf = "";
    this.controls = h("div", { class: "controls" });
    this.title = h("div", { class: "head-title" });
    this.range = h("div", {});
    this.detail = h("div", { class: "detail" });
    this.side = h("div", { class: "side" });
    this.strips = h("div", { class: "strips" });
    this.begun = false;
    this.arranging = h("div", { class: "controls" });
    this.overview = h("section", { class: "card all-heads", "aria-label": "All heads" }, h("h2", {}, "All heads"),
      this.arranging, this.grid.element);
    this.layout = h("div", { class: "attention-layout" }, this.overview,
        h("section", { class: "card one-head", "aria-label": "One head" }, this.title, this.range, this.detail, this.strips), this.side);
    this.element = h("div", { class: "screen attention" }, this.controls, this.layout);
  }

  /** The attention that is shown, and its head, whatever the address asked for. */
  chosen() {
    const state = now();
    const attention = this.trace.usual(state.block);
    const layer = Math.min(state.layer, attention.group.layers - 1);
    const head = Math.min(state.head, attention.group.heads - 1);
    return { block: attention.block, attention, layer, head };
  }

  /** Bring the weights that are to be drawn. @param {() => boolean} wanted whether they still are */
  async ready(wanted) {
    const { block, attention, layer } = this.chosen();
    const beside = now().view === "map" ? besideOf(this.context) : null;
    const [found] = await Promise.all([beside, attention.loadShown(layer), attention.loadSizes()]);
    const same = found?.attention.get(block);
    if (same && layer < same.group.layers) await same.load([layer]);
    if (wanted()) this.other = found;
  }

  draw() {
    const state = now();
    const { block, attention, layer, head } = this.chosen();
    const blocks = /** @type {[string, string][]} */ ([...this.trace.attention.keys()].map((each) => [each, NAMES[each]]));
    putControls(this.controls,
      switcher("Kind of attention", blocks, block, (value) => set({ block: value, layer: 0, head: 0, q: null, k: null }, true)),
      switcher("View", [["map", "Map"], ["arcs", "Arcs"], ["table", "Table"]], state.view, (view) => set({ view })),
      attention.group.value_sizes && !this.other && switcher("What is shown", [["weights", "Weights"], ["moved", "Weighted by value"]], state.of, (of) => set({ of })),
      picker("Colour", [["sqrt", "square root"], ["linear", "linear"], ["row", "each row"]], state.scale, (scale) => set({ scale })),
      state.view === "map" && besidePicker(this.context), h("span", { class: "grow" }), this.exports());
    this.layout.classList.toggle("comparing", this.other !== null && state.view === "map");
    const wide = Math.max(280, this.element.clientWidth);
    const room = wide < 900 ? wide - 48 : Math.min(460, Math.max(240, wide * 0.29));
    const places = arranged(this.trace, attention, state);
    this.grid.draw(this.trace, attention, { layer, head, scale: state.scale }, room, places);
    if (this.begun) this.arrange();
    else whenPainted(() => { this.begun = true; this.arrange(); });
    const data = mapData(this.trace, attention, layer, head, state.scale, partOf(attention, state));
    this.data = state.of === "moved" && !this.other ? movedData(data, attention, layer, head, state.scale) : data;
    put(this.title, h("h2", {}, `${NAMES[block]} attention, layer ${layer}, head ${head}`), roleLine(this.trace.head(block, layer, head)));
    put(this.range, ranges(attention, { layer, head, scale: state.scale }, this.data, (from) => set({ ...from, q: null, k: null })));
    this.body();
    this.light();
  }

  /** In which order heads are shown, which of them, and what their pictures say. */
  arrange() {
    const { sort, only } = now();
    const { orders, filters } = arrangements(this.trace, this.chosen().attention);
    const tested = orders.some(([name]) => name === "effect");
    const said = !this.grid.places.length ? "No head fits; choose another filter."
      : `${sort === "layer" ? "One row per layer." : "The first is at the top left."}${tested ? " The bar shows what is lost without the head." : ""}`;
    putControls(this.arranging, picker("Sort by", orders, sort, (value) => set({ sort: value })), picker("Show", filters, only, (value) => set({ only: value })),
      h("p", { class: "quiet" }, said));
  }

  body() {
    const { view, scale, q0, k0 } = now();
    const data = /** @type {MapData} */ (this.data);
    const masked = this.chosen().attention.group.mask !== "none";
    if (view === "table") put(this.detail, headTable(data));
    else if (view === "arcs") {
      put(this.detail, this.arcs.element);
      this.arcs.draw(data, this.detail.clientWidth);
    }
    else if (this.other) {
      put(this.legend, legend(scale, { masked }));
      put(this.detail, this.comparison.element, this.legend, this.patches.element);
      this.patches.draw(this.trace, this.other);
      const { block, layer, head } = this.chosen();
      this.comparison.draw(this.trace, this.other, { block, layer, head, scale, q0, k0 }, Math.max(240, this.detail.clientWidth - 4), 420);
    } else {
      put(this.legend, legend(scale, { moved: data.moved, masked }));
      put(this.detail, this.place, this.legend);
      const aside = this.detail.clientWidth < NARROW ? 0 : ASIDE;
      this.map.element.classList.toggle("alone", !aside);
      this.map.draw(data, Math.max(240, this.detail.clientWidth - 4 - aside), Math.max(360, window.innerHeight - 330 - aside));
      if (aside) this.drawMarginals(data);
    }
  }

  /** The sums beside the map, where there are many when there is time. @param {MapData} data */
  drawMarginals(data) {
    const { map, marginals } = this;
    const draw = () => { if (this.data === data) marginals.draw(data, map.cell); };
    if (data.rows + data.columns <= 2 * SOON) return draw();
    marginals.keepRoom(data, map.cell);
    whenPainted(draw);
  }

  /** What is known of the cell that is pointed at; scores are asked for with the first one. @param {{q: number | null, k: number | null}} at */
  cell({ q, k }) {
    const { attention, layer, head } = this.chosen();
    if (q === null || k === null || q >= attention.group.q_len || k >= attention.group.k_len) return null;
    if (attention.group.log_sums && !attention.sums) attention.loadSums().then(() => this.light()).catch(() => {});
    if (this.movedOf !== `${attention.block} ${layer} ${head}`) {
      this.movedOf = `${attention.block} ${layer} ${head}`;
      this.moved = attention.moved(layer, head);
    }
    return { weight: attention.weight(layer, head, q, k), score: attention.score(layer, head, q, k), moved: this.moved?.[q * attention.group.k_len + k] ?? null };
  }

  /** What hangs on the place that is pointed at. */
  light() {
    const data = this.data;
    if (!data) return;
    const { attention } = this.chosen();
    const at = focus();
    const axis = attention.group.q;
    if (now().view === "map" && this.other) this.comparison.mark(at, locked());
    else if (now().view === "map") this.map.mark(at.q, at.k, locked());
    if (now().view === "arcs") this.arcs.mark(at);
    put(this.side, inspector(this.trace, data, at, { isLocked: locked(), encoding: attention.encoding, axis, cell: this.cell(at) }));
    if (this.striped !== data) this.drawStrips(data, attention);
    shade(this.strips, data, at);
  }

  /** @param {MapData} data @param {Attention} attention */
  drawStrips(data, attention) {
    this.striped = data;
    const key = [this.trace.header.run.id, data.name, Object.values(data.part)].join(" ");
    if (this.stripsOf === key) return;
    this.stripsOf = key;
    put(this.strips);
    const write = () => {
      if (this.stripsOf !== key) return;
      this.writeStrips(data, attention);
      shade(this.strips, data, focus());
    };
    if (data.part.rows + data.part.columns <= SOON) write();
    else whenIdle(write);
  }

  /** @param {MapData} data @param {Attention} attention */
  writeStrips(data, attention) {
    const [queries, keys] = placesOf(data);
    const name = (/** @type {string} */ axis, /** @type {string} */ role) => h("span", {}, h("b", {}, role), ` ${AXES[axis]}`);
    put(this.strips,
      strip(name(attention.group.k, "keys"), data.keys, keys, { hover: (k) => point(null, k), choose: (k) => lock(now().q, k) }),
      strip(name(attention.group.q, "queries"), data.read, queries, { hover: (q) => point(q, null), choose: (q) => lock(q, null) }));
  }

  /** What saves the view that is shown; a table, as the map that it tells of. */
  exports() {
    const { block, layer, head } = this.chosen();
    const { of, view } = now();
    const compared = view === "map" && this.other !== null;
    const moved = of === "moved" && !compared ? ["by-value"] : [];
    const data = () => /** @type {MapData} */ (this.data);
    const svg = () => {
      if (compared) return this.comparison.svg(focus());
      return view === "arcs" ? onPaper(/** @type {SVGElement} */ (this.detail.querySelector("svg"))) : mapSvg(data(), focus());
    };
    return saving("this head", [this.context.run.name, "attention", block, layer, head, ...moved, ...(compared ? ["compared"] : view === "arcs" ? ["arcs"] : [])],
      { svg, csv: () => (compared ? this.comparison.csv() : mapCsv(data())) });
  }
}
