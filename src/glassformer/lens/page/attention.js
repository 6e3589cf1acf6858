/** The screen of attention: all heads of a kind, and one in detail, as a map, as arcs, compared or patched. */
import { difference, ground } from "lens/colour.js";
import { besideOf, besidePicker } from "lens/data.js";
import { Outcome, acts, h, picker, put, putControls, s, scroller, switcher, whenIdle, whenPainted } from "lens/dom.js";
import { mapCsv, mapsCsv, onPaper, saving } from "lens/files.js";
import { HeadGrid, arranged, arrangements, ranges } from "lens/grid.js";
import { HeatMap, legend } from "lens/heatmap.js";
import { ASIDE, Marginals, inspector, shade, strip } from "lens/inspector.js";
import { inRow, mapSvg } from "lens/picture.js";
import { roleLine } from "lens/role.js";
import { focus, lock, locked, now, openHead, point, set } from "lens/state.js";
import { headTable } from "lens/table.js";
import { headName, number, token, weight, whole } from "lens/text.js";
import { mapData, movedData, partOf, placesOf, wordsOf } from "lens/view.js";

/* --- one head as arcs between two lines of tokens: the keys above, the queries below. */

/** @typedef {import("./heatmap.js").MapData} MapData */
/** @typedef {{q: number | null, k: number | null}} At */

/** From token to token, in CSS pixels; where there is not the room for the least, the picture is scrolled. */
const STEP = 46;
const LEAST_STEP = 22;
/** Left and right of all tokens. */
const SIDE = 40;
const TALL = 260;
const LEAST = 0.1;
const MOST = 3;

/** The picture stays where it is, and is scrolled to, as long as the screen does; only its lines are drawn anew. */
export class Arcs {
  /** @param {{hover: (q: number | null, k: number | null) => void, choose: (q: number | null, k: number | null) => void}} callbacks */
  constructor(callbacks) {
    this.callbacks = callbacks;
    this.place = h("div", { class: "scroll" });
    this.note = h("figcaption", { class: "quiet" });
    this.element = h("figure", { class: "arcs" }, this.place, this.note);
    this.lines = s("g", { class: "lines" });
    /** @type {{text: SVGElement, isKey: boolean, i: number}[]} */
    this.labels = [];
    /** Where a query stands, and a key. @type {[(q: number) => number, (k: number) => number]} */
    this.x = [() => 0, () => 0];
    /** @type {MapData | undefined} */
    this.data = undefined;
  }

  /** The two lines of tokens. @param {MapData} data @param {number} room in CSS pixels */
  draw(data, room) {
    this.data = data;
    const { q0, k0, rows, columns } = data.part;
    const step = Math.max(LEAST_STEP, Math.min(STEP, (room - SIDE) / Math.max(rows, columns)));
    const width = Math.max(rows, columns) * step + SIDE;
    const [shiftQ, shiftK] = [(width - rows * step) / 2 - q0 * step, (width - columns * step) / 2 - k0 * step];
    this.x = [(q) => shiftQ + (q + 0.5) * step, (k) => shiftK + (k + 0.5) * step];
    const [queries, keys] = placesOf(data);
    this.labels = [...keys.map((k) => this.label(data.keys[k], k, true, null)), ...queries.map((q) => this.label(data.read[q], q, false, data.predicted[q]))];
    put(this.place, s("svg", { viewBox: `0 0 ${width} ${TALL}`, width, height: TALL, role: "group", "aria-label": data.name }, this.lines, this.labels.map(({ text }) => text)));
  }

  /** @param {string} text @param {number} i @param {boolean} isKey @param {string | null} predicted */
  label(text, i, isKey, predicted) {
    /** @type {[number | null, number | null]} */
    const at = isKey ? [null, i] : [i, null];
    return { isKey, i, text: s("text", {
      x: this.x[isKey ? 1 : 0](i), y: isKey ? 20 : TALL - 12, "text-anchor": "middle", tabindex: "0", role: "button", class: "arc-token",
      "aria-label": `${isKey ? "key" : "query"} ${i}: ${whole(text)}${predicted ? `, predicts ${whole(predicted)}` : ""}`,
      on: { pointerenter: () => this.callbacks.hover(...at), pointerleave: () => this.callbacks.hover(null, null), ...acts(() => this.callbacks.choose(...at)) },
    }, token(text)) };
  }

  /** The arcs of the query (or key) that is pointed at; without one the strongest of each query. @param {At} at */
  mark(at) {
    const data = /** @type {MapData} */ (this.data);
    put(this.lines, drawn(data, at).map(({ q, k, value }) => {
      const [from, to] = [this.x[0](q), this.x[1](k)];
      return s("path", {
        d: `M${from} ${TALL - 30} C${from} ${TALL / 2} ${to} ${TALL / 2} ${to} 30`, class: "arc", "stroke-width": 0.75 + 5 * value,
        "stroke-opacity": 0.25 + 0.75 * value,
      }, s("title", {}, `${whole(data.read[q])} ${wordsOf(data).reads} ${whole(data.keys[k])}: ${weight(value)}`));
    }));
    for (const { text, isKey, i } of this.labels) text.classList.toggle("marked", (isKey ? at.k : at.q) === i);
    const shown = at.q === null && at.k === null ? `the ${MOST} strongest arcs of each query, if at least ${LEAST}` : "all arcs of the marked token";
    put(this.note, `Keys above, queries below. Shown: ${shown}. The thicker the arc, the larger the ${wordsOf(data).value}.`);
  }
}

/**
 * @param {MapData} data
 * @param {At} at
 * @returns {{q: number, k: number, value: number}[]}
 */
