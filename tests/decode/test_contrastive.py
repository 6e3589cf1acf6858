"""Contrastive search beside its equation written out, without cache and one row at a time."""

import pytest
import torch

from decode.naive import written
from glassformer import Transformer
from glassformer.base.errors import ConfigError, DataError
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.decode.answer import answer
from glassformer.decode.contrastive import contrastive
from glassformer.decode.filters import no_repeat_ngram
from glassformer.decode.generate import generate
from glassformer.decode.rows import begin_of
from glassformer.decode.settings import Sampling
from train.examples import model, sequences


@torch.no_grad()
def by_hand(
    network: Transformer, source, prompt, limit: int, alpha: float, k: int, context: int = 99, drop: int = 1
) -> list[int]:
    """Su et al. 2022, equation 5, for one row; the tokens before the last `context` are not read."""
    inputs = {} if source is None else {"source": torch.tensor([[*source, EOS]])}
    ids: list[int] = list(prompt)
    while len(ids) < len(prompt) + limit and (len(ids) == len(prompt) or ids[-1] != EOS):
        ids_read = ids[begin_of(len(ids), context - 1, drop) :]
        hidden = network.hidden(torch.tensor([ids_read]), **inputs)[0]
        chances = network.head(hidden[-1]).softmax(-1)
        worth = {}
        for v in chances.topk(k).indices.tolist():
            ahead = network.hidden(torch.tensor([[*ids_read, v]]), **inputs)[0, -1]
            similarity = max(float(torch.cosine_similarity(ahead, each, dim=0)) for each in hidden)
            worth[v] = (1 - alpha) * float(chances[v]) - alpha * similarity
        ids.append(max(worth, key=worth.__getitem__))
    return ids[len(prompt) :]


LAYOUTS = [("encoder-decoder", "learned"), ("decoder", "rotary"), ("decoder", "alibi")]


@pytest.mark.parametrize(("layout", "positions"), LAYOUTS)
def test_equals_its_equation(layout, positions):
    """Rows of unequal prompts, sources and limits in one batch; each as alone."""
    network = model(layout, seed=3, positions=positions, n_layers=2).eval()
    network.head.register_forward_hook(lambda module, inputs, output: output - 3.0 * (torch.arange(13) == EOS))
    limits = [7, 3, 9, 1]
    prompts = [[BOS, *each] for each in sequences([0, 4, 2, 1], 5)]
    sources = sequences([2, 5, 1, 3], 6) if layout == "encoder-decoder" else None
    found = written(
        contrastive(network, alpha=0.6, k=3, sources=sources, prompts=prompts, max_new_tokens=limits), len(limits)
    )
    for row, (prompt, limit) in enumerate(zip(prompts, limits, strict=True)):
        assert found[row] == by_hand(network, None if sources is None else sources[row], prompt, limit, 0.6, 3)
    assert found != written(generate(network, sources=sources, prompts=prompts, max_new_tokens=limits), len(limits))


def test_without_a_penalty_it_is_greedy():
    network, prompts = model("decoder", seed=4), [[BOS, *each] for each in sequences([1, 3])]
    greedy = written(generate(network, prompts=prompts, max_new_tokens=8), 2)
    assert written(contrastive(network, alpha=0.0, prompts=prompts, max_new_tokens=8), 2) == greedy


@pytest.mark.parametrize(("context", "drop"), [(4, 1), (6, 1), (6, 2), (4, 4)])
def test_a_text_longer_than_its_context(context, drop):
    """Also where as many tokens leave as are read at all: one less, as that is looked ahead at."""
    network = model("decoder", seed=5, positions="rotary", max_len=8).eval()
    network.head.register_forward_hook(lambda module, inputs, output: output - 99.0 * (torch.arange(13) == EOS))
    prompts = [[BOS, *each] for each in sequences([5, 2])]
    steps = contrastive(network, alpha=0.5, k=3, prompts=prompts, max_new_tokens=10, max_context=context, drop=drop)
    found = written(steps, 2)
    leave = min(drop, context - 1)
    assert found == [by_hand(network, None, prompt, 10, 0.5, 3, context, leave) for prompt in prompts]


