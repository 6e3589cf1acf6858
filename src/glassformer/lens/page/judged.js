/** How much of an answer is right; of tokens that were given, how many the model itself holds likeliest. */

/** Whether the model was made to read the tokens, and wrote none. @param {import("./trace.js").Trace} trace */
export function forced(trace) {
  return trace.header.run.mode === "forced";
}

/** In words; empty where nothing is known to be right. @param {import("./trace.js").Trace} trace */
export function judged(trace) {
  const known = trace.written.filter((step) => step.gold !== null && step.gold !== undefined);
  const given = forced(trace);
  const right = known.filter((step) => step.gold === (given ? step.top[0]?.[0] : step.chosen)).length;
  return known.length ? `${right} of ${known.length} tokens ${given ? "are the model’s most likely ones" : "correct"}` : "";
}
