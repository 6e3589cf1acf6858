"""Several models that write as one: by the definition, token by token, whatever the members are made of."""

import math
import random
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from decode.exhaustive import SMALL, exhaustive
from decode.naive import collected, written
from decode.test_beam import covered, read
from glassformer import Transformer, save, trace
from glassformer.base.errors import ConfigError
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.vocabulary import BOS, EOS, WordTokenizer
from glassformer.decode.answer import Answer, answer, fill_blanks, read_back
from glassformer.decode.beam import beam_search
from glassformer.decode.contrastive import contrastive
from glassformer.decode.filters import logit_bias
from glassformer.decode.generate import generate
from glassformer.decode.settings import BeamSettings
from glassformer.decode.speculative import speculative
from glassformer.fast.decoding import for_decoding
from glassformer.nn.cache import Cache
from glassformer.nn.ensemble import Ensemble
from glassformer.train import loss as module
from glassformer.train.loss import loss_of
from glassformer.train.objective import objective_for
from train.examples import batch, model, sequences

LAYOUTS = ("encoder-decoder", "encoder", "decoder")
UNLIKE = [
    {"positions": "sinusoidal", "norm_placement": "post"},
    {"positions": "rotary", "d_model": 12, "n_heads": 3, "n_layers": 2},
    {"positions": "alibi", "d_model": 16, "feed_forward": "experts", "n_experts": 3},
]
WRITES = {  # what holds other things than all keys
    "window": {"window": 3},
    "state": {"attention_rule": "linear", "positions": "learned"},
    "relative": {"positions": "t5", "n_kv_heads": 1},
}


def members(layout: str, unlike=UNLIKE, vocab: int = 13) -> list[Transformer]:
    return [model(layout, seed=seed, vocab=vocab, **each).eval() for seed, each in enumerate(unlike)]


class Mean(nn.Module):
    """The definition: each model alone, all tokens anew."""

    def __init__(self, models: list[Transformer]) -> None:
        super().__init__()
        self.models = models

    @torch.no_grad()
    def forward(self, tokens, **given):
        return (sum(each(tokens, **given).softmax(-1) for each in self.models) / len(self.models)).log()


def naive(network: Mean, source, prompt: list[int], limit: int, eos: int) -> list[int]:
    """The likeliest token, one after the other, of one row alone."""
    written: list[int] = []
    while len(written) < limit and written[-1:] != [eos]:
        inputs = {} if source is None else {"source": torch.tensor([[*source, EOS]])}
        written.append(int(network(torch.tensor([[*prompt, *written]]), **inputs)[0, -1].argmax()))
    return written


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_chances_are_the_mean(layout, count):
    """With padding on both sides; and those of one model say what the model says."""
    models, given = members(layout)[:count], batch(layout, [(3, 4), (5, 1)])
    inputs = {"keep": given.keep}
    if layout == "encoder-decoder":
        inputs |= {"source": given.source, "source_keep": given.source_keep}
    found, expected = Ensemble(models)(given.tokens, **inputs), Mean(models)(given.tokens, **inputs)
    real = slice(None) if given.keep is None else given.keep
    torch.testing.assert_close(found[real].log_softmax(-1), expected[real], rtol=0, atol=1e-12)
    if count == 1:  # also as numbers that a penalty multiplies
        torch.testing.assert_close(found[real], models[0](given.tokens, **inputs)[real], rtol=0, atol=1e-12)


