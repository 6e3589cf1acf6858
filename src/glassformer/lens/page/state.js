/** The one state that all views share, kept in the address, so that a link or a reload shows the same. */

/**
 * @typedef {object} State
 * @property {string} screen
 * @property {string} of what a map shows: "weights", or "moved", weights times the size of what they move
 * @property {string} trace
 * @property {string} other the trace beside it, in compare mode; "" for none
 * @property {string} block
 * @property {number} layer
 * @property {number} head
 * @property {number | null} q the query that is locked
 * @property {number | null} k the key that is locked
 * @property {number} step
 * @property {number} q0 where the part of a long text begins that is shown: its first query
 * @property {number} k0 and its first key
 * @property {string} view
 * @property {string} scale
 * @property {string} sort of the small pictures: "layer", or what decides which comes first
 * @property {string} curves how they are shown: "charts", or "table"
 * @property {string} only which of them are shown: "" for all
 * @property {string} axis of the loss on Curves: "log", or "linear"
 * @property {string} smooth how much of the past a curve keeps, 0 to 1
 * @property {string} temperature as it is turned on Generate
 * @property {string} topK 0 for all
 * @property {string} topP
 * @property {string} part of the model whose parameters are listed: the beginning of their names; "" for all
 * @property {string} kind what heads that are taken out give instead: "zero", or their "mean"
 * @property {string} by what the tables of this screen are sorted by, as `table.js` reads it; "" as each is at first
 * @property {string} out heads that are chosen to be taken out: block, layer and head of each, `cross-0-1_cross-0-2`
 */

/** @type {State} */
const DEFAULTS = {
  screen: "overview", of: "weights", trace: "0", other: "", block: "", layer: 0, head: 0, q: null, k: null, step: -1, view: "map",
  scale: "sqrt", q0: 0, k0: 0, sort: "layer", curves: "charts", only: "",
  axis: "log", smooth: "0.9", temperature: "1", topK: "0", topP: "1", part: "", kind: "zero", by: "", out: "",
};
const NUMBERS = ["layer", "head", "q", "k", "step", "q0", "k0"];
const SCREENS = ["overview", "attention", "generate", "heads", "ablations", "parameters", "curves"];

/** @type {State} */
let state = { ...DEFAULTS };
/** What the pointer or the keyboard is on: lost when it leaves. @type {{q: number | null, k: number | null}} */
let hover = { q: null, k: null };
/** @type {Set<(what: "state" | "hover") => void>} */
const listeners = new Set();
let scheduled = "";

export const screens = SCREENS;

/** @returns {Readonly<State>} */
export function now() {
  return state;
}

/** The place that is shown: the locked one, else the one under the pointer. */
export function focus() {
  return locked() ? { q: state.q, k: state.k } : hover;
}

/** Whether a place is locked. */
export function locked() {
  return state.q !== null || state.k !== null;
}

/** @param {(what: "state" | "hover") => void} listener @returns {() => void} */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/**
 * Change the state. `push` makes an entry that the back button returns from.
 * @param {Partial<State>} patch
 * @param {boolean} [push]
 */
export function set(patch, push = false) {
  state = { ...onScreen(patch.screen ?? state.screen), ...patch };
  hover = { q: null, k: null };
  write(push);
  notify("state");
}

/** Open the map of a head. @param {{block: string, layer: number, head: number}} at @param {Partial<State>} [then] what else is shown */
export function openHead({ block, layer, head }, then = {}) {
  set({ screen: "attention", block, layer, head, q: null, k: null, ...then }, true);
}

/** The state as it is on a screen: how tables are sorted is of theirs alone. @param {string} screen @returns {State} */
export function onScreen(screen) {
  return screen === state.screen ? state : { ...state, screen, by: DEFAULTS.by };
}

/** Keep in the address what is shown already. @param {Partial<State>} patch */
export function keep(patch) {
  state = { ...state, ...patch };
  write(false);
}

/** @param {number | null} q @param {number | null} k */
export function point(q, k) {
  if (hover.q === q && hover.k === k) return;
  hover = { q, k };
  if (!scheduled) requestAnimationFrame(() => { scheduled = ""; notify("hover"); });
  scheduled = "hover";
}

/** Lock a place, or free it where it is locked. @param {number | null} q @param {number | null} k */
export function lock(q, k) {
  const same = state.q === q && state.k === k;
  set(same ? { q: null, k: null } : { q, k });
}

/** @param {"state" | "hover"} what */
function notify(what) {
  for (const each of [...listeners]) each(what);
}

/** The address of a state: `#attention?block=cross&layer=1`, without what is as usual. @param {State} of */
export function address(of) {
  const query = Object.entries(of)
    .filter(([name, value]) => name !== "screen" && value !== null && value !== DEFAULTS[/** @type {keyof State} */ (name)])
    .map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`);
  return `#${of.screen}${query.length ? `?${query.join("&")}` : ""}`;
}

/** @param {boolean} push */
function write(push) {
  const hash = address(state);
  if (hash === location.hash) return;
  try {
    if (push) history.pushState(null, "", hash);
    else history.replaceState(null, "", hash);
  } catch {
    // A sandboxed frame has no history to write to; the state lives on without an address.
  }
}

/** Take the state from the address; what is no setting is left out. */
export function read() {
  const [screen, query = ""] = location.hash.slice(1).split("?");
  /** @type {Record<string, any>} */
  const found = { ...DEFAULTS, screen: SCREENS.includes(screen) ? screen : DEFAULTS.screen };
  for (const [name, value] of new URLSearchParams(query)) {
    if (name === "screen" || !Object.hasOwn(DEFAULTS, name)) continue; // the screen stands before the settings
    if (!NUMBERS.includes(name)) found[name] = value;
    else if (/^\d{1,6}$/.test(value)) found[name] = Number(value);
  }
  state = /** @type {State} */ (found);
  hover = { q: null, k: null };
  notify("state");
}
