/** What happens without some heads: chosen here and run by the model, or as the run's own test or a study found it. */
import { relist } from "lens/ask.js";
import { apart } from "lens/data.js";
import { Outcome, cardHead, h, picker, plainTable, put, putControls, s, scroller, switcher } from "lens/dom.js";
import { csv, saving } from "lens/files.js";
import { effect, lost, rolesCsv } from "lens/role.js";
import { now, openHead, set } from "lens/state.js";
import { sortable } from "lens/table.js";
import { headName, number, percent, token, whole } from "lens/text.js";
import { forced } from "lens/trace.js";

/* --- what each head reads once others are taken out: how far its map is from what it was, on the very same tokens. */

/** @typedef {import("./main.js").Context} Context */
/** @typedef {{block: string, layer: number, head: number, gap: number | null, out: boolean}} Row */

/**
 * A table of the heads; one that is chosen is opened on Attention, both maps beside each other.
 * @param {Context} context
 * @param {string} same id of the trace that the model was made to write without them
 * @param {Set<string>} out names of those that are taken out
 */
export async function movedHeads(context, same, out) {
  const [one, other] = [context.trace, await context.source.trace(same)];
  await relist(context);
  const pairs = [...one.attention.values()].map((each) => /** @type {const} */ ([each, other.attention.get(each.block)]));
  await Promise.all(pairs.flat().map((each) => each?.load(each.layers)));
  const rows = pairs.flatMap(([a, b]) => a.layers.flatMap((layer) => Array.from({ length: a.group.heads }, (_, head) =>
    ({ block: a.block, layer, head, gap: apart(a, b, layer, head), out: out.has(headName(a.block, layer, head)) }))));
  const asCsv = () => csv(["block", "layer", "head", "taken_out", "apart"], rows.map((row) => [row.block, row.layer, row.head, row.out, row.gap]));
  return h("div", { class: "moved-heads" }, h("div", { class: "card-head" }, h("h3", {}, "How the attention of the heads moved"), h("span", { class: "grow" }),
    saving("how far the heads moved", [context.run.name, "ablations", one.title], { csv: asCsv })),
  h("p", { class: "quiet" }, "On the same tokens as with all heads: the share of a query’s attention that moved to other keys, averaged over the queries. Click a head to see both maps."),
  sortable("How far each head’s attention moved", [
    { name: "head", cell: (row) => h("code", {}, headName(row.block, row.layer, row.head)), by: (row) => `${row.block} ${String(row.layer).padStart(3, "0")} ${String(row.head).padStart(3, "0")}` },
    { name: "moved", figure: true, cell: (row) => number(row.gap), by: (row) => row.gap ?? -1 },
    { name: "", cell: (row) => row.out && "removed" },
  ], rows, { name: "moved", sorted: "moved", choose: (row) => openHead(row, { other: same, view: "map" }) }));
}

/* --- the study that a run is an arm of: its settings side by side, over their seeds, and against one of them. */

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
    putControls(place, h("div", { class: "controls" }, picker("Compared with", all.map(({ name }) => [name, whole(name)]), base.name, draw)), armsTable(study, all, base));
  };
  draw(all[0].name);
  return h("section", { class: "card study" }, cardHead(`The study ${study.name}`,
    saving("the study", [study.name, "ablations", "arms"], { csv: () => csv(["setting", "seed", study.metric, "seconds"], all.flatMap(({ name, arms }) => arms.map(({ seed, figure, seconds }) => [name, seed, figure, seconds]))) })),
    h("p", { class: "quiet" }, `${study.metric.replaceAll("_", " ")} on the ${study.split} split${study.n ? `, n = ${study.n}` : ""}: the mean over seeds with its 95 % interval (Student’s t), and the difference between runs of the same seed, which ${sameData(study) ? "saw the same data" : "did not all see the same data"}${study.share ? ", in percentage points" : ""}.`), place);
}

