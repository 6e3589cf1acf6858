"""Scores on answers made by hand, the loss against torch's, BLEU and chrF against sacrebleu's own words."""

import pytest
import torch
import torch.nn.functional as F
from sacrebleu.metrics import BLEU, CHRF

from glassformer import Batch
from glassformer.base.errors import DataError
from glassformer.data.batch import collate
from glassformer.data.config import DataConfig, TokenizerConfig
from glassformer.data.dataset import Encoded, Sequences, Tokenizers, build_tokenizers, encode_pairs
from glassformer.data.pairs import Pair
from glassformer.decode.answer import Answer, nothing
from glassformer.decode.filters import unwritten
from glassformer.train import evaluate as evaluate
from glassformer.train.evaluate import Choice, Scoring, any_match, as_written, evaluate_model, mean_loss
from glassformer.train.objective import objective_for
from glassformer.train.settings import DecodeConfig, Settings
from train.examples import model, sequences

PAIRS = [
    Pair("a b", "The dog runs ."),
    Pair("a", "A cat sits on the mat ."),
    Pair("b a b", "The sun is up ."),
    Pair("b", "Up ."),
]
OUTPUTS = ["The dog runs .", "A cat on the mat", "", "Up . up"]
LENGTHS = [(3, 5), (1, 1), (6, 2), (2, 8), (2, 8), (4, 1), (9, 3)]


@pytest.fixture
def words() -> Tokenizers:
    return build_tokenizers(TokenizerConfig(), [*PAIRS, Pair("up", "up")])


@pytest.fixture
def answered(monkeypatch, words):
    """The model answers `OUTPUTS`, and is asked as the arguments say."""
    requests: list[dict] = []

    def answer(network, sources, **settings):
        requests.append(settings)
        return [Answer(words.target.encode(each), len(each) < 16) for each in OUTPUTS]

    monkeypatch.setattr(evaluate, "answer", answer)
    return requests


def scoring(network, words, layout="encoder-decoder", **decode) -> Scoring:
    recipe = Settings("scored", data=DataConfig(layout=layout), decode=DecodeConfig(**decode))
    return Scoring(network, recipe, words, objective_for(network))


def scored(words, *, layout="encoder-decoder", bleu=None, pairs=PAIRS, targets=None, **decode):
    network = model(layout, vocab=words.target.vocab_size)
    targets = targets or [pair.target for pair in pairs]
    return evaluate_model(scoring(network, words, layout, **decode), encode_pairs(pairs, words), targets, bleu)


def some_pairs(seed: int = 0) -> tuple[list[list[int]], list[list[int]], Encoded]:
    sources, targets = sequences((n for n, _ in LENGTHS), seed), sequences((n for _, n in LENGTHS), seed + 1)
    return sources, targets, Encoded(Sequences(sources), Sequences(targets))


def test_scores_of_answers_made_by_hand(words, answered):
    metrics, outputs, _ = scored(words, max_new_tokens=9, batch_size=3)
    assert outputs == OUTPUTS
    right = 4 + 2 + 0 + 2  # place by place; "on the mat" stands one place too early
    assert metrics["exact_match"] == 1 / 4
    assert metrics["token_accuracy"] == pytest.approx(right / (4 + 7 + 5 + 3), rel=1e-15)
    assert (metrics["n"], metrics["cut"]) == (4, 1)
    assert set(metrics) == {"exact_match", "token_accuracy", "loss", "n", "cut"}
    decode = DecodeConfig(max_new_tokens=9, batch_size=3)
    plain = {"sampling": decode, "search": decode, "numbers": [0, 1, 2, 3], "never": unwritten()}
    assert answered == [{"max_new_tokens": 9, "batch_size": 3, "lengths": None, "poll": nothing, **plain}]


def test_exact_match_by_length(words, answered):
    """By that of the source: two of one token, one of two (whose answer alone is right), one of three."""
    assert scored(words).details == {
        "by_length": {
            "1": {"exact_match": 0.0, "n": 2},
            "2": {"exact_match": 1.0, "n": 1},
            "3": {"exact_match": 0.0, "n": 1},
        }
    }


def test_any_of_several_targets_will_do():
    """Sources 1 and 2 have two targets; of 1 one was given, of 2 none, and that of 3 was."""
    sources, right = Sequences([[1], [2], [1], [2], [3], [3]]), [True, False, False, False, True, True]
    both = Encoded(sources, Sequences([[6]] * 6))
    assert any_match(both, ["a", "b", "c", "d", "e", "e"], right) == {"any_match": 2 / 3}
    assert any_match(both, ["a", "b", "a", "b", "e", "e"], right) == {}, "each source has one target"


