/** A trace as the page has it: types, schema, container, weights as levels of colour, and what it says of its input. */

/**
 * What the modules tell each other.
 *
 * @typedef {"encoder" | "decoder" | "cross"} Block
 * @typedef {{ids: number[], text: string[], special: boolean[], n_prompt?: number, gold?: (number | null)[] | null}} Sequence
 * @typedef {{block: Block, q: string, k: string, layers: number, heads: number, q_len: number, k_len: number,
 *   mask: string, mask_buffer?: string | null, buffer: string, thumb?: string | null, value_sizes?: string | null, log_sums?: string | null, confidence?: number[][],
 *   entropy?: number[][]}} Group
 * @typedef {{pos: number, input: number, chosen: number, p: number, rank: number, entropy: number, gold?: number | null,
 *   gold_p?: number | null, loss?: number | null, top: [number, number, number][], rest: number}} Step
 * @typedef {{label: string, strength: string, score: number, runner_up?: [string, number], shift?: number,
 *   n_queries?: number, n_sequences?: number, probe?: string}} Role
 * @typedef {{kind: string, metric: string, base: number, value: number, ci95: [number, number], n: number, verdict?: string}} Ablation
 * @typedef {{id: string, block: Block, layer: number, head: number, scores?: Record<string, number>,
 *   chance?: Record<string, number>, role?: Role | null, ablation?: Ablation | null, grad_importance?: number | null}} Head
 * @typedef {{name: string, shape: number[], count: number, norm?: number | null, tied_to?: string | null}} Parameter
 * @typedef {{encoding: string, shape: number[], offset: number, nbytes: number}} BufferEntry
 * @typedef {{token: number, parent: number, p: number, log_p: number, score?: number | null, rank?: number | null}} BeamNode
 * @typedef {{width: number, length_penalty?: number, nodes: BeamNode[]}} Beams
 * @typedef {{model: Record<string, any>, run: Record<string, any>, sequences: {source?: Sequence, target?: Sequence},
 *   vocab: Record<string, string>, attention: Group[], steps: Step[], logits?: string | null,
 *   labels?: [string, number][], lens?: {names: string[], top: [number, number][][][], p: (number | null)[][]} | null,
 *   attribution?: {names: string[], buffer: string} | null, beams?: Beams | null, heads?: Head[], params?: Parameter[], buffers: Record<string, BufferEntry>}} Header
 * @typedef {{id: string, title: string}} TraceInfo
 * @typedef {Record<string, any> & {kind: string, step: number}} Metric
 * @typedef {{name: string, sentences?: string[], heads?: Head[], metrics?: Metric[], examples?: string[], live?: boolean, checkpoints?: boolean, kept?: number[],
 *   writes?: string, similar?: import("./heads.js").Pair[] | null, alike?: number,
 *   samples?: import("./curves.js").Sample[], others?: string[], beside?: {name: string, metrics: Metric[]}[], study?: import("./ablations.js").Study | null, history?: import("./heads.js").History, patches?: (import("./attention.js").Patching & {traces: [string, string]})[]}} RunInfo */

/* --- the part of JSON Schema that `schema.json` uses: the same rules as in Python. */

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
  const flaw = (/** @type {string} */ text) => ({ where: "", rule: text });
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

/* --- what a trace is made of, as `trace/file.py` writes it: a header, and buffers that are asked for where they are seen. */

/** @typedef {Uint8Array | Uint16Array | Float32Array} Stored */
/** @typedef {(name: string, layer: number | null) => Promise<Uint8Array>} Fetch the bytes of a buffer, or of one layer of it */

/** @type {Record<string, (data: ArrayBuffer) => Stored>} */
const ARRAYS = {
  sqrt255: (data) => new Uint8Array(data),
  u16: (data) => new Uint16Array(data),
  f32: (data) => new Float32Array(data),
  flag: (data) => new Uint8Array(data),
};

/**
 * The header of a trace in a file; an error names the field that is damaged.
 * @param {string} text
 * @returns {Header}
 */
export function readHeader(text) {
  /** @type {Header} */
  let header;
  try {
    header = JSON.parse(text);
  } catch {
    throw new Error("The trace is damaged: its header is not JSON. Make it again.");
  }
  check(header, JSON.parse(document.getElementById("schema")?.textContent ?? "{}"));
  return header;
}

/** The buffers of a trace: each is fetched once, when it is first asked for. */
export class Buffers {
  /** @param {Header} header @param {Fetch} fetch */
  constructor(header, fetch) {
    this.entries = header.buffers;
    this.fetch = fetch;
    /** @type {Map<string, Promise<Stored>>} */
    this.known = new Map();
  }

