/** How tokens and numbers are written. */

const NAMES = new Map([[9, "⇥"], [10, "⏎"], [13, "␍"], [160, "⍽"]]);
const LONGEST = 18;

/**
 * Whether a character would be unseen, or would turn the text around it: controls, bidirectional marks, lone spaces.
 * @param {number} code
 */
function unseen(code) {
  return code < 32 || (code >= 127 && code < 160) || code === 0xad || (code >= 0x200b && code <= 0x200f)
    || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) || code === 0xfeff
    || (code >= 0xd800 && code <= 0xdfff) || (code >= 0xe0000 && code <= 0xe0fff);
}

/**
 * A token in full, with nothing unseen in it: also spaces at its ends show.
 * @param {string} text
 */
export function whole(text) {
  if (text === "") return "∅";
  let shown = "";
  for (const each of text) {
    const code = /** @type {number} */ (each.codePointAt(0));
    const name = NAMES.get(code);
    shown += name ?? (unseen(code) ? `\\u{${code.toString(16)}}` : each);
  }
  return shown.replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length));
}

/**
 * A token short enough for a label.
 * @param {string} text
 */
export function token(text) {
  const letters = [...whole(text)];
  return letters.length > LONGEST ? `${letters.slice(0, LONGEST - 1).join("")}…` : letters.join("");
}

/**
 * A number with so many significant digits, without exponents where they are not needed.
 * @param {number | null | undefined} value
 * @param {number} [digits]
 */
export function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e6)) return value.toExponential(Math.max(0, digits - 2));
  return String(Number(value.toPrecision(digits)));
}

/**
 * A share as per cent; a small one says so.
 * @param {number | null | undefined} share
 */
export function percent(share) {
  if (share === null || share === undefined) return "–";
  if (share > 0 && share < 0.0001) return "<0.01 %";
  const digits = share >= 0.9995 || share < 0.1 ? 2 : 1;
  return `${(100 * share).toFixed(share === 1 || share === 0 ? 0 : digits)} %`;
}

/**
 * A weight, four places behind the point.
 * @param {number} value
 */
export function weight(value) {
  return value.toFixed(4);
}

/**
 * A count with thin spaces between thousands.
 * @param {number} value
 */
export function count(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

/**
 * The name of a head that people say: its kind, layer and head.
 * @param {string} block
 * @param {number} layer
 * @param {number} head
 */
export function headName(block, layer, head) {
  return `${block} ${layer}.${head}`;
}