@pytest.mark.parametrize("layout", ["encoder-decoder", "decoder"])
@pytest.mark.parametrize("kind", [*WRITES, "unlike"])
def test_it_writes_what_the_definition_writes(layout, kind):
    """Rows of unlike lengths that end one after the other; each member with its own kind of cache."""
    ended = 0
    for seed in range(3):
        draw = random.Random(seed)
        unlike = UNLIKE if kind == "unlike" else [WRITES[kind], UNLIKE[draw.randrange(2)]]
        models = members(layout, unlike)
        prompts = [[BOS, *each] for each in sequences([draw.randint(0, 4) for _ in range(5)], seed)]
        limits = [draw.randint(2, 8) for _ in prompts]
        sources = sequences([draw.randint(1, 6) for _ in prompts], seed + 9) if layout == "encoder-decoder" else None
        rows = list(zip(sources or [None] * 5, prompts, limits, strict=True))
        eos = random.Random(seed).choice([id for row in rows for id in naive(Mean(models), *row, eos=-1)])
        expected = [naive(Mean(models), *row, eos=eos) for row in rows]
        given = {"prompts": prompts, "sources": sources, "max_new_tokens": limits, "eos": eos}
        assert collected(Ensemble(models), 5, **given) == expected
        if kind != "state":  # whose tokens cannot be taken back
            assert written(speculative(Ensemble(models), lookup=2, guesses=3, **given), len(rows)) == expected
        ended += sum(len(ids) < limit for ids, limit in zip(expected, limits, strict=True))
    assert ended > 2


@pytest.mark.parametrize("layout", ["encoder-decoder", "decoder"])
def test_a_wide_beam_finds_the_best_of_all_texts(layout):
    for seed in range(3):
        unlike = [UNLIKE[0], UNLIKE[1]]
        models = [model(layout, seed=10 * seed + place, vocab=SMALL, **it).eval() for place, it in enumerate(unlike)]
        source = sequences([3], seed, SMALL) if layout == "encoder-decoder" else None
        prompts = None if source else [[BOS]]
        [found] = beam_search(
            Ensemble(models), BeamSettings(beam=400), sources=source, prompts=prompts, max_new_tokens=3, n_best=9
        )
        expected = exhaustive(Mean(models), source and source[0], 3, 0.6)[:9]
        assert [(each.ids, each.complete) for each in found] == [(each.ids, each.complete) for each in expected]
        assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-10)


def test_what_is_read_of_a_source_is_the_mean_of_what_they_read():
    """Coverage and links; of one layer the only one is asked, of two the first."""
    models, [source] = members("encoder-decoder")[:2], sequences([4], 5)
    [found] = beam_search(
        Ensemble(models), BeamSettings(beam=8, coverage_penalty=0.7), sources=[source], max_new_tokens=3, n_best=3
    )
    for each in found:
        ids = [*each.ids, *([EOS] if each.complete else [])]
        shares = sum(read(one, source, ids, 0) for one in models) / 2
        penalty = 0.7 * sum(math.log(min(float(p), 1.0)) for p in shares.sum(0))
        assert each.score == pytest.approx(each.log_probability / ((5 + len(ids)) / 6) ** 0.6 + penalty, abs=1e-10)
        assert each.score != pytest.approx(covered(models[0], source, each, 0.7, 0), abs=1e-6)
        [result] = read_back(Ensemble(models), [source], [Answer(each.ids, each.complete)])
        assert sum(result.log_probabilities) == pytest.approx(each.log_probability, abs=1e-10)
        rest = 1 - shares.sum(-1)
        expected = [(int(shares[j].argmax()), j) for j in range(len(each.ids)) if shares[j].max() > rest[j]]
        assert result.links == expected


def test_blanks_are_filled_by_the_mean():
    models, sources = members("encoder"), sequences([3, 5])
    found = fill_blanks(Ensemble(models), sources, [2, 4])
    for source, length, ids in zip(sources, (2, 4), found, strict=True):
        tokens = torch.tensor([[*source, 4, *[5] * length]])  # <sep>, <blank>
        assert ids == Mean(models)(tokens)[0, -length:].argmax(-1).tolist()


