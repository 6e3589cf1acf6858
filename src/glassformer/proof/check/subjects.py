"""Every kind of code that can be checked, by the name used in reports."""

from __future__ import annotations

from glassformer.proof.check.attention import ATTENTION
from glassformer.proof.check.block import BLOCK
from glassformer.proof.check.decode import GREEDY, TRANSLATE
from glassformer.proof.check.decoder_block import DECODER
from glassformer.proof.check.encoder_decoder import ENCODER_DECODER
from glassformer.proof.check.further import (
    ALIBI,
    BLOCKWISE_ATTENTION,
    INTERLEAVE,
    LINEAR_ATTENTION,
    RETURNS_TO_GO,
    WINDOW_MASK,
)
from glassformer.proof.check.further_modules import CLASSIFIER, RECOMPUTED, STATE_ENCODER, TRAIN_STEP_BF16
from glassformer.proof.check.labels import ACCURACY, LOSS, POOL, SHIFT, SHIFT_RIGHT
from glassformer.proof.check.language_model import LANGUAGE_MODEL
from glassformer.proof.check.looking import ABLATED, ATTENTION_MAPS, HEAD_SCORE, REVERSING_HEAD
from glassformer.proof.check.mask_makers import CAUSAL, DOCUMENT_MASK, PADDING, POSITION_IDS
from glassformer.proof.check.measures import INFLUENCE, ORDER_GAP
from glassformer.proof.check.multi_head import MULTI_HEAD, SELF_ATTENTION
from glassformer.proof.check.parameters import INIT_WEIGHTS, PREDICT_PARAMETERS
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
from glassformer.proof.check.token_encoder import TOKEN_ENCODER
from glassformer.proof.check.training import EVALUATE, TRAIN_STEP

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
    "TokenEncoder": TOKEN_ENCODER,
    "Transformer": ENCODER_DECODER,
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
    "train_step": TRAIN_STEP,
    "evaluate": EVALUATE,
    "init_weights": INIT_WEIGHTS,
    "predict_parameters": PREDICT_PARAMETERS,
    "order_gap": ORDER_GAP,
    "influence": INFLUENCE,
    "reversing_head": REVERSING_HEAD,
    "attention_maps": ATTENTION_MAPS,
    "head_score": HEAD_SCORE,
    "alibi_bias": ALIBI,
    "window_mask": WINDOW_MASK,
    "linear_attention": LINEAR_ATTENTION,
    "blockwise_attention": BLOCKWISE_ATTENTION,
    "returns_to_go": RETURNS_TO_GO,
    "interleave": INTERLEAVE,
    "recomputed": RECOMPUTED,
    "train_step_bf16": TRAIN_STEP_BF16,
    "Classifier": CLASSIFIER,
    "StateEncoder": STATE_ENCODER,
    "ablated": ABLATED,
    "greedy_decode": GREEDY,
    "greedy_translate": TRANSLATE,
}
"""To add a kind, add a line here and one in signatures.py; to add a property, extend its `Subject`."""
