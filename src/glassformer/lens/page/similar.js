/** Heads that read alike, pair by pair. */

import { csv } from "lens/csv.js";
import { h } from "lens/dom.js";
import { saving } from "lens/files.js";
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
 * @param {string} run its name
 */
export function similar(pairs, all, trace, run) {
  if (!pairs) return null;
  const said = (/** @type {Which} */ which) => headName(...which);
  const name = (/** @type {Which} */ which) => h("code", {}, said(which));
  const role = (/** @type {Which} */ [block, layer, head]) => {
    const found = trace.head(/** @type {import("./types.js").Block} */ (block), layer, head)?.role;
    return found && h("span", { class: `role ${found.strength}` }, found.label);
  };
  const open = (/** @type {Pair} */ [[block, layer, head]]) => set({ screen: "attention", block, layer, head, q: null, k: null }, true);
  return h("section", { class: "card similar" }, h("div", { class: "card-head" }, h("h2", {}, "Heads with similar attention"), h("span", { class: "grow" }),
    pairs.length > 0 && saving("these pairs", [run, "heads", "alike"], { csv: () => csv(["one", "other", "divergence_bits"], pairs.map(([one, other, divergence]) => [said(one), said(other), divergence])) })),
    h("p", { class: "quiet" }, pairs.length ? "How different the weights of two heads are: the Jensen-Shannon divergence of their rows in bits, averaged over the probe (Clark et al. 2019). 0 means equal."
      : "No two heads of the same kind have similar attention."),
    pairs.length < all && h("p", { class: "quiet" }, `The ${pairs.length} most similar of ${all} pairs.`),
    pairs.length > 0 && sortable("Heads with similar attention", [
      { name: "one", cell: ([one]) => name(one), by: ([one]) => said(one) },
      { name: "its role", cell: ([one]) => role(one) },
      { name: "other", cell: ([, other]) => name(other), by: ([, other]) => said(other) },
      { name: "role of the other", cell: ([, other]) => role(other) },
      { name: "divergence", figure: true, cell: (pair) => number(pair[2]), by: (pair) => pair[2] },
    ], pairs, { choose: open, name: "alike" }));
}
