/** Where the parameters are: an icicle, and every tensor. */
import { acts, cardHead, h, put, s } from "lens/dom.js";
import { csv, onPaper, saving } from "lens/files.js";
import { now, set } from "lens/state.js";
import { sortable } from "lens/table.js";
import { count, number, percent } from "lens/text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./trace.js").Parameter} Parameter */
/** @typedef {{name: string, path: string, total: number, children: Map<string, Node>}} Node */

const WIDE = 1000;
const TALL = 30;
const DEPTH = 4;

/** @param {Context} context @returns {import("./main.js").Screen} */
export function parameters({ trace, run }) {
  const element = h("div", { class: "screen parameters" });
  const rows = trace.header.params ?? [];
  const total = rows.reduce((sum, row) => sum + row.count, 0);
  const draw = () => {
    const { part } = now();
    const inside = rows.filter((row) => `${row.name}.`.startsWith(`${part}.`));
    const within = inside.length ? part : ""; // of another model, perhaps
    const shown = within ? inside : rows;
    const shares = icicle(tree(rows), total, (path) => set({ part: path }, true));
    const drawing = () => onPaper(/** @type {SVGElement} */ (shares.querySelector("svg")), `${run.name}: ${count(total)} parameters`);
    put(element,
      h("section", { class: "card" }, cardHead([h("output", { id: "total" }, count(total)), " parameters"], saving("this chart", [run.name, "parameters", "shares"], { svg: drawing })),
        h("p", { class: "quiet" }, within ? h("button", { type: "button", class: "plain-button", on: { click: () => set({ part: "" }, true) } }, `${within} ×`) : "The width of a part is its share of all parameters. Click a part to list only its tensors."),
        shares),
      h("section", { class: "card" }, cardHead(`${shown.length} tensors`, saving("this table", [run.name, "parameters"], { csv: () => asCsv(shown) })), table(shown, total)));
  };
  return { element, draw };
}

/** @param {Parameter[]} rows @param {number} total */
function table(rows, total) {
  return sortable("Tensors", [
    { name: "tensor", cell: (row) => h("code", {}, row.name), by: (row) => row.name },
    { name: "shape", cell: (row) => row.shape.join(" × ") },
    { name: "count", figure: true, cell: (row) => (row.tied_to ? h("span", { class: "quiet" }, `tied to ${row.tied_to}`) : count(row.count)), by: (row) => row.count },
    { name: "share", figure: true, cell: (row) => percent(row.count / total), by: (row) => row.count },
    { name: "norm", figure: true, cell: (row) => number(row.norm), by: (row) => row.norm ?? 0 },
  ], rows);
}

/** The parts as a tree, by the points in their names. @param {Parameter[]} rows @returns {Node} */
function tree(rows) {
  /** @type {Node} */
  const root = { name: "model", path: "", total: 0, children: new Map() };
  for (const row of rows) {
    let node = root;
    node.total += row.count;
    for (const name of parts(row.name)) {
      const path = node.path ? `${node.path}.${name}` : name;
      let child = node.children.get(name);
      if (!child) node.children.set(name, child = { name, path, total: 0, children: new Map() });
      child.total += row.count;
      node = child;
    }
  }
  return root;
}

/** The steps of a name; what says nothing to a reader is left with its neighbour. @param {string} name */
function parts(name) {
  return name.split(".").reduce((/** @type {string[]} */ found, part) => {
    const last = found[found.length - 1];
    return last === "blocks" || part === "branch" ? [...found.slice(0, -1), `${last}.${part}`] : [...found, part];
  }, []);
}

/** @param {Node} root @param {number} total @param {(path: string) => void} choose */
function icicle(root, total, choose) {
  /** @type {SVGElement[]} */
  const boxes = [];
  /** @param {Node} node @param {number} begin @param {number} level */
  const place = (node, begin, level) => {
    const width = (node.total / total) * WIDE;
    if (width < 1.5 || level > DEPTH) return;
    const text = node.name.replace("blocks.", "block ").replace(".branch", "");
    const title = `${node.path || "all"}: ${count(node.total)}, ${percent(node.total / total)}`;
    boxes.push(s("g", { tabindex: "0", role: "button", "aria-label": `${text}: ${title}`, "data-tip": title, class: `part level${level}`, on: acts(() => choose(node.path)) },
    s("rect", { x: begin + 0.75, y: level * (TALL + 3), width: Math.max(0.5, width - 1.5), height: TALL, rx: 3 }),
    width > text.length * 6.6 + 12 && s("text", { x: begin + 8, y: level * (TALL + 3) + 19.5 }, text)));
    let at = begin;
    for (const child of node.children.values()) {
      place(child, at, level + 1);
      at += (child.total / total) * WIDE;
    }
  };
  place(root, 0, 0);
  return h("div", { class: "scroll" }, s("svg", { viewBox: `0 0 ${WIDE} ${(DEPTH + 1) * (TALL + 3)}`, class: "icicle", role: "group", "aria-label": "Shares of the parameters" }, boxes));
}

/** @param {Parameter[]} rows */
function asCsv(rows) {
  return csv(["tensor", "shape", "count", "norm", "tied_to"], rows.map((row) => [row.name, row.shape.join("x"), row.count, row.norm, row.tied_to]));
}
