"""What is told piece by piece is the text as a whole, in whole characters, up to the stop text that is whole first."""

import random
from functools import partial

import pytest
import torch

from glassformer.base.errors import ConfigError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokenizer import TOKENIZERS, ByteTokenizer, CharacterTokenizer, Tokenizer, WordTokenizer
from glassformer.data.tokens.vocabulary import BOS, EOS, SPECIALS, UNK
from glassformer.decode.choose import chooser
from glassformer.decode.generate import generate
from glassformer.decode.settings import Sampling
from glassformer.decode.stream import Piece, TextStream, goes_on, write
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
        pieces = pieces_of(TextStream(made), ids)
        assert "".join(pieces) == made.decode(ids)


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
