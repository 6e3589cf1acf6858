/** The heads as small pictures: which are shown, in which order, and what range of a long map. */
import { hatching, table, theme, themed } from "lens/colour.js";
import { announce, h, sized } from "lens/dom.js";
import { lost } from "lens/role.js";
import { headName, percent } from "lens/text.js";

/* --- which heads are shown together, and in which order. */

/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./trace.js").Attention} Attention */
/** @typedef {import("./trace.js").Head} Head */
/** @typedef {{layer: number, head: number}} Place */
/** @typedef {{at: Place, facts?: Head, confidence: number, entropy: number}} Known */

/** A role from this score on counts as sure. */
const SURE = 0.5;

/** What heads are sorted by: whose figure is largest comes first. @type {Record<string, (known: Known) => number>} */
const FIGURES = {
  score: ({ facts }) => facts?.role?.score ?? -Infinity,
  effect: ({ facts }) => (facts?.ablation ? lost(facts) : -Infinity),
  confidence: ({ confidence }) => confidence,
  entropy: ({ entropy }) => entropy,
};

/** What heads may be left by: each a test, by the name that the address has. @type {Record<string, (known: Known) => boolean>} */
const TESTS = {
  sure: ({ facts }) => (facts?.role?.score ?? 0) >= SURE,
  needed: ({ facts }) => /needs it$|^needed/.test(facts?.ablation?.verdict ?? ""),
};

/** The role of a head, where it has one. @param {Head | undefined} facts */
function roleOf(facts) {
  return facts?.role && facts.role.strength !== "none" ? facts.role.label : "";
}

/** @param {Trace} trace @param {Attention} attention @returns {Known[]} */
function all(trace, { block, group: { layers, heads, confidence, entropy } }) {
  return Array.from({ length: layers * heads }, (_, i) => {
    const [layer, head] = [Math.floor(i / heads), i % heads];
    return { at: { layer, head }, facts: trace.head(block, layer, head), confidence: confidence?.[layer][head] ?? NaN, entropy: entropy?.[layer][head] ?? NaN };
  });
}

/** Whether a head stays, by `role:NAME`, `layer:NUMBER` or a test's name; by anything else all do. @param {string} only */
function stays(only) {
  const [kind, name] = only.split(":");
  if (kind === "role" && name) return (/** @type {Known} */ { facts }) => roleOf(facts) === name;
  if (kind === "layer" && name) return (/** @type {Known} */ { at }) => at.layer === Number(name);
  return Object.hasOwn(TESTS, only) ? TESTS[only] : () => true;
}

/**
 * The heads in rows: one for each layer, or as many to a row as a layer has, in the order of a figure.
 * @param {Trace} trace
 * @param {Attention} attention
 * @param {{sort: string, only: string}} order
 * @returns {Place[][]}
 */
export function arranged(trace, attention, { sort, only }) {
  const { layers, heads } = attention.group;
  const found = all(trace, attention).filter(stays(only));
  if (sort !== "role" && !Object.hasOwn(FIGURES, sort)) {
    return Array.from({ length: layers }, (_, layer) => found.filter(({ at }) => at.layer === layer).map(({ at }) => at)).filter((row) => row.length);
  }
  const figure = FIGURES[sort === "role" ? "score" : sort];
  const byRole = (/** @type {Known} */ a, /** @type {Known} */ b) => {
    const [one, other] = [roleOf(a.facts), roleOf(b.facts)];
    return one === other ? 0 : !one ? 1 : !other ? -1 : one < other ? -1 : 1;
  };
  found.sort((a, b) => (sort === "role" && byRole(a, b)) || figure(b) - figure(a) || 0);
  return Array.from({ length: Math.ceil(found.length / heads) }, (_, row) => found.slice(row * heads, (row + 1) * heads).map(({ at }) => at));
}

/**
 * What may be asked of these heads: orders, and what they may be left by, value and text of each.
 * @param {Trace} trace
 * @param {Attention} attention
 * @returns {{orders: [string, string][], filters: [string, string][]}}
 */
export function arrangements(trace, attention) {
  const found = all(trace, attention);
  const roles = [...new Set(found.map(({ facts }) => roleOf(facts)).filter(Boolean))].sort();
  const tested = found.some(({ facts }) => facts?.ablation);
  const labelled = found.some(({ facts }) => facts?.role);
  /** @type {([string, string] | false)[]} */
  const orders = [["layer", "layer"], labelled && ["role", "role"], labelled && ["score", "score"], tested && ["effect", "effect"], ["confidence", "confidence"], ["entropy", "entropy"]];
  /** @type {([string, string] | false)[]} */
  const filters = [["", "all heads"], ...roles.map((role) => /** @type {[string, string]} */ ([`role:${role}`, role])), labelled && ["sure", `score of at least ${100 * SURE} %`], tested && ["needed", "needed"],
    ...(attention.group.layers > 1 ? attention.layers.map((layer) => /** @type {[string, string]} */ ([`layer:${layer}`, `layer ${layer}`])) : [])];
  const kept = (/** @type {([string, string] | false)[]} */ each) => /** @type {[string, string][]} */ (each.filter(Boolean));
  return { orders: kept(orders), filters: kept(filters) };
}

