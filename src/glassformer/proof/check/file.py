"""What a learner's file may define, and its check in a separate process with a time limit. Imports no torch."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from glassformer.base.errors import DataError
from glassformer.proof.check.property import Report


class Documented(NamedTuple):
    """A function or class that can be checked."""

    signature: str
    meaning: str
    """Inputs and outputs, with shapes."""
    aliases: tuple[str, ...] = ()
    """Other names under which it is looked for."""


MASK = "mask: boolean, True = may be read, [T, S] or broadcasting to the scores"

DOCUMENTED: dict[str, Documented] = {
    "softmax": Documented(
        "softmax(scores, dim=-1)",
        "Weights of the shape of scores, which are positive and sum to 1 along dim.",
        ("stable_softmax",),
    ),
    "split_heads": Documented(
        "split_heads(x, n_heads)", "x [B, T, D] to [B, H, T, K]: head h gets columns hK to (h+1)K of every position."
    ),
    "merge_heads": Documented(
        "merge_heads(x)", "x [B, H, T, K] to [B, T, D], which undoes split_heads.", ("combine_heads", "join_heads")
    ),
    "FeedForward": Documented(
        "FeedForward(d_model, d_ff) with forward(x)",
        "An nn.Module over [B, T, d_model]: two linear maps with an activation between, the same at every position.",
        (
            "PositionwiseFeedForward",
            "PositionWiseFeedForward",
            "PositionwiseFeedforward",
            "PositionwiseFeedforwardLayer",
            "PositionwiseFFN",
            "PositionWiseFFN",
            "FFN",
            "MLP",
            "FeedForwardNetwork",
            "FeedForwardBlock",
            "FeedFoward",
        ),
    ),
    "LayerNorm": Documented(
        "LayerNorm(d_model, eps=1e-5) with forward(x)",
        "An nn.Module over [..., d_model]: each position gets mean 0 and variance 1, then a learned scale and shift.",
        ("LayerNormalization", "LayerNormalisation"),
    ),
    "TokenEmbedding": Documented(
        "TokenEmbedding(vocab_size, d_model) with forward(ids)",
        "An nn.Module: ids [B, T] to rows of a learned table times √d_model, [B, T, d_model].",
        ("InputEmbedding", "InputEmbeddings", "Embeddings"),
    ),
    "attention": Documented(
        "attention(q, k, v, mask=None)",
        f"q, k, v [B, H, T, K] or [B, T, K]; {MASK}. Gives the output, or (output, weights).",
        ("scaled_dot_product_attention", "dot_product_attention", "scaled_dot_product"),
    ),
    "SelfAttention": Documented(
        "SelfAttention(d_model) with forward(x, mask=None)",
        f"An nn.Module over [B, T, d_model] with one head as wide as the model; {MASK}.",
        ("SingleHeadAttention",),
    ),
    "MultiHeadAttention": Documented(
        "MultiHeadAttention(d_model, n_heads) with forward(query, key, value, mask=None) or forward(x, mask=None)",
        f"An nn.Module over [B, T, d_model]; {MASK}. Gives the output, or (output, weights).",
        (
            "MultiHeadSelfAttention",
            "MultiheadAttention",
            "MultiheadSelfAttention",
            "MHA",
            "MultiHeadedAttention",
            "MultiHead",
            "MultiHeadAttentionLayer",
            "MultiHeadAttentionBlock",
            "MultiHeadCrossAttention",
            "CrossAttention",
            "CausalSelfAttention",
            "Attention",
        ),
    ),
    "positional_encoding": Documented(
        "positional_encoding(length, d_model)",
        "The sinusoidal table, [length, d_model] or [1, length, d_model]; sines at even columns, cosines at odd ones.",
        ("sinusoidal_encoding", "sinusoidal_positions", "get_positional_encoding"),
    ),
    "PositionalEncoding": Documented(
        "PositionalEncoding(d_model, max_len) with forward(x)",
        "An nn.Module that gives x [B, T, d_model] plus the sinusoidal table.",
        (
            "SinusoidalPositionalEncoding",
            "PositionEncoding",
            "PositionalEmbedding",
            "SinusoidalPositionalEmbedding",
            "SinusoidalEncoding",
        ),
    ),
    "apply_rotary": Documented(
        "apply_rotary(x, positions)",
        "x [B, H, T, K], positions [T]; gives x rotated by position / 10000^(2i / K), neighbours or halves as pairs.",
        ("rotate_by_position",),
    ),
    "TransformerBlock": Documented(
        "TransformerBlock(d_model, n_heads, d_ff) with forward(x, mask=None)",
        f"Attention and feed-forward, each with residual and norm (before the branch or after the sum); {MASK}.",
        ("TransformerEncoderBlock", "EncoderLayer", "EncoderBlock", "TransformerEncoderLayer", "Block"),
    ),
    "DecoderBlock": Documented(
        "DecoderBlock(d_model, n_heads, d_ff) with forward(x, memory, mask=None, memory_mask=None)",
        "Self-attention, attention to the memory [B, S, d_model] and feed-forward, each with residual and norm.",
        ("DecoderLayer", "TransformerDecoderBlock", "TransformerDecoderLayer"),
    ),
    "TransformerEncoder": Documented(
        "TransformerEncoder(n_layers, d_model, n_heads, d_ff) with forward(x, mask=None)",
        "A stack of such blocks over [B, T, d_model].",
        ("TransformerStack", "Encoder"),
    ),
    "TokenEncoder": Documented(
        "TokenEncoder(vocab_size, d_model, n_heads, n_layers, d_ff, max_len, n_outputs=None) with "
        "forward(ids, mask=None)",
        "An encoder of ids [B, T]: vectors [B, T, d_model], or [B, T, n_outputs] with an output map.",
        ("EncoderModel",),
    ),
    "Transformer": Documented(
        "Transformer(source_vocab, target_vocab, d_model, n_heads, n_layers, d_ff, max_len) with "
        "forward(source, target, source_keep=None)",
        "An encoder-decoder: ids [B, S] and [B, T] to logits [B, T, target_vocab]; source_keep [B, S], True at tokens.",
        ("Seq2Seq", "EncoderDecoder", "TransformerModel"),
    ),
    "LanguageModel": Documented(
        "LanguageModel(vocab_size, d_model, n_heads, n_layers, max_len) with forward(tokens) or "
        "forward(tokens, cache=None)",
        "A causal nn.Module: ids [B, T] to logits [B, T, vocab_size], or to (logits, cache for the ids that follow).",
        ("TransformerLanguageModel", "CachedLanguageModel"),
    ),
    "causal_mask": Documented(
        "causal_mask(n)",
        "Boolean [n, n] (or with ones in front), True where query (row) may read key (column).",
        ("create_causal_mask", "make_causal_mask", "subsequent_mask", "get_causal_mask"),
    ),
    "padding_mask": Documented(
        "padding_mask(lengths, n)",
        "lengths [B]; boolean with B*n values ([B, n], [B, 1, n] or [B, 1, 1, n]), True at real tokens.",
        ("create_padding_mask", "make_padding_mask", "lengths_to_mask"),
    ),
    "document_mask": Documented(
        "document_mask(documents)",
        "documents [B, n], the number of each token's text in a packed row; boolean [B, n, n] or [B, 1, n, n], causal.",
        ("packing_mask", "create_document_mask"),
    ),
    "position_ids": Documented(
        "position_ids(keep)",
        "keep [B, T] boolean, True at real tokens, padding anywhere; each real token's position, counted from 0.",
        ("make_position_ids", "create_position_ids"),
    ),
    "shift_labels": Documented(
        "shift_labels(tokens)",
        "tokens [B, T]; gives (inputs, labels), both [B, T-1], or labels alone: label t is the token after input t.",
        ("inputs_and_labels", "make_labels"),
    ),
    "shift_right": Documented(
        "shift_right(labels, start_id)",
        "labels [B, T]; gives what the decoder reads in training, [B, T]: start_id, then all labels but the last.",
        ("decoder_inputs",),
    ),
    "cross_entropy": Documented(
        "cross_entropy(logits, targets, pad_id)",
        "logits [B, T, V], targets [B, T] (already shifted); the mean over targets that are not pad_id, in nats.",
        ("sequence_loss", "masked_cross_entropy"),
    ),
    "accuracy": Documented(
        "accuracy(logits, targets, pad_id)",
        "The share of targets, pad_id left out, whose logit is the largest; 0 to 1.",
        ("token_accuracy", "masked_accuracy"),
    ),
    "mean_pool": Documented(
        "mean_pool(x, keep)",
        "x [B, T, d_model], keep [B, T] boolean, True at real tokens; the mean over real tokens, [B, d_model].",
        ("masked_mean", "mean_pooling"),
    ),
    "exact_match": Documented(
        "exact_match(logits, targets, pad_id)",
        "The share of rows in which every target that is not pad_id has the largest logit; 0 to 1.",
        ("sequence_accuracy",),
    ),
    "make_example": Documented(
        "make_example(symbols, task)",
        "ids [n] and copy, reverse or sort; inputs (symbols, separator 1, n blanks 0), targets (n + 1 blanks, answer).",
    ),
    "pad_batch": Documented(
        "pad_batch(rows, pad_id=0)",
        "Lists of ids to (ids [B, T], lengths [B]), padding behind each row.",
        ("collate", "collate_rows", "pad_rows"),
    ),
    "train_step": Documented(
        "train_step(model, inputs, targets, optimizer, clip=1.0)",
        "One update for ids [B, T] and targets [B, T], of which 0 is padding; the loss before it, a float.",
        ("training_step", "update_step"),
    ),
    "evaluate": Documented(
        "evaluate(model, batches)",
        "batches of (inputs, targets), of which 0 is padding; {loss, accuracy, exact_match} over all of them.",
        ("evaluate_model",),
    ),
    "init_weights": Documented(
        "init_weights(model)",
        "In place: Xavier's uniform numbers for every matrix, a small embedding, biases 0, norms as they are.",
        ("initialize_weights", "initialise_weights"),
    ),
    "predict_parameters": Documented(
        "predict_parameters(vocab_size, d_model, n_layers, d_ff)",
        "How many parameters such an encoder of ids has, with biases and a final norm, by arithmetic.",
        ("parameter_count", "predict_parameter_count"),
    ),
    "order_gap": Documented(
        "order_gap(model, x, order)",
        "The largest difference between the output for x[:, order] and the output for x in that order, a float.",
    ),
    "influence": Documented(
        "influence(model, x)",
        "[T, T] boolean: entry (t, s) is True if moving position s of x [B, T, D] changes output t.",
        ("influence_table",),
    ),
    "reversing_head": Documented(
        "reversing_head(n)",
        "(q, k), each [n, K]: position i reads position n-1-i with a weight of at least 0.99.",
    ),
    "attention_maps": Documented(
        "attention_maps(model, ids, mask=None)",
        "A list of the weights [B, H, T, S] that each layer kept in `weights`, in order.",
        ("get_attention_maps",),
    ),
    "head_score": Documented(
        "head_score(weights, keys)",
        "weights [B, H, T, S], keys [T], the key predicted for each query (-1: none); [H], 1 for always, 0 for even.",
    ),
    "alibi_bias": Documented(
        "alibi_bias(n_heads, length)",
        "[H, T, T]: head h (from 1) loses 2^(-8h/H) for each step of distance; what stands at later keys is free.",
    ),
    "window_mask": Documented(
        "window_mask(n, window)",
        "[n, n] boolean and causal: a query reads itself and the window - 1 keys before it.",
        ("sliding_window_mask",),
    ),
    "linear_attention": Documented(
        "linear_attention(q, k, v)",
        "[B, H, T, K] each; causal attention with the features elu(x) + 1, without a table of scores.",
        ("causal_linear_attention",),
    ),
    "blockwise_attention": Documented(
        "blockwise_attention(q, k, v, block)",
        "Attention over all keys, of which no more than block are looked at at once.",
        ("flash_attention",),
    ),
    "returns_to_go": Documented(
        "returns_to_go(rewards, ends)", "rewards [T], ends [T] boolean, True at an episode's last step; [T]."
    ),
    "interleave": Documented(
        "interleave(returns, states, actions)", "[B, T, D] each; [B, 3T, D]: return, state, action, step by step."
    ),
    "recomputed": Documented(
        "recomputed(block, x)", "block(x), whose inner tensors are made again in the backward pass."
    ),
    "train_step_bf16": Documented(
        "train_step_bf16(model, inputs, targets, optimizer)",
        "One update whose maps run in bfloat16; weights and loss stay in float32. Targets of 0 are padding.",
    ),
    "Classifier": Documented(
        "Classifier(encoder, n_labels) with forward(ids, lengths)",
        "encoder(ids, mask) gives [B, T, encoder.d_model]; logits [B, n_labels] from the mean over real tokens.",
        ("SequenceClassifier",),
    ),
    "StateEncoder": Documented(
        "StateEncoder(n_features, d_model) with fit(mean, std) and forward(states)",
        "states [B, T, n_features], scaled by what was fitted, to [B, T, d_model].",
    ),
    "ablated": Documented(
        "ablated(model, layer, head)",
        "A context in which one head of one attention (in the order of model.modules(), from 0) adds nothing.",
        ("head_ablated", "without_head"),
    ),
    "greedy_decode": Documented(
        "greedy_decode(model, prompt, eos_id, max_new_tokens)",
        "model: ids [1, T] to logits [1, T, V]; prompt [1, T]. Gives the prompt and what follows, eos_id included.",
        (),
    ),
    "greedy_translate": Documented(
        "greedy_translate(model, source, bos_id, eos_id, max_new_tokens)",
        "model: ids [1, S] and [1, T] to logits [1, T, V]; gives bos_id and what follows, eos_id included.",
        (),
    ),
}
"""By the name used in reports."""

HOME = {alias: name for name, each in DOCUMENTED.items() for alias in (name, *each.aliases)}
"""From every name that is looked for to the name used in reports."""


# --- a file, in a process of its own

LIMIT = 60.0
"""Seconds for all of a learner's code. Starting Python and torch does not count."""
START = 120.0
"""Seconds for starting Python and torch."""


