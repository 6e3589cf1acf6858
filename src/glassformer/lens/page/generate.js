/** Generation, step by step: the prompt, the chances of each token, and what the model had in mind block by block. */
import { Line, answered, stopAsking, writes } from "lens/ask.js";
import { beamCard } from "lens/beams.js";
import { shaded } from "lens/colour.js";
import { besideOf, besidePicker } from "lens/data.js";
import { cardHead, h, keepFocus, put, putControls, scroller } from "lens/dom.js";
import { csv, saving } from "lens/files.js";
import { bars, dialled, dials, labelBars, twoSteps } from "lens/nexttoken.js";
import { now, openHead, set } from "lens/state.js";
import { sortable } from "lens/table.js";
import { headName, number, percent, token, whole } from "lens/text.js";
import { forced } from "lens/trace.js";

/* --- asking the model: a text to answer or to go on from, and how. What it writes is shown as it comes. */

/** @typedef {import("./main.js").Context} Context */

/** The settings, as they were typed last: the form is made anew with every answer. @type {Record<string, string>} */
const typed = { temperature: "0", top_k: "", top_p: "", seed: "1", max_new_tokens: "", beam: "1" };
/** @type {string | undefined} */
let typedText;

/** @param {Context} context @param {import("./ask.js").Line} line where it is told of */
export function prompt(context, line) {
  const { run } = context;
  const text = /** @type {HTMLTextAreaElement} */ (h("textarea", { rows: 2, id: "prompt", "aria-label": "Text for the model", spellcheck: "false", placeholder: run.examples?.[0] ?? "" }));
  text.value = typedText ?? run.examples?.[0] ?? "";
  // What gives labels or fills in what is missing is read once: it writes in no manner.
  const numbers = /** @type {Record<string, HTMLInputElement>} */ (Object.fromEntries((writes(context.trace) ? Object.entries(typed) : []).map(([name, value]) =>
    [name, h("input", { type: "number", step: "any", min: "0", value, id: `ask-${name}` })])));
  const ask = (/** @type {Event} */ event) => {
    event.preventDefault();
    typedText = text.value;
    for (const [name, input] of Object.entries(numbers)) typed[name] = input.value;
    /** @type {Record<string, number>} */
    const decode = {};
    for (const [name, input] of Object.entries(numbers)) if (input.value !== "") decode[name] = Number(input.value);
    answered(context, { text: text.value, ...(writes(context.trace) ? { decode } : {}) }, line);
  };
  return h("form", { class: "card prompt", on: { submit: ask } }, h("h2", {}, run.writes ?? "Ask the model"), text,
    h("div", { class: "controls" }, Object.entries(numbers).map(([name, input]) => h("label", { class: "picker" }, h("span", {}, name.replaceAll("_", " ")), input)),
      h("span", { class: "grow" }), h("button", { type: "submit", class: "strong-button" }, "Run")), line.element);
}

/* --- what wrote a token: the terms of its logit, by head, feed-forward and input (direct logit attribution). */

/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("./trace.js").Step} Step */

const SHOWN = 12;
const KINDS = /** @type {Record<string, string>} */ ({ e: "encoder", d: "decoder", x: "cross" });

/** The largest terms of a step, and their sum; nothing where the trace has none. @param {Trace} trace @param {Step} step */
export function writers(trace, step) {
  const attribution = trace.header.attribution;
  const terms = trace.terms(trace.header.steps.indexOf(step));
  if (!attribution || !terms) return h("p", { class: "quiet" }, "The logits of this model are not a sum over its parts, so there are no terms to show.");
  const order = attribution.names.map((name, i) => ({ name, value: terms[i] })).sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const most = Math.max(...order.map(({ value }) => Math.abs(value)), 1e-9);
  const shown = order.slice(0, SHOWN);
  const rest = order.slice(SHOWN).reduce((sum, { value }) => sum + value, 0);
  const row = (/** @type {Node | string} */ name, /** @type {number} */ value, /** @type {string} */ kind) => h("li", { class: kind }, name,
    h("span", { class: `signed${value < 0 ? " below" : ""}` }, h("i", { style: { width: `${(50 * Math.min(most, Math.abs(value))) / most}%` } })),
    h("span", { class: "figure" }, value.toFixed(3)));
  return [h("ol", { class: "bars terms", "aria-label": "Terms of the logit" }, shown.map(({ name, value }) => row(link(name, step), value, "")),
    order.length > SHOWN ? row(h("span", { class: "quiet" }, `${order.length - SHOWN} others`), rest, "rest") : null,
    row(h("b", {}, "logit"), terms.reduce((a, b) => a + b, 0), "sum")),
  h("p", { class: "quiet" }, "What each part adds directly to the logit, with each norm frozen at this input (Elhage et al. 2021). Its effect through other parts is not included.")];
}

