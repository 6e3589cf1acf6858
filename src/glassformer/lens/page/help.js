/** What each screen shows and how it is read, and the keys; made when it is asked for. */
import { byId, h, rememberFocus } from "lens/dom.js";
import { now, screens } from "lens/state.js";

/** @typedef {{shows: string, read: string[], keys?: [string, string][]}} Page */

const MAP = /** @type {[string, string][]} */ ([["arrows, Home, End", "another cell of the map, or another head among the small pictures"], ["Enter", "lock the cell"], ["Esc", "unlock it"]]);

/** @type {Record<string, Page>} */
const PAGES = {
  overview: {
    shows: "What the model is, how it answered the chosen input, and what its heads do.",
    read: ["A wavy line marks a wrong token. Click a token to open its step on Generate.",
      "A role’s score is the share of attention on the keys that the role predicts, beyond chance (the weight that uniform attention would put there). What is lost without a head is measured by removing it; its 95 % interval is in brackets.",
      "Each box of the stack is a branch of a block, from the tokens at the bottom to the answer at the top; the blue boxes open their maps."],
  },
  attention: {
    shows: "Every head of one kind of attention as a small picture, and one head in detail.",
    read: ["A row is a query, the token that reads; a column is a key, the token that is read. A row’s label is the token read → the token predicted. The weights of a row sum to 1.",
      "Darker means more attention; a weight of 0 has the colour of the background. Hatched cells are masked: they may not be read, which is not the same as a weight of 0.",
      "On the right is the entropy of each query in nats (0: it reads one key); below is the attention that each key receives from all queries.",
      "Compare with shows another input beside this one; the third map is A − B, blue where A reads more, orange where B does.",
      "Weights show what is read, not what is used: Heads and Ablations show what is lost without a head."],
    keys: MAP,
  },
  generate: {
    shows: "The answer step by step: the probabilities of the tokens, what each step reads, and which parts of the model wrote the token.",
    read: ["The bar above a token is its loss in nats. Temperature, top-k and top-p change the probabilities that are shown, not the answer.",
      "What wrote it: the terms whose sum is the token’s logit, one for each part of the model (direct logit attribution).",
      "Logit lens: what the output head would predict after each block; darker means more likely."],
    keys: [["← →", "the previous step, the next step"]],
  },
  heads: {
    shows: "All heads in a table, role against effect, heads with similar attention, and roles over the checkpoints.",
    read: ["Score: attention on the role’s keys, beyond chance. Lost without it: how far the metric falls when the head adds nothing. Gradient: how strongly the loss depends on the head (Michel et al. 2019).",
      "Confidence is the largest weight of a query; entropy is in nats. Both are means over the queries of this input.",
      "Compare with shows two inputs, A and B. Maps apart: the total variation (0 to 1) between a query’s weights in A and in B, averaged over the queries; both texts must have the same length."],
    keys: [["Enter", "on a head: open its map; on a column’s name: sort by it"]],
  },
  ablations: {
    shows: "What happens without some heads, and the study that the run belongs to.",
    read: ["A removed head adds nothing, or its mean over held-out texts; everything else stays. Tokens that change are marked.",
      "The 95 % interval is in brackets. If other heads do the same, removing one of them alone changes little: remove them together."],
  },
  parameters: {
    shows: "Every tensor of the model, and its share of all parameters.",
    read: ["The width of a part is its share; below it are the parts that it consists of. A tied tensor is counted once.",
      "Norm: the square root of the sum of squares."],
    keys: [["Enter", "on a part: list only its tensors"]],
  },
  curves: {
    shows: "What was measured at each training step and on the dev split, and what the run wrote at its evaluations; other runs for comparison.",
    read: ["The faint line is what was measured, the strong line its exponential moving average; circles are the dev split. A triangle is a checkpoint; click it to open Heads. What the heads do now is on Attention.",
      "Point at a chart to read the figures of a step; the CSV has all lines as they were written."],
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
    h("label", { class: "head-box" }, box, "use single keys to open screens and this help")));
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
