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
 * @param {string} [where]
 * @param {Schema} [root]
 */
export function check(value, schema, where = "header", root = schema) {
  const rule = "$ref" in schema ? root.$defs[schema.$ref.split("/").pop()] : schema;
  const kinds = rule.type === undefined ? [] : [rule.type].flat();
  if (kinds.length && !kinds.some((/** @type {string} */ kind) => KINDS[kind](value))) wrong(where, `must be of type ${kinds.join(" or ")}`);
  if ("const" in rule && value !== rule.const) wrong(where, `must be ${JSON.stringify(rule.const)}`);
  if ("enum" in rule && !rule.enum.includes(value)) wrong(where, `must be one of ${rule.enum.join(", ")}`);
  if ("minimum" in rule && typeof value === "number" && value < rule.minimum) wrong(where, `must be at least ${rule.minimum}`);
  if (Array.isArray(value)) checkArray(value, rule, where, root);
  else if (KINDS.object(value)) checkObject(value, rule, where, root);
}

/**
 * @param {any[]} value
 * @param {Schema} rule
 * @param {string} where
 * @param {Schema} root
 */
function checkArray(value, rule, where, root) {
  if (value.length < (rule.minItems ?? 0) || value.length > (rule.maxItems ?? Infinity)) wrong(where, "has the wrong number of entries");
  if (rule.items) value.forEach((each, i) => check(each, rule.items, `${where}[${i}]`, root));
}

/**
 * @param {Record<string, any>} value
 * @param {Schema} rule
 * @param {string} where
 * @param {Schema} root
 */
function checkObject(value, rule, where, root) {
  for (const name of rule.required ?? []) if (!(name in value)) wrong(`${where}.${name}`, "is missing");
  for (const [name, each] of Object.entries(value)) {
    const inner = rule.properties?.[name] ?? rule.additionalProperties;
    if (inner) check(each, inner, `${where}.${name}`, root);
  }
}

/**
 * @param {string} where
 * @param {string} rule
 */
function wrong(where, rule) {
  throw new Error(`The trace is damaged: ${where} ${rule}. Make it again.`);
}
