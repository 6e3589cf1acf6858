/** The container of a trace, as `container.py` writes it. */

import { check } from "lens/schema.js";

/** @typedef {import("./types.js").Header} Header */
/** @typedef {Uint8Array | Uint16Array | Float32Array} Stored */

/** @type {Record<string, (data: ArrayBuffer) => Stored>} */
const KINDS = {
  sqrt255: (data) => new Uint8Array(data),
  u16: (data) => new Uint16Array(data),
  f32: (data) => new Float32Array(data),
  flag: (data) => new Uint8Array(data),
};
const MAGIC = 0x31544647;

/**
 * The header and the buffers; an error names the field that is damaged.
 * @param {Uint8Array} bytes
 * @returns {{header: Header, buffers: Map<string, Stored>}}
 */
export function unpack(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < 8 || view.getUint32(0, true) !== MAGIC) throw new Error("This is no trace: it does not begin with GFT1.");
  const begin = 8 + view.getUint32(4, true);
  if (begin > bytes.length) throw new Error("The trace is damaged: its header is longer than the file.");
  /** @type {Header} */
  let header;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(8, begin)));
  } catch {
    throw new Error("The trace is damaged: its header is no JSON.");
  }
  check(header, JSON.parse(document.getElementById("schema")?.textContent ?? "{}"));
  const buffers = new Map();
  for (const [name, entry] of Object.entries(header.buffers)) {
    const at = begin + entry.offset;
    if (at + entry.nbytes > bytes.length) throw new Error(`The trace is damaged: header.buffers.${name} reaches beyond the file.`);
    const data = KINDS[entry.encoding](bytes.slice(at, at + entry.nbytes).buffer);
    if (data.length !== entry.shape.reduce((a, b) => a * b, 1)) throw new Error(`The trace is damaged: header.buffers.${name}.shape.`);
    buffers.set(name, data);
  }
  return { header, buffers };
}