function drawn(data, at) {
  const found = [];
  const [queries, keys] = placesOf(data);
  for (const q of queries) {
    if (at.q !== null && at.q !== q) continue;
    const row = [];
    for (const k of keys) {
      const value = data.value(q, k);
      if (data.allowed(q, k) && value > 0.005 && (at.k === null || at.k === k || at.q !== null)) row.push({ q, k, value });
    }
    row.sort((a, b) => b.value - a.value);
    found.push(...(at.q === null && at.k === null ? row.filter((each) => each.value >= LEAST).slice(0, MOST) : row));
  }
  return found;
}

/* --- between two inputs: what of the run with A, put into a run with B, brings A's answer back (activation patching). */

/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {{one: number, other: number, heads: {id: string, block: string, layer: number, head: number, effect: number}[],
 *   streams: {side: string, effects: number[][]}[]}} Patching */

const SHOWN = 10;

/** A card that asks the model when it is told to, or a copy for what it holds; it stays as long as the two inputs do. */
export class Patches {
  /** @param {import("./data.js").Source} source */
  constructor(source) {
    this.source = source;
    this.element = h("div", { class: "patches" });
    this.shown = "";
  }

  /** @param {Trace} one @param {Trace} other */
  draw(one, other) {
    const ids = [one, other].map((trace) => trace.header.run.id);
    if (this.shown === ids.join(" ")) return;
    this.shown = ids.join(" ");
    const outcome = new Outcome();
    const ask = async () => {
      outcome.say("Running …");
      outcome.show();
      try {
        const found = await this.source.patching(ids[0], ids[1]);
        outcome.say(`Log probability of A’s answer: ${number(found.one)} with input A, ${number(found.other)} with input B.`);
        outcome.show(restored(found, one));
      } catch (error) {
        outcome.fail(error, this.source.live);
      }
    };
    put(this.element, h("h3", {}, "What carries the difference"),
      h("p", { class: "quiet" }, "The model reads B, and one part of its run with A is put in. Shown is how much of A’s answer this brings back: 0 is nothing, 1 is all of it."),
      this.source.live && h("button", { type: "button", id: "patch", on: { click: ask } }, "Patch every head and every position"), outcome.element);
    if (!this.source.live) ask();
  }
}

/** @param {Patching} found @param {Trace} one */
function restored(found, one) {
  const bars = h("ol", { class: "bars terms", "aria-label": "Share that each head brings back" }, found.heads.slice(0, SHOWN).map((each) => h("li", {},
    h("button", { type: "button", class: "plain-button", on: { click: () => openHead(each) } }, headName(each.block, each.layer, each.head)),
    h("span", { class: `signed${each.effect < 0 ? " below" : ""}` }, h("i", { style: { width: `${50 * Math.min(1, Math.abs(each.effect))}%` } })),
    h("span", { class: "figure", "data-id": each.id }, each.effect.toFixed(3)))));
  return [bars, ...found.streams.map((stream) => streams(stream, one))];
}

/** A stack's stream, behind so many blocks, place by place. @param {{side: string, effects: number[][]}} stream @param {Trace} one */
function streams({ side, effects }, one) {
  const tokens = one.tokens(side === "decoder" ? "target_in" : "source");
  const cell = (/** @type {number} */ effect, /** @type {number} */ at, /** @type {number} */ depth) => {
    const share = Math.max(-1, Math.min(1, effect));
    return h("td", { title: `${whole(tokens[at])} at ${at}, after ${depth} blocks: ${effect.toFixed(3)}`,
      style: ground((name) => difference(share, name)) }, Math.abs(effect) >= 0.005 ? effect.toFixed(2) : "");
  };
  return [h("h4", {}, `Residual stream of the ${side}`), scroller(`What each position of the ${side} brings back`, h("table", { class: "lens" },
    h("thead", {}, h("tr", {}, h("th", {}, "after"), tokens.map((text) => h("th", { scope: "col" }, h("span", { class: "chip" }, token(text)))))),
    h("tbody", {}, effects.map((row, depth) => h("tr", {}, h("th", { scope: "row" }, depth ? `block ${depth - 1}` : "input"), row.map((effect, at) => cell(effect, at, depth)))).reverse())))];
}

/* --- the same head on two inputs: one beside the other, and their difference where the texts are of one length. */

/** @typedef {import("./heatmap.js").Callbacks} Callbacks */
/** @typedef {{block: string, layer: number, head: number, scale: string, q0: number, k0: number}} Chosen */

const NARROWEST = 240;

/** Up to three maps that are pointed at together. */
export class Comparison {
  /** @param {Callbacks} callbacks */
  constructor(callbacks) {
    this.maps = [new HeatMap(callbacks), new HeatMap(callbacks), new HeatMap(callbacks)];
    this.titles = this.maps.map(() => h("h3", {}));
    this.sections = this.maps.map((map, i) => h("section", {}, this.titles[i], h("div", { class: "scroll" }, map.element)));
    this.row = h("div", { class: "maps" });
    this.caption = h("p", { class: "quiet" });
    this.element = h("div", { class: "beside" }, this.row, this.caption);
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
    put(this.caption, this.note);
    const columns = Math.max(1, Math.min(data.length, Math.floor(room / NARROWEST)));
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
  const attention = trace.attention.get(/** @type {import("./trace.js").Block} */ (block));
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

/* --- the screen of attention: all heads of a kind, and one of them in detail. */

/** @typedef {import("./trace.js").Attention} Attention */

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
    const note = !this.grid.places.length ? "No head fits; choose another filter."
      : `${sort === "layer" ? "One row per layer." : "The first is at the top left."}${tested ? " The bar shows what is lost without the head." : ""}`;
    putControls(this.arranging, picker("Sort by", orders, sort, (value) => set({ sort: value })), picker("Show", filters, only, (value) => set({ only: value })),
      h("p", { class: "quiet" }, note));
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
