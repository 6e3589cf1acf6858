"""Small decoders of each family that can be exported, with a tokenizer, and folders made of them."""

from typing import Any

import torch

from glassformer import Transformer
from glassformer.base.schemes import RotaryConfig
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS, Tokenizer
from glassformer.data.tokens.vocabulary import BLANK, BOS, PAD, SEP, UNK
from glassformer.store.export import Text
from specimens import model
from store.pretrained_examples import TEXT

GPT2 = {"positions": "learned", "activation": "gelu_tanh"}
NEOX = {"positions": "rotary", "activation": "relu"}
LLAMA = {"norm": "rms", "feed_forward": "gated", "activation": "silu", "positions": "rotary", "bias": False}
SCALED = {
    "linear": RotaryConfig(scaling="linear", factor=3.0),
    "yarn": RotaryConfig(scaling="yarn", factor=3.0, original_max_len=8, base=100.0),
    "llama3": RotaryConfig(scaling="llama3", factor=3.0, original_max_len=8, base=100.0),
}
EXAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT-2": ("gpt2", GPT2),
    "GPT-2, untied": ("gpt2", {**GPT2, "tie_embeddings": False, "activation": "relu_squared", "norm_eps": 1e-3}),
    "GPT-NeoX": ("gpt_neox", NEOX),
    "GPT-NeoX, untied": ("gpt_neox", {**NEOX, "tie_embeddings": False, "activation": "gelu", "max_len": None}),
    "GPT-NeoX, parallel": (
        *("gpt_neox",),
        {**NEOX, "parallel_branches": True, "n_heads": 2, "rotary": RotaryConfig(base=500.0, share=0.25)},
    ),
    "Llama": ("llama", {**LLAMA, "tie_embeddings": False}),
    "Llama, grouped": ("llama", {**LLAMA, "n_kv_heads": 2, "d_head": 6, "rotary": RotaryConfig(base=500.0)}),
    **{f"Llama, {name}": ("llama", {**LLAMA, "rotary": each}) for name, each in SCALED.items()},
    "Mistral": ("mistral", {**LLAMA, "window": 3, "n_kv_heads": 1}),
}
"""Models by name: the family that each is exported as, and settings."""
READING = Text(begins=True, never=[PAD, BOS, UNK, SEP, BLANK], longest=24)


def tokenizer(kind: str = "bpe") -> Tokenizer:
    """One that knows the characters and words of `TEXT`."""
    return TOKENIZERS[kind].train(
        [TEXT] * 2, TokenizerConfig(kind=kind, vocab_size=520 if kind == "wordpiece" else 280)
    )


def decoder(dtype: torch.dtype = torch.float64, cut: Tokenizer | None = None, **settings: Any) -> Transformer:
    """A random decoder over a tokenizer's vocabulary, whose embeddings are not scaled."""
    size = (tokenizer() if cut is None else cut).vocab_size
    return model("decoder", **{"vocab_size": size, "scale_embeddings": False, "dtype": dtype, **settings})
