"""What is told piece by piece is the text as a whole, in whole characters, up to the stop text that is whole first."""

import random
from collections.abc import Sequence
from functools import partial

import pytest
import torch

from glassformer.base.errors import ConfigError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS, ByteTokenizer, CharacterTokenizer, Tokenizer, WordTokenizer
from glassformer.data.tokens.vocabulary import BOS, EOS, SPECIALS, UNK
from glassformer.decode.beam import Forced, beam_search
from glassformer.decode.choose import chooser
from glassformer.decode.constraints import Constraints
from glassformer.decode.filters import unwritten
from glassformer.decode.generate import generate
from glassformer.decode.settings import BeamSettings, Sampling
from glassformer.decode.stream import Piece, TextStream, goes_on, search_texts, stop_of, write
from glassformer.nn.transformer import Transformer
from train.examples import model, sequences

TEXT = "Grüße, 世界! 👩‍🚀 naïve ﷽ \t two  spaces\nהשלום ab ab abc"


LEAST = {"wordpiece": 600}
"""Entries that a kind begins with, and some more."""


def tokenizer(kind: str) -> Tokenizer:
    return TOKENIZERS[kind].train([TEXT] * 3, TokenizerConfig(kind=kind, vocab_size=LEAST.get(kind, 300)))


def pieces_of(stream: TextStream, ids: list[int]) -> list[str]:
    pieces = [stream.add(id) for id in ids]
    return [*pieces, stream.end()]


@pytest.mark.parametrize("kind", sorted(TOKENIZERS))
def test_the_pieces_are_the_whole_text(kind):
    made, draw = tokenizer(kind), random.Random(1)
    real = made.encode(TEXT)
    rows = [real, *([draw.randrange(len(SPECIALS), made.vocab_size) for _ in range(30)] for _ in range(300))]
    rows += [[draw.choice([BOS, UNK, EOS, *real]) for _ in range(9)] for _ in range(50)]
    for ids in rows:
        assert "".join(pieces_of(TextStream(made), ids)) == made.decode(ids)


@pytest.mark.parametrize("kind", sorted(TOKENIZERS))
def test_each_id_is_decoded_once(kind, monkeypatch):
    """So a text takes time by its length, not by the square of it."""
    made, seen = tokenizer(kind), []
    real = made.encode(TEXT)
    whole, adds = made.decode(real), made.adds

    def counted(id, **more):
        seen.append(id)
        return adds(id, **more)

    monkeypatch.setattr(made, "adds", counted)
    monkeypatch.setattr(made, "decode", None)
    assert "".join(pieces_of(TextStream(made), real)) == whole
    assert seen == real


@pytest.mark.parametrize("kind", sorted(TOKENIZERS))
def test_its_length_is_that_of_the_ids_so_far(kind):
    made, draw = tokenizer(kind), random.Random(2)
    for _ in range(50):
        stream, ids = TextStream(made, ["ab"]), [draw.randrange(made.vocab_size) for _ in range(20)]
        for n, id in enumerate(ids):
            assert len(stream) == len(made.decode(ids[:n]))
            stream.add(id)
        assert stream.tokens == len(ids)


@pytest.mark.parametrize("kind", ["byte", "bpe"])
def test_half_a_character_waits_for_its_other_half(kind):
    made = tokenizer(kind)
    pieces = pieces_of(TextStream(made), made.encode(TEXT))
    assert "\ufffd" not in "".join(pieces)
    assert len([each for each in pieces if each]) > 20, "the text must not wait for its end"
    assert pieces_of(TextStream(ByteTokenizer()), [6 + byte for byte in "€".encode()]) == ["", "", "€", ""]


def test_bytes_that_are_no_character_show_when_that_is_sure():
    assert pieces_of(TextStream(ByteTokenizer()), [6 + byte for byte in b"\xe2\x82A\xff"]) == [
        "",
        "",
        "\ufffdA",
        "\ufffd",  # no character begins with FF, whatever comes
        "",
    ]


def by_hand(text: str, stops: list[str]) -> str:
    """Read on until a stop text is whole; the longest of those that end there is left out."""
    for end in range(1, len(text) + 1):
        if ending := [each for each in stops if text[:end].endswith(each)]:
            return text[: end - max(map(len, ending))]
    return text


def test_stop_texts():
    draw = random.Random(3)
    letters = CharacterTokenizer(["a", "b", "c"])
    stopped = 0
    for _ in range(3000):
        stops = ["".join(draw.choices("abc", k=draw.randint(1, 4))) for _ in range(draw.randint(0, 3))]
        ids = [draw.randrange(6, 9) for _ in range(draw.randint(0, 12))]
        stream = TextStream(letters, stops)
        pieces, sofar = [], ""
        for id in ids:
            pieces.append(stream.add(id))
            sofar += letters.decode([id])
            assert by_hand(sofar, stops).startswith("".join(pieces))
        text = "".join(pieces) + stream.end()
        assert text == by_hand(letters.decode(ids), stops)
        assert stream.stopped == (text != letters.decode(ids))
        stopped += stream.stopped
    assert 500 < stopped < 2500


