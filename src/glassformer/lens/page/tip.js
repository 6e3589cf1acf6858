/** A small note beside the pointer, at once: the exact weight of the cell under it. */

import { byId } from "lens/dom.js";

/** Show `data-tip` of the map under the pointer; whoever draws sets it. */
export function tooltip() {
  const tip = byId("tip");
  document.addEventListener("pointermove", (event) => {
    const target = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
    const text = target?.getAttribute("data-tip") ?? "";
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const width = tip.offsetWidth;
    const left = event.clientX + 16 + width > window.innerWidth ? event.clientX - width - 12 : event.clientX + 16;
    tip.style.transform = `translate(${Math.max(4, left)}px, ${event.clientY + 18}px)`;
  });
  document.addEventListener("pointerleave", () => { tip.hidden = true; });
}
