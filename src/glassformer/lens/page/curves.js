/** The curves of the run: what was measured at each step and on the dev split, and the samples that it wrote. */
import { chart, look } from "lens/chart.js";
import { cardHead, h, mistake, picker, plainTable, put, putControls, scroller, switcher } from "lens/dom.js";
import { csv, onPaper, saving } from "lens/files.js";
import { address, now, onScreen, set } from "lens/state.js";
import { number, whole } from "lens/text.js";

/* --- what was measured, as a table: each line of the dev split, and lines of training at even distances. */

/** @typedef {import("./trace.js").Metric} Metric */
/** @typedef {{name: string, metrics: Metric[]}} Run */

/** Lines of training that are shown of each run; the CSV has all. */
const MOST = 60;

/** @param {Run[]} runs @param {string[]} names of the figures @param {(name: string) => string} label how a figure is called */
export function curveTable(runs, names, label) {
  const several = runs.length > 1;
  const rows = runs.flatMap(({ name, metrics }) => thinned(metrics).map((line) => h("tr", {}, several && h("td", {}, whole(name)),
    h("th", { scope: "row", class: "figure" }, String(line.step)), h("td", {}, line.kind), names.map((each) => h("td", { class: "figure" }, number(line[each], 4))))));
  const all = runs.reduce((sum, { metrics }) => sum + metrics.length, 0);
  const head = [...(several ? ["run"] : []), "step", "split", ...names.map(label)];
  return h("section", { class: "card" }, h("h2", {}, "What was measured"),
    h("p", { class: "quiet" }, rows.length < all ? `${rows.length} of ${all} lines: all of the dev split, and lines of training at even distances. The CSV has every line.` : `All ${all} lines.`),
    scroller("What was measured", plainTable("Figures by step", head, (i) => head[i] === "step" || i > head.length - names.length - 1, rows)));
}

/** @param {Metric[]} metrics */
function thinned(metrics) {
  const train = metrics.filter((line) => line.kind === "train");
  const every = Math.max(1, Math.ceil(train.length / MOST));
  const kept = new Set(train.filter((_, i) => i % every === 0 || i === train.length - 1));
  return metrics.filter((line) => line.kind !== "train" || kept.has(line));
}

/* --- what the run wrote when it was evaluated, at the step that is chosen; the newest one until then. */

/** @typedef {{step: number, text: string, cut: boolean}} Sample */

/** A card that is empty where nothing was written; `refresh` asks for what came since. @param {import("./data.js").Source} source */
export function samplesCard(source) {
  const element = h("section", { class: "card samples", hidden: true });
  const [controls, text] = [h("div", { class: "controls" }), h("pre", { class: "sample", tabindex: "0", "aria-label": "What it wrote" })];
  element.append(h("h2", {}, "What it wrote"), controls, text);
  /** @type {Sample[]} */
  let all = [];
  /** The step that was chosen; none: the newest. */
  let chosen = "";
  const draw = () => {
    element.hidden = !all.length;
    const shown = all.find((each) => String(each.step) === chosen) ?? all[all.length - 1];
    if (!shown) return;
    const steps = /** @type {[string, string][]} */ ([...all].reverse().map((each, i) => [String(each.step), `step ${each.step}${i ? "" : ", the newest"}`]));
    putControls(controls, picker("Evaluated at", steps, String(shown.step), (value) => { chosen = value === steps[0][0] ? "" : value; draw(); }));
    put(text, shown.text.split("\n").map((line) => line.trim() && whole(line.trim())).join("\n"), shown.cut && "\n… The rest is in the run's folder samples.");
  };
  const refresh = async () => {
    all = await source.samples().catch(() => all);
    draw();
  };
  return { element, refresh };
}

/* --- the curves of the run: what was measured at each step, and on the dev split. */

/** @typedef {import("./main.js").Context} Context */

const POLL = 3000;
const NAMES = /** @type {Record<string, string>} */ ({ learning_rate: "learning rate", grad_norm: "gradient norm", pad_share: "share of padding", exact_match: "exact match", token_accuracy: "token accuracy", tokens_per_second: "tokens per second" });
const LEFT_OUT = ["step", "epoch", "n", "best", "kind", "cut", "unknown", "tokens"];

/** Figures that jump from step to step. */
const ROUGH = /loss|norm|second/;

