/** Asking the model for an answer: told token by token, and then shown. */

import { now, set } from "lens/state.js";
import { whole } from "lens/text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./trace.js").Trace} Trace */

/**
 * The model answers; its trace is then the one that is shown. Rejects with a sentence for the reader.
 * @param {Context} context
 * @param {{text?: string, trace?: string, begin?: number[], decode?: Record<string, number>}} asked
 * @param {{heard?: (text: string) => void, signal?: AbortSignal, then?: Partial<import("./state.js").State>}} [more] then: what else is shown of it
 */
export async function answered(context, asked, { heard, signal, then = {} } = {}) {
  const { id } = await context.source.stream("generate", asked, ({ token }) => { if (token !== undefined) heard?.(whole(token)); }, signal);
  context.traces = await context.source.traces();
  set({ step: -1, other: "", q: null, k: null, ...then, trace: id }, true);
}

/**
 * The same text answered once more in the same manner, with a beginning of its own; the answer that was shown stands beside it.
 * @param {Context} context
 * @param {number[]} begin ids of the tokens that the answer begins with
 */
export async function begun(context, begin) {
  const { trace } = context;
  const id = now().trace;
  const place = (trace.header.sequences.target?.n_prompt ?? 1) - 1 + begin.length - 1;
  await answered(context, { trace: id, begin }, { then: { step: place, other: id } });
}

/** What can be begun otherwise: the answer of a model that writes token by token. @param {Trace} trace */
export function canBegin({ header }) {
  return header.sequences.target !== undefined;
}

/** The tokens that were written before a place. @param {Trace} trace @param {number} pos */
export function writtenBefore({ header }, pos) {
  const { ids, n_prompt = 1 } = /** @type {import("./types.js").Sequence} */ (header.sequences.target);
  return ids.slice(n_prompt, pos + 1);
}
