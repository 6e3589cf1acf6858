"""Packed documents get what each gets alone; a prefix is read by all, and what follows it is causal."""

import pytest
import torch

from glassformer import ATTEND, Batch
from glassformer.base.errors import ConfigError, DataError
from glassformer.nn.step import within
from glassformer.train.loss import loss_of
from glassformer.train.objective import next_token, objective_for
from specimens import FORWARD_ONLY, ORDERS, PADDINGS, close, gradients, model, padded, production, tokens

LENGTHS = (3, 1, 5, 2)
DOCUMENTS = torch.tensor([4] * 3 + [0] + [7] * 5 + [1] * 2)[None]
BACKENDS = [{"attention": name} for name in ATTEND["softmax"]]
LINEAR = [{"attention_rule": "linear", "attention": "sums"}, {"attention_rule": "linear", "positions": "rotary"}]
RULES = [*({"attention_rule": name} for name in ATTEND), *LINEAR]
variants = pytest.mark.parametrize("variant", [*ORDERS, *BACKENDS, *RULES, {"window": 2}, {"convolution": 3}], ids=str)
wide = pytest.mark.parametrize("variant", [*ORDERS, *BACKENDS, *RULES, {"convolution": 3}], ids=str)


BACK = [{"window": 2, "sinks": 2}, {"block": 2}, {"block": 3, "summary": 2}, {"stride": 2}]
BOTH = [{"window": 2, "dilation": 2}, {"window": 2, "global_tokens": 2}]
PATTERNS = [*BACK, *BOTH]
SHAPED = [*(("decoder", each) for each in PATTERNS), *(("encoder", each) for each in BOTH)]


def learns(variant):
    return variant.get("attention") not in FORWARD_ONLY


@pytest.mark.parametrize("shape", ["decoder", "encoder"])
@variants
def test_packed_documents_get_what_each_gets_alone(shape, variant):
    """Logits, and what they teach: the gradient of a packed row is the sum of its documents'."""
    made, row = model(shape, **variant), tokens(sum(LENGTHS))
    with torch.set_grad_enabled(learns(variant)):
        together = made(row[None], documents=DOCUMENTS)
        apart = torch.cat([made(part[None]) for part in row.split(LENGTHS)], dim=1)
    close(together, apart)
    if learns(variant):
        for name, gradient in gradients(together, made).items():
            close(gradient, gradients(apart, made)[name], name)


@pytest.mark.parametrize("attention", ATTEND["softmax"])
@pytest.mark.parametrize(("shape", "pattern"), SHAPED, ids=str)
def test_a_pattern_counts_from_the_beginning_of_each_document(shape, pattern, attention):
    made, row = model(shape, attention=attention, **pattern), tokens(sum(LENGTHS))
    with torch.no_grad():
        apart = torch.cat([made(part[None]) for part in row.split(LENGTHS)], dim=1)
        close(made(row[None], documents=DOCUMENTS), apart)


@pytest.mark.parametrize("like", ["the token before", "the token behind"])
@pytest.mark.parametrize("where", PADDINGS)
@pytest.mark.parametrize("variant", [*ORDERS, *PATTERNS, {"convolution": 3}], ids=str)
def test_padding_around_packed_documents_changes_nothing(where, variant, like):
    """Whichever document's number it has."""
    made, row = model("decoder", **variant), tokens(sum(LENGTHS))
    ids, keep = padded([row, tokens(4)], 14, where)
    standing = keep.long().cumsum(1) - (1 if like == "the token before" else keep.long())
    documents = DOCUMENTS.expand(2, -1).gather(1, standing.clamp(0, DOCUMENTS.shape[1] - 1))
    with torch.no_grad():
        close(made(ids, keep=keep, documents=documents)[0, keep[0]], made(row[None], documents=DOCUMENTS)[0])


def test_positions_begin_anew_with_each_document():
    assert within(DOCUMENTS, torch.arange(11)).tolist() == [[0, 1, 2, 0, 0, 1, 2, 3, 4, 0, 1]]


@wide
def test_a_prefix_is_read_both_ways_and_what_follows_is_causal(variant):
    made, ids, prefix = model("decoder", **variant), tokens(2, 7), torch.tensor([4, 0])
    with torch.no_grad():
        logits = made(ids, prefix=prefix)
        close(logits[1], made(ids[1:])[0])  # no prefix at all
        for place in range(7):
            changed = ids.clone()
            changed[:, place] = (changed[:, place] + 1) % 11
            changed_logits = (made(changed, prefix=prefix) != logits).any(-1)
            if place < 4:
                assert changed_logits[0].all(), f"token {place} of the prefix is not read everywhere"
            else:
                assert not changed_logits[0, :place].any(), f"token {place} is read before it"
            assert not changed_logits[1, :place].any()


