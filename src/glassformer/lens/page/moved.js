/** What each head reads once others are taken out: how far its map is from what it was, on the very same tokens. */

import { relist } from "lens/ask.js";
import { apart } from "lens/beside.js";
import { csv } from "lens/csv.js";
import { h } from "lens/dom.js";
import { saving } from "lens/files.js";
import { set } from "lens/state.js";
import { sortable } from "lens/table.js";
import { headName, number } from "lens/text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {{block: string, layer: number, head: number, gap: number | null, out: boolean}} Row */

/**
 * A table of the heads; one that is chosen is opened on Attention, both maps beside each other.
 * @param {Context} context
 * @param {string} same id of the trace that the model was made to write without them
 * @param {Set<string>} out names of those that are taken out
 */
export async function movedHeads(context, same, out) {
  const [one, other] = [context.trace, await context.source.trace(same)];
  await relist(context);
  const pairs = [...one.attention.values()].map((each) => /** @type {const} */ ([each, other.attention.get(each.block)]));
  await Promise.all(pairs.flat().map((each) => each?.load(each.layers)));
  const rows = pairs.flatMap(([a, b]) => a.layers.flatMap((layer) => Array.from({ length: a.group.heads }, (_, head) =>
    ({ block: a.block, layer, head, gap: apart(a, b, layer, head), out: out.has(headName(a.block, layer, head)) }))));
  const asCsv = () => csv(["block", "layer", "head", "taken_out", "apart"], rows.map((row) => [row.block, row.layer, row.head, row.out, row.gap]));
  return h("div", { class: "moved-heads" }, h("div", { class: "card-head" }, h("h3", {}, "How the attention of the heads moved"), h("span", { class: "grow" }),
    saving("how far the heads moved", [context.run.name, "ablations", one.title], { csv: asCsv })),
  h("p", { class: "quiet" }, "On the same tokens as with all heads: the share of a query’s attention that moved to other keys, averaged over the queries. Click a head to see both maps."),
  sortable("How far each head’s attention moved", [
    { name: "head", cell: (row) => h("code", {}, headName(row.block, row.layer, row.head)), by: (row) => `${row.block} ${String(row.layer).padStart(3, "0")} ${String(row.head).padStart(3, "0")}` },
    { name: "moved", figure: true, cell: (row) => number(row.gap), by: (row) => row.gap ?? -1 },
    { name: "", cell: (row) => row.out && "removed" },
  ], rows, { name: "moved", sorted: "moved", choose: ({ block, layer, head }) => set({ screen: "attention", block, layer, head, other: same, view: "map", q: null, k: null }, true) }));
}
