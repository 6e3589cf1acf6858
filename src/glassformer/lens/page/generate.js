/** Generation, step by step: the chances of each token, and what the model had in mind block by block. */

import { Line, stopAsking } from "lens/ask.js";
import { beamCard } from "lens/beams.js";
import { besideOf, besidePicker } from "lens/beside.js";
import { shaded } from "lens/colour.js";
import { h, keepFocus, put, putControls, scroller } from "lens/dom.js";
import { forced } from "lens/judged.js";
import { labelBars } from "lens/labels.js";
import { bars, dialled, dials } from "lens/nexttoken.js";
import { prompt } from "lens/prompt.js";
import { now, set } from "lens/state.js";
import { stepTable } from "lens/steptable.js";
import { headName, number, percent, token, whole } from "lens/text.js";
import { twoSteps } from "lens/twosteps.js";
import { writers } from "lens/written.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./types.js").Step} Step */

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
  return [h("div", { class: "card-head" }, h("h2", {}, "Step ", h("output", { id: "step" }, String(steps.indexOf(step) + 1)), ` of ${steps.length}`), h("span", { class: "grow" }),
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
  const open = (/** @type {number} */ layer, /** @type {number} */ head) => set({ screen: "attention", block, layer, head, q: step.pos, k: null }, true);
  const cell = (/** @type {number} */ weight, /** @type {number} */ i) => (attention.allowed(step.pos, i)
    ? h("td", { title: `${whole(keys[i])} at ${i}: ${weight.toFixed(4)}`, style: shaded(255 * Math.sqrt(weight)) })
    : h("td", { class: "hatched", title: `${whole(keys[i])} at ${i}: masked` }));
  return h("div", { class: "scroll" }, h("table", { class: "lens by-head" },
    h("thead", {}, h("tr", {}, h("th", {}, `${block} heads`), keys.map((text) => h("th", { scope: "col" }, token(text))))),
    h("tbody", {}, rows.map(({ layer, head }) => h("tr", {}, h("th", { scope: "row" },
      h("button", { type: "button", class: "plain-button", on: { click: () => open(layer, head) } }, headName(block, layer, head))),
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
