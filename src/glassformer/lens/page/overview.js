/** The first screen: what the model is, what it answered, and what its heads do. */
import { smallChart } from "lens/chart.js";
import { cardHead, h, mistake, plainTable, put, s, scroller, whenPainted } from "lens/dom.js";
import { csv, onPaper, saving } from "lens/files.js";
import { thumbnail } from "lens/grid.js";
import { labelBars } from "lens/nexttoken.js";
import { chanceOf, effect, roleLine, roleName, rolesCsv } from "lens/role.js";
import { now, openHead, set } from "lens/state.js";
import { count, headName, number, percent, token, whole } from "lens/text.js";
import { forced, judged } from "lens/trace.js";

/* --- what the model answers to the other inputs: a line for each, which leads to it. */

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./trace.js").Trace} Trace */

const MOST = 3;
const TOKENS = 24;

/** The inputs beside the one that is shown; their answers come once the page is drawn. @param {Context} context */
export function examples({ traces, trace, source }) {
  const others = traces.filter((each) => each.id !== trace.header.run.id).slice(0, MOST);
  if (!others.length) return null;
  const rows = others.map(({ id, title }) => {
    const answer = h("span", { class: "tokens" });
    const later = async () => put(answer, answerOf(await source.trace(id)));
    whenPainted(() => later().catch((error) => put(answer, mistake(error))));
    return h("li", {}, h("button", { type: "button", class: "plain-button", "data-trace": id, on: { click: () => set({ trace: id, step: -1, q: null, k: null }, true) } }, whole(title)), answer);
  });
  return h("div", { class: "examples" }, h("h3", {}, "Other inputs"), h("ul", {}, rows));
}

/** What was written, and how much of it is right. @param {Trace} trace */
function answerOf(trace) {
  const { labels } = trace.header;
  if (labels?.length) return ["→ ", h("span", { class: "chip" }, token(labels[0][0])), h("span", { class: "quiet" }, ` ${percent(labels[0][1])}`)];
  const written = trace.written;
  const chips = written.slice(0, TOKENS).map((step) => h("span", { class: `chip${step.gold !== null && step.gold !== undefined && step.gold !== step.chosen ? " wrong" : ""}` }, token(trace.text(step.chosen))));
  return ["→ ", chips, written.length > TOKENS && " …", judged(trace) && h("span", { class: "quiet" }, ` ${judged(trace)}`)];
}

/* --- the stacks of the model as boxes, from the tokens below to the answer above; each attention opens its maps. */

/** @param {Trace} trace */
export function plan(trace) {
  const { model } = trace.header;
  const stack = (/** @type {string} */ side) => {
    const both = side === "decoder" && model.layers.encoder;
    return h("div", { class: "stack" }, h("span", { class: "label" }, side), Array.from({ length: model.layers[side] }, (_, layer) =>
      h("div", { class: model.parallel_branches ? "block parallel" : "block" },
        box("self-attention", side, layer, trace), both ? box("cross-attention", "cross", layer, trace) : null, h("span", { class: "box" }, "feed-forward"))));
  };
  return h("div", { class: "plan", role: "group", "aria-label": "Blocks of the model" }, Object.keys(model.layers).map(stack));
}

/** @param {string} text @param {string} block @param {number} layer @param {Trace} trace */
function box(text, block, layer, trace) {
  const there = trace.attention.has(/** @type {import("./trace.js").Block} */ (block));
  return h("button", { type: "button", class: "box", disabled: !there, title: `${block} attention of layer ${layer}`,
    on: { click: () => openHead({ block, layer, head: 0 }) } }, text);
}

