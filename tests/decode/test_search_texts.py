"""Texts of a beam: each is that of its ids up to a stop text, and with one hypothesis it is the greedy text."""

import random
from collections.abc import Sequence

import pytest

from decode.test_stream import VOCAB, tokenizer
from glassformer.base.errors import ConfigError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS, CharacterTokenizer, Tokenizer
from glassformer.data.tokens.vocabulary import BOS, EOS, UNK
from glassformer.decode.beam import Forced, beam_search
from glassformer.decode.constraints import Constraints
from glassformer.decode.filters import unwritten
from glassformer.decode.settings import BeamSettings
from glassformer.decode.stream import Piece, TextStream, goes_on, search_texts, stop_of, write
from glassformer.nn.transformer import Transformer
from train.examples import model, sequences

STOPS = ["cd", "f", "aa"]


def searched(network: Transformer, made: Tokenizer, search: BeamSettings, n: int = 1, **given: object) -> list[Piece]:
    rows: Sequence[Sequence[int]] = given.get("sources") or given["prompts"]
    usual: dict[str, object] = {
        "sources": None,
        "prompts": None,
        "max_new_tokens": [9] * len(rows),
        "stops": (),
        "filters": (),
        "never": (),
        "forced": None,
        "numbers": range(len(rows)),
        "prefix": False,
        "poll": lambda: None,
        "behind": [goes_on(made, each) for each in given.get("prompts") or [()] * len(rows)],
        "complete": None,
    }
    return [*search_texts(network, made, search=search, n=n, **{**usual, **given})]


@pytest.mark.parametrize("layout", ["encoder-decoder", "decoder"])
def test_one_beam_is_greedy(layout):
    """Text, number of tokens and reason of the end are those of `write`, also at stops that are split into tokens."""
    ends = set()
    for seed in range(4):
        network = model(layout, seed=seed, max_len=None).double()
        prompts = [[BOS, *each] for each in sequences([1, 3, 2, 5, 2, 2, 4, 1], seed)]
        given = {"prompts": prompts} | ({"sources": sequences([2] * 8, seed)} if layout == "encoder-decoder" else {})
        given |= {"max_new_tokens": [3, 9, 9, 12, 12, 12, 12, 12], "stops": STOPS}
        texts: dict[int, str] = {}
        last: dict[int, Piece] = {}
        for piece in write(network, VOCAB, **given):
            texts[piece.row] = texts.get(piece.row, "") + piece.text
            last[piece.row] = piece
        found = searched(network, VOCAB, BeamSettings(beam=1), **given)
        assert [each[:4] for each in found] == [(row, texts[row], *last[row][2:4]) for row in range(8)]
        ends |= {each.end for each in found}
    assert ends == {"eos", "stop", "max_new_tokens"}


@pytest.mark.parametrize("kind", sorted(TOKENIZERS))
def test_a_stop_is_where_the_text_has_it(kind):
    """Looking at the end of a text finds what reading the whole text finds, for all tokenizers; also broken bytes."""
    made, draw = tokenizer(kind), random.Random(4)
    whole = made.decode([draw.randrange(6, made.vocab_size) for _ in range(400)])
    stops = [whole[at : at + n] for at, n in ((3, 1), (50, 2), (90, 3), (160, 5))] + ["\ufffd", "<unk>", "ä\n"]
    stopped = 0
    for trial in range(300):
        behind, some = trial % 2 == 0, draw.sample(stops, 2)
        stop, stream, ids = (
            stop_of(made, some, [not behind, behind]),
            TextStream(made, some, behind=behind),
            list[int](),
        )
        pieces: list[str] = []
        for _ in range(30):
            ids.append(draw.choice([UNK, *range(6, made.vocab_size)]))
            pieces.append(stream.add(ids[-1]))
            assert stop(1, ids) == ("".join(pieces) if stream.stopped else None)
            if stream.stopped:
                stopped += 1
                break
    assert stopped > 20