def test_an_empty_stop_text_is_refused():
    with pytest.raises(ConfigError, match="at least one character"):
        TextStream(ByteTokenizer(), ["x", ""])


VOCAB = CharacterTokenizer(list("abcdefg"))  # 13 ids, as the models of the examples have


@pytest.mark.parametrize("layout", ["encoder-decoder", "decoder"])
def test_texts_of_rows(layout):
    """Each row's text is that of its ids up to the stop text, and says why it ended; the others go on."""
    network = model(layout, seed=2, max_len=None)
    prompts = [[BOS, *each] for each in sequences([1, 3, 2, 5, 2, 2, 4, 1])]
    given = {"prompts": prompts} | ({"sources": sequences([2] * 8)} if layout == "encoder-decoder" else {})
    limits = [3, 9, 9, 12, 12, 12, 12, 12]
    method = partial(generate, choose=chooser(Sampling(seed=4)))
    free: list[list[Piece]] = [[] for _ in prompts]
    stopped: list[list[Piece]] = [[] for _ in prompts]
    for rows, stops in ((free, []), (stopped, ["cd", "f", "aa"])):
        for piece in write(network, VOCAB, **given, max_new_tokens=limits, method=method, stops=stops):
            rows[piece.row].append(piece)
    ends = set()
    for whole, cut, limit in zip(free, stopped, limits, strict=True):
        text = "".join(piece.text for piece in whole)
        assert "".join(piece.text for piece in cut) == by_hand(text, ["cd", "f", "aa"])
        for pieces in (whole, cut):
            assert [bool(piece.end) for piece in pieces] == [False] * (len(pieces) - 1) + [True]
            assert pieces[-1].tokens == limit or pieces[-1].end != "max_new_tokens"
        assert (cut[-1].end == "stop") == (by_hand(text, ["cd", "f", "aa"]) != text)
        assert cut[-1].end == "stop" or cut[-1][2:] == whole[-1][2:]
        ends |= {whole[-1].end, cut[-1].end}
    assert ends == {"eos", "stop", "max_new_tokens"}


def test_a_row_that_stopped_is_written_no_further():
    network = model("decoder", max_len=None)
    seen = []
    network.head.register_forward_hook(lambda *_: seen.append(1))
    steps = iter([torch.tensor([each]) for each in VOCAB.encode("abcabc")])
    method = partial(generate, choose=lambda *_: next(steps))
    pieces = list(write(network, VOCAB, prompts=[[BOS]], max_new_tokens=6, method=method, stops=["bc"]))
    assert pieces == [Piece(0, "a", 1), Piece(0, "", 3, "stop")]
    assert len(seen) == 3


def test_words_go_on_from_their_prompt():
    """Prompt and text are the text of all ids; behind special ids alone a text begins."""
    network, words, draw = model("decoder", max_len=None), WordTokenizer(list("abcdefg")), random.Random(5)
    for prompt in ([BOS], [BOS, 7], [8, 9], [BOS, UNK], [BOS, EOS]):
        ids = [draw.choice([6, 7, UNK]) for _ in range(4)]
        steps = iter([torch.tensor([id]) for id in ids])
        method = partial(generate, choose=lambda *_, steps=steps: next(steps))
        given = {"prompts": [prompt], "max_new_tokens": 4, "method": method}
        text = "".join(piece.text for piece in write(network, words, **given))
        assert words.decode(prompt) + text == words.decode([*prompt, *ids])


def test_white_space_behind_a_prompt_is_the_blank_where_its_ids_hold_none():
    words, letters = WordTokenizer(["a", "b"]), CharacterTokenizer(["a", " "])
    behind = [goes_on(words, words.encode(text), text) for text in ("a", "a b", "a ", "a\n", "")]
    assert behind == [True, True, False, False, False]
    assert goes_on(letters, letters.encode("a "), "a ")


# --- Texts of a beam: each is that of its ids up to a stop text, and with one hypothesis it is the greedy text


STOPS = ["cd", "f", "aa"]


def searched(network: Transformer, made: Tokenizer, search: BeamSettings, n: int = 1, **given: object) -> list[Piece]:
    rows: Sequence[Sequence[int]] = given.get("sources") or given["prompts"]
    usual: dict[str, object] = {
        "sources": None, "prompts": None, "max_new_tokens": [9] * len(rows), "stops": (), "filters": (), "never": (),
        "forced": None, "numbers": range(len(rows)), "prefix": False, "poll": lambda: None,
        "behind": [goes_on(made, each) for each in given.get("prompts") or [()] * len(rows)], "complete": None,
    }  # fmt: skip
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
    found = beam_search(network, BeamSettings(beam=4), prompts=prompts, max_new_tokens=9, n_best=4, never=never)
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
        (found,) = beam_search(network, BeamSettings(beam=3), **given, max_new_tokens=9, prefix=prefix)
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
    every = beam_search(network, BeamSettings(beam=8), prompts=[[BOS]], max_new_tokens=2, n_best=8, never=never)[0]
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
    with pytest.raises(ConfigError, match="n_best must be from 1 to beam=2; got n_best=3"):
        searched(model("decoder"), CharacterTokenizer([*"abcdefg"]), BeamSettings(beam=2), 3, prompts=[[BOS]])