/* --- heads of one kind at once, in rows, as they are arranged. Each row is a canvas, painted once it can be seen. */

/** @typedef {import("./trace.js").Block} Block */
/** @typedef {{wide: number, tall: number}} Size of a picture, in CSS pixels */

const GAP = 10;
const LABEL = 21;

/** The overview of heads. */
export class HeadGrid {
  /** @param {(layer: number, head: number) => void} choose */
  constructor(choose) {
    this.choose = choose;
    this.element = h("div", { class: "heads-grid", role: "grid" });
    /** What the canvases show, and how. @type {Attention | undefined} */
    this.drawn = undefined;
    this.drawnAs = "";
    /** The heads as they stand. @type {Place[][]} */
    this.places = [];
    /** @type {Place} */
    this.chosen = { layer: 0, head: 0 };
    /** Where the keyboard is: ahead of what is drawn, where keys come faster. @type {Place | undefined} */
    this.keyed = undefined;
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.element.addEventListener("click", (event) => {
      const at = event.target instanceof Element && event.target.closest(".thumb")?.getAttribute("data-at");
      if (at) this.choose(...places(at));
    });
    // The pointer is over a head before it is clicked: its weights can be there by then.
    this.element.addEventListener("pointerover", (event) => {
      const at = event.target instanceof Element && event.target.closest(".thumb")?.getAttribute("data-at");
      if (at) this.drawn?.load([places(at)[0]]).catch(() => {}); // a click tells of what is wrong
    });
    /** Paints a row that comes into sight. @type {Map<Element, () => void>} */
    this.waiting = new Map();
    this.seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) if (isIntersecting) this.paintNow(target);
    }, { rootMargin: "200px" });
  }

  /**
   * The size of a picture in a room for all heads beside each other.
   * @param {Attention} attention
   * @param {number} room
   * @returns {Size}
   */
  static size({ group: { heads, q_len, k_len } }, room) {
    const wide = Math.max(18, Math.min(112, Math.floor((room - 4) / heads) - GAP));
    return { wide, tall: Math.max(18, Math.min(112, Math.round(wide * Math.min(1.5, Math.max(0.6, q_len / k_len))))) };
  }

  /**
   * @param {Trace} trace
   * @param {Attention} attention what small pictures are made of is loaded
   * @param {{layer: number, head: number, scale: string}} chosen
   * @param {number} room
   * @param {Place[][]} places which heads, row by row
   */
  draw(trace, attention, chosen, room, places) {
    const held = this.element.contains(document.activeElement);
    const before = this.chosen;
    this.chosen = chosen;
    this.keyed = undefined;
    const size = HeadGrid.size(attention, room);
    const key = [chosen.scale, theme(), size.wide, size.tall, window.devicePixelRatio, ...places.map((row) => row.map(({ layer, head }) => `${layer}.${head}`))].join(" ");
    if (this.drawn !== attention || this.drawnAs !== key) {
      this.places = places;
      this.element.setAttribute("aria-label", `Heads of the ${attention.block} attention, ${places.flat().length} in ${places.length} rows`);
      this.rows(trace, attention, chosen.scale, size);
    } else this.select(before, false);
    this.select(chosen, true);
    [this.drawn, this.drawnAs] = [attention, key];
    if (held) this.hold();
  }

  /** @param {Trace} trace @param {Attention} attention @param {string} scale @param {Size} size */
  rows(trace, attention, scale, size) {
    const mask = maskTile(attention, size);
    this.seen.disconnect();
    this.waiting.clear();
    const rows = this.places.map((places) => {
      const width = places.length * (size.wide + GAP);
      const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { "aria-hidden": "true" }));
      const row = h("div", { role: "row", class: "row", style: { width: `${width}px`, height: `${size.tall + GAP + LABEL}px` } }, canvas,
        places.map((place, i) => this.button(trace, attention.block, place, i, size)));
      this.waiting.set(row, () => paintRow(sized(canvas, width, size.tall + GAP), attention, places, scale, size, mask));
      return row;
    });
    this.element.replaceChildren(...rows);
    const fits = Math.ceil(window.innerHeight / (size.tall + GAP + LABEL));
    rows.forEach((row, i) => (i < fits ? this.paintNow(row) : this.seen.observe(row)));
  }

  /** @param {Element} row */
  paintNow(row) {
    this.waiting.get(row)?.();
    this.waiting.delete(row);
    this.seen.unobserve(row);
  }

  /**
   * @param {Trace} trace
   * @param {Block} block
   * @param {Place} place
   * @param {number} column in which it stands
   * @param {Size} size
   */
  button(trace, block, { layer, head }, column, { wide, tall }) {
    const facts = trace.head(block, layer, head);
    const role = facts?.role && facts.role.strength !== "none" ? facts.role.label : "";
    const score = facts?.role ? ` ${percent(facts.role.score)}` : "";
    const gone = Math.min(1, Math.max(0, lost(facts)));
    return h("button", {
      type: "button", role: "gridcell", class: "thumb", tabindex: "-1", "aria-selected": "false",
      "data-at": `${layer} ${head}`, "aria-label": `${headName(block, layer, head)}${role ? `, ${role}${score}` : ""}${gone ? `, ${percent(gone)} lost without it` : ""}`,
      style: { left: `${column * (wide + GAP)}px`, width: `${wide + 4}px`, height: `${tall + 4 + LABEL}px` },
    }, gone > 0 && h("span", { class: "lost", style: { width: `${gone * wide}px` } }), h("span", { class: "thumb-name" }, `${layer}.${head}`), " ",
    role && wide > 66 && h("span", { class: `role ${facts?.role?.strength ?? ""}` }, role));
  }

  /** Mark a head, or unmark it; where it is left out, the first one is reached by Tab in its place. @param {Place} at @param {boolean} chosen */
  select({ layer, head }, chosen) {
    const button = this.element.querySelector(`[data-at="${layer} ${head}"]`);
    button?.setAttribute("aria-selected", String(chosen));
    (button ?? this.element.querySelector(".thumb"))?.setAttribute("tabindex", chosen ? "0" : "-1");
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const from = this.keyed ?? this.chosen;
    const same = (/** @type {Place} */ { layer, head }) => layer === from.layer && head === from.head;
    let row = Math.max(0, this.places.findIndex((places) => places.some(same)));
    let column = Math.max(0, this.places[row]?.findIndex(same) ?? 0);
    const moves = /** @type {Record<string, () => void>} */ ({
      ArrowLeft: () => column--, ArrowRight: () => column++, ArrowUp: () => row--, ArrowDown: () => row++,
      Home: () => { column = 0; }, End: () => { column = Infinity; }, PageUp: () => { row = 0; }, PageDown: () => { row = Infinity; },
    });
    if (!moves[event.key] || !this.places.length) return;
    event.preventDefault();
    moves[event.key]();
    const there = this.places[Math.max(0, Math.min(this.places.length - 1, row))];
    this.keyed = there[Math.max(0, Math.min(there.length - 1, column))];
    this.choose(this.keyed.layer, this.keyed.head);
  }

  /** Put the focus on the chosen head, and say which one it is. */
  hold() {
    const button = /** @type {HTMLElement | null} */ (this.element.querySelector("[aria-selected=true]"));
    button?.focus();
    announce(button?.getAttribute("aria-label") ?? "");
  }
}

