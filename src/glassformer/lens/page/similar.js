/** Heads that read alike, pair by pair. */

import { h } from "lens/dom.js";
import { set } from "lens/state.js";
import { sortable } from "lens/table.js";
import { headName, number } from "lens/text.js";

/** @typedef {[block: string, layer: number, head: number]} Which */
/** @typedef {[one: Which, other: Which, divergence: number]} Pair divergence in bits, 0 to 1 */

/**
 * A card with the pairs; none where they have not been looked for.
 * @param {Pair[] | null | undefined} pairs
 * @param {number} all how many there are
 * @param {import("./trace.js").Trace} trace
 */
export function similar(pairs, all, trace) {
  if (!pairs) return null;
  const said = (/** @type {Which} */ which) => headName(...which);
  const name = (/** @type {Which} */ which) => h("code", {}, said(which));
  const role = (/** @type {Which} */ [block, layer, head]) => {
    const found = trace.head(/** @type {import("./types.js").Block} */ (block), layer, head)?.role;
    return found && h("span", { class: `role ${found.strength}` }, found.label);
  };
  const open = (/** @type {Pair} */ [[block, layer, head]]) => set({ screen: "attention", block, layer, head, q: null, k: null }, true);
  return h("section", { class: "card similar" }, h("h2", {}, "Heads that read alike"),
    h("p", { class: "quiet" }, pairs.length ? "How unlike the weights of two heads are: the Jensen-Shannon divergence of their rows, in bits, a mean over the probe (Clark et al. 2019). 0 is the same."
      : "No two heads of one kind read alike."),
    pairs.length < all && h("p", { class: "quiet" }, `The ${pairs.length} most alike of ${all}.`),
    pairs.length > 0 && sortable("Heads that read alike", [
      { name: "one", cell: ([one]) => name(one), by: ([one]) => said(one) },
      { name: "its role", cell: ([one]) => role(one) },
      { name: "other", cell: ([, other]) => name(other), by: ([, other]) => said(other) },
      { name: "role of the other", cell: ([, other]) => role(other) },
      { name: "divergence", figure: true, cell: (pair) => number(pair[2]), by: (pair) => pair[2] },
    ], pairs, { choose: open }));
}
