"""What convolutions read of rows that come and go: the last tokens of each, in room that does not grow."""

import pytest
import torch

from glassformer.nn.slots import Recent
from specimens import close, model, padded, tokens

VARIANTS = [{}, {"window": 3}, {"attention_rule": "linear"}]
variants = pytest.mark.parametrize("variant", VARIANTS, ids=str)


def room(cache) -> int:
    """Numbers that what convolutions read takes."""
    return sum(each.numel() for layer in cache.convolved.layers for each in layer.buffers)


@variants
@pytest.mark.parametrize("taps", [2, 4])
def test_rows_go_on_with_their_last_tokens(taps, variant):
    """Rows of one token and of several, which come in two groups, and one of which goes."""
    made, texts = model("decoder", convolution=taps, max_len=None, **variant), [tokens(n) for n in (1, 6, 3, 2)]
    slots = made.new_slots(4)
    assert isinstance(slots.convolved, Recent)
    for group in ([0, 1], [3, 2]):
        ids, keep = padded([texts[row] for row in group], 7, "right")
        made(ids, keep=keep, cache=(prompts := made.new_cache(whole=True)))
        slots.take(prompts, [1, 0], [len(texts[row]) for row in reversed(group)], 20)
    rows, before = [1, 0, 2, 3], 0
    for step in range(9):
        if step == 4:
            rows = [rows[place] for place in slots.leave([1])]
        new = tokens(len(rows), 1)
        for row, token in zip(rows, new, strict=True):
            texts[row] = torch.cat([texts[row], token])
        found = made(new, cache=slots)[:, 0]
        for row, logits in zip(rows, found, strict=True):
            close(logits, made(texts[row][None])[0, -1])
        assert room(slots) == (before := before or room(slots))
