"""Decoders: GPT-2 and Llama."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from glassformer.data.batch import Batch
from glassformer.foundation.order import RotaryConfig
from glassformer.model.transformer import Transformer
from glassformer.proof.laws.hugging_face.theirs import blanked, carry_over, compared, in_float32, tiny
from glassformer.proof.laws.law import Law, Setting, apart
from glassformer.proof.laws.specimens import model, padded, tokens
from glassformer.train.objective import loss_of, objective_for

B, T = 3, 7
LLAMA3 = RotaryConfig(scaling="llama3", factor=4.0, original_max_len=12, slow_turns=1.0, fast_turns=2.0)


def gpt2(setting: Setting) -> Iterator[float]:
    """GPT2LMHeadModel, without padding and with it."""
    ours = model(setting, "decoder", own={"scale_embeddings": False}, positions="learned", activation="gelu_tanh")
    sizes = {"n_embd": 16, "n_head": 4, "n_layer": 2, "n_inner": 24, "n_positions": 24, "n_ctx": 24}
    theirs = tiny(setting, "GPT2", "LMHeadModel", **sizes)
    carry_over(ours, theirs, "gpt2")
    yield from language_model(setting, ours, theirs, "gpt2")


def llama(setting: Setting) -> Iterator[float]:
    """LlamaForCausalLM with grouped heads, without padding and with it, plain and with Llama 3's rotary scaling."""
    bands = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 2.0, "original_max_position_embeddings": 12}
    for scaling in (None, bands):
        kind = {"rope_type": "default"} if scaling is None else {"rope_type": "llama3"} | scaling
        rotary = RotaryConfig() if scaling is None else LLAMA3
        settings = {"norm": "rms", "feed_forward": "gated", "activation": "silu", "positions": "rotary", "bias": False}
        own = {"scale_embeddings": False, "tie_embeddings": False}
        ours = model(setting, "decoder", own=own, rotary=rotary, n_kv_heads=2, norm_eps=1e-6, **settings)
        sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "max_position_embeddings": 24}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6}
        turns = {"rope_theta": 10_000.0} | kind
        theirs = tiny(setting, "Llama", "ForCausalLM", rope_parameters=turns, **sizes, **heads)
        carry_over(ours, theirs, "llama")
        for error in language_model(setting, ours, theirs, "llama"):
            yield error * in_float32(setting)


def language_model(setting: Setting, ours: Transformer, theirs: nn.Module, family: str) -> Iterator[float]:
    """Logits, gradients and loss of a decoder, over whole rows and over rows of unequal length."""
    whole = (tokens(setting, B, T), None)
    for ids, keep in (whole, padded(setting, [tokens(setting, n) for n in (7, 2, 5)], T, "right")):
        real = keep if keep is not None else ids >= 0
        expected = theirs(input_ids=ids, attention_mask=real.long(), labels=blanked(ids, real))
        answer = ours(ids, keep=keep)
        yield compared(answer[real], ours, expected.logits[real], theirs, family)
        loss = loss_of(ours, Batch(ids, keep), objective_for(ours)).nll / real[:, 1:].sum()
        yield apart(loss, expected.loss) * in_float32(setting)


LAWS = [
    Law("Hugging Face", "GPT-2", gpt2),
    Law("Hugging Face", "Llama, grouped heads, Llama 3's rotary scaling", llama),
]
