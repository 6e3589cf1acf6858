/** Tables: of one head's strongest weights, and any other that can be sorted by its columns. */
import { h, putControls, scroller } from "lens/dom.js";
import { keep, now } from "lens/state.js";
import { token, weight, whole } from "lens/text.js";
import { placesOf, strongest, wordsOf } from "lens/view.js";

/** @typedef {import("./heatmap.js").MapData} MapData */

/** One head in words and figures: the strongest keys of each query. @param {MapData} data */
export function headTable(data) {
  const rows = placesOf(data)[0].map((q) => {
    const text = data.read[q];
    const keys = strongest(data, q).map(({ k, value }) => h("td", {},
      h("span", { class: "chip", title: whole(data.keys[k]) }, token(data.keys[k])), h("small", { class: "quiet" }, ` ${k} `), weight(value)));
    return h("tr", {}, h("th", { scope: "row" }, h("span", { class: "chip", title: whole(text) }, token(text)), h("small", { class: "quiet" }, ` ${q}`)),
      h("td", {}, data.predicted[q] === null ? "" : h("span", { class: "chip", title: whole(data.predicted[q] ?? "") }, token(data.predicted[q] ?? ""))), keys);
  });
  return scroller(data.name, h("table", { class: "plain" }, h("caption", { class: "unseen" }, data.name),
    h("thead", {}, h("tr", {}, ["token read", "predicts", wordsOf(data).most, "2nd", "3rd", "4th", "5th"].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, rows)));
}

/**
 * @typedef {object} Column
 * @property {string} name
 * @property {(row: any) => import("./dom.js").Child} cell
 * @property {(row: any) => number | string} [by] what rows are sorted by
 * @property {boolean} [figure]
 */

/**
 * What the tables of a screen are sorted by, as the address has it, `-score_beam:rank`: a table's name and ":", which its
 * main table does without; "-" where the first row has the most; the column's name.
 */
function sorting() {
  return new Map(now().by.split("_").filter(Boolean).map((each) => [each.slice(0, Math.max(0, each.indexOf(":"))), each.slice(each.indexOf(":") + 1)]));
}

/**
 * A table that is sorted by the column whose name is clicked; the address keeps it.
 * @param {string} caption
 * @param {Column[]} columns
 * @param {any[]} rows
 * @param {{choose?: (row: any) => void, sorted?: string, name?: string}} [more] `sorted`: by which column at first;
 *   `name`: which table of its screen it is, "" for the main one
 */
export function sortable(caption, columns, rows, { choose, sorted = "", name = "" } = {}) {
  const table = h("table", { class: "plain sortable" });
  const usual = sorted && `-${sorted}`;
  /** @param {Column} column @param {boolean} down */
  const sort = ({ name: by }, down) => {
    const all = sorting();
    const text = `${down ? "-" : ""}${by}`;
    if (text === usual) all.delete(name);
    else all.set(name, text);
    keep({ by: [...all].map(([each, what]) => (each ? `${each}:${what}` : what)).join("_") });
    draw();
  };
  const draw = () => {
    const chosen = sorting().get(name) ?? usual;
    const known = columns.find((each) => each.by && (chosen === each.name || chosen === `-${each.name}`));
    const column = known ?? columns.find((each) => each.name === sorted);
    const down = chosen !== known?.name;
    const order = [...rows];
    const value = column?.by;
    if (value) order.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (down ? -1 : 1));
    const heads = columns.map((each) => h("th", { scope: "col", class: each.figure ? "figure" : "", "aria-sort": each === column ? (down ? "descending" : "ascending") : null },
      each.by ? h("button", { type: "button", on: { click: () => sort(each, each === column ? !down : true) } }, each.name) : each.name));
    // A row is chosen by a click anywhere; by key and by ear, by the button in its first cell, whose click the row hears.
    const body = order.map((row) => h("tr", choose ? { class: "link", on: { click: () => choose(row) } } : {},
      columns.map((each, i) => h("td", { class: each.figure ? "figure" : "" }, choose && i === 0 ? h("button", { type: "button", class: "row-button" }, each.cell(row)) : each.cell(row)))));
    putControls(table, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, heads)), h("tbody", {}, body));
  };
  draw();
  return h("div", { class: "scroll" }, table);
}
