"""Every kind of code that can be checked, by the name under which it is reported."""

from __future__ import annotations

from glassformer.proof.check.attention import ATTENTION
from glassformer.proof.check.block import BLOCK
from glassformer.proof.check.decode import GREEDY
from glassformer.proof.check.labels import ACCURACY, LOSS, POOL
from glassformer.proof.check.mask_makers import CAUSAL, PADDING
from glassformer.proof.check.multi_head import MULTI_HEAD
from glassformer.proof.check.positions import ENCODING, TABLE
from glassformer.proof.check.shift import SHIFT
from glassformer.proof.check.stack import STACK
from glassformer.proof.check.table import Subject

SUBJECTS: dict[str, Subject] = {
    "attention": ATTENTION,
    "MultiHeadAttention": MULTI_HEAD,
    "positional_encoding": TABLE,
    "PositionalEncoding": ENCODING,
    "TransformerBlock": BLOCK,
    "TransformerEncoder": STACK,
    "causal_mask": CAUSAL,
    "padding_mask": PADDING,
    "shift_labels": SHIFT,
    "cross_entropy": LOSS,
    "accuracy": ACCURACY,
    "mean_pool": POOL,
    "greedy_decode": GREEDY,
}
"""A new kind is a line here and one in check_signatures.py; a new property is an entry of its `Subject`."""