/** @param {Study} study @param {Group[]} all @param {Group} base */
function armsTable(study, all, base) {
  const signedNumber = (/** @type {number} */ value, /** @type {boolean} */ signed = false) => {
    const text = study.share ? percent(Math.abs(value)) : number(Math.abs(value), 4);
    return value < 0 ? `−${text}` : signed && value > 0 ? `+${text}` : text;
  };
  const withInterval = (/** @type {Estimate} */ { mean, half }, /** @type {boolean} */ signed = false) =>
    (half === null ? signedNumber(mean, signed) : `${signedNumber(mean, signed)} [${signedNumber(mean - half, signed)}, ${signedNumber(mean + half, signed)}]`);
  const figures = study.arms.map((arm) => arm.figure);
  const ends = /** @type {[number, number]} */ ([Math.min(...figures), Math.max(...figures)]);
  const rows = all.map((group) => {
    const differences = group === base ? [] : paired(group, base);
    const change = differences.length ? estimate(differences) : null;
    const clear = change && change.half !== null && Math.abs(change.mean) > change.half;
    return h("tr", {}, h("th", { scope: "row" }, whole(group.name)), h("td", { class: "figure" }, String(group.arms.length)),
      h("td", { class: "figure" }, withInterval(estimate(group.arms.map((arm) => arm.figure)))), h("td", {}, dots(group.arms.map((arm) => arm.figure), ends)),
      h("td", { class: "figure" }, group === base ? "the baseline" : change ? withInterval(change, true) : "no seed in common"),
      h("td", {}, clear ? "interval excludes 0" : change?.half === null ? "no interval from one seed" : ""));
  });
  return scroller(`The study ${study.name}`, plainTable(`Arms of the study ${study.name}`,
    ["setting", "seeds", "mean", "each seed", "paired difference", ""], (i) => [1, 2, 4].includes(i), rows));
}

/** A mark for each seed, from the least figure of the study to its largest. @param {number[]} values @param {[number, number]} ends */
function dots(values, [low, high]) {
  const x = (/** @type {number} */ value) => 6 + (high > low ? (148 * (value - low)) / (high - low) : 74);
  return s("svg", { viewBox: "0 0 160 16", width: 160, height: 16, class: "chart", "aria-hidden": "true" }, s("line", { class: "rule", x1: 6, x2: 154, y1: 8, y2: 8 }),
    values.map((value) => s("circle", { cx: x(value), cy: 8, r: 4, class: "dot c0" })));
}

/* --- what happens without some heads: chosen here and run by the model, or as the run's own test found it. */

/** @typedef {{block: string, layer: number, head: number}} Place */

/** @param {Context} context @returns {import("./main.js").Screen} */
export function ablations(context) {
  const element = h("div", { class: "screen ablations" });
  const tested = (context.trace.header.heads ?? []).filter((head) => head.ablation);
  let drawn = false;
  const live = context.source.live ? bench(context) : null;
  const effects = h("div");
  const draw = () => {
    live?.check();
    putControls(effects, table(tested));
    if (drawn) return;
    drawn = true;
    put(element, live ? live.element : h("section", { class: "card" }, h("h2", {}, "Removing heads"),
      h("p", { class: "quiet" }, "This page is a copy without its model. To run the model without some heads, open the run with glassformer explore.")),
    studyCard(context.run.study),
    tested.length ? h("section", { class: "card" }, cardHead("One head at a time",
      saving("this table", [context.run.name, "ablations"], { csv: () => rolesCsv(tested) })), effects) : null);
  };
  return { element, draw };
}

/** @param {import("./trace.js").Head[]} heads */
function table(heads) {
  return sortable("Effect of removing each head", [
    { name: "head", cell: (row) => h("code", {}, headName(row.block, row.layer, row.head)), by: (row) => row.id },
    { name: "lost", figure: true, cell: (row) => percent(lost(row)), by: lost },
    { name: "what happens", cell: (row) => effect(row) },
    { name: "verdict", cell: (row) => row.ablation?.verdict ?? "" },
  ], heads, { sorted: "lost", choose: openHead });
}