  /** @param {string} name @param {number | null} [layer] null: all of it @returns {Promise<Stored>} */
  get(name, layer = null) {
    const key = `${name} ${layer}`;
    const known = this.known.get(key);
    if (known) return known;
    const found = this.read(name, layer);
    this.known.set(key, found);
    found.catch(() => this.known.delete(key)); // what failed once may go well
    return found;
  }

  /** @param {string} name @param {number | null} layer */
  async read(name, layer) {
    const { encoding, shape } = this.entries[name];
    const bytes = await this.fetch(name, layer);
    const size = shape.slice(layer === null ? 0 : 1).reduce((a, b) => a * b, 1);
    const whole = bytes.byteLength === bytes.buffer.byteLength ? bytes : bytes.slice();
    if (whole.length !== size * ARRAYS[encoding](new ArrayBuffer(0)).BYTES_PER_ELEMENT) throw new Error(`The trace is damaged: header.buffers.${name}.shape does not fit its data. Make it again.`);
    return ARRAYS[encoding](/** @type {ArrayBuffer} */ (whole.buffer));
  }
}

/* --- weights as they are stored, and as levels of a colour scale. */

/** Of each encoding: from what is stored to the weight. @type {Record<string, (stored: number) => number>} */
export const DECODE = {
  sqrt255: (stored) => (stored / 255) ** 2,
  u16: (stored) => stored / 65535,
  f32: (stored) => stored,
};

/**
 * The levels of a part of a map.
 * @param {Stored} stored
 * @param {string} encoding
 * @param {string} scale
 * @param {[number, number]} shape of the whole
 * @param {import("./view.js").Part} [part] without it all
 */
export function partLevels(stored, encoding, scale, [q_len, k_len], part) {
  if (!part || (part.rows === q_len && part.columns === k_len)) return levelsOf(stored, encoding, scale, q_len, k_len);
  const cut = stored.slice(0, part.rows * part.columns);
  for (let i = 0; i < part.rows; i++) {
    const at = (part.q0 + i) * k_len + part.k0;
    cut.set(stored.subarray(at, at + part.columns), i * part.columns);
  }
  return levelsOf(cut, encoding, scale, part.rows, part.columns);
}

/**
 * @param {Stored} stored
 * @param {string} encoding
 * @param {string} scale
 * @param {number} rows
 * @param {number} columns
 * @returns {Uint8Array} levels of a colour scale; not to be written to
 */
export function levelsOf(stored, encoding, scale, rows, columns) {
  if (scale === "sqrt" && stored instanceof Uint8Array) return stored;
  const decode = DECODE[encoding];
  const levels = new Uint8Array(rows * columns);
  for (let q = 0; q < rows; q++) {
    let most = 1;
    if (scale === "row") {
      most = 1e-9;
      for (let k = 0; k < columns; k++) most = Math.max(most, decode(stored[q * columns + k]));
    }
    for (let k = 0; k < columns; k++) {
      const at = q * columns + k;
      const share = decode(stored[at]) / most;
      levels[at] = Math.round(255 * (scale === "sqrt" ? Math.sqrt(share) : share));
    }
  }
  return levels;
}

/* --- a trace, ready to be asked: weights by [layer, head, query, key], tokens of each axis, who may read what. */

/** The attention of one kind of block; the weights of a layer are there once `load` has brought them. */
export class Attention {
  /** @param {Group} group @param {import("./trace.js").Buffers} buffers */
  constructor(group, buffers) {
    this.group = group;
    this.block = group.block;
    this.buffers = buffers;
    this.encoding = buffers.entries[group.buffer].encoding;
    this.decode = DECODE[this.encoding];
    /** @type {Map<number, Stored>} */
    this.data = new Map();
    /** @type {Stored | undefined} */
    this.mask = undefined;
    /** How much each key gives a head that reads it: [layer, head, key]. @type {Stored | undefined} */
    this.sizes = undefined;
    /** ln of what each softmax is divided by: [layer, head, query]. @type {Stored | undefined} */
    this.sums = undefined;
    /** Small pictures of all heads, where maps are large. @type {Stored | undefined} */
    this.thumbs = undefined;
  }

  /** Bring the weights of these layers. @param {number[]} layers */
  async load(layers) {
    await Promise.all([this.loadMask(), ...layers.filter((layer) => !this.data.has(layer)).map(async (layer) => {
      this.data.set(layer, await this.buffers.get(this.group.buffer, layer));
    })]);
  }

  async loadMask() {
    if (this.group.mask_buffer && !this.mask) this.mask = await this.buffers.get(this.group.mask_buffer);
  }

  /** Bring how much each key gives, where the trace has it. */
  async loadSizes() {
    if (this.group.value_sizes && !this.sizes) this.sizes = await this.buffers.get(this.group.value_sizes);
  }