/** A head leads to its map, at this query. @param {string} name @param {Step} step */
function link(name, step) {
  const [letter, layer, head] = name.split(".");
  if (!head) return h("span", {}, name);
  if (head === "feed_forward") return h("span", {}, `feed-forward ${layer}`);
  const open = () => openHead({ block: KINDS[letter], layer: Number(layer), head: Number(head) }, { q: step.pos });
  return h("button", { type: "button", class: "plain-button", on: { click: open } }, `${KINDS[letter]} ${layer}.${head}`);
}

/* --- all steps of an answer as a table: what each one reads and writes, how sure it was, and what was right. */

/** A card with the table; a step is opened by its row. @param {import("./main.js").Context} context */
export function stepTable({ trace, run }) {
  const { steps } = trace.header;
  if (!steps.length) return null;
  const chip = (/** @type {number | null | undefined} */ id) => id !== null && id !== undefined && h("span", { class: "chip", title: whole(trace.text(id)) }, token(trace.text(id)));
  /** @type {(name: string, of: (step: Step) => number | null | undefined, format: (value: number | null | undefined) => string) => import("./table.js").Column} */
  const figure = (name, of, format) => ({ name, figure: true, cell: (step) => format(of(step)), by: (step) => of(step) ?? -Infinity });
  const table = sortable("Steps", [
    { name: "position", cell: (step) => String(step.pos), by: (step) => -step.pos },
    { name: "reads", cell: (step) => chip(step.input) },
    { name: "writes", cell: (step) => chip(step.chosen) },
    figure("probability", (step) => step.p, percent), figure("rank", (step) => step.rank + 1, (value) => number(value)), figure("entropy", (step) => step.entropy, (value) => number(value)),
    { name: "correct token", cell: (step) => chip(step.gold) },
    figure("its probability", (step) => step.gold_p, percent), figure("loss", (step) => step.loss, (value) => number(value)),
  ], steps, { choose: (step) => set({ step: step.pos }) });
  const asCsv = () => csv(["place", "reads", "writes", "chance", "rank", "entropy_nats", "right", "chance_of_right", "loss_nats"],
    steps.map((step) => [step.pos, whole(trace.text(step.input)), whole(trace.text(step.chosen)), step.p, step.rank + 1, step.entropy,
      step.gold === null || step.gold === undefined ? null : whole(trace.text(step.gold)), step.gold_p, step.loss]));
  return h("section", { class: "card all-steps" }, cardHead("All steps", saving("all steps", [run.name, "generate", trace.title], { csv: asCsv })), table);
}

/* --- generation, step by step: the chances of each token, and what the model had in mind block by block. */

const PACE = 700;
/** Heads that the table of a step has room for. */
const MOST_ROWS = 24;

