/** What a trace is made of, as `container.py` writes it: a header, and buffers that are asked for where they are seen. */

import { check } from "lens/schema.js";

/** @typedef {import("./types.js").Header} Header */
/** @typedef {Uint8Array | Uint16Array | Float32Array} Stored */
/** @typedef {(name: string, layer: number | null) => Promise<Uint8Array>} Fetch the bytes of a buffer, or of one layer of it */

/** @type {Record<string, (data: ArrayBuffer) => Stored>} */
const KINDS = {
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
    if (whole.length !== size * KINDS[encoding](new ArrayBuffer(0)).BYTES_PER_ELEMENT) throw new Error(`The trace is damaged: header.buffers.${name}.shape does not fit its data. Make it again.`);
    return KINDS[encoding](/** @type {ArrayBuffer} */ (whole.buffer));
  }
}
