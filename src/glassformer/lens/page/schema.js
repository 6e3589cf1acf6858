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

const DEFS = "#/$defs/";

/** @typedef {{where: string, rule: string} | null} Flaw where it lies, behind the value, and what should be there */
/** @typedef {(value: any) => Flaw} Checker */

/**
 * Throws an error that names the field where a value is not as the schema says.
 * @param {any} value
 * @param {Schema} schema
 */
export function check(value, schema) {
  const found = checker(schema, schema, new Map())(value);
  if (found) throw new Error(`The trace is damaged: header${found.where} ${found.rule}. Make it again.`);
}

/**
 * The first flaw of any value, by one rule: what the rule asks is looked up once, as headers have many numbers.
 * @param {Schema} rule
 * @param {Schema} root
 * @param {Map<string, Checker>} named of `$defs`
 * @returns {Checker}
 */
function checker(rule, root, named) {
  if (rule.$ref) {
    const name = rule.$ref.slice(DEFS.length);
    const found = named.get(name) ?? checker(root.$defs[name], root, named);
    named.set(name, found);
    return found;
  }
  const kinds = [rule.type ?? []].flat().map((/** @type {string} */ kind) => KINDS[kind]);
  const flaw = (/** @type {string} */ said) => ({ where: "", rule: said });
  const ofArray = arrays(rule, root, named);
  const ofObject = objects(rule, root, named);
  return (value) => {
    if (kinds.length && !kinds.some((is) => is(value))) return flaw(`must be of type ${[rule.type].flat().join(" or ")}`);
    if (rule.const !== undefined && value !== rule.const) return flaw(`must be ${JSON.stringify(rule.const)}`);
    if (rule.enum && !rule.enum.includes(value)) return flaw(`must be one of ${rule.enum.join(", ")}`);
    if (typeof value === "number") return value < rule.minimum ? flaw(`must be at least ${rule.minimum}`) : null;
    if (typeof value !== "object" || value === null) return null;
    return Array.isArray(value) ? ofArray(value) : ofObject(value);
  };
}

/** @param {Schema} rule @param {Schema} root @param {Map<string, Checker>} named @returns {Checker} */
function arrays({ minItems = 0, maxItems = Infinity, items }, root, named) {
  const each = items && checker(items, root, named);
  const numbers = items && takesNumbers(items.$ref ? root.$defs[items.$ref.slice(DEFS.length)] : items);
  return (value) => {
    if (value.length < minItems || value.length > maxItems) return { where: "", rule: "has the wrong number of entries" };
    for (let i = 0; each && i < value.length; i++) {
      if (numbers && typeof value[i] === "number") continue; // most of what a header holds
      const found = each(value[i]);
      if (found) return { where: `[${i}]${found.where}`, rule: found.rule };
    }
    return null;
  };
}

/** Whether any number will do. @param {Schema} rule */
function takesNumbers({ type, ...more }) {
  return [type].flat().includes("number") && !Object.keys(more).length;
}

/** @param {Schema} rule @param {Schema} root @param {Map<string, Checker>} named @returns {Checker} */
function objects({ required = [], properties = {}, additionalProperties }, root, named) {
  const inner = new Map(Object.entries(properties).map(([name, each]) => [name, checker(each, root, named)]));
  const other = additionalProperties && checker(additionalProperties, root, named);
  return (value) => {
    for (const name of required) if (!(name in value)) return { where: `.${name}`, rule: "is missing" };
    for (const name of Object.keys(value)) {
      const found = (inner.get(name) ?? other)?.(value[name]);
      if (found) return { where: `.${name}${found.where}`, rule: found.rule };
    }
    return null;
  };
}