/** @param {Context} context @returns {import("./main.js").Screen} */
export function generate(context) {
  const element = h("div", { class: "screen generate" });
  const settings = dialled();
  let read = JSON.stringify(settings);
  const places = { dials: h("div", {}, dials(settings, () => light())), bars: h("div", {}), player: h("section", { class: "card" }), sees: h("div", {}), wrote: h("div", {}), beside: h("div", {}), pick: h("div", { class: "controls" }) };
  /** The answer beside the one that is shown. @type {import("./trace.js").Trace | null} */
  let other = null;
  const lines = { prompt: new Line(), branch: new Line(), beam: new Line() };
  let playing = 0;
  const { steps, labels } = context.trace.header;
  const stop = () => { clearInterval(playing); playing = 0; };
  const begun = (context.trace.header.sequences.target?.n_prompt ?? 1) - 1;
  const first = steps.find((step) => step.pos >= begun) ?? steps[0];
  const chosen = () => steps.find((step) => step.pos === now().step) ?? first;
  const go = (/** @type {number} */ by) => {
    const at = steps.indexOf(chosen()) + by;
    if (at >= steps.length - 1) stop(); // the last step is drawn with a button that plays
    if (steps[at]) set({ step: steps[at].pos });
    else light();
  };
  const play = () => {
    if (playing) stop();
    else playing = setInterval(() => go(1), PACE);
    if (playing && chosen() === steps[steps.length - 1]) set({ step: first.pos }); // once more, from what was written first
    else light();
  };
  const light = () => {
    if (!steps.length) return;
    keepFocus(element, lit);
  };
  const lit = () => {
    put(places.player, player(context, chosen(), { go, play, playing: playing > 0 }));
    put(places.bars, bars(context, chosen(), settings, lines.branch));
    put(places.sees, reads(context, chosen()));
    put(places.wrote, writers(context.trace, chosen()));
    put(places.pick, besidePicker(context));
    put(places.beside, other && twoSteps(context, other, chosen(), settings));
  };
  /** The dials as the address has them, which is where they were left, or where Back leads. */
  const turned = () => {
    const found = dialled();
    const text = JSON.stringify(found);
    const same = text === read || text === JSON.stringify(settings);
    read = text;
    if (same) return;
    Object.assign(settings, found);
    putControls(places.dials, dials(settings, light));
  };
  put(element, context.source.live ? prompt(context, lines.prompt) : null,
    steps.length ? [places.pick, places.player, places.beside,
      h("div", { class: "two" },
        h("section", { class: "card" }, h("h2", {}, "Next token"), places.dials, places.bars, lines.branch.element),
        h("section", { class: "card" }, h("h2", {}, "What it reads here"), places.sees),
        h("section", { class: "card" }, h("h2", {}, "What wrote it"), places.wrote)),
      beamCard(context, lines.beam), lens(context), stepTable(context)] : labels ? h("section", { class: "card answer" }, h("h2", {}, "What it answers"), labelBars(context.trace.header)) : h("section", { class: "card" }, h("p", { class: "quiet" }, "This trace has no steps.")));
  element.addEventListener("keydown", (event) => {
    if (event.target instanceof Element && event.target.closest("input, textarea, select")) return;
    if (event.key === "ArrowLeft") go(-1);
    if (event.key === "ArrowRight") go(1);
  });
  const ready = async (/** @type {() => boolean} */ wanted) => {
    const attention = context.trace.usual();
    const found = await besideOf(context);
    await Promise.all([found?.loadLogits(), context.trace.loadLogits(), context.trace.loadTerms(), attention.load(attention.layers.slice(0, Math.ceil(MOST_ROWS / attention.group.heads)))]);
    if (wanted()) other = found;
  };
  return { element, ready, draw: () => { turned(); light(); mark(element, chosen()); }, leave: () => { stop(); stopAsking(); } };
}

/**
 * @param {Context} context
 * @param {Step} step
 * @param {{go: (by: number) => void, play: () => void, playing: boolean}} does
 */
