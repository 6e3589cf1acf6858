/** The study that a run is an arm of: its settings side by side, over their seeds, and against one of them. */

import { csv } from "lens/csv.js";
import { h, picker, putControls, s, scroller } from "lens/dom.js";
import { saving } from "lens/files.js";
import { number, percent, whole } from "lens/text.js";

/** @typedef {{values: Record<string, unknown>, seed: number, figure: number, seconds: number, data: string}} Arm `data`: the digest of what it was trained on */
/** @typedef {{name: string, metric: string, share: boolean, split: string, n?: number | null, arms: Arm[]}} Study */
/** @typedef {{name: string, arms: Arm[]}} Group arms with the same settings, one of each seed */
/** @typedef {{mean: number, half: number | null, n: number}} Estimate a mean, and half of its 95 % interval */

/** The 0.975 quantiles of Student's t with 1 to 10 degrees of freedom. */
const T = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

/** With so many degrees of freedom; beyond the table by the first terms of Cornish and Fisher's series. @param {number} df */
function quantile(df) {
  return T[df - 1] ?? 1.95996 + 2.3722 / df + 2.8225 / (df * df);
}

/**
 * The mean of some figures, with its interval by Student's t; of one figure there is no interval.
 * @param {number[]} values
 * @returns {Estimate}
 */
export function estimate(values) {
  const n = values.length;
  const mean = values.reduce((a, b) => a + b, 0) / n;
  if (n < 2) return { mean, half: null, n };
  const variance = values.reduce((sum, each) => sum + (each - mean) ** 2, 0) / (n - 1);
  return { mean, half: quantile(n - 1) * Math.sqrt(variance / n), n };
}

/** Whether the runs of one seed were all trained on the same data. @param {Study} study */
function sameData({ arms }) {
  const first = new Map(arms.map((arm) => [arm.seed, arm.data]));
  return arms.every((arm) => first.get(arm.seed) === arm.data);
}

/** The differences to another group, seed by seed. @param {Group} one @param {Group} other */
export function paired(one, other) {
  const before = new Map(other.arms.map((arm) => [arm.seed, arm.figure]));
  return one.arms.filter((arm) => before.has(arm.seed)).map((arm) => arm.figure - /** @type {number} */ (before.get(arm.seed)));
}

/** @param {Study} study @returns {Group[]} */
function groups({ arms }) {
  const settings = [...new Set(arms.flatMap((arm) => Object.keys(arm.values)))];
  const ends = settings.map((each) => each.split(".").at(-1));
  const short = settings.map((each, i) => (ends.filter((end) => end === ends[i]).length > 1 ? each : ends[i]));
  /** @type {Map<string, Group>} */
  const found = new Map();
  for (const arm of arms) {
    const name = settings.map((each, i) => `${short[i]} = ${arm.values[each]}`).join(", ") || "as in the recipe";
    const group = found.get(name) ?? { name, arms: [] };
    group.arms.push(arm);
    found.set(name, group);
  }
  return [...found.values()];
}

/** @param {Study | null | undefined} study */
export function studyCard(study) {
  if (!study) return null;
  const all = groups(study);
  const place = h("div", {});
  const draw = (/** @type {string} */ baseline) => {
    const base = all.find((each) => each.name === baseline) ?? all[0];
    putControls(place, h("div", { class: "controls" }, picker("Compared with", all.map(({ name }) => [name, whole(name)]), base.name, draw)), table(study, all, base));
  };
  draw(all[0].name);
  return h("section", { class: "card study" }, h("div", { class: "card-head" }, h("h2", {}, `The study ${study.name}`), h("span", { class: "grow" }),
    saving("the study", [study.name, "ablations", "arms"], { csv: () => csv(["setting", "seed", study.metric, "seconds"], all.flatMap(({ name, arms }) => arms.map(({ seed, figure, seconds }) => [name, seed, figure, seconds]))) })),
    h("p", { class: "quiet" }, `${study.metric.replaceAll("_", " ")} on the ${study.split} split${study.n ? `, n = ${study.n}` : ""}: the mean over seeds with its 95 % interval (Student’s t), and the difference between runs of the same seed, which ${sameData(study) ? "saw the same data" : "did not all see the same data"}${study.share ? ", in percentage points" : ""}.`), place);
}

/** @param {Study} study @param {Group[]} all @param {Group} base */
function table(study, all, base) {
  const said = (/** @type {number} */ value, /** @type {boolean} */ signed = false) => {
    const text = study.share ? percent(Math.abs(value)) : number(Math.abs(value), 4);
    return value < 0 ? `−${text}` : signed && value > 0 ? `+${text}` : text;
  };
  const told = (/** @type {Estimate} */ { mean, half }, /** @type {boolean} */ signed = false) =>
    (half === null ? said(mean, signed) : `${said(mean, signed)} [${said(mean - half, signed)}, ${said(mean + half, signed)}]`);
  const figures = study.arms.map((arm) => arm.figure);
  const ends = /** @type {[number, number]} */ ([Math.min(...figures), Math.max(...figures)]);
  const rows = all.map((group) => {
    const differences = group === base ? [] : paired(group, base);
    const change = differences.length ? estimate(differences) : null;
    const clear = change && change.half !== null && Math.abs(change.mean) > change.half;
    return h("tr", {}, h("th", { scope: "row" }, whole(group.name)), h("td", { class: "figure" }, String(group.arms.length)),
      h("td", { class: "figure" }, told(estimate(group.arms.map((arm) => arm.figure)))), h("td", {}, dots(group.arms.map((arm) => arm.figure), ends)),
      h("td", { class: "figure" }, group === base ? "the baseline" : change ? told(change, true) : "no seed in common"),
      h("td", {}, clear ? "interval excludes 0" : change?.half === null ? "no interval from one seed" : ""));
  });
  return scroller(`The study ${study.name}`, h("table", { class: "plain" }, h("caption", { class: "unseen" }, `Arms of the study ${study.name}`),
    h("thead", {}, h("tr", {}, ["setting", "seeds", "mean", "each seed", "paired difference", ""].map((name, i) => h("th", { scope: "col", class: [1, 2, 4].includes(i) ? "figure" : "" }, name)))), h("tbody", {}, rows)));
}

/** A mark for each seed, from the least figure of the study to its largest. @param {number[]} values @param {[number, number]} ends */
function dots(values, [low, high]) {
  const x = (/** @type {number} */ value) => 6 + (high > low ? (148 * (value - low)) / (high - low) : 74);
  return s("svg", { viewBox: "0 0 160 16", width: 160, height: 16, class: "chart", "aria-hidden": "true" }, s("line", { class: "rule", x1: 6, x2: 154, y1: 8, y2: 8 }),
    values.map((value) => s("circle", { cx: x(value), cy: 8, r: 4, class: "dot c0" })));
}
