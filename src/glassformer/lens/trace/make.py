"""A trace and its making: the model answers by cached decoding, then reads its answer once while all is recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer import __version__
from glassformer.base.errors import DataError
from glassformer.base.shapes import Float, Tensor
from glassformer.base.typed import expect
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.vocabulary import SPECIALS, UNK, Labels, Tokenizer
from glassformer.decode.answer import nothing
from glassformer.decode.settings import GREEDY, ONE_BEAM, BeamSettings, Sampling
from glassformer.lens.ablate import LETTERS, head_id
from glassformer.lens.attribute import attribute
from glassformer.lens.page.bundle import framed, standalone
from glassformer.lens.patch import Input, Patching, patch
from glassformer.lens.trace.file import Array, brief, decode, encode, finite, pack, unpack
from glassformer.lens.trace.reading import USUAL, Layout, Manner, Reading, Text, as_ids, read
from glassformer.lens.trace.sight import SIDE, Sight, decided, look, shrunk
from glassformer.nn.config import blocks_of
from glassformer.nn.count import count_parameters
from glassformer.nn.ensemble import refuse_ensemble
from glassformer.nn.heads import Head
from glassformer.nn.observe import Evaluation
from glassformer.nn.outputs import Lm, Regress, Tag
from glassformer.nn.transformer import Transformer
from glassformer.store.files import write_bytes, write_text_atomically

# The `Trace` object: its contents, its file and its page.


@dataclass(frozen=True, eq=False)
class Trace:
    """One run of a model over one input. `schema.json` describes `header`; `buffers`: name to (encoding, elements)."""

    header: dict[str, Any]
    buffers: dict[str, tuple[str, Array]]

    def attention(self, block: str) -> Array:
        """Return the weights [layer, head, query, key] of "encoder", "decoder" or "cross".

        Errors: `DataError` if the trace has none of that kind.
        """
        for group in self.header["attention"]:
            if group["block"] == block:
                encoding, stored = self.buffers[group["buffer"]]
                return decode(stored, encoding)
        there = ", ".join(group["block"] for group in self.header["attention"])
        raise DataError(f"block must be one that this trace has ({there}); got {block!r}.")

    @property
    def sources(self) -> list[str]:
        """The tokens that the encoder read."""
        return self.header["sequences"].get("source", {"text": []})["text"]

    @property
    def output(self) -> list[str]:
        """The tokens that the model wrote, or those of the given target."""
        target = self.header["sequences"].get("target")
        if target is not None:
            return target["text"][target["n_prompt"] :]
        return [self.header["vocab"][str(step["chosen"])] for step in self.header["steps"]]

    def to_bytes(self) -> bytes:
        """Return the trace as the bytes of its file."""
        return pack({name: each for name, each in self.header.items() if name != "buffers"}, self.buffers)

    def save(self, path: Path | str) -> Path:
        """Write the trace as a file, by convention NAME.gft, and return its path."""
        path = Path(path)
        write_bytes(path, self.to_bytes())
        return path

    def to_html(self) -> str:
        """Return a self-contained HTML page that shows the trace; it works from disk, without a network."""
        return standalone([self.to_bytes()], {"name": self.header["model"]["name"]})

    def show(self) -> Page:
        """Return the page, for the last line of a notebook's cell."""
        return Page(self.to_html())

    def _repr_html_(self) -> str:
        return framed(self.to_html())


@dataclass(frozen=True)
class Page:
    """A page that a notebook shows in a sandboxed frame, from which nothing can reach the notebook."""

    html: str

    def _repr_html_(self) -> str:
        return framed(self.html)

    def save(self, path: Path | str) -> Path:
        """Write the page as a file that any browser opens, and return its path."""
        path = Path(path)
        write_text_atomically(path, self.html)
        return path


