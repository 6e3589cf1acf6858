/** What the run wrote when it was evaluated, at the step that is chosen; the newest one until then. */

import { h, picker, put, putControls } from "lens/dom.js";
import { whole } from "lens/text.js";

/** @typedef {{step: number, text: string, cut: boolean}} Sample */

/** A card that is empty where nothing was written; `refresh` asks for what came since. @param {import("./data.js").Source} source */
export function samplesCard(source) {
  const element = h("section", { class: "card samples", hidden: true });
  const [controls, text] = [h("div", { class: "controls" }), h("pre", { class: "sample", tabindex: "0", "aria-label": "What it wrote" })];
  element.append(h("h2", {}, "What it wrote"), controls, text);
  /** @type {Sample[]} */
  let all = [];
  /** The step that was chosen; none: the newest. */
  let chosen = "";
  const draw = () => {
    element.hidden = !all.length;
    const shown = all.find((each) => String(each.step) === chosen) ?? all[all.length - 1];
    if (!shown) return;
    const steps = /** @type {[string, string][]} */ ([...all].reverse().map((each, i) => [String(each.step), `step ${each.step}${i ? "" : ", the newest"}`]));
    putControls(controls, picker("Evaluated at", steps, String(shown.step), (value) => { chosen = value === steps[0][0] ? "" : value; draw(); }));
    put(text, shown.text.split("\n").map((line) => line.trim() && whole(line.trim())).join("\n"), shown.cut && "\n… The rest is in the run's folder samples.");
  };
  const refresh = async () => {
    all = await source.samples().catch(() => all);
    draw();
  };
  return { element, refresh };
}