def names_in(path: Path) -> list[str]:
    """Return, in order, the public and the documented names that the file's top level binds, those of imports included.

    Which of them are functions and classes, and whose, is seen once it is imported. Errors: `DataError` if it is no
    file, no text, has a syntax error (with its line), or has no documented name, not even under another.
    """
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"glassformer check needs a Python file; {path} {what}.")
    pairs = [pair for node in tree_of(path, path.read_bytes()).body for pair in bound(node)]
    defined = [*dict(pairs)]
    if not {name for pair in pairs for name in pair} & {*HOME, "*"}:
        there = ", ".join(defined) or "nothing"
        raise DataError(
            f"{path} contains nothing to check. Known names: {', '.join(DOCUMENTED)}. The file defines {there[:150]}. "
            "See glassformer check --help."
        )
    return [name for name in defined if name in HOME or not name.startswith("_")]


def tree_of(path: Path, data: bytes) -> ast.Module:
    """Return the syntax tree of a file. Errors: `DataError` with the line that Python cannot read."""
    try:
        return ast.parse(data, str(path))
    except SyntaxError as error:
        line = f" (`{error.text.strip()}`)" if error.text else ""
        raise DataError(f"{path}, line {error.lineno}: {error.msg}{line}. Python cannot read the file.") from None
    except ValueError as error:
        raise DataError(f"{path} is not a Python source file: {error}.") from None