def read_trace(path: Path | str) -> Trace:
    """Read a trace from a file. Errors: `DataError` naming the damaged field, or for a file that cannot be read.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from glassformer import ModelConfig, StackConfig, Transformer, read_trace, trace
    >>> from glassformer.data.config import TokenizerConfig
    >>> from glassformer.data.tokenizer import TOKENIZERS
    >>> letters = TOKENIZERS["character"].train(["abc"], TokenizerConfig())
    >>> stack = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> model = Transformer(ModelConfig(letters.vocab_size, encoder=stack, decoder=stack))
    >>> with TemporaryDirectory() as folder:
    ...     path = trace(model, letters, "abc", target="cba").save(Path(folder) / "seen.gft")
    ...     read_trace(path).attention("cross").shape
    (1, 2, 4, 4)
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}. Give a file that trace.save() wrote.") from None
    return from_bytes(data)


def from_bytes(data: bytes) -> Trace:
    """Read a trace from the bytes of a file. Errors: `DataError` naming the damaged field."""
    return Trace(*unpack(data))


# Activation patching between two traces: which parts of one bring its answer back on the other's text (`patch`).


def patch_traces(model: Transformer, one: Trace, other: Trace, *, poll: Callable[[], None] = nothing) -> Patching:
    """Patch activations of one trace into a pass over the other's text with the first one's answer; return the effects.

    `poll` is that of `patch`. Errors: `DataError` if the texts differ in length or the model writes no tokens.
    """
    return patch(model, *compared(one.header, other.header, next(model.parameters()).device), poll=poll)


def compared(
    one: Mapping[str, Any], other: Mapping[str, Any], device: torch.device
) -> tuple[Input, Input, list[int | None]]:
    """Return the arguments of `patch`: the texts of both traces, the answer of one after each, and that answer.

    Errors: `DataError` for a model that writes no tokens.
    """
    if not one["steps"]:
        raise DataError("Patching needs a model that writes tokens; this one gives labels. See `glassformer heads`.")
    texts, others = one["sequences"], other["sequences"]
    answer_ids = {step["pos"]: step["chosen"] for step in one["steps"]}
    if "target" not in texts:
        rows = texts["source"]["ids"], others["source"]["ids"]
        inputs = [Input(torch.tensor([ids], device=device)) for ids in rows]
    elif "source" in texts:
        tokens = torch.tensor([texts["target"]["ids"][:-1]], device=device)
        inputs = [Input(tokens, torch.tensor([each["source"]["ids"]], device=device)) for each in (texts, others)]
    else:
        begun = texts["target"]["n_prompt"]
        answer = texts["target"]["ids"][begun:-1]
        prompts = (each["target"]["ids"][: each["target"]["n_prompt"]] for each in (texts, others))
        inputs = [Input(torch.tensor([[*prompt, *answer]], device=device)) for prompt in prompts]
        answer_ids = {place: token for place, token in answer_ids.items() if place >= begun - 1}
    return inputs[0], inputs[1], [answer_ids.get(place) for place in range(inputs[0].tokens.shape[1])]


def patching_as_json(found: Patching) -> dict[str, Any]:
    """Return the effects as JSON: heads with the strongest first, streams by stack and blocks."""
    heads: list[dict[str, Any]] = [
        {"id": head_id(*where, head), "block": where[0], "layer": where[1], "head": head, "effect": float(effect)}
        for where, effects in found.heads.items()
        for head, effect in enumerate(effects)
    ]
    streams = [{"side": side, "effects": effects.tolist()} for side, effects in found.streams.items()]
    return {
        "one": found.one,
        "other": found.other,
        "heads": sorted(heads, key=lambda each: -abs(each["effect"])),
        "streams": streams,
    }


# What a model predicted at each step: the chosen token, the top tokens, the logit lens, and the terms of a logit.

TOP = 10
"""How many of the most likely tokens a step lists."""
LENS_TOP = 3
ROWS = 64
"""How many positions have their probabilities over the vocabulary in memory at once."""
BUFFER = "attribution"


def steps_of(reading: Reading, logits: Float[Tensor, "T V"]) -> list[dict[str, Any]]:
    """Return one entry for each position at which a token was chosen; probabilities are the model's at temperature 1.

    Entropy and loss are in nats; `rank` counts the tokens that were more likely than the chosen one.
    """
    found: list[dict[str, Any]] = []
    for t, answer_ids in enumerate(reading.answer_ids):
        if answer_ids is not None:
            found.append(step_of(reading, t, answer_ids, logits[t]))
    return found


def step_of(reading: Reading, t: int, answer_ids: int, logits: Float[Tensor, " V"]) -> dict[str, Any]:
    """Return the entry of one position; one row of the vocabulary at a time, as all together may be large."""
    log_p = logits.double().log_softmax(-1)
    p = log_p.exp()
    gold = reading.gold[t]
    values, ids = p.topk(min(TOP, len(p)))
    return {
        "pos": t,
        "input": reading.tokens[t],
        "chosen": answer_ids,
        "p": brief(float(p[answer_ids])),
        "rank": int((p > p[answer_ids]).sum()),
        "entropy": brief(-float((p * log_p.clamp(min=-1e9)).sum())),
        "gold": gold,
        "gold_p": None if gold is None else brief(float(p[gold])),
        "loss": brief(-float(log_p[answer_ids if gold is None else gold])),
        "top": [[i, brief(v), brief(float(logits[i]))] for i, v in zip(ids.tolist(), values.tolist(), strict=True)],
        "rest": brief(max(0.0, 1.0 - float(values.sum()))),
    }


@torch.no_grad()
def lens_of(model: Transformer, reading: Reading, streams: Sequence[Float[Tensor, "T D"]]) -> dict[str, Any]:
    """Compute the logit lens (nostalgebraist 2020): final norm and head on the input and on every block's output.

    `top[layer][place]` are the most likely tokens with their probabilities, `p[layer][place]` that of the chosen token.
    """
    stack = model.reader
    names = ["input", *(f"block {i}" for i in range(len(streams) - 1))]
    top: list[list[list[list[float]]]] = []
    chances: list[list[float | None]] = []
    for stream in streams:
        rows: list[list[list[float]]] = []
        of_said: list[float | None] = []
        for part in stream.split(ROWS):
            p = model.head(stack.norm(part[None]))[0].cpu().double().softmax(-1)
            values, ids = p.topk(min(LENS_TOP, p.shape[-1]))
            for row, best in zip(ids.tolist(), values.tolist(), strict=True):
                rows.append([[i, brief(v)] for i, v in zip(row, best, strict=True)])
            for answer_ids, row in zip(reading.answer_ids[len(of_said) : len(of_said) + len(part)], p, strict=True):
                of_said.append(None if answer_ids is None else brief(float(row[answer_ids])))
        top.append(rows)
        chances.append(of_said)
    return {"names": names, "top": top, "p": chances}


def terms_of_logits(model: Transformer, reading: Reading) -> tuple[dict[str, Any], Array] | None:
    """Return the header's `attribution` and the terms [part, step], or None if the head is not linear in the stream."""
    if not isinstance(model.head, Head) or model.head.transform is not None:
        return None
    device = next(model.parameters()).device
    given = None if reading.source is None else torch.tensor([reading.source], device=device)
    compared = torch.tensor(
        [0 if answer_ids is None else answer_ids for answer_ids in reading.answer_ids], device=device
    )
    found = attribute(model, torch.tensor([reading.tokens], device=device), compared, given)
    places = [place for place, answer_ids in enumerate(reading.answer_ids) if answer_ids is not None]
    return {"names": list(found.names), "buffer": BUFFER}, found.terms[:, places].float().cpu().numpy()


