"""The peers that decode beside us with our weights: transformers, CTranslate2 and nanoGPT, as far as installed."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from engine import Engine
from torch import Tensor, nn

from glassformer import Transformer
from glassformer.data.tokens.vocabulary import BOS, EOS, PAD, UNK
from glassformer.store.families import FAMILIES

Write = Callable[[Sequence[Sequence[int]], int], list[list[int]]]
"""Continues rows of ids by a given number of tokens, and returns these (with a beam, the best ones)."""


def library(name: str) -> Any:
    """Return the module, or None if it is not installed."""
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def twin(ours: Transformer) -> nn.Module:
    """Return the same model in transformers, with our weights: GPT-2 for a decoder, BART for an encoder-decoder."""
    hugging_face = library("transformers")
    hugging_face.logging.set_verbosity_error()  # it prints advice for every new model
    hugging_face.logging.disable_progress_bar()
    stack, ids = ours.config.stack, {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    if ours.encoder is None:
        sizes = {"n_embd": stack.d_model, "n_head": stack.n_heads, "n_layer": stack.n_layers, "n_inner": stack.d_ff}
        config = hugging_face.GPT2Config(vocab_size=ours.config.vocab_size, n_positions=stack.max_len, **sizes, **ids)
        theirs, family = hugging_face.GPT2LMHeadModel(config), "gpt2"
    else:
        sizes = {"layers": stack.n_layers, "ffn_dim": stack.d_ff, "attention_heads": stack.n_heads}
        both = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}
        more = {"activation_function": "relu", "decoder_start_token_id": BOS, "forced_eos_token_id": None}
        of_ctranslate = {"normalize_before": False, "normalize_embedding": True}
        config = hugging_face.BartConfig(
            vocab_size=ours.config.vocab_size,
            max_position_embeddings=stack.max_len,
            d_model=stack.d_model,
            **both,
            **more,
            **of_ctranslate,
            **ids,
        )
        theirs, family = hugging_face.BartForConditionalGeneration(config), "bart"
    weights: dict[str, Tensor] = FAMILIES[family].export(dict(ours.named_parameters()), ours.config.stack.n_heads)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.copy_(weights[name])
    return theirs.eval()


def transformers_writes(theirs: Any, dtype: torch.dtype, beam: int = 1) -> Write:
    """Return transformers' `generate` as a contestant, with its default cache. No row ends before the last token."""
    whole = getattr(theirs.config, "is_encoder_decoder", False)
    model = theirs.to(dtype)

    def write(rows: Sequence[Sequence[int]], n: int) -> list[list[int]]:
        limits = {"max_new_tokens": n, "num_beams": beam, "do_sample": False, "eos_token_id": None, "pad_token_id": PAD}
        read = torch.tensor([[*row, EOS] if whole else list(row) for row in rows])
        with torch.inference_mode():
            written: Tensor = model.generate(read, attention_mask=torch.ones_like(read), **limits)
        return written[:, 1 if whole else read.shape[1] :].tolist()

    return write


def convert(theirs: Any, folder: Path) -> None:
    """Save `theirs` as a CTranslate2 model, whose words are the ids as numbers."""
    hugging_face, tokenizers = library("transformers"), library("tokenizers")
    words = {f"{i}": i for i in range(theirs.config.vocab_size)}
    named = {"pad_token": f"{PAD}", "unk_token": f"{UNK}", "bos_token": f"{BOS}", "eos_token": f"{EOS}"}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token=f"{UNK}"))
    with tempfile.TemporaryDirectory() as kept:
        theirs.save_pretrained(kept)
        hugging_face.PreTrainedTokenizerFast(tokenizer_object=inner, **named).save_pretrained(kept)
        library("ctranslate2").converters.TransformersConverter(kept).convert(str(folder), force=True)


def ctranslate_writes(engine: Engine, *, whole: bool, beam: int = 1) -> Write:
    """Return CTranslate2 as a contestant. No row ends before the last token."""

    def write(rows: Sequence[Sequence[int]], n: int) -> list[list[int]]:
        options: dict[str, Any] = {"beam_size": beam, "max_batch_size": 0}
        words = [[f"{id}" for id in (*row, EOS)] if whole else [f"{id}" for id in row] for row in rows]
        if whole:
            options |= {"max_decoding_length": n, "min_decoding_length": n, "length_penalty": 0.6}
        else:
            options |= {"max_length": n, "min_length": n, "include_prompt_in_result": False}
        return [[int(word) for word in each] for each in engine(words, **options)]

    return write


def nanogpt_writes(ours: Transformer, clone: str) -> Write:
    """Return `generate` of a clone of nanoGPT as a contestant, on a model of the same size. It has no cache."""
    path = Path(clone) / "model.py"
    if not path.is_file():
        sys.exit(f"--nanogpt is a clone of nanoGPT; there is no {path}. Clone it, or leave the flag out.")
    described = importlib.util.spec_from_file_location("nanogpt_model", path)
    assert described is not None
    assert described.loader is not None
    module: Any = importlib.util.module_from_spec(described)
    sys.modules["nanogpt_model"] = module
    described.loader.exec_module(module)
    stack = ours.config.stack
    sizes = {"n_layer": stack.n_layers, "n_head": stack.n_heads, "n_embd": stack.d_model}
    config = module.GPTConfig(vocab_size=ours.config.vocab_size, block_size=stack.max_len, dropout=0.0, **sizes)
    with contextlib.redirect_stdout(sys.stderr):  # it prints its size
        model = module.GPT(config).eval()

    def write(rows: Sequence[Sequence[int]], n: int) -> list[list[int]]:
        read = torch.tensor(rows)
        with torch.inference_mode():
            return model.generate(read, n, top_k=1)[:, read.shape[1] :].tolist()

    return write
