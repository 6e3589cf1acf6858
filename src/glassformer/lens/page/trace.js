/** A trace, ready to be asked: weights by [layer, head, query, key], tokens of each axis, who may read what. */

/** @typedef {import("./types.js").Header} Header */
/** @typedef {import("./types.js").Group} Group */
/** @typedef {import("./types.js").Block} Block */
/** @typedef {import("./types.js").Step} Step */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./container.js").Stored} Stored */

/** Of each encoding: from what is stored to the weight. @type {Record<string, (stored: number) => number>} */
const DECODE = {
  sqrt255: (stored) => (stored / 255) ** 2,
  u16: (stored) => stored / 65535,
  f32: (stored) => stored,
};

/** The attention of one kind of block. */
export class Attention {
  /**
   * @param {Group} group
   * @param {string} encoding
   * @param {Stored} data
   * @param {Stored | undefined} mask
   */
  constructor(group, encoding, data, mask) {
    this.group = group;
    this.block = group.block;
    this.encoding = encoding;
    this.data = data;
    this.mask = mask;
    this.decode = DECODE[encoding];
  }

  /** @param {number} layer @param {number} head */
  offset(layer, head) {
    return (layer * this.group.heads + head) * this.group.q_len * this.group.k_len;
  }

  /** @param {number} layer @param {number} head @param {number} q @param {number} k */
  weight(layer, head, q, k) {
    return this.decode(this.data[this.offset(layer, head) + q * this.group.k_len + k]);
  }

  /** The weights of one query. @param {number} layer @param {number} head @param {number} q */
  row(layer, head, q) {
    return Array.from({ length: this.group.k_len }, (_, k) => this.weight(layer, head, q, k));
  }

  /** Whether a query may read a key. @param {number} q @param {number} k */
  allowed(q, k) {
    if (this.group.mask === "none") return true;
    if (this.group.mask === "causal") return k <= q;
    return this.mask ? this.mask[q * this.group.k_len + k] === 1 : true;
  }

  /**
   * Weights as levels of a colour scale, 0 to 255.
   * @param {number} layer
   * @param {number} head
   * @param {string} scale "sqrt", "linear" or "row": each row's largest is full
   */
  levels(layer, head, scale) {
    const { q_len, k_len } = this.group;
    const begin = this.offset(layer, head);
    if (scale === "sqrt" && this.encoding === "sqrt255") return /** @type {Uint8Array} */ (this.data.slice(begin, begin + q_len * k_len));
    const levels = new Uint8Array(q_len * k_len);
    for (let q = 0; q < q_len; q++) {
      let most = 1;
      if (scale === "row") {
        most = 1e-9;
        for (let k = 0; k < k_len; k++) most = Math.max(most, this.decode(this.data[begin + q * k_len + k]));
      }
      for (let k = 0; k < k_len; k++) {
        const at = q * k_len + k;
        const share = this.decode(this.data[begin + at]) / most;
        levels[at] = Math.round(255 * (scale === "sqrt" ? Math.sqrt(share) : share));
      }
    }
    return levels;
  }

  /** How much each key is read by all queries together. @param {number} layer @param {number} head */
  coverage(layer, head) {
    const sums = new Array(this.group.k_len).fill(0);
    for (let q = 0; q < this.group.q_len; q++) for (let k = 0; k < this.group.k_len; k++) sums[k] += this.weight(layer, head, q, k);
    return sums;
  }
}

/** All that a trace says. */
export class Trace {
  /** @param {Header} header @param {Map<string, Stored>} buffers */
  constructor(header, buffers) {
    this.header = header;
    this.buffers = buffers;
    /** @type {Map<Block, Attention>} */
    this.attention = new Map();
    for (const group of header.attention) {
      const data = /** @type {Stored} */ (buffers.get(group.buffer));
      const mask = group.mask_buffer ? buffers.get(group.mask_buffer) : undefined;
      this.attention.set(group.block, new Attention(group, header.buffers[group.buffer].encoding, data, mask));
    }
    /** @type {Map<number, Step>} */
    this.stepAt = new Map(header.steps.map((step) => [step.pos, step]));
    /** @type {Map<string, Head>} */
    this.heads = new Map((header.heads ?? []).map((head) => [`${head.block} ${head.layer} ${head.head}`, head]));
  }

  /** @param {{header: Header, buffers: Map<string, Stored>}} parts */
  static of(parts) {
    return new Trace(parts.header, parts.buffers);
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

  /** The logits of a place, where all are kept. @param {number} pos */
  logits(pos) {
    const name = this.header.logits;
    const data = name ? this.buffers.get(name) : undefined;
    const size = this.header.model.vocab_size;
    return data ? data.subarray(pos * size, (pos + 1) * size) : undefined;
  }

  /** What was read, in a line. */
  get title() {
    const { source, target } = this.header.sequences;
    const sequence = source ?? target;
    const words = (sequence?.text ?? []).filter((_, i) => !sequence?.special[i]).slice(0, 24);
    return words.join(words.every((word) => [...word].length <= 1) ? "" : " ").slice(0, 60) || "(empty)";
  }
}