# Making a trace.

MOST_WEIGHTS = 2**26
MOST_LOGITS = 2**16
"""Up to this many numbers, a trace keeps all logits, so that the temperature can be changed without the model."""


def trace(
    model: Transformer,
    tokenizer: Tokenizer | Tokenizers,
    source: Text,
    target: Text | None = None,
    *,
    gold: Text | None = None,
    sampling: Sampling = GREEDY,
    search: BeamSettings = ONE_BEAM,
    max_new_tokens: int | None = None,
    begin: Sequence[int] = (),
    layout: Layout = USUAL,
    encoding: str = "sqrt255",
    about: Mapping[str, Any] | None = None,
    heard: Callable[[int], None] | None = None,
    poll: Callable[[], None] = nothing,
) -> Trace:
    """Record one run of a model over one input, to view with `.show()` in a notebook, `.save(path)` or `.to_html()`.

    `source` is a text, or ids without special ones: what an encoder-decoder answers, a decoder continues or an encoder
    reads. The model writes the answer itself, from the forced prefix `begin`, or reads `target` if it is given; with
    `gold`, each step is compared with it. With a beam (`search`), the trace is of the best answer, and the header's
    `beams` has the whole search tree. `heard` is called with each written token and `poll` before each step; if they
    raise, the writing ends. `encoding` is for attention weights: "sqrt255", "u16" or "f32" (exact). `about` adds to the
    header's `model` (`name`, `task`, `step`).
    Errors: `ConfigError` for a model that reads features or gives numbers at each place, and for an ensemble;
    `DataError` for a text that is too long.

    >>> from glassformer import ModelConfig, StackConfig, Transformer, trace
    >>> from glassformer.data.config import TokenizerConfig
    >>> from glassformer.data.tokenizer import TOKENIZERS
    >>> letters = TOKENIZERS["character"].train(["abc"], TokenizerConfig())
    >>> stack = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> model = Transformer(ModelConfig(letters.vocab_size, encoder=stack, decoder=stack))
    >>> trace(model, letters, "abc", target="cba").attention("cross").shape  # layer, head, query, key
    (1, 2, 4, 4)
    """
    refuse_ensemble(model, "A trace", "Trace each member.")
    tokenizers = Tokenizers(tokenizer, tokenizer) if isinstance(tokenizer, Tokenizer) else tokenizer
    expect(model, Transformer, "model of trace", "Give a Transformer.")
    expect(tokenizers, Tokenizers, "tokenizer of trace", "Give the one that made the ids in training.")
    expect(source, Sequence, "source of trace", "Give a text, or a list of ids.")
    with Evaluation(model):
        ids = [None if each is None else as_ids(each, tokenizers.target) for each in (target, gold)]
        reading = read(
            model,
            as_ids(source, tokenizers.source),
            *ids,
            layout=layout,
            manner=Manner(sampling, max_new_tokens, search, begin, heard, poll),
        )
        refuse_large(model, reading)
        device = next(model.parameters()).device
        given = None if reading.source is None else torch.tensor([reading.source], device=device)
        seen = look(model, torch.tensor([reading.tokens], device=device), given)
        attention, buffers = attention_of(model, seen, encoding)
        header: dict[str, Any] = {
            "model": model_facts(model) | dict(about or {}),
            "run": {
                "mode": reading.mode,
                "decoding": finite(asdict(sampling) | {"beam": search.beam}),
                "code": __version__,
                "torch": torch.__version__,
                "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
            },
            "attention": attention,
            "steps": [],
            "params": parameters_of(model),
            "heads": [],
        }
        if reading.beams is not None:
            header["beams"] = reading.beams.as_json()
        header |= answers(model, tokenizers, reading, seen, buffers)
    header["sequences"] = sequences_of(model, reading, tokenizers)
    header["vocab"] = vocabulary_of(header, tokenizers, complete="logits" in header)
    return Trace(header, buffers)


