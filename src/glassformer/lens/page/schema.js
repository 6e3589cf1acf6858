/** The part of JSON Schema that `schema.json` uses: the same rules as in Python. */

/** @typedef {Record<string, any>} Schema */

/** @type {Record<string, (value: any) => boolean>} */
const KINDS = {
  object: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
  array: Array.isArray,
  string: (value) => typeof value === "string",
  number: (value) => typeof value === "number",
  integer: Number.isInteger,
  boolean: (value) => typeof value === "boolean",
  null: (value) => value === null,
};

/**
 * Throws an error that names the field where a value is not as the schema says.
 * @param {any} value
 * @param {Schema} schema
 */
export function check(value, schema) {
  const found = flaw(value, schema, schema);
  if (found) throw new Error(`The trace is damaged: header${found.where} ${found.rule}. Make it again.`);
}

/** @typedef {{where: string, rule: string} | null} Flaw where it lies, behind the value, and what should be there */

/**
 * The first flaw of a value; the words for it are made only where there is one, as headers have many numbers.
 * @param {any} value
 * @param {Schema} schema
 * @param {Schema} root
 * @returns {Flaw}
 */
function flaw(value, schema, root) {
  const rule = "$ref" in schema ? root.$defs[schema.$ref.slice(schema.$ref.lastIndexOf("/") + 1)] : schema;
  const { type } = rule;
  if (type !== undefined && !(typeof type === "string" ? KINDS[type](value) : type.some((/** @type {string} */ kind) => KINDS[kind](value)))) {
    return { where: "", rule: `must be of type ${[type].flat().join(" or ")}` };
  }
  if ("const" in rule && value !== rule.const) return { where: "", rule: `must be ${JSON.stringify(rule.const)}` };
  if ("enum" in rule && !rule.enum.includes(value)) return { where: "", rule: `must be one of ${rule.enum.join(", ")}` };
  if ("minimum" in rule && typeof value === "number" && value < rule.minimum) return { where: "", rule: `must be at least ${rule.minimum}` };
  if (Array.isArray(value)) return flawOfArray(value, rule, root);
  return KINDS.object(value) ? flawOfObject(value, rule, root) : null;
}

/**
 * @param {any[]} value
 * @param {Schema} rule
 * @param {Schema} root
 * @returns {Flaw}
 */
function flawOfArray(value, rule, root) {
  if (value.length < (rule.minItems ?? 0) || value.length > (rule.maxItems ?? Infinity)) return { where: "", rule: "has the wrong number of entries" };
  for (let i = 0; rule.items && i < value.length; i++) {
    const found = flaw(value[i], rule.items, root);
    if (found) return { where: `[${i}]${found.where}`, rule: found.rule };
  }
  return null;
}

/**
 * @param {Record<string, any>} value
 * @param {Schema} rule
 * @param {Schema} root
 * @returns {Flaw}
 */
function flawOfObject(value, rule, root) {
  for (const name of rule.required ?? []) if (!(name in value)) return { where: `.${name}`, rule: "is missing" };
  for (const name of Object.keys(value)) {
    const inner = rule.properties?.[name] ?? rule.additionalProperties;
    const found = inner ? flaw(value[name], inner, root) : null;
    if (found) return { where: `.${name}${found.where}`, rule: found.rule };
  }
  return null;
}