  /** Bring what scores can be told from, where the trace has it. */
  async loadSums() {
    if (this.group.log_sums && !this.sums) this.sums = await this.buffers.get(this.group.log_sums);
  }

  /**
   * The score before softmax, ln of the weight and of what it was divided by; how far it may be off, and whether the
   * weight is stored as 0, so that the score is this or below. None where the trace cannot tell, or nothing may be read.
   * @param {number} layer
   * @param {number} head
   * @param {number} q
   * @param {number} k
   */
  score(layer, head, q, k) {
    const { heads, q_len, k_len } = this.group;
    if (!this.sums || !this.allowed(q, k)) return null;
    const stored = this.stored(layer)[this.offset(head) + q * k_len + k];
    const sum = this.sums[(layer * heads + head) * q_len + q];
    const half = this.encoding === "f32" ? 0 : 0.5;
    const score = (/** @type {number} */ at) => Math.log(this.decode(at)) + sum;
    if (stored === 0) return half ? { score: score(half), off: 0, below: true } : { score: -Infinity, off: 0, below: false };
    return { score: score(stored), off: half ? score(stored) - score(stored - half) : 0, below: false };
  }

  /**
   * Weights times what they move, each row to sum 1 (Kobayashi et al. 2020); the layer and the sizes are loaded.
   * @param {number} layer
   * @param {number} head
   */
  moved(layer, head) {
    const { heads, q_len, k_len } = this.group;
    const sizes = this.sizes;
    if (!sizes) return null;
    const [at, begin] = [(layer * heads + head) * k_len, this.offset(head)];
    const stored = this.stored(layer);
    const found = new Float32Array(q_len * k_len);
    for (let q = 0; q < q_len; q++) {
      let sum = 0;
      for (let k = 0; k < k_len; k++) sum += found[q * k_len + k] = this.decode(stored[begin + q * k_len + k]) * sizes[at + k];
      for (let k = 0; sum > 0 && k < k_len; k++) found[q * k_len + k] /= sum;
    }
    return found;
  }

  /** Bring what small pictures of these layers are made of. @param {number[]} layers */
  async loadSmall(layers) {
    if (!this.group.thumb) return this.load(layers);
    if (!this.thumbs) this.thumbs = await this.buffers.get(this.group.thumb);
    await this.loadMask();
  }

  /** Bring what the screen of attention shows: a layer, and small pictures of all. @param {number} layer */
  async loadShown(layer) {
    await Promise.all([this.load([Math.min(layer, this.group.layers - 1)]), this.loadSmall(this.layers)]);
  }

  get layers() {
    return Array.from({ length: this.group.layers }, (_, layer) => layer);
  }

  /** @param {number} layer */
  stored(layer) {
    const found = this.data.get(layer);
    if (!found) throw new Error(`The weights of ${this.block} layer ${layer} are not there yet.`);
    return found;
  }

  /** @param {number} head */
  offset(head) {
    return head * this.group.q_len * this.group.k_len;
  }

  /** @param {number} layer @param {number} head @param {number} q @param {number} k */
  weight(layer, head, q, k) {
    return this.decode(this.stored(layer)[this.offset(head) + q * this.group.k_len + k]);
  }

  /** @param {number} layer @param {number} head @param {number} q */
  row(layer, head, q) {
    const begin = this.offset(head) + q * this.group.k_len;
    return Array.from(this.stored(layer).subarray(begin, begin + this.group.k_len), this.decode);
  }

  /** Whether a query may read a key. @param {number} q @param {number} k */
  allowed(q, k) {
    if (this.group.mask === "none") return true;
    if (this.group.mask === "causal") return k <= q;
    return this.mask ? this.mask[q * this.group.k_len + k] === 1 : true;
  }

  /** The keys that a query may not read: runs, each from its first to before its last. @param {number} q @returns {[number, number][]} */
  hidden(q) {
    const { mask, k_len } = this.group;
    if (mask === "none") return [];
    if (mask === "causal") return q + 1 < k_len ? [[q + 1, k_len]] : [];
    /** @type {[number, number][]} */
    const runs = [];
    for (let k = 0; k < k_len; k++) {
      if (this.allowed(q, k)) continue;
      const begin = k;
      while (k < k_len && !this.allowed(q, k)) k++;
      runs.push([begin, k]);
    }
    return runs;
  }

  /**
   * A head as a small map: as it is, or each cell the largest weight of those it stands for.
   * @param {number} layer
   * @param {number} head
   * @param {string} scale
   * @returns {{levels: Uint8Array, rows: number, columns: number}}
   */
  small(layer, head, scale) {
    const { thumb, heads, q_len, k_len } = this.group;
    if (!thumb || !this.thumbs) return { levels: this.levels(layer, head, scale), rows: q_len, columns: k_len };
    const { shape: [,, rows, columns], encoding } = this.buffers.entries[thumb];
    const begin = (layer * heads + head) * rows * columns;
    const part = this.thumbs.subarray(begin, begin + rows * columns);
    return { levels: levelsOf(part, encoding, scale, rows, columns), rows, columns };
  }