/** @param {Context} context @returns {import("./main.js").Screen} */
export function curves(context) {
  const body = h("div", { class: "screen" });
  const written = samplesCard(context.source);
  const element = h("div", { class: "screen curves" }, body, written.element);
  let lines = context.run.metrics ?? [];
  let kept = context.run.kept ?? [];
  let waiting = 0;
  let left = false;
  /** @type {Run[]} */
  let others = [];
  const following = h("span", { class: "quiet", role: "status" }, "follows the run");
  /** @param {import("./dom.js").Child[]} status whether it does */
  const announce = (status) => {
    const text = h("span", {}, status).textContent;
    if (text !== following.textContent) put(following, status);
  };
  const draw = () => {
    const runs = [{ name: context.run.name, metrics: lines }, ...others];
    const table = now().curves === "table" && lines.length > 0;
    putControls(body, controls(runs, table), table ? curveTable(runs, figures(lines), called) : h("div", { class: "charts" }, panels(runs, now(), context.run.checkpoints ? kept : [])));
  };
  const controls = (/** @type {Run[]} */ runs, /** @type {boolean} */ table) => h("div", { class: "controls" },
    switcher("View", [["charts", "Charts"], ["table", "Table"]], table ? "table" : "charts", (value) => set({ curves: value })),
    !table && switcher("Axis of the loss", [["log", "Log"], ["linear", "Linear"]], now().axis, (axis) => set({ axis })),
    !table && picker("Smoothing", [["0", "none"], ["0.9", "medium"], ["0.98", "strong"]], now().smooth, (smooth) => set({ smooth })),
    h("span", { class: "grow" }), context.source.live && following,
    saving("all figures", [context.run.name, "curves"], { csv: () => asCsv(runs) }));
  const follow = async () => {
    try {
      const more = await context.source.metrics(lines.length);
      announce(["follows the run"]);
      if (more.lines.length || String(more.kept ?? kept) !== String(kept)) {
        context.run.metrics = lines = [...lines, ...more.lines];
        context.run.kept = kept = more.kept ?? kept;
        if (!left) draw();
        if (more.lines.some((each) => each.kind === "dev")) await written.refresh();
      }
    } catch (error) {
      announce(mistake(error));
    }
    if (!left) waiting = setTimeout(follow, POLL);
  };
  if (context.source.live) waiting = setTimeout(follow, POLL);
  written.refresh();
  const ready = async () => { if (context.run.others?.length && !others.length) others = await context.source.others(); };
  return { element, ready, draw, leave: () => { left = true; clearTimeout(waiting); } };
}

/**
 * @param {Run[]} runs the one that is shown, and those beside it
 * @param {{axis: string, smooth: string}} settings
 * @param {number[]} kept steps with a checkpoint
 */
function panels(runs, settings, kept) {
  const lines = runs[0].metrics;
  if (!lines.length) return h("section", { class: "card" }, h("p", { class: "quiet" }, "This trace does not belong to a run, so there are no curves."));
  return figures(lines).map((name) => {
    const series = runs.flatMap((run, i) => seriesOf(run, name, runs.length > 1 ? i : null));
    const log = settings.axis !== "linear" && /loss|norm/.test(name);
    const keys = runs.length > 1 ? runs.map((run, i) => [look(i), run.name]) : series.map((each, i) => [look(i), each.marks ? "dev" : "train"]);
    const drawn = chart(series, { log, smooth: ROUGH.test(name) ? share(settings.smooth) : 0, label: `${name} by step`, kept: name === "loss" ? kept : [] });
    const legend = h("div", { class: "keys" }, keys.map(([how, text]) => h("span", {}, h("i", { class: `key ${how}` }), text)),
      runs.length > 1 && series.some((each) => each.marks) && h("span", {}, "○ dev"),
      name === "loss" && kept.length > 0 && h("span", {}, "▲ checkpoint"));
    const leads = name === "loss" && kept.length > 0 && h("p", { class: "quiet leads" }, "Click ▲ to see what the heads did at each checkpoint. What they do now: ",
      h("a", { href: address(onScreen("attention")) }, "Attention"), ", ", h("a", { href: address(onScreen("heads")) }, "Heads"), ".");
    const drawing = () => onPaper(/** @type {SVGElement} */ (drawn.querySelector("svg")), `${runs[0].name}: ${called(name)}`, legend);
    return h("section", { class: "card" }, cardHead(called(name), saving(`the chart of ${called(name)}`, [runs[0].name, "curves", name], { svg: drawing })),
      legend, drawn, leads);
  });
}

/** How much of the past is kept, as the address has it. @param {string} text */
function share(text) {
  const value = Number(text);
  return value >= 0 && value < 1 ? value : 0;
}

/** What is drawn: the figures that are not 0 all the way. @param {Metric[]} lines */
function figures(lines) {
  const found = [...fields(lines, "train"), ...fields(lines, "dev").filter((name) => name !== "loss")];
  return [...new Set(found)].filter((name) => lines.some((line) => typeof line[name] === "number" && line[name] !== 0));
}

/** @param {string} name */
function called(name) {
  return NAMES[name] ?? name.replaceAll("_", " ");
}

/** The lines of a run in the chart of a figure: training and dev. @param {Run} run @param {string} name @param {number | null} number of the run, where there are several */
function seriesOf({ name: run, metrics }, name, number) {
  return ["train", "dev"].map((kind) => ({ name: `${number === null ? "" : `${run}, `}${kind} ${NAMES[name] ?? name}`, marks: kind === "dev", c: number ?? undefined, points: points(metrics, kind, name) }))
    .filter((each) => each.points.length);
}

/** @param {Metric[]} lines @param {string} kind */
function fields(lines, kind) {
  const names = new Set();
  for (const line of lines) if (line.kind === kind) for (const [name, value] of Object.entries(line)) if (typeof value === "number" && !LEFT_OUT.includes(name)) names.add(name);
  return [...names];
}

/** @param {Metric[]} lines @param {string} kind @param {string} name @returns {[number, number][]} */
function points(lines, kind, name) {
  return lines.filter((line) => line.kind === kind && typeof line[name] === "number").map((line) => [line.step, line[name]]);
}

/** Every line as it was written; of several runs, with the name of each. @param {Run[]} runs */
function asCsv(runs) {
  const lines = runs.flatMap(({ name, metrics }) => metrics.map((line) => (runs.length > 1 ? { run: name, ...line } : line)));
  const names = [...new Set(lines.flatMap((line) => Object.keys(line)))].filter((name) => lines.every((line) => typeof line[name] !== "object" || line[name] === null));
  return csv(names, lines.map((line) => names.map((name) => line[name])));
}
