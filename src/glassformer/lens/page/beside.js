/** Another input beside the one that is shown: chosen here, for every screen that compares. */

import { picker } from "lens/dom.js";
import { now, set } from "lens/state.js";
import { whole } from "lens/text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./trace.js").Trace} Trace */

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