@torch.no_grad()
def test_contrastive_search_compares_the_vectors_of_all():
    """Su et al. 2022, equation 5, written out on the members' vectors side by side."""
    models = members("decoder")

    def vectors(ids: list[int]) -> torch.Tensor:
        each = torch.cat([one.hidden(torch.tensor([ids]))[0] for one in models], dim=-1)
        return each / each.norm(dim=-1, keepdim=True)

    differ = 0
    for prompt in sequences([4] * 6):
        ids = [BOS, *prompt]
        for _ in range(4):
            shares = Mean(models)(torch.tensor([ids]))[0, -1].exp()
            rated = []
            for share, token in zip(*shares.topk(3), strict=True):
                seen = vectors([*ids, int(token)])
                rated.append((0.4 * float(share) - 0.6 * float((seen[:-1] @ seen[-1]).max()), int(token)))
            ids.append(max(rated)[1])
        found = contrastive(Ensemble(models), alpha=0.6, k=3, prompts=[[BOS, *prompt]], max_new_tokens=4, eos=-1)
        assert [step.tokens[0] for step in found] == ids[5:]
        plain = generate(Ensemble(models), prompts=[[BOS, *prompt]], max_new_tokens=4, eos=-1)
        differ += [step.tokens[0] for step in plain] != ids[5:]
    assert differ


@pytest.mark.parametrize("layout", LAYOUTS)
def test_its_loss_is_that_of_the_mean(layout):
    """Its targets and padding are those of one model."""
    models, given = members(layout), batch(layout, [(3, 4), (5, 2)])
    joint = Ensemble(models)
    targets = objective_for(joint)(given)
    inputs = {"keep": targets.inputs_keep}
    if layout == "encoder-decoder":
        inputs |= {"source": given.source, "source_keep": given.source_keep}
    chosen = Mean(models)(targets.inputs, **inputs).gather(-1, targets.ids[..., None])[..., 0]
    expected = -(chosen if targets.keep is None else chosen[targets.keep]).sum()
    torch.testing.assert_close(loss_of(joint, given, objective_for(joint)).nll, expected, rtol=0, atol=1e-10)


def test_made_ready_each_member_is(monkeypatch):
    monkeypatch.setattr("glassformer.fast.decoding.has_cpp", lambda: False)  # which leaves other numbers wide
    wide = members("encoder-decoder")
    same = for_decoding(Ensemble(wide), "float32")
    assert all(one is other for one, other in zip(same.members, wide, strict=True))
    models = [each.float() for each in wide]
    joint = Ensemble(models)
    rounded = for_decoding(joint, "bfloat16", "int8")
    assert {each.rounds_cache for each in rounded.members} == {True}
    assert {p.dtype for p in rounded.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in joint.parameters()} == {torch.float32}
    apart = Ensemble([for_decoding(each, "bfloat16", "int8") for each in models])
    sources = sequences([3, 2])
    assert answer(rounded, sources, max_new_tokens=5) == answer(apart, sources, max_new_tokens=5)


def test_the_shortest_member_says_how_long():
    """Of source and of target apart."""
    apart = []
    for source, target in ((9, 30), (24, 7)):
        config = model().config
        encoder, decoder = replace(config.encoder, max_len=source), replace(config.decoder, max_len=target)
        apart.append(Transformer(replace(config, encoder=encoder, decoder=decoder)).double())
    joint = Ensemble([*apart, model(max_len=None, positions="rotary")])
    assert (joint.config.encoder.max_len, joint.config.decoder.max_len) == (9, 7)
    [found] = answer(joint, [[6, 7]], max_new_tokens=20, filters=[logit_bias({EOS: -math.inf})])
    assert (len(found.ids), found.complete, found.limit) == (7, False, "max_len")
    assert Ensemble([model(max_len=None, positions="rotary")] * 2).config.stack.max_len is None


def test_the_logits_of_a_large_vocabulary_never_exist_whole(monkeypatch):
    """Row by row the loss is the same."""
    models, given = [each.double() for each in members("decoder")], batch("decoder", [(3, 4), (5, 2)])
    joint = Ensemble(models)
    whole, rows = loss_of(joint, given, objective_for(joint)), []
    monkeypatch.setattr(module, "WHOLE", 3 * 13)
    joint.head.register_forward_hook(lambda _, x, logits: rows.append(len(logits)))
    parts = loss_of(joint, given, objective_for(joint))
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=0)
    assert max(rows) == 3
    assert len(rows) > 2


