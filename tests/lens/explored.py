"""What tests of traces, server and page look into: small models of every shape, and a trace planted by hand."""

from pathlib import Path

import numpy as np

from glassformer import ModelConfig, StackConfig, Transformer
from glassformer.data.config import TokenizerConfig
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.lens.page.bundle import standalone
from glassformer.lens.server.subject import Subject
from glassformer.lens.trace.file import encode
from glassformer.lens.trace.make import Trace
from glassformer.lens.trace.sight import SIDE, decided, shrunk

LETTERS = TOKENIZERS["character"].train(["abcdefghij"], TokenizerConfig())
BOTH = Tokenizers(LETTERS, LETTERS)
SCREENS = ("overview", "attention", "generate", "heads", "ablations", "parameters", "curves")
HOSTILE = [
    "<img src=x onerror=document.body.dataset.hit=1>", "</script><script>document.body.dataset.hit=1</script>",
    "\u202eabc", "שלום", "🙂", "x" * 200, "\u0007",
]  # fmt: skip


def small(shape="encoder-decoder", **settings):
    """A model with random weights over ten letters."""
    stack = {"d_model": 16, "n_heads": 4, "n_layers": 2, "d_ff": 32, "dropout": 0.0} | settings
    sides = {side: StackConfig(**stack, causal=side == "decoder") for side in shape.split("-")}
    return Transformer(ModelConfig(LETTERS.vocab_size, **sides)).eval()


def toy(*examples, model=None, kind=Subject, **facts):
    """A model over ten letters, of one layer unless it is given, to look into; and texts to begin with."""
    texts = [(each, None) for each in examples]
    return kind("toy", model or small(n_layers=1), BOTH, examples=texts, **facts)


def planted(sources=("a", "b", "c", "d", "<eos>"), targets=("<bos>", "d", "c", "b"), layers=2, heads=3, encoding="f32"):
    """A trace made by hand: all texts and weights are known. Returns it, and the weights by block."""
    chance = np.random.default_rng(0)
    vocab = [*dict.fromkeys([*sources, *targets])]
    read = targets[:-1]
    groups, buffers, weights = [], {}, {}
    for block, queries, keys, axes in (
        ("encoder", len(sources), len(sources), ("source", "source")),
        ("decoder", len(read), len(read), ("target_in", "target_in")),
        ("cross", len(read), len(sources), ("target_in", "source")),
    ):
        scores = chance.normal(size=(layers, heads, queries, keys)) * 2
        if block == "decoder":
            scores = np.where(np.tril(np.ones((queries, keys), bool)), scores, -np.inf)
        of = np.exp(scores - scores.max(-1, keepdims=True))
        of = (of / of.sum(-1, keepdims=True)).astype(np.float32)
        if block == "cross":
            of[0, 0, :, 1] = 0.0  # zero and yet allowed
        weights[block] = of
        buffers[f"a.{block}"] = (encoding, encode(of, encoding))
        groups.append(
            {
                "block": block,
                "q": axes[0],
                "k": axes[1],
                "layers": layers,
                "heads": heads,
                "q_len": queries,
                "k_len": keys,
                "mask": "causal" if block == "decoder" else "none",
                "buffer": f"a.{block}",
                **decided(of),
            }
        )
        if max(queries, keys) > SIDE:
            buffers[f"t.{block}"] = ("sqrt255", encode(shrunk(of), "sqrt255"))
            groups[-1]["thumb"] = f"t.{block}"
    ids = {text: i for i, text in enumerate(vocab)}
    logits = chance.normal(size=(len(read), len(vocab))).astype(np.float32)
    buffers["logits"] = ("f32", logits)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    steps = []
    for t, text in enumerate(targets[1:]):
        order = np.argsort(-p[t])
        steps.append(
            {
                "pos": t,
                "input": ids[targets[t]],
                "chosen": ids[text],
                "p": float(p[t, ids[text]]),
                "rank": 0,
                "entropy": 1.0,
                "gold": ids[text],
                "gold_p": float(p[t, ids[text]]),
                "loss": 1.0,
                "rest": 0.0,
                "top": [[int(i), float(p[t, i]), float(logits[t, i])] for i in order],
            }
        )

    def sequence(texts):
        special = [text.startswith("<") and text.endswith("s>") for text in texts]
        return {"ids": [ids[text] for text in texts], "text": [*texts], "special": special}

    head = {
        "id": "x.1.2",
        "block": "cross",
        "layer": 1,
        "head": 2,
        "scores": {"reversal": 0.97},
        "chance": {"reversal": 0.09},
        "role": {"label": "reversal", "strength": "strong", "score": 0.97, "runner_up": ["previous", 0.03]},
        "ablation": {
            "kind": "zero",
            "metric": "exact_match",
            "base": 0.998,
            "value": 0.031,
            "ci95": [0.019, 0.049],
            "n": 1000,
            "verdict": "does it and the task needs it",
        },
        "grad_importance": 0.8,
    }
    header = {
        "model": {
            "name": "planted",
            "kind": "encoder-decoder",
            "layers": {"encoder": layers, "decoder": layers},
            "n_heads": heads,
            "d_model": 12,
            "d_ff": 24,
            "vocab_size": len(vocab),
            "params": 7,
            "step": 10,
        },
        "run": {"mode": "generate"},
        "sequences": {"source": sequence(sources), "target": sequence(targets) | {"n_prompt": 1}},
        "vocab": {str(i): text for text, i in ids.items()},
        "attention": groups,
        "steps": steps,
        "logits": "logits",
        "lens": None,
        "heads": [head],
        "params": [
            {"name": "encoder.embedding.weight", "shape": [1, 4], "count": 4, "norm": 1.0, "tied_to": None},
            {"name": "decoder.blocks.0.self_attention.branch.query.weight", "shape": [3], "count": 3, "norm": 1.0},
        ],
    }
    return Trace(header, buffers), weights


def page_of(folder: Path, *traces: Trace | bytes, name: str = "page", **facts: object) -> str:
    """The address of one file of these traces, with what it tells of their run."""
    path = folder / f"{name if name.isalnum() else 'page'}.html"
    made = [each if isinstance(each, bytes) else each.to_bytes() for each in traces]
    path.write_text(standalone(made, {"name": name, **facts}), "utf-8")
    return path.as_uri()
