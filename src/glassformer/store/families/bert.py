"""BERT (Devlin et al. 2019): an encoder with segments, norms after the sum, and a head for masked tokens."""

from __future__ import annotations

from glassformer.store.families.family import Family

BERT = Family(
    names=[
        (r"^encoder\.embedding\.", "bert.embeddings.word_embeddings."),
        (r"^encoder\.positions\.", "bert.embeddings.position_embeddings."),
        (r"^encoder\.segments\.", "bert.embeddings.token_type_embeddings."),
        (r"^encoder\.embedding_norm\.", "bert.embeddings.LayerNorm."),
        (r"^encoder\.blocks\.", "bert.encoder.layer."),
        (r"self_attention\.norm_sum", "attention.output.LayerNorm"),
        (r"feed_forward\.norm_sum", "output.LayerNorm"),
        (r"self_attention\.branch\.output", "attention.output.dense"),
        (r"self_attention\.branch", "attention.self"),
        (r"feed_forward\.branch\.up", "intermediate.dense"),
        (r"feed_forward\.branch\.down", "output.dense"),
        (r"^head\.transform\.dense\.", "cls.predictions.transform.dense."),
        (r"^head\.transform\.norm\.", "cls.predictions.transform.LayerNorm."),
        (r"^head\.bias$", "cls.predictions.bias"),
        (r"^head\.weight$", "cls.predictions.decoder.weight"),
    ],
)