def test_the_last_token_that_the_model_takes_is_the_likeliest():
    network, sources = model(seed=6, max_len=6), sequences([2, 3])
    network.head.register_forward_hook(lambda module, inputs, output: output - 99.0 * (torch.arange(13) == EOS))
    found = answer(network, sources, max_new_tokens=99, sampling=Sampling(temperature=0.0, contrastive_alpha=0.6))
    assert [len(each.ids) for each in found] == [6, 6]
    for source, each in zip(sources, found, strict=True):
        assert each.ids[:5] == by_hand(network, source, [BOS], 5, 0.6, 4)
        last = network(torch.tensor([[BOS, *each.ids[:5]]]), source=torch.tensor([[*source, EOS]]))[0, -1]
        assert each.ids[5] == int(last.argmax())


@pytest.mark.parametrize(("limits", "context"), [([9, 3], None), ([10, 1], None), ([9, 2], 12)])
@pytest.mark.parametrize("settings", [{}, {"positions": "rotary", "window": 3}, {"attention_rule": "linear"}])
def test_a_row_is_full_by_its_own_tokens(limits, context, settings):
    """Not by the padding that stands before it, beside a longer one; and the longer one ends as alone."""
    network = model("decoder", seed=8, max_len=12, **settings).eval()
    network.head.register_forward_hook(lambda module, inputs, output: output - 99.0 * (torch.arange(13) == EOS))
    prompts = [[BOS, *each] for each in sequences([2, 9])]
    options = {"alpha": 0.7, "k": 4, "max_context": context}
    found = written(contrastive(network, **options, prompts=prompts, max_new_tokens=limits), 2)
    for ids, prompt, limit in zip(found, prompts, limits, strict=True):
        assert [ids] == written(contrastive(network, **options, prompts=[prompt], max_new_tokens=limit), 1)
    assert found[0][:9] == by_hand(network, None, prompts[0], 9, 0.7, 4)


def test_beyond_what_the_model_takes_it_is_refused():
    """As `generate` refuses it, after the last token that it could write."""
    network = model("decoder", seed=8, max_len=6)
    network.head.register_forward_hook(lambda module, inputs, output: output - 99.0 * (torch.arange(13) == EOS))
    steps = contrastive(network, alpha=0.6, prompts=[[BOS, 7, 8], [BOS]], max_new_tokens=9)
    assert [next(steps).rows for _ in range(4)] == [[0, 1]] * 4
    with pytest.raises(DataError, match="at most max_len=6 tokens; got one of 7"):
        next(steps)


def test_where_nothing_may_come_or_nothing_is_a_number_it_is_refused():
    network = model("decoder", seed=3)
    once = contrastive(network, alpha=0.6, filters=[no_repeat_ngram(1)], prompts=[[BOS]], max_new_tokens=20, eos=-1)
    with pytest.raises(ConfigError, match=r"after 12 tokens of row 0 .* all are forbidden"):
        list(once)
    network.head.weight.data.fill_(float("nan"))
    with pytest.raises(DataError, match=r"not numbers \(NaN\) in row 0"):
        next(contrastive(network, alpha=0.6, prompts=[[BOS]], max_new_tokens=2))


@pytest.mark.parametrize(("made", "message"), [
    (lambda: Sampling(contrastive_alpha=0.5),
     "Contrastive search does not sample; got contrastive_alpha=0.5 and temp"),
    (lambda: Sampling(temperature=0.0, contrastive_alpha=1.5), "contrastive_alpha must be at least 0 and at most 1"),
    (lambda: Sampling(temperature=0.0, contrastive_alpha=float("nan")), "contrastive_alpha must be at least 0"),
    (lambda: Sampling(temperature=0.0, contrastive_alpha=0.5, top_p=0.9), "top_p selects the tokens to sample from"),
    (lambda: next(contrastive(model("decoder"), alpha=2, prompts=[[1]], max_new_tokens=1)), "from 0 to 1; got 2"),
    (lambda: next(contrastive(model("decoder"), alpha=1, k=0, prompts=[[1]], max_new_tokens=1)), "k=4"),
    (lambda: next(contrastive(model("decoder"), alpha=1, prompts=[[1]], max_new_tokens=1, max_context=1)),
     "max_context must be at least 2"),
    (lambda: next( contrastive(model("decoder"), alpha=1, prompts=[[1]], max_new_tokens=1, max_context=4, drop=5) ),
     "drop must be from 1 to max_context=4; got 5"),
], ids=["drawn", "above 1", "nan", "a share", "alpha", "no tokens", "no room", "more than all"])  # fmt: skip
def test_mistakes(made, message):
    with pytest.raises(ConfigError, match=message):
        made()
