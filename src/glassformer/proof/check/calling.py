"""Calls a learner's functions and classes: arguments by their usual names where those are known, else in order."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from glassformer.proof.check.table import SignatureError, ask

SPELLINGS = {
    "d_model": "d_model dim embed_dim emb_dim embedding_dim n_embd embed_size d_embed d_embedding model_dim width size "
    "features normalized_shape hidden_size d",
    "n_heads": "n_heads num_heads heads h n_head nhead nheads head_count num_attention_heads",
    "d_ff": "d_ff dff ff_dim dim_feedforward hidden_dim d_hidden ffn_dim mlp_dim inner_dim n_inner d_inner "
    "intermediate_size ff_size feed_forward_dim d_feedforward",
    "n_layers": "n_layers num_layers layers N n_layer depth num_blocks n_blocks num_encoder_layers n_encoder_layers",
    "decoder_layers": "n_decoder_layers num_decoder_layers",
    "max_len": "max_len max_length block_size context_length max_seq_len max_seq_length seq_len seq_length n_positions "
    "num_positions max_positions max_position_embeddings",
    "vocab_size": "vocab_size n_vocab vocabulary_size vocab num_embeddings ntoken ntokens n_tokens num_tokens d_vocab "
    "num_vocab",
    "source_vocab": "source_vocab src_vocab src_vocab_size source_vocab_size n_source vocab_src",
    "target_vocab": "target_vocab tgt_vocab tgt_vocab_size target_vocab_size trg_vocab n_target vocab_tgt "
    "trg_vocab_size",
    "dropout": "dropout p drop dropout_p drop_rate p_drop dropout_rate prob resid_pdrop attn_pdrop embd_pdrop",
    "length": "length n seq_len seq_length max_len max_length n_positions num_positions T positions",
    "mask": "mask attn_mask attention_mask src_mask source_mask keep allowed may_read readable",
    "target_mask": "target_mask tgt_mask trg_mask self_mask self_attn_mask self_attention_mask causal_mask "
    "look_ahead_mask decoder_mask x_mask",
    "memory_mask": "memory_mask src_mask source_mask memory_keep source_keep src_keep cross_mask cross_attn_mask "
    "encoder_mask enc_mask padding_mask src_padding_mask source_padding_mask memory_key_padding_mask "
    "encoder_attention_mask",
    "model": "model network net module m",
    "inputs": "inputs input x ids input_ids tokens source src xb",
    "targets": "targets target y labels label yb tgt",
    "optimizer": "optimizer optimiser opt optim",
    "clip": "clip max_norm clip_norm grad_clip max_grad_norm clip_value",
    "batches": "batches loader dataloader data_loader data dataset",
    "n_outputs": "n_outputs num_classes n_classes output_dim out_dim n_out n_labels num_labels",
}  # fmt: skip
"""From an argument's role to the names under which code of the field has it."""
CONFIGS = ("config", "cfg", "args", "conf", "hparams", "params")
"""Names of a single argument that holds all sizes as attributes, as in nanoGPT."""
NO_MASK = ("cache", "past", "dropout", "positions", "need_weights", "key_padding_mask", "is_causal", "scale", "bias")


def required(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments without a default."""
    found = inspect.signature(function).parameters.values()
    return [each.name for each in found if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]


def accepts(function: Callable[..., Any], *names: str) -> bool:
    """Whether `function` can be called with this many positional arguments."""
    try:
        inspect.signature(function).bind(*names)
    except TypeError:
        return False
    return True


def means(name: str, role: str) -> bool:
    """Whether an argument of this name usually has this role."""
    return name == role or name in SPELLINGS.get(role, "").split()


def arguments(
    function: Callable[..., Any], given: Mapping[str, Any], extra: Mapping[str, Any] | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and named arguments for a call.

    `given` maps roles in the documented order to values; `extra` are roles that the function may have too. If the names
    of all required arguments are known, every role is passed by name, else those of `given` in order. A single
    argument called `config` gets all sizes as attributes. Errors: `SignatureError`.
    """
    values = {**given, **(extra or {})}
    names = [*inspect.signature(function).parameters]
    needed = required(function)
    if len(needed) == 1 and needed[0] in CONFIGS:
        sizes = {name: value for role, value in values.items() for name in (role, *SPELLINGS.get(role, "").split())}
        return (SimpleNamespace(**{"dropout": 0.0, "bias": True, **sizes}),), {}
    found: dict[str, Any] = {}
    taken: set[str] = set()
    for name in names:
        role = next((each for each in values if each not in taken and means(name, each)), None)
        if role is not None:
            taken.add(role)
            found[name] = values[role]
    if {*needed} <= {*found} and {*given} <= taken:
        return (), found
    if accepts(function, *given):
        return tuple(given.values()), {}
    raise SignatureError(str(inspect.signature(function)))


def called(function: Callable[..., Any], given: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> Any:
    """Call a function with arguments by role. Errors: `SignatureError`, `CrashError`."""
    inputs, named = arguments(function, given, extra)
    return ask(lambda: function(*inputs, **named))


def built(kind: Any, given: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> nn.Module:
    """Return an instance of a learner's class, as its constructor leaves it. Errors: as `called`."""
    module = called(kind, given, extra)
    if not isinstance(module, nn.Module):
        raise SignatureError("a class that is not an nn.Module")
    return module


def built_either(
    kind: Any, given: Mapping[str, Any], more: Mapping[str, Any], extra: Mapping[str, Any] | None = None
) -> nn.Module:
    """Return an instance of a class that may take `more` by name, or must be given it after the others."""
    try:
        return built(kind, given, {**more, **(extra or {})})
    except SignatureError:
        return built(kind, {**given, **more}, extra)


def constructed(kind: Any, given: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> nn.Module:
    """Return an instance in float64 and evaluation mode, with random parameters. Errors: as `called`."""
    return scramble(built(kind, given, extra))


def scramble(module: nn.Module) -> nn.Module:
    """Return the module in float64 and evaluation mode with random parameters, as zeros and ones hide mistakes."""
    draw = torch.Generator().manual_seed(2)
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype) * 0.4)
    return module


def mask_argument(function: Callable[..., Any], inputs: int) -> str | None:
    """Return the name of the mask among the arguments after the first `inputs`, if there is one."""
    after = [*inspect.signature(function).parameters.values()][inputs:]
    named = [each.name for each in after if means(each.name, "mask")]
    if named:
        return named[0]
    free = [each.name for each in after if each.kind is each.POSITIONAL_OR_KEYWORD]
    return free[0] if free and free[0] not in NO_MASK else None


def forward_of(module: nn.Module, *inputs: str) -> Callable[..., Any]:
    """Return the module's forward. Errors: `SignatureError` if it cannot take these inputs by position."""
    if not accepts(module.forward, *inputs):
        raise SignatureError(f"forward{inspect.signature(module.forward)}")
    return module.forward
