/** A small note beside the pointer, at once: the exact weight of the cell under it. */

import { byId } from "lens/dom.js";

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
