/** What each screen shows and how it is read, and the keys; made when it is asked for. */

import { byId, h, rememberFocus } from "lens/dom.js";
import { now, screens } from "lens/state.js";

/** @typedef {{shows: string, read: string[], keys?: [string, string][]}} Page */

const MAP = /** @type {[string, string][]} */ ([["arrows, Home, End", "another cell of the map, or another head of the small pictures"], ["Enter", "lock the cell"], ["Esc", "free it"]]);

/** @type {Record<string, Page>} */
const PAGES = {
  overview: {
    shows: "What the model is, what it answered to the chosen input, and what its heads do.",
    read: ["A wavy line marks a wrong token; a token opens its step on Generate.",
      "A role’s score is the share of attention on the keys that the role names, beyond chance. What is lost without the head is measured by taking it out; in brackets is its 95 % interval.",
      "Each box of the stack is a branch of a block, from the tokens below to the answer above; the blue ones open their maps."],
  },
  attention: {
    shows: "Every head of one kind of attention as a small picture, and one of them in detail.",
    read: ["A row is a query, the token that reads; a column is a key, the token that is read. A row carries the token read → the token predicted. Each row’s weights sum to 1.",
      "Darker is more; a weight of 0 has the colour of the background. Hatched cells may not be read: masked is not zero.",
      "At the right is the entropy of each query in nats (0: it reads one key), below what each key receives of all queries.",
      "Beside it puts another input next to this one; the third map is A − B, blue where A reads more, orange where B does.",
      "Weights say what is read, not what is used: Heads and Ablations say what is lost without a head."],
    keys: MAP,
  },
  generate: {
    shows: "The answer step by step: the chances of each token, what the step reads, and what wrote it.",
    read: ["A bar over a token is its loss in nats. Temperature, top-k and top-p change the chances that are shown, not the answer.",
      "What wrote it: the terms that the token’s logit is the sum of, one for each part of the model (direct logit attribution).",
      "Logit lens: what the head would say after each block, as dark as it is likely."],
    keys: [["← →", "a step back, a step on"]],
  },
  heads: {
    shows: "Every head in a table, role against effect, heads that read alike, and roles over the checkpoints.",
    read: ["Score: attention on the role’s keys, beyond chance. Lost without it: the fall of the metric when the head adds nothing. Gradient: how much the loss hangs on the head (Michel et al. 2019).",
      "Confidence is the largest weight of a query, entropy is in nats; both are means over the queries of this input.",
      "Beside it compares two inputs, A and B. Maps apart: the total variation between a query’s weights in A and in B, 0 to 1, a mean over the queries; it needs texts of one length."],
    keys: [["Enter", "on a head: open its map; on a column’s name: sort by it"]],
  },
  ablations: {
    shows: "What happens without some heads, and the study that the run is an arm of.",
    read: ["A head that is taken out adds nothing, or its mean over held-out texts; all else stays. Tokens that change are marked.",
      "In brackets is a 95 % interval. A head that others can replace loses little alone: take them out together."],
  },
  parameters: {
    shows: "Every tensor of the model, and its share of all parameters.",
    read: ["The width of a part is its share; below it stand the parts that it is made of. A tied tensor is counted once.",
      "Norm: the root of the sum of squares."],
    keys: [["Enter", "on a part: list its tensors alone"]],
  },
  curves: {
    shows: "What was measured at each step of training and on the dev split, and what the run wrote at its evaluations; other runs beside it.",
    read: ["A faint line is what was measured, the strong one its exponential moving average; circles are the dev split; triangles are checkpoints, which lead to Heads; what the run reads now is on Attention.",
      "The pointer tells the figures of a step; the CSV has all lines as they were written."],
  },
};
const EVERYWHERE = /** @type {[string, string][]} */ ([["1 to 7", "the screens, in their order"], ["?", "this help"], ["Tab", "the next control"]]);
const SETTING = "glassformer keys";

/** Whether single keys open screens; a page without a memory has them. */
export function keysAreOn() {
  try {
    return localStorage.getItem(SETTING) !== "off";
  } catch {
    return true;
  }
}

/** @param {boolean} on */
function keepKeys(on) {
  try {
    localStorage.setItem(SETTING, on ? "on" : "off");
  } catch {
    // A sandboxed frame has no memory; the keys stay.
  }
  window.dispatchEvent(new Event("keyschange"));
}

/** Show the help of this screen; Esc closes it, and the focus goes back to where it was. */
export function help() {
  if (document.getElementById("help-text")) return;
  const name = now().screen;
  const { shows, read, keys = [] } = PAGES[name];
  const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", checked: keysAreOn(), id: "single-keys" }));
  box.addEventListener("change", () => keepKeys(box.checked));
  const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { id: "help-text", class: "help card", "aria-labelledby": "help-title" },
    h("div", { class: "card-head" }, h("h2", { id: "help-title" }, `How to read ${name[0].toUpperCase()}${name.slice(1)}`), h("span", { class: "grow" }),
      h("button", { type: "button", on: { click: () => dialog.close() } }, "Close")),
    h("p", {}, shows), h("ul", { class: "findings" }, read.map((each) => h("li", {}, each))),
    h("h3", {}, "Keys"), h("dl", {}, [...keys, ...EVERYWHERE].map(([key, what]) => [h("dt", {}, key), h("dd", {}, what)])),
    h("label", { class: "head-box" }, box, "single keys open screens and this help")));
  dialog.addEventListener("keydown", (event) => event.stopPropagation()); // Esc closes this, and frees no lock behind it
  const giveBack = rememberFocus(document.body);
  dialog.addEventListener("close", () => {
    dialog.remove();
    giveBack(); // the page was drawn anew where single keys were turned on or off
    if (document.activeElement === document.body) byId("help").focus();
  });
  document.body.append(dialog);
  dialog.showModal();
}

/** Single keys: a number opens its screen, a question mark the help; not where one types. @param {(screen: string) => void} open */
export function shortcuts(open) {
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof Element && event.target.closest("input:not([type=checkbox]), textarea, select");
    if (typing || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !keysAreOn()) return;
    const screen = /^[1-9]$/.test(event.key) ? screens[Number(event.key) - 1] : undefined;
    if (event.key === "?") help();
    else if (screen) open(screen);
  });
}