  /**
   * Weights as levels of a colour scale, 0 to 255.
   * @param {number} layer
   * @param {number} head
   * @param {string} scale "sqrt", "linear" or "row": each row's largest is full
   * @param {import("./view.js").Part} [part] of the map; without it all
   */
  levels(layer, head, scale, part) {
    const { q_len, k_len } = this.group;
    const begin = this.offset(head);
    const stored = this.stored(layer).subarray(begin, begin + q_len * k_len);
    return partLevels(stored, this.encoding, scale, [q_len, k_len], part);
  }
}

/** All that a trace says. */
export class Trace {
  /** @param {Header} header @param {import("./trace.js").Buffers} buffers */
  constructor(header, buffers) {
    this.header = header;
    this.buffers = buffers;
    /** @type {Map<Block, Attention>} */
    this.attention = new Map();
    for (const group of header.attention) this.attention.set(group.block, new Attention(group, buffers));
    /** @type {Stored | undefined} */
    this.allLogits = undefined;
    /** @type {Stored | undefined} */
    this.allTerms = undefined;
    /** @type {Map<number, Step>} */
    this.stepAt = new Map(header.steps.map((step) => [step.pos, step]));
    /** @type {Map<string, Head>} */
    this.heads = new Map((header.heads ?? []).map((head) => [`${head.block} ${head.layer} ${head.head}`, head]));
  }

  /** Bring the logits, where all are kept. */
  async loadLogits() {
    if (this.header.logits) this.allLogits = await this.buffers.get(this.header.logits);
  }

  /**
   * The attention of a kind; where there is none of that kind, the one that tells most: cross, if there is one.
   * @param {string} [block]
   */
  usual(block) {
    const found = this.attention.get(/** @type {Block} */ (block)) ?? this.attention.get("cross") ?? [...this.attention.values()][0];
    return /** @type {Attention} */ (found);
  }

  /** The text of a target id. @param {number | null | undefined} id */
  text(id) {
    return id === null || id === undefined ? "" : this.header.vocab[String(id)] ?? `#${id}`;
  }

  /** The tokens along an axis: "source" or "target_in". @param {string} axis @returns {string[]} */
  tokens(axis) {
    const { source, target } = this.header.sequences;
    if (axis === "source") return source?.text ?? [];
    return target ? target.text.slice(0, -1) : [];
  }

  /** The token predicted at each place of an axis; null where none is. @param {string} axis @returns {(string | null)[]} */
  predicted(axis) {
    const belongs = axis === "target_in" || !this.header.sequences.target;
    return this.tokens(axis).map((_, i) => {
      const step = belongs ? this.stepAt.get(i) : undefined;
      return step ? this.text(step.chosen) : null;
    });
  }

  /** What a head is said to do. @param {Block} block @param {number} layer @param {number} head */
  head(block, layer, head) {
    return this.heads.get(`${block} ${layer} ${head}`);
  }

  /** Bring the terms of the logits, where there are any. */
  async loadTerms() {
    if (this.header.attribution) this.allTerms = await this.buffers.get(this.header.attribution.buffer);
  }

  /** The terms of a step's logit, part by part. @param {number} step its number @returns {number[] | undefined} */
  terms(step) {
    const { names } = this.header.attribution ?? { names: [] };
    const terms = this.allTerms;
    return terms && names.map((_, i) => terms[i * this.header.steps.length + step]);
  }

  /** The logits of a place, where all are kept. @param {number} pos */
  logits(pos) {
    const size = this.header.model.vocab_size;
    return this.allLogits?.subarray(pos * size, (pos + 1) * size);
  }

  /** The steps that the model wrote by itself, behind what it was given. */
  get written() {
    const { target } = this.header.sequences;
    const begun = target ? target.n_prompt ?? 1 : 0;
    return this.header.steps.filter((step) => step.pos >= begun - (target ? 1 : 0));
  }

  /** What was read, in a line, and what tells it from others of the same text. */
  get title() {
    const { source, target } = this.header.sequences;
    const sequence = source ?? target;
    const words = (sequence?.text ?? []).filter((_, i) => !sequence?.special[i]).slice(0, 24);
    const text = words.join(words.every((word) => [...word].length <= 1) ? "" : " ").slice(0, 60) || "(empty)";
    return this.header.run.note ? `${text} · ${this.header.run.note}` : text;
  }
}

/* --- how much of an answer is right; of tokens that were given, how many the model itself holds likeliest. */

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
