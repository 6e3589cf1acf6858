"""Lines that a run answers: in order, in batches of like length, as they come."""

import pytest

from glassformer.base.errors import ConfigError, DataError, RowError
from glassformer.data.kinds import LAYOUTS
from glassformer.data.tokens.vocabulary import UNK
from glassformer.decode import answer as decode
from glassformer.decode.answer import answer, answers
from glassformer.decode.filters import unwritten
from glassformer.store.checkpoint import load
from glassformer.train.finished.use import translate
from glassformer.train.run.session import start
from train.examples import follow, recipe
from train.finished.answering import LINES, layout_of, numbered


@pytest.mark.parametrize("batch_size", [1, 2, 99])
def test_lines_are_answered_in_order_whatever_the_batches(run, batch_size):
    loaded = load(run)
    sources = [loaded.tokenizers.source.encode(line) for line in LINES]
    limit = 4 if loaded.model.config.stack.causal else None  # an encoder fills its blanks, whatever the recipe says
    expected = answer(loaded.model, sources, max_new_tokens=limit, never=unwritten(LAYOUTS[layout_of(run)].decoder))
    answers = list(translate(run, numbered(LINES), batch_size))
    assert [each.text for each in answers] == [loaded.tokenizers.target.decode(each.ids) for each in expected]
    assert [each.cut for each in answers] == [None if each.complete else "decode.max_new_tokens=4" for each in expected]
    assert [len(each.unknown) for each in answers] == [0, 0, 0, 2, 0] == [source.count(UNK) for source in sources]


@pytest.mark.parametrize(("batch_size", "ahead"), [(1, 1), (2, 16)])
def test_lines_are_read_as_they_come(run, batch_size, ahead):
    """The first answers are there before the third group is read; single lines are answered one by one."""
    lines = iter(numbered([LINES[0]] * (2 * ahead) + ["read too far"]))
    answered = translate(run, lines, batch_size)
    for _ in range(ahead + 1):
        next(answered)
    assert list(lines) == [(2 * ahead + 1, "read too far")]


def test_lines_of_like_length_share_a_batch(run, monkeypatch):
    """Short and long lines come by turns; no batch has both."""
    name = "_write" if layout_of(run) == "encoder-decoder" else "fill_blanks"
    write, batches = getattr(decode, name), []

    def watched(model, sources, *given):
        batches.append([len(each) for each in sources])
        return write(model, sources, *given)

    monkeypatch.setattr(decode, name, watched)
    assert len(list(translate(run, numbered(["e", "a b c"] * 4), 2))) == 8
    assert batches == [[1, 1], [1, 1], [3, 3], [3, 3]]


def test_as_many_lines_as_asked_are_decoded_together(run, monkeypatch):
    """Also more than decode.batch_size, which is for scoring."""
    sizes = []

    def watched(model, sources, *, batch_size, **settings):
        sizes.append((len(sources), batch_size))
        return answers(model, sources, batch_size=batch_size, **settings)

    monkeypatch.setattr("glassformer.train.finished.use.answers", watched)
    assert len(list(translate(run, numbered(["a b"] * 300), 300))) == 300
    assert sizes == [(300, 300)]


@pytest.mark.parametrize(("layout", "longest"), [("encoder-decoder", 8), ("encoder", 15)])
@pytest.mark.parametrize("batch_size", [1, 2, 99])
def test_line_too_long_for_the_model_is_named_after_the_answers_before_it(tmp_path, layout, longest, batch_size):
    """x <eos>, or x <sep> and as many blanks: seven symbols still fit."""
    short = tmp_path / "run"
    follow(start(recipe(data__layout=layout, model__max_len=longest, training__steps=1), short))
    lines = [*numbered(["a b", "a b c d e a b"]), (7, "a b c d e a b c"), (8, "a")]
    answered = translate(short, lines, batch_size)
    assert all(isinstance(next(answered).text, str) for _ in range(2))
    with pytest.raises(DataError) as caught:
        next(answered)
    more = "<eos>" if layout == "encoder-decoder" else "<sep> and as many blanks"
    length = 9 if layout == "encoder-decoder" else 17
    for words in (f"max_len={longest} tokens, {more} included", f"line 7 has {length}: 'a b c d e a b c'"):
        assert words in str(caught.value)


@pytest.mark.parametrize("batch_size", [1, 3, 99])
def test_line_that_cannot_be_written_is_named_after_the_answers_before_it(run, monkeypatch, batch_size):
    """Two lines have five symbols; the second of them comes up first in each call."""

    def stuck(model, sources, *, numbers, **settings):
        for place, ids in zip(reversed(numbers), reversed(sources), strict=True):
            if len(ids) == 5:
                raise RowError("None of ", place, " can be.")
        return answers(model, sources, numbers=numbers, **settings)

    expected = [each.text for each in translate(run, numbered(["a b", "c"]), batch_size)]
    monkeypatch.setattr("glassformer.train.finished.use.answers", stuck)
    answered = translate(run, [(2, "a b"), (5, "c"), (6, "a b c d e"), (7, "a b c d e"), (8, "d")], batch_size)
    assert [next(answered).text, next(answered).text] == expected
    with pytest.raises(ConfigError, match=r"^None of line 6 can be\.$"):
        next(answered)
