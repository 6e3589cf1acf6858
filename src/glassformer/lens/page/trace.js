/** A trace, ready to be asked: weights by [layer, head, query, key], tokens of each axis, who may read what. */

import { DECODE, levelsOf, partLevels } from "lens/levels.js";

/** @typedef {import("./types.js").Header} Header */
/** @typedef {import("./types.js").Group} Group */
/** @typedef {import("./types.js").Block} Block */
/** @typedef {import("./types.js").Step} Step */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./container.js").Stored} Stored */

/** The attention of one kind of block; the weights of a layer are there once `load` has brought them. */
export class Attention {
  /** @param {Group} group @param {import("./container.js").Buffers} buffers */
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
  /** @param {Header} header @param {import("./container.js").Buffers} buffers */
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
