/** The heads as a table, as points, by likeness, and over the checkpoints of a run. */
import { chart } from "lens/chart.js";
import { apart, besideOf, besidePicker } from "lens/data.js";
import { Outcome, cardHead, h, plainTable, put, s, scroller } from "lens/dom.js";
import { csv, onPaper, saving } from "lens/files.js";
import { chanceOf, lost, roleName } from "lens/role.js";
import { openHead } from "lens/state.js";
import { sortable } from "lens/table.js";
import { headName, number, percent, whole } from "lens/text.js";

/* --- each head as a point: how sure its role is, and what is lost without it. */

/** @param {Row[]} rows those without a role have no point */
export function scatter(rows) {
  const [width, height, pad] = [640, 260, 40];
  const known = rows.filter((row) => row.known?.role);
  const most = Math.max(0.05, ...known.map((row) => lost(row.known)));
  const x = (/** @type {Row} */ row) => pad + Math.max(0, row.known?.role?.score ?? 0) * (width - pad - 20);
  const y = (/** @type {Row} */ row) => height - pad - (Math.max(0, lost(row.known)) / most) * (height - pad - 44);
  const named = namable(known.filter((row) => lost(row.known) > most / 4), x, y);
  const shapes = /** @type {Record<string, string>} */ ({ encoder: "M-5-5H5V5H-5Z", decoder: "M0-6L6 5H-6Z", cross: "M0-6L6 0L0 6L-6 0Z" });
  return scroller("Role and effect", s("svg", { viewBox: `0 0 ${width} ${height}`, class: "scatter", role: "img", "aria-label": "Role score and effect of each head" },
    s("line", { class: "rule", x1: pad, x2: width - 20, y1: height - pad, y2: height - pad }), s("line", { class: "rule", x1: pad, x2: pad, y1: 16, y2: height - pad }),
    s("text", { x: width - 20, y: height - 12, "text-anchor": "end" }, "score of its role →"), s("text", { x: pad + 6, y: 14 }, `↑ lost without it, up to ${percent(most)}`),
    known.map((row) => s("g", { transform: `translate(${x(row)} ${y(row)})`, class: `point ${row.block}` }, s("path", { d: shapes[row.block] }),
      s("title", {}, `${headName(row.block, row.layer, row.head)}: ${row.known?.role?.label}`),
      named.has(row) && s("text", { x: x(row) > width - 130 ? -10 : 10, y: 4, "text-anchor": x(row) > width - 130 ? "end" : "start" }, headName(row.block, row.layer, row.head))))),
  h("p", { class: "keys quiet" }, Object.entries(shapes).filter(([block]) => known.some((row) => row.block === block)).map(([block, d]) =>
    h("span", {}, s("svg", { viewBox: "-7 -7 14 14", width: 12, height: 12, class: `point ${block}`, "aria-hidden": "true" }, s("path", { d })), block))));
}

/**
 * Those whose names can be written without one over the other: of two that are close, the one without which more is lost.
 * @param {Row[]} rows
 * @param {(row: Row) => number} x
 * @param {(row: Row) => number} y
 */
function namable(rows, x, y) {
  /** @type {Set<Row>} */
  const kept = new Set();
  for (const row of rows.sort((a, b) => lost(b.known) - lost(a.known))) {
    if (![...kept].some((other) => Math.abs(y(row) - y(other)) < 14 && Math.abs(x(row) - x(other)) < 110)) kept.add(row);
  }
  return kept;
}

/* --- heads that read alike, pair by pair. */

/** @typedef {[block: string, layer: number, head: number]} Which */
/** @typedef {[one: Which, other: Which, divergence: number]} Pair divergence in bits, 0 to 1 */

/**
 * A card with the pairs; none where they have not been looked for.
 * @param {Pair[] | null | undefined} pairs
 * @param {number} all how many there are
 * @param {import("./trace.js").Trace} trace
 * @param {string} run its name
 */
