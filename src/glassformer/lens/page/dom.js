/** Elements of the page: made and put, focus, announcements, tips, and what comes of a question. */

/** @typedef {Node | string | number | null | undefined | false | any[]} Child any list stands for its entries */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An HTML element. `class`, attributes, `on: {click: f}`, `style: {width: "3px"}` (set through the CSSOM, as the
 * content security policy asks).
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function h(tag, props = {}, ...children) {
  return /** @type {HTMLElement} */ (fill(document.createElement(tag), props, children));
}

/**
 * An SVG element.
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function s(tag, props = {}, ...children) {
  return /** @type {SVGElement} */ (fill(document.createElementNS(SVG, tag), props, children));
}

/**
 * @param {Element} element
 * @param {Record<string, any>} props
 * @param {Child[]} children
 */
function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, f] of Object.entries(value)) element.addEventListener(event, f);
    else if (name === "style") Object.assign(/** @type {HTMLElement} */ (element).style, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

/**
 * @param {Child[]} children
 * @returns {(Node | string)[]}
 */
function nodes(children) {
  return children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false)
    .map((each) => (each instanceof Node ? each : String(each)));
}

/** A sentence in which what stands between backticks is to be typed. @param {string} text @returns {Child[]} */
export function sentence(text) {
  return text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
}

/** What went wrong, as a sentence for the reader. @param {unknown} error @returns {Child[]} */
export function mistake(error) {
  return sentence(error instanceof Error ? error.message : String(error));
}

/**
 * Replace what an element holds. Where it holds just these, none is taken out and put back, which would scroll it back.
 * @param {Element} element
 * @param {...Child} children
 */
export function put(element, ...children) {
  const all = nodes(children);
  if (all.length === element.childNodes.length && all.every((each, i) => each === element.childNodes[i])) return;
  element.replaceChildren(...all);
}

/** What a drawing needs to be a button: a click, Enter and Space do the same, and Space scrolls nothing. @param {() => void} does */
export function acts(does) {
  const keydown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    does();
  };
  return { click: does, keydown };
}

const CONTROLS = "button, select, input, textarea, summary, a[href], [tabindex='0']";

/** By what a control is known again once it is made anew. @param {Element} each */
function known(each) {
  return `${each.tagName} ${each.id || each.getAttribute("aria-label") || (each.closest("label")?.querySelector("span") ?? each).textContent}`;
}

/**
 * Remember the control that has the focus; what comes back gives it the focus again where nothing has it. A control that
 * was made anew is found by its name, else by its place where there are as many as before. Where it is gone the whole
 * picture has the focus, so that Tab goes on from there and not from the top.
 * @param {Element} element what may be drawn anew
 */
export function rememberFocus(element) {
  const all = () => /** @type {HTMLElement[]} */ ([...element.querySelectorAll(CONTROLS)]);
  const before = all();
  const had = /** @type {HTMLElement} */ (document.activeElement);
  const at = before.indexOf(had);
  const name = at >= 0 && known(had);
  const nth = name && before.slice(0, at).filter((each) => known(each) === name).length;
  return () => {
    if (at < 0 || document.activeElement !== document.body) return;
    const after = all();
    const again = had.isConnected ? had : after.filter((each) => known(each) === name)[Number(nth)] ?? (after.length === before.length ? after[at] : byId("main"));
    again.focus({ preventScroll: true });
  };
}

/** Draw anew, and the control that has the focus keeps it. @param {Element} element what is drawn anew @param {() => void} draw */
export function keepFocus(element, draw) {
  const giveBack = rememberFocus(element);
  draw();
  giveBack();
}

/** The same as `put`, where controls are made anew. @param {Element} element @param {...Child} children */
export function putControls(element, ...children) {
  keepFocus(element, () => put(element, ...children));
}

/**
 * The element with an id, which the page always has.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/**
 * Say something to a screen reader.
 * @param {string} text
 */
export function announce(text) {
  byId("live").textContent = text;
}

/** Do something when the page has nothing else to do. @param {() => void} work */
export function whenIdle(work) {
  if (typeof requestIdleCallback === "function") requestIdleCallback(work, { timeout: 1000 });
  else setTimeout(work, 50); // Safari has none
}