def bound(node: ast.stmt) -> list[tuple[str, str]]:
    """Return the names that a top-level statement binds, each with the one that it has where it comes from."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [(node.name, node.name)]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        came_from = ast.unparse(node.value or targets[0]).rpartition(".")[2]
        inside = [each for target in targets for each in ast.walk(target)]
        return [
            (each.id, came_from) for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        ]
    if isinstance(node, ast.ImportFrom):
        return [(each.asname or each.name, each.name) for each in node.names]
    return [pair for each in within(node) for pair in bound(each)]


def within(node: ast.stmt) -> list[ast.stmt]:
    """Return the statements inside an `if`, a `try` or the like; of `if __name__ == "__main__"` none."""
    if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
        return []
    inside = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
    inside += [handler.body for handler in getattr(node, "handlers", [])]
    return [each for part in inside for each in part]


def definitions(body: Sequence[ast.stmt]) -> set[str]:
    """Return the names that `def` and `class` bind at the top level, whatever a decorator makes of them."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        else:
            found |= definitions(within(node))
    return found


def check(path: Path, only: Sequence[str] = (), limit: float = LIMIT) -> Report:
    """Check the parts of a file.

    The file's code runs with the user's rights, but cannot hang or end this process. Errors: `DataError` for a file
    that cannot be checked: it is missing, has a syntax error, defines no known name, fails on import or runs out of
    time.
    """
    names = names_in(path)
    with tempfile.TemporaryDirectory(prefix="glassformer-check-") as name:
        out = Path(name)
        code = run_child([str(path.resolve()), str(out), str(limit), ",".join(names), ",".join(only)], limit)
        found = out / "found.json"
        if found.is_file():
            report = json.loads(found.read_text("utf-8"))
            if "problem" in report:
                raise DataError(f"{path}: {report['problem']}")
            return Report.of({**report, "file": str(path)})
        stack = out / "stack.txt"
        place = hanging(stack.read_text("utf-8", "replace") if stack.is_file() else "", path.resolve())
        if code is None or place:
            raise DataError(
                f"{path}: its code took longer than {limit:g} s and was stopped{place}. Is there an endless "
                "loop? If the code is only slow, raise --limit SECONDS."
            )
        raise DataError(f"{path}: its code ended the Python process (exit code {code}), so nothing could be checked.")


def run_child(words: list[str], limit: float, module: str = "glassformer.proof.check.examine") -> int | None:
    """Return the exit code of the process that runs the learner's code in `module`; None if it had to be killed.

    All processes that it started are killed in any case.
    """
    source = str(Path(__file__).parents[3])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg"}
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", module, *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return child.wait(limit + START)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(child.pid, signal.SIGKILL)
            else:  # Windows, which has no groups of processes
                child.kill()
        child.wait()


def hanging(stack: str, path: Path) -> str:
    """Say from a stack dump which line of the learner's file ran when the time was up. Empty without a dump."""
    if not stack:
        return ""
    found = re.search(rf'File "{re.escape(str(path))}", line (\d+)', stack)
    if not found:
        return " (outside the file itself)"
    number = int(found[1])
    lines = path.read_text("utf-8", "replace").splitlines()
    return f" in line {number} (`{lines[number - 1].strip()}`)" if number <= len(lines) else f" in line {number}"