def refuse_large(model: Transformer, reading: Reading) -> None:
    """Raise `DataError` for a text with more than `MOST_WEIGHTS` attention weights in this model."""
    T, S = len(reading.tokens), len(reading.source or [])
    config, weights = model.config, 0
    if config.decoder is not None:
        weights += sum(each.n_heads for each in blocks_of(config.decoder)) * T * (T + S)
    if config.encoder is not None:
        heads = sum(each.n_heads for each in blocks_of(config.encoder))
        weights += heads * (S if config.decoder is not None else T) ** 2
    if weights > MOST_WEIGHTS:
        raise DataError(
            f"A trace keeps every attention weight, at most {MOST_WEIGHTS:,}; a text of {max(T, S)} tokens has "
            f"{weights:,} in this model. Give a shorter text."
        )


def answers(
    model: Transformer,
    tokenizers: Tokenizers,
    reading: Reading,
    seen: Sight,
    buffers: dict[str, tuple[str, Array]],
) -> dict[str, Any]:
    """Return the header's entries on the head's output: `labels`, or `steps`, `lens`, `attribution` and `logits`.

    `logits` only up to `MOST_LOGITS` numbers.
    """
    if not isinstance(model.config.head, Lm):
        return {"labels": labels_of(model, tokenizers, reading, seen)}
    found: dict[str, Any] = {"steps": steps_of(reading, seen.logits), "lens": lens_of(model, reading, seen.streams)}
    if (terms := terms_of_logits(model, reading)) is not None:
        found["attribution"], stored = terms
        buffers[found["attribution"]["buffer"]] = ("f32", stored)
    if seen.logits.numel() <= MOST_LOGITS:
        buffers["logits"] = ("f32", seen.logits.numpy())
        found["logits"] = "logits"
    return found


