"""A folder as Hugging Face's transformers saves GPT-2, made without them: weights by our table, which parity tests."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from glassformer import ModelConfig, StackConfig, Transformer
from glassformer.store.families import FAMILIES

END = "<|endoftext|>"
TEXT = "The model reads a text. It reads  the text again:\n\tand a déjà vu, 12 times 😀."
SIZES = {"n_embd": 16, "n_head": 4, "n_layer": 2, "n_inner": 24, "n_positions": 32}


def library(size: int = 270) -> Tokenizer:
    """GPT-2's kind of tokenizer, learned from `TEXT`, with its one special token at the end."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        [TEXT], trainers.BpeTrainer(vocab_size=size, initial_alphabet=letters, show_progress=False)
    )
    made.add_special_tokens([END])
    return made


def theirs(vocab_size: int, **changes: Any) -> Transformer:
    """A model of ours with their ids, whose numbers all differ."""
    torch.manual_seed(0)
    settings = {"d_model": 16, "n_heads": 4, "n_layers": 2, "d_ff": 24, "max_len": 32, "dropout": 0.1}
    stack = StackConfig(positions="learned", activation="gelu_tanh", attention_dropout=0.1, **settings)
    made = Transformer(ModelConfig(vocab_size, decoder=stack, scale_embeddings=False, init="normal", **changes))
    with torch.no_grad():
        for each in made.parameters():
            each.add_(torch.randn_like(each) * 0.3)
    return made.eval()


def pretrained(
    folder: Path, change: Callable[[dict[str, Any]], object] = lambda parts: None, **own: Any
) -> Transformer:
    """Write the folder and return the model in it, with their ids.

    `change` may change the parts before they are written: "config", "weights" and "tokenizer".
    """
    cut = library()
    model, end = theirs(cut.get_vocab_size(), **own), cut.token_to_id(END)
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": cut.get_vocab_size(), **SIZES}
    parts = {
        "config": {**config, "bos_token_id": end, "eos_token_id": end},
        "weights": {
            name: each.detach().contiguous()
            for name, each in FAMILIES["gpt2"].export(dict(model.named_parameters()), 4).items()
        },
        "tokenizer": json.loads(cut.to_str()),
    }
    change(parts)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(parts["config"]))
    (folder / "tokenizer.json").write_text(json.dumps(parts["tokenizer"]))
    if parts["weights"]:
        save_file(parts["weights"], folder / "model.safetensors")
    return model