export function similar(pairs, all, trace, run) {
  if (!pairs) return null;
  const nameOf = (/** @type {Which} */ which) => headName(...which);
  const name = (/** @type {Which} */ which) => h("code", {}, nameOf(which));
  const role = (/** @type {Which} */ [block, layer, head]) => {
    const found = trace.head(/** @type {import("./trace.js").Block} */ (block), layer, head)?.role;
    return found && h("span", { class: `role ${found.strength}` }, found.label);
  };
  return h("section", { class: "card similar" }, cardHead("Heads with similar attention",
    pairs.length > 0 && saving("these pairs", [run, "heads", "alike"], { csv: () => csv(["one", "other", "divergence_bits"], pairs.map(([one, other, divergence]) => [nameOf(one), nameOf(other), divergence])) })),
    h("p", { class: "quiet" }, pairs.length ? "How different the weights of two heads are: the Jensen-Shannon divergence of their rows in bits, averaged over the probe (Clark et al. 2019). 0 means equal."
      : "No two heads of the same kind have similar attention."),
    pairs.length < all && h("p", { class: "quiet" }, `The ${pairs.length} most similar of ${all} pairs.`),
    pairs.length > 0 && sortable("Heads with similar attention", [
      { name: "one", cell: ([one]) => name(one), by: ([one]) => nameOf(one) },
      { name: "its role", cell: ([one]) => role(one) },
      { name: "other", cell: ([, other]) => name(other), by: ([, other]) => nameOf(other) },
      { name: "role of the other", cell: ([, other]) => role(other) },
      { name: "divergence", figure: true, cell: (pair) => number(pair[2]), by: (pair) => pair[2] },
    ], pairs, { choose: ([[block, layer, head]]) => openHead({ block, layer, head }), name: "alike" }));
}

/* --- the roles of the heads over the checkpoints of a run: a curve for each head that has one. */

/** @typedef {{id: string, block: string, layer: number, head: number, role: string, scores: (number | null)[]}} Curve */
/** @typedef {{steps: number[], heads: Curve[]}} History */

/** Between two looks at a run that may still be in training. */
const POLL = 20_000;
const CHARTS = 6;
const LINES = 4;

/**
 * A card that asks for the history when it is told to, and from then on follows the run; a copy shows what it holds.
 * @param {import("./data.js").Source} source
 * @param {string} run its name
 */
export function history(source, run) {
  const outcome = new Outcome();
  let waiting = 0;
  let shown = "";
  /** How often it was asked for: an old look is not shown, and leads to no other. */
  let turn = 0;
  const look = async () => {
    const mine = ++turn;
    try {
      const found = await source.history();
      if (mine !== turn) return;
      const text = JSON.stringify(found);
      outcome.say(`The roles at ${found.steps.length} checkpoints.`);
      if (text !== shown) outcome.show(curves(found, run), scoreTable(found, run, outcome.shown.querySelector("details")?.open ?? false));
      shown = text;
    } catch (error) {
      if (mine !== turn) return;
      outcome.fail(error, source.live);
    }
    if (source.live) waiting = setTimeout(look, POLL); // what failed once may go well the next time
  };
  const begin = () => {
    clearTimeout(waiting);
    outcome.say("Analysing each checkpoint …");
    outcome.show();
    shown = "";
    look();
  };
  const element = h("section", { class: "card" }, h("h2", {}, "Over training"),
    h("p", { class: "quiet" }, "How each head got its role: the role’s score at every checkpoint that the run has kept."),
    source.live && h("button", { type: "button", id: "history", on: { click: begin } }, "Analyse every checkpoint"), outcome.element);
  if (!source.live) look();
  return { element, leave: () => { turn++; clearTimeout(waiting); } };
}

/** A chart for each role, the best heads of it. @param {History} found @param {string} run */
function curves({ steps, heads }, run) {
  /** @type {Map<string, Curve[]>} */
  const byRole = new Map();
  for (const head of heads) byRole.set(head.role, [...byRole.get(head.role) ?? [], head]);
  const last = (/** @type {Curve} */ head) => head.scores[head.scores.length - 1] ?? -1;
  const roles = [...byRole].map(([role, of]) => ({ role, of: of.sort((a, b) => last(b) - last(a)).slice(0, LINES) }))
    .sort((a, b) => last(b.of[0]) - last(a.of[0])).slice(0, CHARTS);
  return h("div", { class: "charts" }, roles.map(({ role, of }) => {
    const drawn = chart(of.map((head) => ({ name: headName(head.block, head.layer, head.head), marks: true, points: pointsOf(head, steps) })),
      { label: `Score of the role ${role} by step`, height: 180 });
    const legend = h("div", { class: "keys" }, of.map((head, i) => h("span", {}, h("i", { class: `key c${i}` }), `${headName(head.block, head.layer, head.head)}: ${percent(Math.max(0, last(head)))}`)));
    const drawing = () => onPaper(/** @type {SVGElement} */ (drawn.querySelector("svg")), `${run}: ${role}`, legend);
    return h("figure", { class: "by-role" }, h("div", { class: "card-head" }, h("h3", {}, role), h("span", { class: "grow" }), saving(`the chart of ${role}`, [run, "heads", role, "by-step"], { svg: drawing })),
      legend, drawn);
  }));
}