def labels_of(model: Transformer, tokenizers: Tokenizers, reading: Reading, seen: Sight) -> list[list[Any]]:
    """Return what a head that is not over tokens gives, as names with probabilities, or with the numbers themselves.

    Labels of the whole sequence, the likeliest first; or, of a head for each place, its token and likeliest label; or
    all numbers, in the units of the data.
    """
    given, target = seen.logits.double().reshape(-1, seen.logits.shape[-1]), tokenizers.target
    names = target.tokens(range(len(SPECIALS), target.vocab_size))
    names = names if len(names) == given.shape[1] else [str(i) for i in range(given.shape[1])]
    if isinstance(model.config.head, Regress):
        numbers: list[float] = given[0].tolist()
        numbers = target.in_units(numbers) if isinstance(target, Labels) else numbers
        return [[name, brief(number)] for name, number in zip(names, numbers, strict=True)]
    chances: list[list[float]] = given.softmax(-1).tolist()
    order = [sorted(range(len(names)), key=row.__getitem__, reverse=True) for row in chances]
    if isinstance(model.config.head, Tag):
        tokens = tokenizers.source.tokens(reading.tokens)
        best = zip(tokens, chances, order, strict=True)
        return [[f"{token} → {names[first]}", row[first]] for token, row, (first, *_) in best]
    return [[names[label], chances[0][label]] for label in order[0]]


def attention_of(
    model: Transformer, seen: Sight, encoding: str
) -> tuple[list[dict[str, Any]], dict[str, tuple[str, Array]]]:
    """Return the header's groups, one for each kind of attention in the model, and their buffers."""
    groups: list[dict[str, Any]] = []
    buffers: dict[str, tuple[str, Array]] = {}
    alone = model.encoder is None or model.decoder is None
    for block in LETTERS:
        layers = sorted(layer for name, layer in seen.weights if name == block)
        if not layers:
            continue
        weights = torch.stack([seen.weights[block, layer] for layer in layers]).numpy()
        allowed = seen.allowed[block, layers[0]].numpy()
        queries = "source" if block == "encoder" else "target_in"
        keys = "source" if block == "cross" or (alone and block == "encoder") else queries
        mask = mask_of(allowed)
        buffers[f"a.{block}"] = (encoding, encode(weights.clip(0, 1), encoding))
        if mask == "explicit":
            buffers[f"m.{block}"] = ("flag", encode(allowed, "flag"))
        shape = dict(zip(("layers", "heads", "q_len", "k_len"), weights.shape, strict=True))
        named = {"mask": mask, "mask_buffer": f"m.{block}" if mask == "explicit" else None, "buffer": f"a.{block}"}
        if max(weights.shape[2:]) > SIDE:
            buffers[f"t.{block}"] = ("sqrt255", encode(shrunk(weights).clip(0, 1), "sqrt255"))
            named["thumb"] = f"t.{block}"
        buffers[f"v.{block}"] = ("f32", torch.stack([seen.sizes[block, layer] for layer in layers]).numpy())
        named["value_sizes"] = f"v.{block}"
        if (block, layers[0]) in seen.log_sums:
            buffers[f"s.{block}"] = ("f32", torch.stack([seen.log_sums[block, layer] for layer in layers]).numpy())
            named["log_sums"] = f"s.{block}"
        groups.append({"block": block, "q": queries, "k": keys, **shape, **named, **decided(weights)})
    return groups, buffers