/** @param {string} at @returns {[number, number]} */
function places(at) {
  const [layer, head] = at.split(" ").map(Number);
  return [layer, head];
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Attention} attention
 * @param {Place[]} row
 * @param {string} scale
 * @param {Size} size
 * @param {HTMLCanvasElement | null} mask
 */
function paintRow(pen, attention, row, scale, { wide, tall }, mask) {
  const ratio = pen.getTransform().a;
  const places = row.map((_, i) => i * (wide + GAP) + 2);
  const picture = pen.createImageData(pen.canvas.width, Math.round(tall * ratio));
  const pixels = new Uint32Array(picture.data.buffer);
  const box = { columns: Math.round(wide * ratio), rows: picture.height, stride: picture.width };
  row.forEach(({ layer, head }, i) => colour(pixels.subarray(Math.round(places[i] * ratio)), attention.small(layer, head, scale), box));
  pen.putImageData(picture, 0, Math.round(2 * ratio)); // all heads at once: each call waits for what was drawn before
  pen.strokeStyle = themed("line");
  for (const x of places) {
    if (mask) pen.drawImage(mask, x, 2, wide, tall);
    pen.strokeRect(x - 0.5, 1.5, wide + 1, tall + 1);
  }
}

/**
 * Pixels of a map: where there are more cells than pixels, the largest of each pixel is shown, so that no line is lost.
 * @param {Uint32Array} pixels from the map's first on
 * @param {{levels: Uint8Array, rows: number, columns: number}} map
 * @param {{columns: number, rows: number, stride: number}} box pixels of the map, and of a line of the whole picture
 */