/** Every head, its role and that role's score at each step. @param {History} found @param {string} run @param {boolean} open */
function scoreTable({ steps, heads }, run, open) {
  const cell = (/** @type {number | null} */ score) => h("td", { class: "figure" }, score === null ? "–" : percent(Math.max(0, score)));
  return h("details", { open }, h("summary", {}, "As a table"),
    saving("the table", [run, "heads", "by-step"], { csv: () => csv(["head", "role", ...steps.map((step) => `step_${step}`)], heads.map((head) => [head.id, head.role, ...head.scores])) }),
    scroller("Scores at each step", plainTable("Score of each head’s role at each step", ["head", "role", ...steps.map((step) => `step ${step}`)], (i) => i > 1,
      heads.map((head) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, headName(head.block, head.layer, head.head))), h("td", {}, head.role), head.scores.map(cell))))));
}

/** @param {Curve} head @param {number[]} steps @returns {[number, number][]} */
function pointsOf(head, steps) {
  return /** @type {[number, number][]} */ (steps.map((step, i) => [step, head.scores[i]]).filter(([, score]) => score !== null && score !== undefined));
}

/* --- the heads as a table: what each one does, how sure that is, what happens without it, and what another input changes. */

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./trace.js").Head} Head */
/** @typedef {{confidence: number | null, entropy: number | null}} Figures what an input says of a head */
/** @typedef {{block: string, layer: number, head: number, known?: Head, beside?: Figures, apart?: number | null} & Figures} Row */

/** What one input says of a head, and what two inputs are compared by. @type {("confidence" | "entropy")[]} */
const MEASURES = ["confidence", "entropy"];

/** @param {Context} context @returns {import("./main.js").Screen} */
export function heads(context) {
  const { run, source, trace } = context;
  const element = h("div", { class: "screen heads" });
  const past = run.checkpoints ? history(source, run.name) : null;
  /** @type {Trace | null} */
  let other = null;
  let [rows, rowsOf] = [measured(trace, null), ""];
  const ready = async (/** @type {() => boolean} */ wanted) => {
    const found = await besideOf(context);
    const key = found?.header.run.id ?? "";
    if (other === found && rowsOf === key) return;
    const both = found ? [trace, found] : [];
    await Promise.all(both.flatMap((each) => [...each.attention.values()].map((attention) => attention.load(attention.layers))));
    if (wanted()) [other, rows, rowsOf] = [found, measured(trace, found), key];
  };
  const draw = () => {
    const known = rows.some((row) => row.known);
    const points = known ? scatter(rows) : null;
    const drawing = () => onPaper(/** @type {SVGElement} */ (points?.querySelector("svg.scatter")), `${run.name}: role and effect`, points?.querySelector(".keys"));
    put(element,
      points && h("section", { class: "card" }, cardHead("Role and effect", saving("this chart", [run.name, "heads", "roles"], { svg: drawing })),
        h("p", { class: "quiet" }, "Further right: a clearer role. Further up: more is lost without the head."), points),
      h("section", { class: "card" }, cardHead(`${rows.length} heads`, besidePicker(context), saving("this table", [run.name, "heads", ...(other ? ["compared"] : [])], { csv: () => asCsv(rows, other !== null) })),
        other ? compared(trace, other, rows) : findings(run.sentences ?? [], known), table(rows, known, other !== null)),
      similar(run.similar, run.alike ?? 0, trace, run.name), past?.element);
  };
  return { element, ready, draw, leave: () => past?.leave() };
}

/** @param {string[]} sentences @param {boolean} known */
function findings(sentences, known) {
  return known ? h("ul", { class: "findings" }, sentences.map((text) => h("li", {}, text)))
    : h("p", { class: "quiet" }, "The roles have not been tested here; confidence and entropy are of this input only.");
}

/** @param {Trace} one @param {Trace} other @param {Row[]} rows */
function compared(one, other, rows) {
  const some = rows.some((row) => row.apart !== null);
  const all = rows.every((row) => row.apart !== null);
  return h("div", { class: "quiet comparing-note" },
    h("p", {}, h("b", {}, "A"), ` ${whole(one.title)} · `, h("b", {}, "B"), ` ${whole(other.title)}`),
    h("p", {}, some ? "Maps apart: the total variation (0 to 1) between a query’s weights in A and in B, averaged over the queries. Click a head to open both maps." : "Click a head to open both maps.",
      !all && ` Where the texts differ in length, the maps cannot be compared${some ? " (–)" : ""}.`));
}