/** The same as a picture: every box where it stands on the page, in the light colours. @param {HTMLElement} shown it is on the page */
export function planSvg(shown) {
  const all = shown.getBoundingClientRect();
  const [width, height] = [Math.ceil(all.width) + 24, Math.ceil(all.height) + 24];
  const frame = (/** @type {Element} */ each) => {
    const { left, top, width: w, height: t } = each.getBoundingClientRect();
    return { x: left - all.left + 12, y: top - all.top + 12, width: w, height: t };
  };
  const pieces = [...shown.querySelectorAll(".block, .box, .label")].map((each) => {
    const place = frame(each);
    const fill = each.matches("button") ? "#e4ebfb" : each.matches(".box") ? "#f0eee9" : "none";
    const text = { x: place.x + (each.matches(".box") ? place.width / 2 : 0), y: place.y + place.height / 2 + 4, "text-anchor": each.matches(".box") ? "middle" : "start" };
    return [!each.matches(".label") && s("rect", { ...place, rx: 7, fill, stroke: each.matches(".block") ? "#e3e0d9" : "none" }),
      !each.matches(".block") && s("text", { ...text, "font-family": "system-ui, sans-serif", "font-size": 12.5, fill: each.matches("button") ? "#1b1d22" : "#5d626c" }, each.textContent)];
  });
  return s("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` }, s("rect", { width, height, fill: "#ffffff" }), pieces);
}

/* --- the first screen: what the model is, what it answered, and what its heads do. */

const STRONG = ["strong", "partial"];
const SHOWN = 4;
const FIGURES = 6;

/** @param {Context} context @returns {import("./main.js").Screen} */
export function overview(context) {
  const element = h("div", { class: "screen overview" });
  const ready = async () => {
    const { trace } = context;
    const shown = [...trace.attention.values()].map((attention) => {
      const layers = pictured(trace).filter((each) => each.block === attention.block).map((each) => each.layer);
      return layers.length ? attention.loadSmall(layers) : null;
    });
    await Promise.all(shown);
  };
  return { element, ready, draw: () => put(element, ...cards(context)) };
}

/** @param {Context} context */
function cards(context) {
  const { trace, run } = context;
  const known = (trace.header.heads ?? []).filter((head) => head.role);
  const stacks = plan(trace);
  const chart = run.metrics?.length ? learned(run.metrics) : null;
  const drawing = () => onPaper(/** @type {SVGElement} */ (chart?.[0]?.querySelector("svg")), `${run.name}: training loss`);
  return [
    h("div", { class: "column" },
      h("section", { class: "card answer" }, h("h2", {}, forced(trace) ? "What it was made to read" : "What it answers"), answer(trace), examples(context)),
      h("section", { class: "card diagnosis" }, cardHead("What its heads do", known.length > 0 && saving("what its heads do", [run.name, "overview", "heads"], { csv: () => rolesCsv(known) })),
        diagnosis(context), known.length > 0 && rolesTable(known))),
    h("div", { class: "column" },
      h("section", { class: "card facts-card" }, cardHead("What it is", saving("what it is", [run.name, "overview"], { svg: () => planSvg(stacks), csv: () => csv(["fact", "value"], facts(trace)) })),
        h("dl", {}, facts(trace).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])), stacks),
      chart && h("section", { class: "card learned" }, cardHead("How it learned", saving("this chart", [run.name, "overview", "loss"], { svg: drawing })), chart)),
  ];
}

/** @param {import("./trace.js").Head[]} known */
function rolesTable(known) {
  const rows = known.map((head) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, headName(head.block, head.layer, head.head))), h("td", {}, roleName(head.role)),
    h("td", {}, head.role?.strength), h("td", { class: "figure" }, percent(head.role?.score)), h("td", { class: "figure" }, percent(chanceOf(head))), h("td", {}, effect(head))));
  return h("details", {}, h("summary", {}, "All heads as a table"),
    scroller("Roles of all heads", plainTable("Roles of all heads", ["head", "role", "strength", "score", "chance", "without it"], () => false, rows)));
}

/** @param {Trace} trace */
function answer(trace) {
  const { sequences, labels } = trace.header;
  const { source, target } = sequences;
  if (labels) {
    return [line("reads", (source ?? { text: [] }).text.map((text) => chip(text))),
      labelBars(trace.header, 6)];
  }
  const begun = target ? target.n_prompt ?? 1 : 0;
  const written = trace.written;
  const chips = written.map((step) => {
    const wrong = step.gold !== null && step.gold !== undefined && step.gold !== step.chosen;
    return h("button", {
      type: "button", class: `chip${wrong ? " wrong" : ""}`, title: `probability ${percent(step.p)}${wrong ? `; the correct token is ${trace.text(step.gold)}` : ""}`,
      on: { click: () => set({ screen: "generate", step: step.pos }, true) },
    }, token(trace.text(step.chosen)), wrong && h("span", { class: "unseen" }, " (wrong)"));
  });
  const prompt = source?.text ?? (target ? target.text.slice(0, begun) : []);
  const least = written.length ? Math.min(...written.map((step) => step.p)) : 0;
  return [line("reads", prompt.map((text) => chip(text))), line(forced(trace) ? "is given" : "writes", chips),
    h("p", { class: "quiet" }, judged(trace) && `${judged(trace)}. `,
      written.length ? `Lowest probability of a token: ${percent(least)}.` : "")];
}

/** @param {string} name @param {HTMLElement[]} chips */
function line(name, chips) {
  return h("div", { class: "strip" }, h("span", { class: "label" }, name), h("div", { class: "tokens big" }, chips));
}

/** @param {string} text */
function chip(text) {
  return h("span", { class: "chip", title: whole(text) }, token(text));
}

/** The heads with a role, the clearest first. @param {Trace} trace */
function labelled(trace) {
  const heads = (trace.header.heads ?? []).filter((head) => head.role && STRONG.includes(head.role.strength));
  return heads.sort((a, b) => weight(b) - weight(a)).slice(0, SHOWN);
}

/** The heads that decide most, one of each kind of attention. @param {Trace} trace */
function decided(trace) {
  return [...trace.attention.keys()].map((block) => sharpest(trace, block)).filter((each) => each !== null);
}

