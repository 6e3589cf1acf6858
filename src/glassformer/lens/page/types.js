/**
 * What the modules tell each other. Types alone: this module does nothing.
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
 *   writes?: string, similar?: import("./similar.js").Pair[] | null, alike?: number,
 *   samples?: import("./samples.js").Sample[], others?: string[], beside?: {name: string, metrics: Metric[]}[], study?: import("./study.js").Study | null, history?: import("./history.js").History, patches?: (import("./patching.js").Patching & {traces: [string, string]})[]}} RunInfo
 */
export {};
