/** The tree of a beam search: which beginnings went on together, and which answers they came to. */
import { begun } from "lens/ask.js";
import { acts, cardHead, h, s, scroller } from "lens/dom.js";
import { csv, onPaper, saving } from "lens/files.js";
import { sortable } from "lens/table.js";
import { number, percent, token, whole } from "lens/text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./trace.js").BeamNode} BeamNode */
/** @typedef {BeamNode & {place: number, ids: number[], children: Branch[], best: number, row: number}} Branch best: the rank of the best answer below; Infinity where none is */

const [WIDE, TALL, PAD] = [92, 28, 6];
/** Nodes that are drawn; of more the best answers alone are. */
const MOST = 600;

/** A card with the tree and its answers; none where there was no beam. @param {Context} context @param {import("./ask.js").Line} line where going on from one is told of */
export function beamCard(context, line) {
  const { trace, run, source } = context;
  const { beams } = trace.header;
  if (!beams) return null;
  const all = branchesOf(beams.nodes);
  const answers = all.filter((each) => each.rank !== null && each.rank !== undefined).sort((a, b) => Number(a.rank) - Number(b.rank));
  const shown = all.length > MOST ? laid(all.filter((each) => each.best < Infinity)) : all;
  const open = (/** @type {Branch} */ branch) => begun(context, branch.ids, line);
  const drawing = tree(shown, (id) => trace.text(id), source.live ? open : null);
  const says = (/** @type {Branch} */ branch) => branch.ids.map((id) => h("span", { class: "chip" }, token(trace.text(id))));
  const table = () => csv(["rank", "score", "log_probability", "tokens"], answers.map((each) => [Number(each.rank) + 1, each.score, each.log_p, each.ids.map((id) => whole(trace.text(id))).join(" ")]));
  return h("section", { class: "card beams" }, cardHead(`Beam of ${beams.width}`,
    saving("the beam", [run.name, "generate", trace.title], { svg: () => onPaper(drawing), csv: table })),
  h("p", { class: "quiet" }, `From left to right: the partial answers that the beam kept, at most ${beams.width} at a time; darker means that the token is more probable after those before it. The thick line leads to the best answer.${source.live ? " Click a box to continue from there." : ""}${shown.length < all.length ? ` Only those that led to an answer are drawn, ${shown.length} of ${all.length}.` : ""}`),
  scroller("The tree of the beam", drawing),
  sortable("Answers of the beam", [
    { name: "rank", figure: true, cell: (row) => String(row.rank + 1), by: (row) => -row.rank },
    { name: "score", figure: true, cell: (row) => number(row.score), by: (row) => row.score },
    { name: "log-probability, nats", figure: true, cell: (row) => number(row.log_p), by: (row) => row.log_p },
    { name: "answer", cell: says },
  ], answers, { name: "beam", sorted: "rank", ...(source.live ? { choose: open } : {}) }), line.element);
}

/** The nodes with what hangs on them: where each lies, from the best answer's row at the top. @param {BeamNode[]} nodes @returns {Branch[]} */
export function branchesOf(nodes) {
  /** @type {Branch[]} */
  const branches = [];
  for (const [place, node] of nodes.entries()) {
    const parent = branches[node.parent];
    const branch = { ...node, place, ids: [...(parent?.ids ?? []), node.token], children: [], best: node.rank ?? Infinity, row: 0 };
    branches.push(branch);
    parent?.children.push(branch);
  }
  for (const each of [...branches].reverse()) {
    const parent = branches[each.parent];
    if (parent) parent.best = Math.min(parent.best, each.best);
  }
  return laid(branches);
}

/** Their rows, one below the other, for these branches alone. @param {Branch[]} branches */
function laid(branches) {
  const drawn = new Set(branches);
  let row = 0;
  // The best child goes on in the row of its parent; each other one begins a row of its own below all that came before.
  const lay = (/** @type {Branch[]} */ level) => {
    level.sort((a, b) => (a.best === b.best ? b.log_p - a.log_p : a.best - b.best));
    level.forEach((each, i) => {
      if (i) row++;
      each.row = row;
      lay(each.children.filter((child) => drawn.has(child)));
    });
  };
  lay(branches.filter((each) => each.parent < 0));
  return branches;
}

/** @param {Branch[]} branches @param {(id: number) => string} text @param {((branch: Branch) => void) | null} open */
function tree(branches, text, open) {
  const depth = Math.max(...branches.map((each) => each.ids.length));
  const [width, height] = [depth * WIDE + 2 * PAD, (Math.max(...branches.map((each) => each.row)) + 1) * TALL + 2 * PAD];
  const at = (/** @type {Branch} */ each) => ({ x: PAD + (each.ids.length - 1) * WIDE, y: PAD + each.row * TALL });
  const byPlace = new Map(branches.map((each) => [each.place, each]));
  const edges = branches.map((each) => {
    const parent = byPlace.get(each.parent);
    if (!parent) return null;
    const [from, to] = [at(parent), at(each)];
    const x = from.x + WIDE - 22;
    return s("path", { class: `edge${each.best === 0 ? " best" : ""}`, d: `M${x} ${from.y + TALL / 2}C${x + 14} ${from.y + TALL / 2} ${to.x - 14} ${to.y + TALL / 2} ${to.x} ${to.y + TALL / 2}` });
  });
  const boxes = branches.map((each) => {
    const { x, y } = at(each);
    const answer = each.rank === null || each.rank === undefined ? "" : `; answer ${each.rank + 1}, score ${number(each.score)}`;
    const name = `${whole(text(each.token))}: probability ${percent(each.p)} after the tokens before it, ${number(each.log_p)} nats in total${answer}`;
    const button = open && { tabindex: 0, role: "button", "aria-label": name, on: acts(() => open(each)) };
    return s("g", { class: `beam-node${each.best === 0 ? " best" : ""}${answer ? " ended" : ""}`, transform: `translate(${x} ${y + 3})`, "data-place": each.place, ...button },
      s("title", {}, name), s("rect", { width: WIDE - 22, height: TALL - 6, rx: 5, style: { fillOpacity: String(0.06 + 0.5 * each.p) } }),
      s("text", { x: (WIDE - 22) / 2, y: TALL / 2 + 1, "text-anchor": "middle" }, short(token(text(each.token)))));
  });
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "beam-tree", role: open ? "group" : "img", "aria-label": "Tree of the beam" }, edges, boxes);
}

/** What a box has room for. @param {string} text */
function short(text) {
  const letters = [...text];
  return letters.length > 8 ? `${letters.slice(0, 7).join("")}…` : text;
}