/** The heads that have a picture here. @param {Trace} trace @returns {{block: string, layer: number, head: number}[]} */
function pictured(trace) {
  const heads = labelled(trace);
  return heads.length ? heads : decided(trace);
}

/** @param {Context} context */
function diagnosis({ trace, run }) {
  const heads = labelled(trace);
  const [first, ...others] = run.sentences ?? [];
  const sentences = [first && h("p", { class: "sentence first" }, first), others.length ? h("details", {}, h("summary", {}, `${others.length} more finding${others.length === 1 ? "" : "s"}`), h("ul", { class: "findings" }, others.map((text) => h("li", {}, text)))) : null];
  if (!heads.length) {
    const known = trace.header.heads?.length;
    const found = decided(trace);
    return [sentences, h("p", { class: "quiet" }, known ? "No head has a role that is far above chance." : "The roles of the heads have not been tested here. Of each kind of attention, the head with the highest confidence:"),
      found.map((sharp) => h("div", { class: "found" }, picture(trace, sharp), h("div", {}, h("h3", {}, link(sharp.block, sharp.layer, sharp.head)),
        h("p", { class: "quiet" }, `Its largest weight is ${percent(sharp.score)} on average.`))))];
  }
  return [sentences, heads.map((head) => h("div", { class: "found" }, picture(trace, head),
    h("div", {}, h("h3", {}, link(head.block, head.layer, head.head)), roleLine(head))))];
}

/** What is shown first: sure of its role, and much is lost without it. @param {import("./trace.js").Head} head */
function weight(head) {
  return (head.role?.score ?? 0) + (head.ablation ? head.ablation.base - head.ablation.value : 0);
}

/** @param {string} block @param {number} layer @param {number} head */
function link(block, layer, head) {
  const open = (/** @type {Event} */ event) => { event.preventDefault(); openHead({ block, layer, head }); };
  return h("a", { href: `#attention?block=${block}&layer=${layer}&head=${head}`, on: { click: open } }, headName(block, layer, head));
}

/** @param {Trace} trace @param {{block: string, layer: number, head: number}} at */
function picture(trace, { block, layer, head }) {
  const attention = trace.attention.get(/** @type {import("./trace.js").Block} */ (block));
  if (!attention) return null;
  const canvas = thumbnail(attention, layer, head, now().scale, 160);
  canvas.className = "picture";
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Map of ${headName(block, layer, head)}`);
  return canvas;
}

/**
 * The head whose queries read most decidedly: largest weight, averaged over queries.
 * @param {Trace} trace
 * @param {import("./trace.js").Block} block
 */
function sharpest(trace, block) {
  const scores = trace.attention.get(block)?.group.confidence;
  if (!scores) return null;
  let best = { block, layer: 0, head: 0, score: -1 };
  scores.forEach((row, layer) => row.forEach((score, head) => {
    if (score > best.score) best = { block, layer, head, score };
  }));
  return best;
}

/** @param {Trace} trace @returns {[string, string][]} */
function facts(trace) {
  const { model } = trace.header;
  const layers = Object.entries(model.layers).map(([side, n]) => `${n} in the ${side}`).join(", ");
  /** @type {[string, any][]} */
  const rows = [
    ["shape", model.kind], ["layers", layers], ["heads", model.n_kv_heads && model.n_kv_heads !== model.n_heads ? `${model.n_heads}, sharing ${model.n_kv_heads} key-value heads` : model.n_heads],
    ["d_model, d_ff", `${model.d_model}, ${model.d_ff}`], ["vocabulary", count(model.vocab_size ?? 0)], ["positions", model.pos], ["norm", model.norm],
    ["convolution", (model.convolution ?? 1) > 1 ? `of ${model.convolution} tokens` : null],
    ["branches", model.parallel_branches ? "in parallel" : null],
    ["parameters", count(model.params)], ["trained", model.step === null || model.step === undefined ? null : `${count(model.step)} steps`], ["task", model.task],
  ];
  return rows.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => [name, String(value)]);
}

/** @param {import("./trace.js").Metric[]} metrics @returns {[HTMLElement, ...import("./dom.js").Child[]]} */
function learned(metrics) {
  const dev = metrics.filter((line) => line.kind === "dev");
  const last = dev[dev.length - 1];
  const figures = last ? Object.entries(last).filter(([name, value]) => typeof value === "number" && !["step", "n", "cut", "unknown"].includes(name)).slice(0, FIGURES) : [];
  return [smallChart(metrics), last?.n && h("p", { class: "quiet" }, `On the dev split, n = ${count(last.n)}:`), h("dl", { class: "row" }, figures.map(([name, value]) => h("div", {}, h("dt", {}, name.replaceAll("_", " ")),
    h("dd", {}, ["exact_match", "token_accuracy", "accuracy"].includes(name) ? percent(value) : number(value))))),
  h("p", {}, h("a", { href: "#curves", on: { click: (/** @type {Event} */ event) => { event.preventDefault(); set({ screen: "curves" }, true); } } }, "All curves"))];
}
