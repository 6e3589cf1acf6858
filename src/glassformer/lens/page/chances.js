/** From logits to chances, as sampling makes them: temperature, then top-k, then top-p. */

/** @typedef {{id: number, logit: number, p: number, kept: boolean}} Chance */

/**
 * Tokens with their chances, the likeliest first; `kept` says whether the filters leave one to be drawn.
 * @param {{id: number, logit: number}[]} tokens
 * @param {{temperature: number, topK: number, topP: number}} settings top-k 0: all
 * @returns {Chance[]}
 */
export function chances(tokens, { temperature, topK, topP }) {
  const order = [...tokens].sort((a, b) => b.logit - a.logit || a.id - b.id);
  if (temperature === 0) return order.map((each, i) => ({ ...each, p: i === 0 ? 1 : 0, kept: i === 0 }));
  const most = order[0].logit;
  const powers = order.map(({ logit }) => Math.exp((logit - most) / temperature));
  const count = topK > 0 ? Math.min(topK, powers.length) : powers.length;
  const sum = powers.slice(0, count).reduce((a, b) => a + b, 0);
  let before = 0;
  const kept = powers.map((power, i) => {
    const inside = i < count && before / sum < topP;
    before += power;
    return inside;
  });
  const total = powers.reduce((a, power, i) => a + (kept[i] ? power : 0), 0);
  return order.map((each, i) => ({ ...each, p: kept[i] ? powers[i] / total : 0, kept: kept[i] }));
}

/**
 * The tokens of a step with their logits: all of them, where the trace keeps all.
 * @param {import("./trace.js").Trace} trace
 * @param {import("./types.js").Step} step
 */
export function tokensOf(trace, step) {
  const all = trace.logits(step.pos);
  if (all) return { complete: true, tokens: Array.from(all, (logit, id) => ({ id, logit })) };
  return { complete: false, tokens: step.top.map(([id, , logit]) => ({ id, logit })) };
}