/** @param {Context} context */
function bench(context) {
  const { trace, source, run } = context;
  /** @type {Map<string, {box: HTMLInputElement, place: Place}>} by what the address calls them */
  const all = new Map();
  const outcome = new Outcome();
  const boxes = [...trace.attention.values()].map(({ group: { block, layers, heads } }) => h("fieldset", {}, h("legend", {}, `${block} attention`),
    Array.from({ length: layers }, (_, layer) => h("div", { class: "row" }, h("span", { class: "label" }, `layer ${layer}`), Array.from({ length: heads }, (_, head) => {
      const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", "data-head": `${block} ${layer} ${head}` }));
      all.set(`${block}-${layer}-${head}`, { box, place: { block, layer, head } });
      box.addEventListener("change", () => set({ out: checked().map(([name]) => name).join("_") }));
      const role = trace.head(block, layer, head)?.role;
      return h("label", { class: "head-box" }, box, h("span", {}, String(head)), role && role.strength !== "none" && h("small", { class: "quiet" }, role.label));
    })))));
  const how = h("div", { class: "controls" });
  const kind = () => (now().kind === "mean" ? "mean" : "zero");
  const checked = () => [...all].filter(([, { box }]) => box.checked);
  const go = async () => {
    const out = checked().map(([, { place }]) => place);
    outcome.show();
    if (!out.length) return outcome.fail("Choose at least one head.");
    outcome.say("Running …");
    try {
      const { source: read, target } = trace.header.sequences;
      const called = kind() === "mean" ? "with their mean" : "without them";
      const result = await source.post("ablate", { heads: out, kind: kind(), trace: idOf(trace, run) });
      const moved = await movedHeads(context, result.same, new Set(out.map(({ block, layer, head }) => headName(block, layer, head))));
      const same = result.before.join("\n") === result.after.join("\n");
      outcome.say(trace.header.labels ? `It gives ${same ? "the same" : "another"} ${trace.header.run.mode} ${called}.`
        : forced(trace) ? `${same ? "The same" : "Other"} tokens are the most likely ones ${called}.` : `It writes ${same ? "the same" : "other"} tokens ${called}.`);
      outcome.show(compared(result, read ?? target, called), moved);
    } catch (error) {
      outcome.fail(error);
    }
  };
  /** Check the boxes of the heads that the address has. */
  const check = () => {
    putControls(how, switcher("In their place", [["zero", "Nothing"], ["mean", "Their mean"]], kind(), (value) => set({ kind: value })));
    const names = new Set(now().out.split("_"));
    for (const [name, { box }] of all) box.checked = names.has(name);
  };
  const element = h("section", { class: "card" }, h("h2", {}, "Run the model without some heads"),
    h("p", { class: "quiet" }, "Tick heads to remove. They then add nothing, or their mean over held-out texts; everything else stays."), h("div", { class: "boxes" }, boxes),
    h("div", { class: "controls" }, h("span", { class: "label" }, "in their place"), how, h("span", { class: "grow" }),
      h("button", { type: "button", class: "strong-button", id: "ablate", on: { click: go } }, "Run without them")), outcome.element);
  return { element, check };
}

/** Which trace is shown, as the server knows it. @param {import("./trace.js").Trace} trace @param {import("./trace.js").RunInfo} run */
function idOf(trace, run) {
  return trace.header.run.id ?? run.name;
}

/**
 * @param {{before: string[], after: string[], same: string, metrics?: {name: string, before: number, after: number, n: number}}} result
 * @param {import("./trace.js").Sequence | undefined} read
 * @param {string} name of what was written then
 */
function compared({ before, after, metrics }, read, name) {
  const line = (/** @type {string} */ label, /** @type {string[]} */ tokens, /** @type {string[] | null} */ other) => h("div", { class: "strip" }, h("span", { class: "label" }, label),
    h("div", { class: "tokens big" }, tokens.map((text, i) => h("span", { class: `chip${other && other[i] !== text ? " wrong" : ""}` }, token(text)))));
  return [line("reads", read?.text ?? [], null), line("with all heads", before, null), line(name, after, before),
    metrics && h("p", { class: "sentence" }, `${metrics.name.replaceAll("_", " ")}: `, h("output", { id: "before" }, percent(metrics.before)), " with all heads, ",
      h("output", { id: "after" }, percent(metrics.after)), ` ${name} (${metrics.n} samples).`)];
}
