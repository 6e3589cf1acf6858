/** Asking the model for an answer: one question at a time, told token by token, and then shown. */
import { announce, byId, h, mistake, put } from "lens/dom.js";
import { now, set } from "lens/state.js";
import { token, whole } from "lens/text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {{text?: string, trace?: string, begin?: number[], decode?: Record<string, number>}} Asked */

/** What is being asked. @type {AbortController | undefined} */
let running;

/** End what is being asked, if anything is: the next question does so, a button, and leaving the screen. */
export function stopAsking() {
  running?.abort();
}

/** Where a question is told of: one sentence of how it goes, what is written so far, and a way to end it. */
export class Line {
  constructor() {
    this.status = h("p", { class: "message", role: "status" });
    this.stream = h("p", { class: "stream" }); // outside of what is read out, which would be read anew with every token
    this.stop = h("button", { type: "button", class: "stop", hidden: true, on: { click: stopAsking } }, "Stop");
    this.element = h("div", { class: "asking" }, this.status, this.stream, this.stop);
    /** The question that it tells of. @type {AbortController | undefined} */
    this.of = undefined;
  }

  /** @param {AbortController} question */
  begin(question) {
    this.of = question;
    put(this.status, "Running …");
    put(this.stream);
    this.stop.hidden = false;
  }

  /** @param {AbortController} question @param {import("./dom.js").Child} text */
  end(question, text) {
    if (this.of !== question) return; // it tells of the next one already
    const had = this.stop === document.activeElement;
    this.stop.hidden = true;
    if (had) byId("main").focus({ preventScroll: true }); // what is hidden would leave it to nobody
    put(this.stream);
    put(this.status, text);
  }
}

/**
 * The model answers; its trace is then the one that is shown, if the reader still waits where the question was asked.
 * @param {Context} context
 * @param {Asked} request
 * @param {Line} line
 * @param {Partial<import("./state.js").State>} [then] what else is shown of it
 */
export async function answered(context, request, line, then = {}) {
  stopAsking();
  const mine = running = new AbortController();
  const { screen, trace } = now();
  const waits = () => !mine.signal.aborted && now().screen === screen && now().trace === trace;
  line.begin(mine);
  /** @type {string[]} */
  const heard = [];
  const hear = (/** @type {{token?: string}} */ { token: text }) => {
    if (text === undefined || !waits()) return;
    heard.push(whole(text));
    line.stream.append(h("span", { class: "chip" }, token(whole(text))));
  };
  try {
    const { id } = await context.source.stream("generate", request, hear, mine.signal);
    await relist(context);
    line.end(mine, null);
    if (!waits()) return;
    announce(heard.length ? `The model wrote: ${heard.join(" ")}` : "The answer is ready.");
    set({ step: -1, other: "", q: null, k: null, ...then, trace: id }, true);
  } catch (error) {
    line.end(mine, mine.signal.aborted ? running === mine && "Stopped." : mistake(error));
  } finally {
    if (running === mine) running = undefined;
  }
}

/** Ask which traces there are; all that hold the list see the new ones. @param {Context} context */
export async function relist({ source, traces }) {
  traces.splice(0, Infinity, ...await source.traces());
}

/**
 * The same text answered once more in the same manner, with a beginning of its own; the answer that was shown stands beside it.
 * @param {Context} context
 * @param {number[]} begin ids of the tokens that the answer begins with
 * @param {Line} line
 */
export async function begun(context, begin, line) {
  const { trace } = context;
  const id = now().trace;
  const place = (trace.header.sequences.target?.n_prompt ?? 1) - 1 + begin.length - 1;
  await answered(context, { trace: id, begin }, line, { step: place, other: id });
}

/** Whether a model writes token by token, so that it can be told how, and begun otherwise. @param {Trace} trace */
export function writes({ header }) {
  return header.sequences.target !== undefined && !header.labels;
}

/** The tokens that were written before a place. @param {Trace} trace @param {number} pos */
export function writtenBefore({ header }, pos) {
  const { ids, n_prompt = 1 } = /** @type {import("./trace.js").Sequence} */ (header.sequences.target);
  return ids.slice(n_prompt, pos + 1);
}