function colour(pixels, { levels, rows, columns }, { columns: wide, rows: tall, stride }) {
  const colours = table();
  const ends = Array.from({ length: wide + 1 }, (_, x) => Math.floor((x * columns) / wide));
  for (let y = 0; y < tall; y++) {
    const top = Math.floor((y * rows) / tall);
    const below = Math.max(top + 1, Math.floor(((y + 1) * rows) / tall));
    for (let x = 0; x < wide; x++) {
      const end = Math.max(ends[x] + 1, ends[x + 1]);
      let most = 0;
      for (let q = top; q < below; q++) {
        const stop = q * columns + end;
        for (let at = q * columns + ends[x]; at < stop; at++) if (levels[at] > most) most = levels[at];
      }
      pixels[y * stride + x] = colours[most];
    }
  }
}

/**
 * One head small, as a picture by itself.
 * @param {Attention} attention what small pictures are made of is loaded
 * @param {number} layer
 * @param {number} head
 * @param {string} scale
 * @param {number} most pixels a side
 */
export function thumbnail(attention, layer, head, scale, most) {
  const small = attention.small(layer, head, scale);
  const canvas = document.createElement("canvas");
  canvas.width = Math.min(small.columns, most);
  canvas.height = Math.min(small.rows, most);
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const picture = pen.createImageData(canvas.width, canvas.height);
  colour(new Uint32Array(picture.data.buffer), small, { columns: canvas.width, rows: canvas.height, stride: canvas.width });
  pen.putImageData(picture, 0, 0);
  return canvas;
}

/**
 * The hatching of what may not be read, drawn once for all heads; none where all may be.
 * @param {Attention} attention
 * @param {Size} size
 */
function maskTile(attention, { wide, tall }) {
  const { q_len, k_len, mask } = attention.group;
  if (mask === "none") return null;
  const tile = document.createElement("canvas");
  const pen = sized(tile, wide, tall);
  pen.fillStyle = hatching(pen);
  const each = Math.max(1, Math.floor(q_len / (4 * tall)));
  for (let q = 0; q < q_len; q += each) {
    for (const [begin, end] of attention.hidden(q)) {
      pen.fillRect((begin * wide) / k_len, (q * tall) / q_len, ((end - begin) * wide) / k_len, (each * tall) / q_len + 0.2);
    }
  }
  return tile;
}

/* --- where a text is too long to be shown at once: which part of it is, over a small picture of the whole head. */

/** @typedef {import("./heatmap.js").MapData} MapData */

/** Of the small picture, in CSS pixels. */
const SIDE = 128;

/**
 * Two sliders and a picture that is clicked; none where all is shown.
 * @param {Attention} attention
 * @param {{layer: number, head: number, scale: string}} chosen
 * @param {MapData} data
 * @param {(from: {q0?: number, k0?: number}) => void} move
 */
export function ranges(attention, { layer, head, scale }, data, move) {
  const { part: { q0, k0, rows, columns } } = data;
  if (rows === data.rows && columns === data.columns) return null;
  const picture = thumbnail(attention, layer, head, scale, SIDE);
  picture.setAttribute("aria-hidden", "true");
  const share = (/** @type {number} */ part, /** @type {number} */ whole) => `${(100 * part) / whole}%`;
  const frame = h("i", { style: { left: share(k0, data.columns), top: share(q0, data.rows), width: share(columns, data.columns), height: share(rows, data.rows) } });
  const small = h("div", { class: "whole-map", on: { click: (/** @type {MouseEvent} */ event) => {
    const box = small.getBoundingClientRect();
    const at = (/** @type {number} */ place, /** @type {number} */ length, /** @type {number} */ shown) => Math.max(0, Math.min(length - shown, Math.round(place * length - shown / 2)));
    move({ q0: at((event.clientY - box.top) / box.height, data.rows, rows), k0: at((event.clientX - box.left) / box.width, data.columns, columns) });
  } } }, picture, frame);
  /** @param {string} name @param {number} from @param {number} shown @param {number} length @param {(from: number) => void} set */
  const slider = (name, from, shown, length, set) => {
    const input = /** @type {HTMLInputElement} */ (h("input", { type: "range", min: 0, max: length - shown, step: 1, value: from,
      disabled: shown === length, "aria-label": `${name} from`, "data-range": name }));
    input.addEventListener("change", () => set(Number(input.value)));
    return h("label", { class: "dial" }, h("span", {}, name), input, h("output", {}, `${from} to ${from + shown - 1} of ${length}`));
  };
  return h("div", { class: "ranges" }, small, h("div", { class: "dials" },
    h("p", { class: "quiet" }, "This text is too long to be shown at once. Move the part that is shown with these sliders, or click into the picture."),
    slider("Queries", q0, rows, data.rows, (from) => move({ q0: from })), slider("Keys", k0, columns, data.columns, (from) => move({ k0: from }))));
}
