/** Every screen but attention, by its name. */

import { ablations } from "lens/ablations.js";
import { curves } from "lens/curves.js";
import { generate } from "lens/generate.js";
import { heads } from "lens/heads.js";
import { overview } from "lens/overview.js";
import { parameters } from "lens/parameters.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./main.js").Screen} Screen */

/** @type {Record<string, (context: Context) => Screen>} */
const MAKERS = { overview, generate, heads, ablations, parameters, curves };

/** @param {string} name @param {Context} context */
export function screen(name, context) {
  return MAKERS[name](context);
}
