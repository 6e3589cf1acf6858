/** What comes of a question: one sentence, which is read out, and what is shown, which is not. */

import { h, mistake, put, putControls } from "lens/dom.js";

export class Outcome {
  constructor() {
    this.said = h("p", { role: "status" });
    this.shown = h("div", {});
    this.element = h("div", { class: "outcome" }, this.said, this.shown);
  }

  /** @param {string} text */
  say(text) {
    this.said.className = "quiet";
    put(this.said, text);
  }

  /** @param {...import("./dom.js").Child} what */
  show(...what) {
    putControls(this.shown, what);
  }

  /** Say what went wrong. @param {unknown} error @param {boolean} [amiss] whether it should have gone well */
  fail(error, amiss = true) {
    this.said.className = amiss ? "told" : "";
    put(this.said, mistake(error));
  }
}