@pytest.mark.parametrize("bleu", [Choice("13a", False, ""), None])
def test_sources_with_several_targets_are_scored_as_such(words, answered, bleu):
    """The first source, whose answer is right, stands a second time with another target."""
    pairs = [PAIRS[0], *PAIRS[1:3], Pair(PAIRS[0].source, PAIRS[3].target)]
    assert scored(words, pairs=pairs, bleu=bleu).metrics["any_match"] == 1 / 3
    assert "any_match" not in scored(words, bleu=bleu).metrics, "each source has one target"


def test_an_encoder_is_told_how_long_its_answers_are(words, answered):
    scored(words, layout="encoder")
    assert answered[0]["lengths"] == [len(pair.target.split()) for pair in PAIRS]


def test_bleu_and_chrf_are_sacrebleus(words, answered):
    metrics, *_ = scored(words, bleu=Choice("13a", False, ""))
    targets = [pair.target for pair in PAIRS]
    for name, metric in {"bleu": BLEU(), "bleu_lowercase": BLEU(lowercase=True), "chrf": CHRF()}.items():
        assert metrics[name] == metric.corpus_score(OUTPUTS, [targets]).score
        assert metrics[f"{name}_signature"] == str(metric.get_signature())
    assert 10 < metrics["bleu"] < 90
    for word in ("nrefs:1", "case:mixed", "tok:13a", "version:"):
        assert word in metrics["bleu_signature"]
    assert "case:lc" in metrics["bleu_lowercase_signature"]


@pytest.mark.parametrize("layout", ["encoder-decoder", "encoder"])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_loss_is_the_mean_over_target_tokens(layout, batch_size):
    """Of torch, one row at a time: in batches no pad is counted, whatever their size."""
    sources, targets, encoded = some_pairs()
    network = model(layout, dropout=0.5).eval()
    total = count = 0
    for source, target in zip(sources, targets, strict=True):
        if layout == "encoder":
            row = Batch.blanks([source], [target])
            logits, ids = network(row.tokens)[0, -len(target) :], torch.tensor(target)
        else:
            row = Batch.pairs([source], [target])
            logits, ids = network(row.tokens[:, :-1], source=row.source)[0], row.tokens[0, 1:]
        total += F.cross_entropy(logits, ids, reduction="sum").item()
        count += len(ids)
    network.train()
    loss, n = mean_loss(
        scoring(network, None, layout, batch_size=batch_size),
        encoded.source.lengths,
        lambda rows: collate(encoded, rows, layout),
    )
    assert (loss, n) == (pytest.approx(total / count, rel=1e-12), count)
    assert network.training


@pytest.mark.parametrize("layout", ["encoder-decoder", "encoder"])
def test_batches_change_no_score(layout):
    """With the model's own answers: as one batch, in threes, and each row alone."""
    _, targets, encoded = some_pairs()
    network = model(layout)
    words = build_tokenizers(TokenizerConfig(), [Pair("g h i j k l m", "g h i j k l m")])
    texts = [words.target.decode(ids) for ids in targets]
    whole, threes, ones = (
        evaluate_model(scoring(network, words, layout, batch_size=size, max_new_tokens=12), encoded, texts)
        for size in (99, 3, 1)
    )
    assert whole.outputs == threes.outputs == ones.outputs
    assert any(whole.outputs)
    loss = whole.metrics.pop("loss")
    assert loss == pytest.approx(threes.metrics.pop("loss"), rel=1e-12) == pytest.approx(ones.metrics.pop("loss"))
    assert whole.metrics == threes.metrics == ones.metrics


def test_evaluation_is_deterministic_and_leaves_random_numbers():
    _, targets, encoded = some_pairs()
    network = model(dropout=0.5)
    words = build_tokenizers(TokenizerConfig(), [Pair("g h i j k l m", "g h i j k l m")])
    before = torch.get_rng_state()
    one, two = (evaluate_model(scoring(network, words), encoded, [""] * len(targets)) for _ in range(2))
    assert one == two
    assert torch.equal(torch.get_rng_state(), before)


def test_nothing_to_score(words):
    with pytest.raises(DataError, match="at least one pair"):
        evaluate_model(scoring(model(), words), Encoded(Sequences([]), Sequences([])), [])


def test_a_target_is_compared_as_the_tokenizer_writes_it(words, answered):
    """Two spaces or one at the end are nothing that a word tokenizer could write."""
    metrics, *_ = scored(words, targets=["The  dog runs . ", "A cat", "\tSun", " Up . up "])
    assert metrics["exact_match"] == 2 / 4


def test_an_unknown_word_is_never_right(words):
    assert as_written("a <unk>  q", words.target) == "a <unk>  q"


def test_unknown_words_of_the_sources_are_counted(words, answered):
    metrics, *_ = scored(words, pairs=[Pair(f"{pair.source} q", pair.target) for pair in PAIRS])
    assert metrics["unknown"] == 4
