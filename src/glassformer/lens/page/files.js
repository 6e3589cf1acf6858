/** Saving what is shown, as PNG, SVG and CSV, under the name of its run and its screen. */
import { h, mistake, put, s } from "lens/dom.js";
import { entropyOf, receivedBy } from "lens/inspector.js";
import { whole } from "lens/text.js";
import { placesOf, wordsOf } from "lens/view.js";

/* --- figures as comma-separated values, which spreadsheets read. */

/** @typedef {import("./heatmap.js").MapData} MapData */
/** @typedef {string | number | boolean | null | undefined} Field */

/** What stands in each line of a map. @param {MapData} data */
const columns = (data) => ["query", "query_token", "predicted_token", "key", "key_token", wordsOf(data).column, "query_entropy", "key_received"];

/** A line for each row, below one of names. @param {string[]} names @param {Field[][]} rows */
export function csv(names, rows) {
  return `${[names, ...rows].map((row) => row.map(field).join(",")).join("\n")}\n`;
}

/** @param {Field} value */
function field(value) {
  if (typeof value !== "string") return value ?? "";
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value; // a spreadsheet would take it for a formula
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** The weights of a map, a line for each pair that may be read, with the sums that stand beside the map. @param {MapData} data */
export function mapCsv(data) {
  return csv(columns(data), pairs(data));
}

/** The same of several maps, told apart by their names in a first column. @param {[string, MapData][]} maps */
export function mapsCsv(maps) {
  return csv(["input", ...columns(maps[0][1])], maps.flatMap(([name, data]) => pairs(data).map((row) => [name, ...row])));
}

/** @param {MapData} data @returns {Field[][]} */
function pairs(data) {
  const [queries, keys] = placesOf(data);
  const figure = (/** @type {number} */ value) => Number(value.toFixed(6));
  const received = keys.map((k) => (data.paint ? null : figure(receivedBy(data, k).sum))); // of differences there are no sums
  return queries.flatMap((q) => {
    const entropy = data.paint ? null : figure(entropyOf(data, q).entropy);
    return keys.flatMap((k, j) => (data.allowed(q, k)
      ? [[q, whole(data.read[q]), whole(data.predicted[q] ?? ""), k, whole(data.keys[k]), figure(data.value(q, k)), entropy, received[j]]] : []));
  });
}

/* --- saving what is shown, as PNG, SVG and CSV, under the name of its run and its screen. */

/** What of a drawing's style a file has to hold, as the page's style sheet does not come along. */
const LOOKS = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linejoin", "opacity",
  "font-family", "font-size", "font-weight", "text-anchor", "visibility"];
const LONGEST = 60;
/** Room for a title and a legend above a drawing, and for a letter of them, in pixels. */
const HEAD = 48;
const LETTER = 6.6;

/** @typedef {{svg?: () => SVGElement, csv?: () => string}} Savable what is made when it is asked for */

/**
 * @param {string} name
 * @param {Blob} blob
 */
export function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** @param {string} name @param {string} text @param {string} kind */
export function saveText(name, text, kind) {
  save(name, new Blob([text], { type: kind }));
}

/** A name that every file system takes: letters, digits and points, with a stroke between the parts. @param {(string | number)[]} parts */
export function fileName(parts) {
  return parts.map((each) => String(each).replace(/[^\p{L}\p{N}._]+/gu, "-").replace(/^[-.]+|-+$/g, "").slice(0, LONGEST)).filter((each) => each).join("-");
}

/**
 * Buttons that save something in each form that it has.
 * @param {string} label what is saved, for a screen reader
 * @param {(string | number)[]} name the run, the screen, and what else tells it from others
 * @param {Savable} forms
 */
export function saving(label, name, { svg, csv }) {
  const button = (/** @type {string} */ kind, /** @type {() => void} */ click) => h("button", { type: "button", on: { click } }, kind);
  const status = h("span", { class: "message", role: "status" });
  const points = async (/** @type {() => SVGElement} */ drawing) => {
    try {
      save(`${file}.png`, await png(drawing()));
      put(status);
    } catch (error) {
      put(status, mistake(error));
    }
  };
  const file = fileName(name);
  return h("div", { class: "exports", role: "group", "aria-label": `Save ${label}` },
    svg && [button("PNG", () => points(svg)), button("SVG", () => saveText(`${file}.svg`, svgText(svg()), "image/svg+xml"))],
    csv && button("CSV", () => saveText(`${file}.csv`, csv(), "text/csv")), status);
}

/**
 * A drawing of the page that stands by itself: in the light colours, on white, whatever the page has.
 * @param {SVGElement} drawing its `viewBox` is its size
 * @param {string} [title] written above it
 * @param {Element | null} [legend] what its marks mean, as the page writes it: written above it, too
 */
export function onPaper(drawing, title = "", legend = null) {
  const copy = /** @type {SVGElement} */ (drawing.cloneNode(true));
  const [x, below, width, tall] = (copy.getAttribute("viewBox") ?? "0 0 1 1").split(" ").map(Number);
  const head = title ? HEAD : 0;
  const [y, height] = [below - head, tall + head];
  if (title) copy.append(s("text", { x: x + 8, y: y + 18 }, title), ...keys(legend, x + 8, y + 38));
  const sheet = h("div", { class: "paper unseen", "aria-hidden": "true" }, copy);
  document.body.append(sheet);
  for (const each of [copy, ...copy.querySelectorAll("*")]) {
    const looks = getComputedStyle(each);
    for (const name of LOOKS) each.setAttribute(name, looks.getPropertyValue(name));
  }
  sheet.remove();
  for (const each of copy.querySelectorAll("*")) for (const name of ["class", "href", "tabindex", "role"]) each.removeAttribute(name);
  for (const [name, value] of [["xmlns", "http://www.w3.org/2000/svg"], ["width", width], ["height", height], ["viewBox", `${x} ${y} ${width} ${height}`]]) copy.setAttribute(String(name), String(value));
  copy.prepend(s("rect", { x, y, width, height, fill: "#ffffff" }));
  return copy;
}

/** A legend of the page in a row: the mark and the words of each. @param {Element | null} legend @param {number} x @param {number} y */
function keys(legend, x, y) {
  let at = x;
  return [...legend?.children ?? []].map((each) => {
    const [line, shape] = [each.querySelector("i.key"), each.querySelector("svg.point")];
    const mark = line ? s("path", { class: `line ${line.className}`, d: "M0 -4h16" })
      : shape && s("g", { class: shape.getAttribute("class"), transform: "translate(8 -4)" }, shape.firstElementChild?.cloneNode(true));
    const group = s("g", { transform: `translate(${at} ${y})` }, mark, s("text", { x: mark ? 22 : 0, y: 0 }, each.textContent));
    at += (mark ? 22 : 0) + LETTER * (each.textContent ?? "").length + 18;
    return group;
  });
}

/** An SVG as the text of a file. @param {SVGElement} svg */
export function svgText(svg) {
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(svg)}\n`;
}

/**
 * An SVG as a picture of points, twice as large.
 * @param {SVGElement} svg
 * @returns {Promise<Blob>}
 */
export async function png(svg) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(svg))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = 2 * Number(svg.getAttribute("width"));
  canvas.height = 2 * Number(svg.getAttribute("height"));
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob)
    : reject(new Error(`A PNG of ${canvas.width} by ${canvas.height} pixels is too large for this browser. Save it as SVG.`))), "image/png"));
}