def test_where_one_member_cannot_take_back_none_does():
    members = [model("decoder", seed=seed, **more) for seed, more in ((1, {}), (2, {"window": 3}))]
    cache, ids = Ensemble(members).new_cache(), torch.tensor([[5, 6, 7, 8]])
    Ensemble(members)(ids, cache=cache)
    for take in (lambda: cache.truncate(2), lambda: cache.take_back(torch.tensor([2]))):
        with pytest.raises(ConfigError, match="cannot be removed"):
            take()
        assert [each.length for each in cache.members] == [4, 4]


# --- What cannot write together, and what an ensemble is not asked for, is refused by rule and remedy


@pytest.mark.parametrize(("given", "message"), [
    ([], "at least one member; got none"),
    ([None], r"must be Transformers; member 0 \(counted from 0\) is None"),
    (["decoder", "classify"], r"head=Lm\(\); member 1 \(counted from 0\) has head 'classify'"),
    (["encoder-decoder", "decoder"],
     r"the same stacks; member 1 \(counted from 0\) has decoder, the first encoder and decoder"),
    (["encoder", "causal encoder"], "the same causal; .* has True, the first False"),
    (["decoder", {"vocab": 14}], "the same vocab_size; .* has 14, the first 13"),
    (["decoder", {"n_segments": 2}], r"the same n_segments; .* has \[None, 2\], the first \[None, None\]"),
], ids=["none", "no model", "classifier", "stacks", "both ways", "vocabulary", "segments"])  # fmt: skip
def test_what_cannot_write_together_is_refused(given, message):
    made = {"causal encoder": partial(model, "encoder", causal=True)}
    models = [
        made.get(each, partial(model, each))() if isinstance(each, str) else each and model("decoder", **each)
        for each in given
    ]
    with pytest.raises(ConfigError, match=message):
        Ensemble(models)


def test_other_sources_are_refused():
    """Ids of a vocabulary of its own, or vectors."""
    own = [Transformer(replace(model().config, source_vocab_size=size, share_embeddings=False)) for size in (13, 14)]
    with pytest.raises(ConfigError, match=r"the same source vocab_size; .* has 14, the first 13"):
        Ensemble(own)
    reads = [replace(each.config, encoder=replace(each.config.encoder, n_features=3)) for each in own[:1]]
    with pytest.raises(ConfigError, match=r"the same n_features; .* has \[3, None\], the first \[None, None\]"):
        Ensemble([own[0], *map(Transformer, reads)])


def test_other_numbers_and_slots_are_refused():
    with pytest.raises(ConfigError, match=r"the same dtype; .* has torch\.float32, the first torch\.float64"):
        Ensemble([model("decoder"), model("decoder").float()])
    joint = Ensemble([model("decoder")] * 2)
    with pytest.raises(ConfigError, match=r"needs a single model; got an ensemble of 2"):
        joint.new_slots(4)
    with pytest.raises(ConfigError, match=r"member 1 \(counted from 0\) is an ensemble itself"):
        Ensemble([model("decoder"), joint])
    with pytest.raises(ConfigError, match=r"a cache for each member; .*Use new_cache\(\)"):
        joint.hidden(torch.tensor([[1]]), cache=Cache(1))
    with pytest.raises(ConfigError, match="belong to an encoder-decoder; this model has one stack"):
        joint.hidden(torch.tensor([[1]]), memory=torch.zeros(1, 1, 8))


def test_one_model_is_asked_for():
    """A checkpoint and a trace; and what can take no guesses back, whichever member it is."""
    joint, words = Ensemble([model("decoder")] * 2), WordTokenizer([f"w{place}" for place in range(7)])
    with pytest.raises(ConfigError, match=r"A checkpoint needs a single model; .* an ensemble of 2\. Save each member"):
        save("never", joint, Tokenizers(words, words))
    with pytest.raises(ConfigError, match=r"A trace needs a single model; got an ensemble of 2\. Trace each member"):
        trace(joint, words, "w1")
    late = Ensemble([model("decoder"), model("decoder", attention_rule="linear")])
    with pytest.raises(ConfigError, match="from which a rejected guess cannot be removed"):
        list(speculative(late, lookup=1, prompts=[[BOS]], max_new_tokens=3))
    assert {name.split(".")[0] for name in joint.state_dict()} == {"_members"}
