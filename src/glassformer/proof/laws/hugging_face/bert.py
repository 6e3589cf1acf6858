"""Laws of an encoder: BERT, with segments and the head for masked tokens."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from glassformer.data.batch import Batch
from glassformer.nn.outputs import Lm
from glassformer.proof.laws.hugging_face.theirs import blanked, carry_over, compared, tiny
from glassformer.proof.laws.law import Law, Setting, apart
from glassformer.proof.laws.specimens import VOCAB, model, padded, tokens
from glassformer.train.loss import loss_of
from glassformer.train.objective import objective_for

B, T = 3, 7


def bert(setting: Setting) -> Iterator[float]:
    """BertForMaskedLM with and without padding: logits and gradients over two segments, loss over one."""
    own = {"scale_embeddings": False, "head_bias": True, "head": Lm(transform="gelu")}
    settings = {"norm_placement": "post", "embedding_norm": True, "n_segments": 2, "norm_eps": 1e-12}
    ours = model(setting, "encoder", own=own, positions="learned", activation="gelu", **settings)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    theirs = tiny(setting, "Bert", "ForMaskedLM", max_position_embeddings=24, **sizes)
    carry_over(ours, theirs, "bert")
    whole = (tokens(setting, B, T), None)
    for ids, keep in (whole, padded(setting, [tokens(setting, n) for n in (7, 2, 5)], T, "right")):
        real = keep if keep is not None else ids >= 0
        segments = (torch.arange(T, device=setting.device) >= 3).long().expand(B, T)
        expected = theirs(input_ids=ids, attention_mask=real.long(), token_type_ids=segments).logits
        answer = ours(ids, keep=keep, segments=segments)
        yield compared(answer[real], ours, expected[real], theirs, "bert")
        labels, asked = torch.randint(VOCAB, (B, T)).to(setting.device), real & (ids % 2 == 0)
        asked[:, 0] = True
        batch = Batch(ids, keep, labels=labels, label_keep=asked)
        theirs_says = theirs(input_ids=ids, attention_mask=real.long(), labels=blanked(labels, asked)).loss
        yield apart(loss_of(ours, batch, objective_for(ours)).nll / asked.sum(), theirs_says)


LAWS = [Law("Hugging Face", "BERT, segments, the head for masked tokens", bert)]