function player({ trace }, step, { go, play, playing }) {
  const { steps } = trace.header;
  const begun = (trace.header.sequences.target?.n_prompt ?? 1) - 1;
  const most = Math.max(0.01, ...steps.map((each) => each.loss ?? 0));
  const chips = steps.map((each) => {
    const wrong = each.gold !== null && each.gold !== undefined && each.gold !== each.chosen;
    return h("button", {
      type: "button", class: `step${each.pos === step.pos ? " marked" : ""}${each.pos < begun ? " given" : ""}${wrong ? " wrong" : ""}`, "aria-pressed": String(each.pos === step.pos),
      title: `position ${each.pos}: probability ${percent(each.p)}, loss ${number(each.loss)} nats`, on: { click: () => set({ step: each.pos }) },
    }, h("i", { class: "loss", style: { height: `${Math.max(1, (28 * (each.loss ?? 0)) / most)}px` } }), h("span", { class: "chip" }, token(trace.text(each.chosen))));
  });
  const given = step.pos < begun || forced(trace);
  const gold = given || step.gold === null || step.gold === undefined ? null
    : h("span", {}, step.gold === step.chosen ? "It is correct." : ["The correct token is ", h("span", { class: "chip" }, token(trace.text(step.gold))), ` (${percent(step.gold_p)}).`]);
  return [cardHead(["Step ", h("output", { id: "step" }, String(steps.indexOf(step) + 1)), ` of ${steps.length}`],
    h("div", { class: "exports", role: "group", "aria-label": "Steps" },
      h("button", { type: "button", "aria-label": "Previous step", on: { click: () => go(-1) } }, "◀"),
      h("button", { type: "button", "aria-label": playing ? "Pause" : "Play", on: { click: play } }, playing ? "❚❚" : "▶ play"),
      h("button", { type: "button", "aria-label": "Next step", on: { click: () => go(1) } }, "▶"))),
  h("div", { class: "steps", role: "group", "aria-label": "Tokens, with their loss" }, chips),
  h("p", {}, "Reads ", h("span", { class: "chip" }, token(trace.text(step.input))), !given ? " and writes " : trace.header.sequences.target ? " and the text goes on with " : " and must predict ", h("span", { class: "chip strong" }, token(trace.text(step.chosen))),
    h("span", { class: "quiet" }, `: probability ${percent(step.p)}, rank ${step.rank + 1}, entropy ${number(step.entropy)} nats. `), gold)];
}

/** What the step's query reads, head by head. @param {Context} context @param {Step} step */
function reads({ trace }, step) {
  const attention = trace.usual();
  if (step.pos >= attention.group.q_len) return h("p", { class: "quiet" }, "No attention at this position.");
  const { block, layers, heads, k } = attention.group;
  const keys = trace.tokens(k);
  const rows = Array.from({ length: layers * heads }, (_, i) => ({ layer: Math.floor(i / heads), head: i % heads })).slice(0, MOST_ROWS);
  const cell = (/** @type {number} */ weight, /** @type {number} */ i) => (attention.allowed(step.pos, i)
    ? h("td", { title: `${whole(keys[i])} at ${i}: ${weight.toFixed(4)}`, style: shaded(255 * Math.sqrt(weight)) })
    : h("td", { class: "hatched", title: `${whole(keys[i])} at ${i}: masked` }));
  return h("div", { class: "scroll" }, h("table", { class: "lens by-head" },
    h("thead", {}, h("tr", {}, h("th", {}, `${block} heads`), keys.map((text) => h("th", { scope: "col" }, token(text))))),
    h("tbody", {}, rows.map(({ layer, head }) => h("tr", {}, h("th", { scope: "row" },
      h("button", { type: "button", class: "plain-button", on: { click: () => openHead({ block, layer, head }, { q: step.pos }) } }, headName(block, layer, head))),
    attention.row(layer, head, step.pos).map(cell))))));
}

/** @param {Context} context */
function lens({ trace }) {
  const found = trace.header.lens;
  if (!found) return null;
  const { steps } = trace.header;
  const rows = [...found.names].map((_, layer) => layer).reverse();
  return h("section", { class: "card" }, h("h2", {}, "Logit lens"),
    h("p", { class: "quiet" }, "What the output head would predict after each block: its most likely token. Darker means more likely."),
    scroller("The most likely token after each block", h("table", { class: "lens" }, h("thead", {}, h("tr", {}, h("td", {}), steps.map((step) => h("th", { scope: "col", "data-pos": step.pos }, h("span", { class: "chip" }, token(trace.text(step.input))))))),
      h("tbody", {}, rows.map((layer) => h("tr", {}, h("th", { scope: "row" }, found.names[layer]), steps.map((step) => {
        const [id, p] = found.top[layer][step.pos][0];
        return h("td", { "data-pos": step.pos, title: found.top[layer][step.pos].map(([i, share]) => `${whole(trace.text(i))} ${percent(share)}`).join(", "),
          style: shaded(235 * p) }, token(trace.text(id)));
      })))))));
}

/** @param {HTMLElement} element @param {Step | undefined} step */
function mark(element, step) {
  for (const cell of element.querySelectorAll("[data-pos]")) cell.classList.toggle("marked", Number(cell.getAttribute("data-pos")) === step?.pos);
}
