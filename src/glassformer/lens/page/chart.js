/** A chart of curves, and where its axes have their lines. */
import { h, s } from "lens/dom.js";
import { address, onScreen } from "lens/state.js";
import { number } from "lens/text.js";

/* --- where an axis has its lines, and what is written at them. */

/** How many lines there are: four where that can be, and at least three, whatever is to be shown. */
const [LEAST_LINES, WISHED, MOST_LINES] = [3, 4, 6];

/**
 * Round numbers from `low` to `high`. Those of a log scale are evenly apart to the eye: 1, 2, 5, 10, ..., or fewer. Within
 * a decade there are often not enough of these, and it has multiples of a round step, as a linear scale has.
 * @param {number} low above 0 for a log scale
 * @param {number} high above `low`
 * @param {boolean} log
 * @returns {number[]}
 */
export function places(low, high, log) {
  return (log && best([[1, 2, 5], [1, 3], [1]].map((digits) => powers(low, high, digits)))) || best(multiples(low, high)) || [low, high];
}

/** Of several sets of places, one with a good number of them. @param {number[][]} sets @returns {number[] | undefined} */
function best(sets) {
  const far = (/** @type {number[]} */ { length }) => Math.abs(length - WISHED);
  return sets.filter(({ length }) => length >= LEAST_LINES && length <= MOST_LINES).sort((a, b) => far(a) - far(b))[0];
}

/** @param {number} low @param {number} high @param {number[]} digits what stands before a power of ten */
function powers(low, high, digits) {
  const first = Math.floor(Math.log10(low));
  const decades = Math.floor(Math.log10(high)) - first + 1;
  const apart = digits.length > 1 ? 1 : Math.ceil(decades / MOST_LINES); // of many powers, each second or third
  return Array.from({ length: decades }, (_, i) => first + i).filter((power) => power % apart === 0)
    .flatMap((power) => digits.map((digit) => Number(`${digit}e${power}`))).filter((each) => each >= low && each <= high);
}

/** The multiples of each round step, from the smallest step that is of use here. @param {number} low @param {number} high */
function multiples(low, high) {
  const power = Math.ceil(Math.log10(high - low));
  return [power - 2, power - 1].flatMap((each) => [1, 2, 2.5, 5].map((digit) => Number(`${digit}e${each}`))).map((step) => {
    const [first, last] = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
    return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
  });
}

/** A place with all its digits: rounded, two of them could read the same. @param {number} at */
export function written(at) {
  return at !== 0 && (Math.abs(at) < 1e-4 || Math.abs(at) >= 1e6) ? at.toExponential() : String(at);
}

/* --- lines over steps, as SVG: axes, a cross that follows the pointer, raw values behind smoothed ones. */

/** @typedef {{name: string, points: [number, number][], marks?: boolean, c?: number}} Series c: number of its colour, and of its dashes */
/** @typedef {{log?: boolean, smooth?: number, width?: number, height?: number, label: string, kept?: number[]}} Options kept: steps with a checkpoint */

const PAD = { left: 52, right: 12, top: 10, bottom: 26 };
const MOST = 600;
const LETTER = 7.4;

/**
 * At most twice `MOST` points, the lowest and the highest of each stretch, so that no peak is lost.
 * @param {[number, number][]} points
 * @returns {[number, number][]}
 */
export function thinned(points) {
  if (points.length <= 2 * MOST) return points;
  const found = [];
  for (let i = 0; i < MOST; i++) {
    const part = points.slice(Math.floor((i * points.length) / MOST), Math.floor(((i + 1) * points.length) / MOST));
    const ordered = [...part].sort((a, b) => a[1] - b[1]);
    const ends = [ordered[0], ordered[ordered.length - 1]].sort((a, b) => a[0] - b[0]);
    found.push(...(ends[0] === ends[1] ? [ends[0]] : ends));
  }
  return /** @type {[number, number][]} */ (found);
}

/**
 * Exponential moving average without the pull of its beginning (Kingma and Ba 2015, section 3).
 * @param {[number, number][]} points
 * @param {number} share how much of the past is kept
 * @returns {[number, number][]}
 */
export function smoothed(points, share) {
  let mean = 0;
  let weight = 0;
  return points.map(([x, y]) => {
    mean = share * mean + (1 - share) * y;
    weight = share * weight + (1 - share);
    return [x, mean / weight];
  });
}

/**
 * @param {Series[]} given
 * @param {Options} options
 */
