"""Tiny random models of Hugging Face's transformers and ours agree in logits, losses and every gradient."""

from __future__ import annotations

from glassformer.proof.laws.hugging_face import bert, decoders, encoder_decoders
from glassformer.proof.laws.law import Law

__all__ = ["LAWS"]

LAWS: list[Law] = [*decoders.LAWS, *bert.LAWS, *encoder_decoders.LAWS]
