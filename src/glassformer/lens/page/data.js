/** Where traces come from (the page itself, or the server that gave it), and a second one beside the first. */
import { picker } from "lens/dom.js";
import { now, read, set } from "lens/state.js";
import { whole } from "lens/text.js";
import { Buffers, Trace, readHeader } from "lens/trace.js";

/** @typedef {import("./trace.js").RunInfo} RunInfo */
/** @typedef {import("./trace.js").TraceInfo} TraceInfo */
/** @typedef {import("./trace.js").Metric} Metric */

/**
 * @typedef {object} Source
 * @property {boolean} live whether a model stands behind it
 * @property {() => Promise<RunInfo>} run
 * @property {() => Promise<TraceInfo[]>} traces
 * @property {(id: string) => Promise<Trace>} trace
 * @property {(since: number) => Promise<{lines: Metric[], next: number, kept?: number[]}>} metrics
 * @property {() => Promise<import("./curves.js").Sample[]>} samples
 * @property {() => Promise<{name: string, metrics: Metric[]}[]>} others the runs whose curves stand beside
 * @property {() => Promise<import("./heads.js").History>} history
 * @property {(one: string, other: string) => Promise<import("./attention.js").Patching>} patching of two traces, by their ids
 * @property {(path: string, body: object) => Promise<any>} post
 * @property {(path: string, body: object, heard: (line: any) => void, signal?: AbortSignal) => Promise<any>} stream each line is told of; the last one is the answer
 */

/** @typedef {{source: Source, run: RunInfo, traces: TraceInfo[], trace: Trace}} Opened */

/** Traces that a page keeps: their weights may be large. */
const MOST_KNOWN = 8;

/** @type {Promise<Opened> | undefined} */
let opened;

/** The source of this page, what it tells of the run, and the trace that the address asks for. */
export function opening() {
  opened ??= open();
  return opened;
}

/** @returns {Promise<Opened>} */
async function open() {
  const source = await openSource();
  read();
  const { trace: id, screen, block, layer } = now();
  const first = source.trace(id); // asked for at once: it is there, unless the address is of another launch
  if (screen === "attention") first.then((trace) => trace.usual(block).loadShown(layer)).catch(() => {});
  const [run, traces] = await Promise.all([source.run(), source.traces(), first.catch(() => null)]);
  if (!traces.length) throw new Error("There is no trace to show. Give a text to begin with.");
  return { source, run, traces, trace: await (traces.some((each) => each.id === id) ? first : source.trace(traces[0].id)) };
}

/** @returns {Promise<Source>} */
async function openSource() {
  const element = document.getElementById("bundle");
  return element ? embedded(JSON.parse(element.textContent ?? "")) : served();
}

/**
 * @param {{run: string, traces: string[]}} bundle
 * @returns {Promise<Source>}
 */
async function embedded(bundle) {
  /** @type {RunInfo} */
  const run = JSON.parse(new TextDecoder().decode(await inflated(bundle.run)));
  const parts = new Map(Array.from(document.querySelectorAll("[data-part]"), (each) => [each.getAttribute("data-part"), each]));
  const traces = await Promise.all(bundle.traces.map(async (text, i) => {
    const header = readHeader(new TextDecoder().decode(await inflated(text)));
    header.run.id = String(i);
    return new Trace(header, new Buffers(header, (name, layer) => inflated(parts.get(`${i} ${name} ${layer ?? 0}`)?.textContent ?? "")));
  }));
  return {
    live: false,
    run: async () => run,
    traces: async () => traces.map((each, i) => ({ id: String(i), title: each.title })),
    trace: async (id) => traces[Number(id)] ?? traces[0],
    metrics: async () => ({ lines: run.metrics ?? [], next: 0 }),
    samples: async () => run.samples ?? [],
    others: async () => run.beside ?? [],
    history: async () => run.history ?? alone("--checkpoints"),
    patching: async (one, other) => run.patches?.find(({ traces: [a, b] }) => a === one && b === other) ?? alone("--patch TEXT --into TEXT"),
    post: async () => alone(),
    stream: async () => alone(),
  };
}

/** What a page without a model says to what only a model can answer, or a page that was asked for it. @param {string} [option] @returns {never} */
function alone(option) {
  const written = option ? `, or export a page that has it: \`glassformer explore RUN --export page.html ${option}\`` : "";
  throw new Error(`This page is a copy without its model. Open the run with \`glassformer explore RUN\`${written}.`);
}

/**
 * The bytes that base64 of zlib stands for.
 * @param {string} text
 * @returns {Promise<Uint8Array>}
 */