/** Do something that the first picture of a screen can do without, once it is painted. @param {() => void} work */
export function whenPainted(work) {
  requestAnimationFrame(() => setTimeout(() => whenIdle(work)));
}

/**
 * A canvas of a size in CSS pixels, as sharp as the screen is.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 * @returns {CanvasRenderingContext2D}
 */
export function sized(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

/** What may be wider than the window: scrolled by itself, by keys, too. @param {string} name @param {...Child} children */
export function scroller(name, ...children) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, children);
}

/** The head of a card: its name, and what can be done with it at the right. @param {Child} name @param {...Child} controls */
export function cardHead(name, ...controls) {
  return h("div", { class: "card-head" }, h("h2", {}, name), h("span", { class: "grow" }), controls);
}

/**
 * A table whose first line names its columns.
 * @param {string} caption for a screen reader
 * @param {string[]} names
 * @param {(i: number) => boolean} figure whether the column holds figures
 * @param {Child[]} rows
 */
export function plainTable(caption, names, figure, rows) {
  return h("table", { class: "plain" }, h("caption", { class: "unseen" }, caption),
    h("thead", {}, h("tr", {}, names.map((name, i) => h("th", { scope: "col", class: figure(i) ? "figure" : "" }, name)))), h("tbody", {}, rows));
}

/**
 * A group of buttons of which one is pressed.
 * @param {string} label
 * @param {[string, string][]} options value and text
 * @param {string} chosen
 * @param {(value: string) => void} choose
 */
export function switcher(label, options, chosen, choose) {
  const buttons = options.map(([value, text]) =>
    h("button", { type: "button", "aria-pressed": String(value === chosen), "data-value": value, on: { click: () => choose(value) } }, text));
  return h("div", { class: "switcher", role: "group", "aria-label": label }, buttons);
}

/**
 * A labelled select.
 * @param {string} label
 * @param {[string, string][]} options value and text
 * @param {string} chosen
 * @param {(value: string) => void} choose
 */
export function picker(label, options, chosen, choose) {
  const select = /** @type {HTMLSelectElement} */ (h("select", {}, options.map(([value, text]) =>
    h("option", { value, selected: value === chosen }, text))));
  select.addEventListener("change", () => choose(select.value));
  return h("label", { class: "picker" }, h("span", {}, label), select);
}

/* --- a small note beside the pointer, at once: the exact weight of the cell under it. */

/** Show `data-tip` of the map under the pointer; whoever draws sets it. Nothing is measured, so nothing is laid out. */
export function tooltip() {
  const tip = byId("tip");
  /** @type {PointerEvent | undefined} */
  let last;
  const draw = () => {
    if (!last) return;
    const { target, clientX, clientY } = last;
    last = undefined;
    const text = (target instanceof Element ? target.closest("[data-tip]")?.getAttribute("data-tip") : null) ?? "";
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const left = clientX < window.innerWidth / 2;
    tip.style.transform = `translate(${left ? clientX + 16 : clientX - 12}px, ${clientY + 18}px)${left ? "" : " translateX(-100%)"}`;
  };
  document.addEventListener("pointermove", (event) => {
    if (!last) requestAnimationFrame(draw);
    last = event;
  });
  document.addEventListener("pointerleave", () => { tip.hidden = true; });
}

/* --- what comes of a question: one sentence, which is read out, and what is shown, which is not. */

export class Outcome {
  constructor() {
    this.status = h("p", { role: "status" });
    this.shown = h("div", {});
    this.element = h("div", { class: "outcome" }, this.status, this.shown);
  }

  /** @param {string} text */
  say(text) {
    this.status.className = "quiet";
    put(this.status, text);
  }

  /** @param {...import("./dom.js").Child} what */
  show(...what) {
    putControls(this.shown, what);
  }

  /** Say what went wrong. @param {unknown} error @param {boolean} [amiss] whether it should have gone well */
  fail(error, amiss = true) {
    this.status.className = amiss ? "message" : "";
    put(this.status, mistake(error));
  }
}