/** Every head, with what this trace says of it, and the one beside. @param {Trace} trace @param {Trace | null} other @returns {Row[]} */
function measured(trace, other) {
  const rows = [];
  for (const [block, attention] of trace.attention) {
    const { layers, heads: n } = attention.group;
    const second = other?.attention.get(block);
    for (let layer = 0; layer < layers; layer++) {
      for (let head = 0; head < n; head++) {
        const row = { block, layer, head, known: trace.head(block, layer, head), ...figures(attention, layer, head) };
        rows.push(other ? { ...row, beside: figures(second, layer, head), apart: apart(attention, second, layer, head) } : row);
      }
    }
  }
  return rows;
}

/** @param {import("./trace.js").Attention | undefined} attention @param {number} layer @param {number} head @returns {Figures} */
function figures(attention, layer, head) {
  const { confidence, entropy } = attention?.group ?? {};
  return { confidence: confidence?.[layer]?.[head] ?? null, entropy: entropy?.[layer]?.[head] ?? null };
}

/** What A has more than B. @param {Row} row @param {"confidence" | "entropy"} name */
function gap(row, name) {
  const [a, b] = [row[name], row.beside?.[name] ?? null];
  return a === null || b === null ? null : a - b;
}

/** @param {Row[]} rows @param {boolean} known @param {boolean} paired */
function table(rows, known, paired) {
  /** @type {(name: string, of: (row: Row) => number | null | undefined, format?: (value: number | null | undefined, row: Row) => import("./dom.js").Child) => import("./table.js").Column} */
  const figure = (name, of, format = (value) => value?.toFixed(3) ?? "–") => ({ name, figure: true, cell: (row) => format(of(row), row), by: (row) => of(row) ?? -Infinity });
  const role = { name: "role", cell: (/** @type {Row} */ { known: head }) => head?.role && h("span", { class: `role ${head.role.strength}` }, roleName(head.role)), by: (/** @type {Row} */ row) => row.known?.role?.label ?? "" };
  const roles = known ? [role, figure("score", (row) => row.known?.role?.score, percent),
    !paired && figure("chance", (row) => chanceOf(row.known), percent),
    figure("lost without it", (row) => lost(row.known), (_, row) => cut(row.known)),
    !paired && figure("gradient", (row) => row.known?.grad_importance, (value) => number(value))] : [];
  const measures = MEASURES.flatMap((name) => (paired
    ? [figure(`${name} A`, (row) => row[name]), figure(`${name} B`, (row) => row.beside?.[name]), figure(`${name} A − B`, (row) => gap(row, name), signed)]
    : [figure(name, (row) => row[name])]));
  /** @type {import("./table.js").Column} */
  const place = { name: "head", cell: (row) => h("code", {}, headName(row.block, row.layer, row.head)), by: (row) => `${row.block} ${String(row.layer).padStart(3, "0")} ${String(row.head).padStart(3, "0")}` };
  const columns = [place, paired && figure("maps apart", (row) => row.apart), ...roles, ...measures].filter((each) => each !== false);
  return sortable("Heads", columns, rows, { choose: (row) => openHead(row, paired ? { view: "map" } : {}), sorted: paired && rows.some((row) => row.apart !== null) ? "maps apart" : known ? "lost without it" : paired ? "confidence A" : "confidence" });
}

/** @param {number | null | undefined} value */
function signed(value) {
  if (value === null || value === undefined) return "–";
  const text = Math.abs(value).toFixed(3);
  return Number(text) === 0 ? text : `${value < 0 ? "−" : "+"}${text}`;
}

/** @param {Head | undefined} head */
function cut(head) {
  if (!head?.ablation) return "–";
  const { value, ci95: [low, high] } = head.ablation;
  return h("span", { title: `${head.ablation.metric} falls to ${percent(value)} [${percent(low)}, ${percent(high)}], n ${head.ablation.n}` }, percent(lost(head)));
}

/** @param {Row[]} rows @param {boolean} paired */
function asCsv(rows, paired) {
  const names = ["block", "layer", "head", "role", "score", "chance", "base", "without", "low", "high", "gradient", "confidence", "entropy"];
  const more = ["confidence_b", "entropy_b", "confidence_a_minus_b", "entropy_a_minus_b", "maps_apart"];
  return csv(paired ? [...names, ...more] : names, rows.map((row) => {
    const { block, layer, head, known, confidence, entropy } = row;
    const [low, high] = known?.ablation?.ci95 ?? [];
    const own = [block, layer, head, roleName(known?.role), known?.role?.score, chanceOf(known), known?.ablation?.base, known?.ablation?.value,
      low, high, known?.grad_importance, confidence, entropy];
    return paired ? [...own, ...MEASURES.map((name) => row.beside?.[name]), ...MEASURES.map((name) => gap(row, name)), row.apart] : own;
  }));
}
