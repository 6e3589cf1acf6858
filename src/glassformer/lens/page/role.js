/** What a head is said to do, in a line. */
import { h } from "lens/dom.js";
import { csv } from "lens/files.js";
import { percent } from "lens/text.js";

/** @typedef {import("./trace.js").Head} Head */

/** A role with its shift, as scores and chances are named. @param {Head["role"]} [role] */
export function roleName(role) {
  return role?.shift ? `${role.label} ${role.shift > 0 ? "+" : ""}${role.shift}` : role?.label ?? "";
}

/** What even attention would put on the keys of a head's role. @param {Head | undefined} head */
export function chanceOf(head) {
  return head?.chance?.[roleName(head.role)];
}

/** @param {Head | undefined} head */
export function roleLine(head) {
  if (!head?.role) return null;
  const { strength, score, runner_up: next } = head.role;
  const chance = chanceOf(head);
  const parts = [h("span", { class: `role ${strength}` }, roleName(head.role)), ` ${percent(score)}`];
  if (chance !== undefined) parts.push(h("span", { class: "quiet" }, `, chance ${percent(chance)}`));
  if (next && next[1] > 0) parts.push(h("span", { class: "quiet" }, `, next best: ${next[0]}, ${percent(next[1])}`));
  if (head.ablation) parts.push(h("span", { class: "quiet" }, `. ${effect(head)}`));
  return h("p", { class: "role-line" }, parts);
}

/** How much is lost without a head. @param {Head | undefined} head */
export function lost(head) {
  return head?.ablation ? head.ablation.base - head.ablation.value : 0;
}

/** What happens without the head. @param {Head} head */
export function effect(head) {
  const cut = head.ablation;
  if (!cut) return "";
  const [low, high] = cut.ci95 ?? [NaN, NaN];
  const name = cut.metric.replaceAll("_", " ");
  if (percent(cut.base) === percent(cut.value)) return `Without it ${name} stays at ${percent(cut.base)}`;
  return `Without it ${name} goes from ${percent(cut.base)} to ${percent(cut.value)} [${percent(low)}, ${percent(high)}]`;
}

/** What heads do and what is lost without each, as comma-separated values. @param {Head[]} heads */
export function rolesCsv(heads) {
  return csv(["head", "role", "strength", "score", "chance", "metric", "base", "without", "low", "high", "n", "verdict"], heads.map((head) => {
    const { id, role, ablation } = head;
    return [id, roleName(role), role?.strength, role?.score, chanceOf(head), ablation?.metric, ablation?.base, ablation?.value, ablation?.ci95[0], ablation?.ci95[1], ablation?.n, ablation?.verdict];
  }));
}