async function inflated(text) {
  const letters = atob(text);
  const packed = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** @returns {Source} */
function served() {
  const key = token();
  /** @param {string} path @param {RequestInit} [more] */
  const ask = async (path, more = {}) => {
    const answer = await fetch(`/api/${path}`, { ...more, headers: { ...more.headers, "X-Glassformer-Token": key } }).catch(gone);
    if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `The server answered ${answer.status}.`);
    return answer;
  };
  /** @param {string} path */
  const json = async (path) => (await ask(path)).json();
  /** @param {string} path @param {object} body @param {AbortSignal} [signal] */
  const give = (path, body, signal) => ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
  /** Those that were shown last, the oldest first. @type {Map<string, Promise<Trace>>} */
  const known = new Map();
  /** @param {string} id */
  const load = async (id) => {
    const at = `trace/${encodeURIComponent(id)}`;
    const header = await json(`${at}/header`); // the server has checked what it sends
    return new Trace(header, new Buffers(header, async (name, layer) =>
      new Uint8Array(await (await ask(`${at}/buffer/${encodeURIComponent(name)}${layer === null ? "" : `?layer=${layer}`}`)).arrayBuffer())));
  };
  return {
    live: true,
    run: () => json("run"),
    traces: async () => (await json("traces")).traces,
    trace: (id) => {
      const found = known.get(id) ?? load(id);
      known.delete(id);
      known.set(id, found);
      found.catch(() => known.get(id) === found && known.delete(id)); // what failed once may go well the next time
      if (known.size > MOST_KNOWN) known.delete([...known.keys()][0]);
      return found;
    },
    metrics: (since) => json(`metrics?since=${since}`),
    samples: async () => (await json("samples")).samples,
    others: async () => (await json("others")).runs,
    history: () => json("history"),
    patching: async (one, other) => (await give("patch", { trace: one, other })).json(),
    post: async (path, body) => (await give(path, body)).json(),
    stream: async (path, body, heard, signal) => lines(/** @type {ReadableStream<Uint8Array>} */ ((await give(path, body, signal)).body), heard),
  };
}

/** What a browser says in words of its own: nobody answers any more. What was stopped here is no such thing. @param {unknown} [error] @returns {never} */
function gone(error) {
  if (error instanceof DOMException && error.name === "AbortError") throw error;
  throw new Error("`glassformer explore` has ended, so this page gets no answer. Start it again, and open the address that it prints.");
}

/**
 * The last of the lines of JSON that come, each of which is told of; an error among them ends it.
 * @param {ReadableStream<Uint8Array>} stream
 * @param {(line: any) => void} heard
 */
async function lines(stream, heard) {
  const reader = stream.pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
  let [rest, last] = ["", /** @type {any} */ ({})];
  for (;;) {
    const { done, value } = await reader.read().catch(gone);
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) {
      last = JSON.parse(part);
      if (last.error) throw new Error(last.error);
      heard(last);
    }
  }
  if (last.id === undefined) gone();
  return last;
}

/** The secret of this launch: it comes once behind the address, and stays in this tab alone. */
function token() {
  const given = /^#token=([\w-]+)/.exec(location.hash);
  if (given) {
    sessionStorage.setItem("token", given[1]);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("token") ?? "";
}

/* --- another input beside the one that is shown: chosen here, for every screen that compares. */

/** @typedef {import("./main.js").Context} Context */

/** What chooses it; none where there is one input alone. @param {Context} context */
export function besidePicker({ traces }) {
  const { other, trace } = now();
  if (traces.length < 2) return null;
  const options = /** @type {[string, string][]} */ ([["", "nothing"], ...traces.filter((each) => each.id !== trace).map((each) => [each.id, whole(each.title)])]);
  return picker("Compare with", options, other, (id) => set({ other: id }, true));
}

/** The trace that is chosen; null where there is none, or it is the one that is shown. @param {Context} context @returns {Promise<Trace | null>} */
export async function besideOf({ traces, source }) {
  const { other, trace } = now();
  return other !== trace && traces.some((each) => each.id === other) ? source.trace(other) : null;
}

/**
 * How far two maps of one size are apart: the total variation between the weights of a query in one and in the other
 * (half of the summed differences, 0 to 1), a mean over the queries that read something. Null where the sizes differ.
 * @param {import("./trace.js").Attention | undefined} one its layer is loaded, and the other's
 * @param {import("./trace.js").Attention | undefined} other
 * @param {number} layer
 * @param {number} head
 */
export function apart(one, other, layer, head) {
  if (!one || !other || one.group.q_len !== other.group.q_len || one.group.k_len !== other.group.k_len) return null;
  let [sum, queries] = [0, 0];
  for (let q = 0; q < one.group.q_len; q++) {
    let [gap, read] = [0, 0];
    for (let k = 0; k < one.group.k_len; k++) {
      const [a, b] = [one.weight(layer, head, q, k), other.weight(layer, head, q, k)];
      gap += Math.abs(a - b);
      read += a + b;
    }
    if (read > 0) queries++;
    sum += gap / 2;
  }
  return queries ? sum / queries : null;
}
