"""Every kind of code that can be checked, by the name used in reports."""

from __future__ import annotations

from glassformer.proof.check.attention import ATTENTION
from glassformer.proof.check.block import BLOCK
from glassformer.proof.check.decode import GREEDY, TRANSLATE
from glassformer.proof.check.decoder_block import DECODER
from glassformer.proof.check.labels import ACCURACY, LOSS, POOL, SHIFT, SHIFT_RIGHT
from glassformer.proof.check.language_model import LANGUAGE_MODEL
from glassformer.proof.check.mask_makers import CAUSAL, DOCUMENT_MASK, PADDING, POSITION_IDS
from glassformer.proof.check.multi_head import MULTI_HEAD, SELF_ATTENTION
from glassformer.proof.check.positions import ENCODING, ROTARY, TABLE
from glassformer.proof.check.small_parts import (
    EMBEDDING,
    FEED_FORWARD,
    LAYER_NORM,
    MERGE_HEADS,
    SOFTMAX_SUBJECT,
    SPLIT_HEADS,
)
from glassformer.proof.check.stack import STACK
from glassformer.proof.check.table import Subject
from glassformer.proof.check.tasks import EXACT_MATCH, MAKE_EXAMPLE, PAD_BATCH

SUBJECTS: dict[str, Subject] = {
    "softmax": SOFTMAX_SUBJECT,
    "split_heads": SPLIT_HEADS,
    "merge_heads": MERGE_HEADS,
    "FeedForward": FEED_FORWARD,
    "LayerNorm": LAYER_NORM,
    "TokenEmbedding": EMBEDDING,
    "attention": ATTENTION,
    "SelfAttention": SELF_ATTENTION,
    "MultiHeadAttention": MULTI_HEAD,
    "positional_encoding": TABLE,
    "PositionalEncoding": ENCODING,
    "apply_rotary": ROTARY,
    "TransformerBlock": BLOCK,
    "DecoderBlock": DECODER,
    "TransformerEncoder": STACK,
    "LanguageModel": LANGUAGE_MODEL,
    "causal_mask": CAUSAL,
    "padding_mask": PADDING,
    "document_mask": DOCUMENT_MASK,
    "position_ids": POSITION_IDS,
    "shift_labels": SHIFT,
    "shift_right": SHIFT_RIGHT,
    "cross_entropy": LOSS,
    "accuracy": ACCURACY,
    "mean_pool": POOL,
    "exact_match": EXACT_MATCH,
    "make_example": MAKE_EXAMPLE,
    "pad_batch": PAD_BATCH,
    "greedy_decode": GREEDY,
    "greedy_translate": TRANSLATE,
}
"""To add a kind, add a line here and one in signatures.py; to add a property, extend its `Subject`."""