@pytest.mark.parametrize("variant", [each for each in ORDERS if each["positions"] != "t5"] + BACKENDS, ids=str)
def test_a_row_that_is_all_prefix_is_an_encoders(variant):
    """T5's causal buckets are left out: they know no distance to what comes later."""
    causal, free = model("decoder", **variant), model("encoder", **variant)
    free.load_state_dict({name.replace("decoder.", "encoder."): each for name, each in causal.state_dict().items()})
    ids = tokens(2, 6)
    with torch.no_grad():
        close(causal(ids, prefix=torch.tensor([6, 6])), free(ids))


@wide
@pytest.mark.parametrize("capacity", [None, 12])
def test_a_prefix_and_then_step_by_step_gives_the_logits_of_one_forward(variant, capacity):
    made = model("decoder", **variant)
    rows = [tokens(7), tokens(5)]
    ids, keep = padded([row[:4] for row in rows], 4, "right")
    prefix, cache = torch.tensor([4, 3]), made.new_cache(capacity)
    with torch.no_grad():
        whole = [made(row[None], prefix=prefix[i : i + 1])[0] for i, row in enumerate(rows)]
        first = made(ids, keep=keep, prefix=prefix, cache=cache)
        close(first, torch.stack([each[:4] for each in whole]))
        then = made(torch.stack([row[4] for row in rows])[:, None], cache=cache)
        close(then[:, 0], torch.stack([each[4] for each in whole]))


@pytest.mark.parametrize("where", PADDINGS)
@wide
def test_padding_changes_nothing_beside_a_prefix(where, variant):
    made, rows, prefix = model("decoder", **variant), [tokens(6), tokens(3)], torch.tensor([2, 3])
    ids, keep = padded(rows, 8, where)
    with torch.no_grad():
        together = made(ids, keep=keep, prefix=prefix)
        for i, row in enumerate(rows):
            close(together[i, keep[i]], made(row[None], prefix=prefix[i : i + 1])[0])


@pytest.mark.parametrize("reads", ["documents", "prefix"])
def test_what_cannot_be_had_is_refused(reads):
    given = {"documents": torch.zeros(1, 3, dtype=torch.long), "prefix": torch.tensor([1])}
    one = {reads: given[reads]}
    ids = torch.tensor([[7, 8, 9]])
    with pytest.raises(ConfigError, match="belong to a model of one stack"):
        model("encoder-decoder")(ids, source=ids, **one)
    decoder = model("decoder")
    cache = decoder.new_cache()
    decoder(ids, cache=cache)
    message = {
        "documents": "cannot be used with a cache",
        "prefix": r"with the first tokens of a cache; this one .* 3 tokens",
    }
    with pytest.raises(ConfigError, match=message[reads]):
        decoder(ids, cache=cache, **one)
    shorter = {name: each[..., :0] for name, each in one.items()}
    with production(), pytest.raises(DataError, match=f"{reads} says .*whole numbers of shape .*got torch.int64"):
        decoder(ids, **shorter)
    with production(), pytest.raises(DataError, match=f"{reads} says .*whole numbers of shape .*got torch.int64"):
        Batch(ids, **shorter)


def test_a_prefix_longer_than_its_row_is_refused():
    with pytest.raises(DataError, match=r"from 0 to 3, the length of a row; got 4 for row 1"):
        Batch(torch.tensor([[7, 8, 9]] * 2), prefix=torch.tensor([3, 4]))


def test_next_token_asks_within_documents_and_behind_the_prefix():
    ids = torch.arange(10, 16)[None]
    packed = next_token(Batch(ids, documents=torch.tensor([[0, 0, 1, 1, 1, 2]])))
    assert packed.ids[packed.keep].tolist() == [11, 13, 14]
    assert packed.documents.tolist() == [[0, 0, 1, 1, 1]]
    behind = next_token(Batch(ids, prefix=torch.tensor([3])))
    assert behind.ids[behind.keep].tolist() == [13, 14, 15]
    assert next_token(Batch(ids, prefix=torch.tensor([6]))).n_targets == 0


@pytest.mark.parametrize("variant", ORDERS, ids=str)
def test_the_loss_of_packed_documents_is_the_sum_of_theirs(variant):
    made, row = model("decoder", **variant), tokens(sum(LENGTHS))
    packed = Batch(row[None], documents=DOCUMENTS)
    apart = [Batch(part[None]) for part in row.split(LENGTHS) if len(part) > 1]
    total = sum(loss_of(made, each, objective_for(made)).objective for each in apart)
    close(loss_of(made, packed, objective_for(made)).objective, total)


def test_a_batch_carries_both_through_its_parts():
    ids, keep = torch.tensor([[7, 8, 9], [7, 8, 0]]), torch.tensor([[True] * 3, [True, True, False]])
    documents, prefix = torch.tensor([[0, 0, 1], [0, 1, 1]]), torch.tensor([2, 1])
    first, second = Batch(ids, keep, documents=documents, prefix=prefix).to("cpu").split(2)
    assert (first.documents.tolist(), first.prefix.tolist()) == ([[0, 0, 1]], [2])
    assert (second.documents.tolist(), second.prefix.tolist()) == ([[0, 1]], [1])