def test_rows_have_their_best_texts_in_order():
    """Row i * n + k is text k of row i, with its figures; how many are asked for changes none of them."""
    network, prompts, search = model("decoder", seed=3).double(), [[BOS, 7], [BOS], [BOS, 9, 8]], BeamSettings(beam=4)
    never = unwritten()
    found = beam_search(network, prompts=prompts, max_new_tokens=9, beam=4, n_best=4, never=never)
    three = searched(network, VOCAB, search, 3, prompts=prompts, never=never)
    assert [each.row for each in three] == [*range(9)]
    for piece in three:
        best = found[piece.row // 3][piece.row % 3]
        assert piece.text == VOCAB.decode(best.ids)
        assert (piece.log_probability, piece.score) == (best.log_probability, best.score)
        assert (piece.tokens, piece.end) == (
            (len(best.ids) + 1, "eos") if best.complete else (len(best.ids), "max_new_tokens")
        )
    alone = searched(network, VOCAB, search, prompts=prompts, never=never)
    assert [each[1:] for each in alone] == [each[1:] for each in three[::3]]


def test_a_prompt_may_be_a_prefix():
    network = model("decoder", seed=3, n_layers=2).double()
    given = {"prompts": [[BOS, 7, 9, 8]], "never": unwritten()}
    scores = []
    for prefix in (True, False):
        (found,) = beam_search(network, **given, max_new_tokens=9, beam=3, prefix=prefix)
        (piece,) = searched(network, VOCAB, BeamSettings(beam=3), **given, prefix=prefix)
        assert piece.score == found[0].score
        scores.append(piece.score)
    assert scores[0] != scores[1]


def test_a_text_that_was_found_twice_is_written_once():
    """Tokens of which one is the begin of another spell a text in several ways; the best of them counts."""
    made = TOKENIZERS["bpe"].train(["aaaa aa aaaa " * 20], TokenizerConfig(kind="bpe", vocab_size=264))
    network = model("decoder", seed=1, vocab=made.vocab_size, max_len=None).double()
    never = [id for id in range(made.vocab_size) if {*made.decode([id])} != {"a"}]
    found = searched(network, made, BeamSettings(beam=8), 8, prompts=[[BOS]], never=never, max_new_tokens=[2])
    every = beam_search(network, prompts=[[BOS]], max_new_tokens=2, beam=8, n_best=8, never=never)[0]
    texts = [made.decode(each.ids) for each in every]
    assert [each.text for each in found] == [*dict.fromkeys(texts)]
    assert len(found) < len(texts)
    assert [each.row for each in found] == [*range(len(found))]


def test_what_is_forced_stands_in_the_text_that_is_left():
    network, made = model("decoder", seed=2, max_len=None).double(), VOCAB
    forced = Constraints(forced=["ab"]).held(made, ["bc"])
    for piece in searched(network, made, BeamSettings(beam=6), 3, prompts=[[BOS]], stops=["bc"], forced=forced):
        assert "ab" in piece.text
        assert "bc" not in piece.text
    with pytest.raises(ConfigError, match="none can contain a forced text with one in it; got 'abc' forced, with the"):
        Constraints(forced=["abc"]).held(made, ["x", "bc"])
    assert isinstance(forced, Forced)


def test_a_text_is_whole_where_its_grammar_says_so():
    network = model("decoder", seed=3, max_len=None)
    given = {"prompts": [[BOS]], "max_new_tokens": [3], "never": [EOS]}
    for complete in (True, False):
        (piece,) = searched(network, VOCAB, BeamSettings(beam=2), **given, complete=lambda _, is_so=complete: is_so)
        assert (piece.end, piece.complete) == ("max_new_tokens", complete)
    (piece,) = searched(
        network, VOCAB, BeamSettings(beam=2), **{**given, "stops": [*"abcdefg"]}, complete=lambda _: False
    )
    assert (piece.end, piece.complete) == ("stop", True)


def test_more_texts_than_the_beam_has_are_refused():
    with pytest.raises(ConfigError, match="n_best must be from 1 to beam=2; got 3"):
        searched(model("decoder"), CharacterTokenizer([*"abcdefg"]), BeamSettings(beam=2), 3, prompts=[[BOS]])