def mask_of(allowed: Array) -> str:
    """Name a mask: "none" (everything may be read), "causal" (nothing after the query), otherwise "explicit"."""
    if allowed.all():
        return "none"
    square = allowed.shape[0] == allowed.shape[1]
    return "causal" if square and (allowed == np.tril(np.ones_like(allowed))).all() else "explicit"


def sequences_of(model: Transformer, reading: Reading, tokenizers: Tokenizers) -> dict[str, Any]:
    """Return the sequences: `source` is what encoders read; `target` what decoders read plus the last written token."""
    if model.decoder is None:
        return {"source": sequence(reading.tokens, tokenizers.source) | {"n_prompt": reading.n_prompt}}
    last = reading.answer_ids[-1]
    whole = reading.tokens if last is None else [*reading.tokens, last]
    found = {"target": sequence(whole, tokenizers.target) | {"n_prompt": reading.n_prompt, "gold": reading.gold}}
    return found if reading.source is None else {"source": sequence(reading.source, tokenizers.source), **found}


def sequence(ids: Sequence[int], tokenizer: Tokenizer) -> dict[str, Any]:
    """Return ids, their display texts, and which ones are special. Texts are for display only; rely on the ids."""
    special = [id < len(SPECIALS) and id != UNK for id in ids]
    return {"ids": list(ids), "text": tokenizer.tokens(ids), "special": special}


def vocabulary_of(header: Mapping[str, Any], tokenizers: Tokenizers, *, complete: bool) -> dict[str, str]:
    """Map each target id in the header to its text; with `complete`, as when all logits are kept, every id."""
    spoken = {step[key] for step in header["steps"] for key in ("input", "chosen", "gold") if step.get(key) is not None}
    spoken |= {row[0] for step in header["steps"] for row in step["top"]}
    lens = header.get("lens") or {"top": []}
    spoken |= {row[0] for layer in lens["top"] for place in layer for row in place}
    spoken |= {node["token"] for node in header.get("beams", {"nodes": []})["nodes"]}
    size = tokenizers.target.vocab_size
    ids = list(range(size)) if complete else sorted(id for id in spoken if id < size)
    return dict(zip(map(str, ids), tokenizers.target.names(ids), strict=True))


def model_facts(model: Transformer) -> dict[str, Any]:
    """Return the header's `model`: its kind, sizes and settings."""
    config = model.config
    sides = {"encoder": config.encoder, "decoder": config.decoder}
    there = {name: stack for name, stack in sides.items() if stack is not None}
    stack = config.stack
    return {
        "name": "model",
        "kind": "-".join(there),
        "layers": {name: each.n_layers for name, each in there.items()},
        "n_heads": stack.n_heads,
        "n_kv_heads": stack.kv_heads,
        "d_model": stack.d_model,
        "d_ff": stack.d_ff,
        "vocab_size": config.vocab_size,
        "max_len": stack.max_len,
        "norm": stack.norm_placement,
        "pos": stack.positions,
        "convolution": stack.convolution,
        "parallel_branches": stack.parallel_branches,
        "params": sum(each.numel() for each in model.parameters()),
        "step": None,
        "weights_sha256": weights_sha256(model),
    }


def weights_sha256(model: Transformer) -> str:
    """Return one digest of all weights: names, shapes, dtypes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {list(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@torch.no_grad()
def parameters_of(model: Transformer) -> list[dict[str, Any]]:
    """List each tensor: name, shape, how many numbers it adds, its Euclidean norm, and the tensor it is tied to."""
    named = dict(model.named_parameters(remove_duplicate=False))
    rows, _ = count_parameters(model)
    return [
        {
            "name": row.name,
            "shape": list(row.shape),
            "count": row.numbers,
            "norm": float(f"{float(named[row.name].float().norm()):.6g}"),
            "tied_to": row.same_as,
        }
        for row in rows
    ]