export function chart(given, { log = false, smooth = 0, width = 560, height = 220, label, kept = [] }) {
  const series = given.map((each) => ({ ...each, points: each.points.filter(([, y]) => Number.isFinite(y) && (!log || y > 0)) }));
  const all = series.flatMap((each) => each.points);
  if (!all.length) return h("p", { class: "quiet" }, "Nothing to draw yet.");
  const [xs, ys] = [all.map((p) => p[0]), all.map((p) => p[1])];
  const span = (/** @type {number[]} */ values) => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  let [[x0, x1], [y0, y1]] = [span(xs), span(ys)];
  if (x1 === x0) x1 = x0 + 1;
  if (!log && y0 > 0 && y0 < 0.5 * y1) y0 = 0;
  if (y1 === y0) y1 = y0 + (Math.abs(y0) || 1);
  const [across, up] = [places(x0, x1, false), places(y0, y1, log)];
  const left = Math.max(PAD.left, 8 + LETTER * Math.max(...up.map((at) => written(at).length)));
  const inside = (/** @type {number} */ at) => Math.min(x(at), width - (LETTER * written(at).length) / 2); // a saved drawing ends at its edge
  const bend = log ? Math.log10 : (/** @type {number} */ v) => v;
  const x = (/** @type {number} */ v) => left + ((v - x0) / (x1 - x0)) * (width - left - PAD.right);
  const y = (/** @type {number} */ v) => height - PAD.bottom - ((bend(v) - bend(y0)) / (bend(y1) - bend(y0))) * (height - PAD.top - PAD.bottom);
  const path = (/** @type {[number, number][]} */ points) => points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
  const lines = series.flatMap((each, i) => [
    smooth > 0 && !each.marks ? s("path", { d: path(thinned(each.points)), class: `line raw ${look(each.c ?? i)}` }) : null,
    s("path", { d: path(thinned(smooth > 0 && !each.marks ? smoothed(each.points, smooth) : each.points)), class: `line ${look(each.c ?? i)}` }),
    each.marks ? each.points.map(([a, b]) => s("circle", { cx: x(a), cy: y(b), r: 3, class: `dot c${(each.c ?? i) % 4}` })) : null,
  ].flat());
  const cross = s("line", { class: "cross", y1: PAD.top, y2: height - PAD.bottom, visibility: "hidden" });
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: kept.length ? "group" : "img", "aria-label": label },
    up.map((at) => [s("line", { class: "rule", x1: left, x2: width - PAD.right, y1: y(at), y2: y(at) }),
      s("text", { x: left - 8, y: y(at) + 4, "text-anchor": "end" }, written(at))]).flat(),
    across.map((at) => s("text", { x: inside(at), y: height - 8, "text-anchor": "middle" }, written(at))), lines, cross,
    kept.filter((at) => at >= x0 && at <= x1).map((at) => checkpoint(at, x(at), height - PAD.bottom)));
  const values = h("p", { class: "values quiet" }, latest(series, Infinity));
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = x0 + ((((event.clientX - box.left) / box.width) * width - left) / (width - left - PAD.right)) * (x1 - x0);
    cross.setAttribute("visibility", "visible");
    for (const end of ["x1", "x2"]) cross.setAttribute(end, String(x(Math.min(x1, Math.max(x0, at)))));
    values.textContent = latest(series, at);
  });
  svg.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); values.textContent = latest(series, Infinity); });
  return h("figure", { class: "chart-place" }, svg, values);
}

/** How a line looks: four colours, and dashes where they come again. @param {number} i its number */
export function look(i) {
  return `c${i % 4} d${Math.floor(i / 4) % 3}`;
}

/** A mark below the axis that leads to the heads over all checkpoints. @param {number} step @param {number} x @param {number} y */
function checkpoint(step, x, y) {
  const name = `Checkpoint at step ${step}: what the heads did`;
  return s("a", { href: address(onScreen("heads")), class: "kept", "aria-label": name }, s("title", {}, name),
    s("rect", { x: x - 12, y: y - 2, width: 24, height: 24 }), s("path", { d: `M${x - 4} ${y + 7}h8l-4 -6z` }));
}

/**
 * The value of each line at a step, or before it.
 * @param {Series[]} series
 * @param {number} step
 */
function latest(series, step) {
  return series.map(({ name, points }) => {
    let found = points[0];
    for (const point of points) if (point[0] <= step) found = point;
    return found ? `step ${found[0]}: ${name} ${number(found[1], 4)}` : "";
  }).join(series.length > 2 ? "\n" : "   ");
}

/** Loss in training, on a log scale, small. @param {import("./trace.js").Metric[]} metrics */
export function smallChart(metrics) {
  const points = metrics.filter((line) => line.kind === "train" && line.loss !== null).map((line) => /** @type {[number, number]} */ ([line.step, line.loss]));
  return chart([{ name: "loss", points }], { log: true, smooth: 0.9, width: 500, height: 180, label: "Training loss by step" });
}
