/** Colours of maps: one hue, lighter to darker by weight; zero is the background, in both themes. */

/** @typedef {[number, number, number]} Rgb */

/** @type {Record<string, Rgb[]>} */
const STOPS = {
  light: [[255, 255, 255], [221, 231, 250], [165, 191, 241], [97, 140, 222], [43, 87, 184], [14, 38, 104]],
  dark: [[24, 27, 33], [32, 49, 86], [47, 83, 156], [86, 131, 219], [153, 190, 250], [233, 242, 255]],
};
/** Differences: one hue below zero, one above. @type {Record<string, [Rgb[], Rgb[]]>} */
const TWO = {
  light: [[[255, 255, 255], [252, 205, 160], [222, 122, 40], [122, 52, 6]], [[255, 255, 255], [165, 191, 241], [62, 105, 200], [14, 38, 104]]],
  dark: [[[24, 27, 33], [92, 52, 20], [200, 112, 44], [255, 214, 170]], [[24, 27, 33], [47, 83, 156], [110, 155, 235], [233, 242, 255]]],
};

/** @type {Map<string, Uint32Array>} */
const tables = new Map();

const dark = matchMedia("(prefers-color-scheme: dark)");

/** "light" or "dark": what is chosen, else what the system says. */
export function theme() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen) return chosen;
  return dark.matches ? "dark" : "light";
}

/** @param {Rgb[]} stops @param {number} share from 0 to 1 @returns {Rgb} */
function between(stops, share) {
  const at = Math.min(1, Math.max(0, share)) * (stops.length - 1);
  const i = Math.min(Math.floor(at), stops.length - 2);
  const mix = at - i;
  return /** @type {Rgb} */ (stops[i].map((from, c) => Math.round(from + (stops[i + 1][c] - from) * mix)));
}

/**
 * The colour of each level, 0 to 255, as a pixel.
 * @param {string} [name] of the theme; without it the page's
 * @param {(level: number, name: string) => Rgb} [paint] other colours than the scale's
 */
export function table(name = theme(), paint = ofLevel) {
  const known = paint === ofLevel ? tables.get(name) : undefined;
  if (known) return known;
  const found = Uint32Array.from({ length: 256 }, (_, level) => {
    const [r, g, b] = paint(level, name);
    return (255 << 24) | (b << 16) | (g << 8) | r;
  });
  if (paint === ofLevel) tables.set(name, found);
  return found;
}

/** As CSS writes it. @param {Rgb} colour */
export function rgb(colour) {
  return `rgb(${colour.join(" ")})`;
}

/** The colour of a difference from -1 to 1. @param {number} value @param {string} [name] of the theme; without it the page's */
export function difference(value, name = theme()) {
  const [below, above] = TWO[name];
  return between(value < 0 ? below : above, Math.sqrt(Math.abs(value)));
}

/** The colour of a level, 0 to 255. @param {number} level @param {string} [name] of the theme; without it the page's */
export function ofLevel(level, name = theme()) {
  return between(STOPS[name], level / 255);
}

/**
 * Background and ink of an element, as a style that follows the theme by itself, so that none stays as it was in another.
 * @param {(theme: string) => Rgb} colour
 */
export function ground(colour) {
  const [light, dark] = ["light", "dark"].map(colour);
  return { background: `light-dark(${rgb(light)}, ${rgb(dark)})`, color: `light-dark(${inkFor(light)}, ${inkFor(dark)})` };
}

/** @type {Map<number, {background: string, color: string}>} */
const grounds = new Map();

/** The same of a level, which hundreds of tokens have at once. @param {number} level */
export function shaded(level) {
  const at = Math.round(Math.min(255, Math.max(0, level)));
  const found = grounds.get(at) ?? ground((name) => ofLevel(at, name));
  grounds.set(at, found);
  return found;
}

/** Black or white, whichever stands out more (WCAG 2.2, relative luminance): 4.5 to 1 at least. @param {Rgb} colour */
export function inkFor(colour) {
  const [r, g, b] = colour.map((part) => (part <= 10 ? part / 3294 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

/** The theme's colours that have been looked up; a look makes the browser compute every style. @type {Map<string, string>} */
const looked = new Map();

/** A colour of the theme by the name of its CSS variable. @param {string} name */
export function themed(name) {
  const key = `${theme()} ${name}`;
  let found = looked.get(key);
  if (found === undefined) {
    found = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    looked.set(key, found);
  }
  return found;
}

/**
 * The hatching of cells that may not be read, which is no colour of the scale.
 * @param {CanvasRenderingContext2D} pen
 */
export function hatching(pen) {
  const tile = document.createElement("canvas");
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  tile.width = tile.height = Math.round(6 * ratio);
  const ink = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  const side = tile.width;
  ink.fillStyle = themed("masked");
  ink.fillRect(0, 0, side, side);
  ink.strokeStyle = themed("hatch");
  ink.lineWidth = ratio;
  ink.beginPath();
  for (const shift of [-side, 0, side]) {
    ink.moveTo(shift - 1, side + 1);
    ink.lineTo(shift + side + 1, -1);
  }
  ink.stroke();
  const pattern = /** @type {CanvasPattern} */ (pen.createPattern(tile, "repeat"));
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

/* --- the cells of a map as a picture of one point each, which whoever shows it makes as large as it is to be. */

/** @param {import("./heatmap.js").MapData} data @param {string} [name] of the theme; without it the page's */
export function cellsOf({ part: { rows, columns }, levels, paint }, name = theme()) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const picture = pen.createImageData(columns, rows);
  const colours = table(name, paint);
  new Uint32Array(picture.data.buffer).set(Uint32Array.from(levels, (level) => colours[level]));
  pen.putImageData(picture, 0, 0);
  return canvas;
}
