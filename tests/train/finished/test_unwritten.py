"""One rule for all that write: special tokens stand in no text, and a beginning is never cut."""

from pathlib import Path

import pytest
import torch

from glassformer.base.errors import ConfigError
from glassformer.data.kinds import LAYOUTS
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, PAD, SEP, SPECIALS, UNK
from glassformer.decode.constraints import Constraints
from glassformer.decode.filters import Context, unwritten, without
from glassformer.train.evaluate import Scoring, evaluate_model
from glassformer.train.finished import loading
from glassformer.train.finished.use import translate
from glassformer.train.finished.writing import Writer
from glassformer.train.objective import objective_for
from glassformer.train.recipe import load_recipe, override
from glassformer.train.run.beginning import prepare_split
from glassformer.train.run.session import start
from train.examples import follow, recipe
from train.text_examples import book, text_recipe

LINES = [(1, "a b c"), (2, "e"), (3, "d d d d")]
BEGIN = "a b c d e a b c d e a b c d e"


def trained(folder: Path, **settings: object) -> Path:
    follow(start(recipe(training__steps=1, **settings), folder / "run"))
    return folder / "run"


@pytest.fixture(scope="module", params=["encoder-decoder", "encoder"])
def run(request, tmp_path_factory) -> Path:
    return trained(tmp_path_factory.mktemp("unwritten"), data__layout=request.param)


def written(run: Path) -> dict[str, list[str]]:
    """What a run says to the same sources by each way to ask it."""
    own = load_recipe(run / "recipe.toml")
    found = loading.load_run(run, own)
    split = prepare_split(own, found.tokenizers, "dev")
    scoring = Scoring(found.model, own, found.tokenizers, objective_for(found.model))
    targets = [pair.target for pair in split.pairs]
    result = {
        "translate": [each.text for each in translate(run, LINES, 2)],
        "evaluate": list(evaluate_model(scoring, split.encoded, targets).outputs),
    }
    if own.data.layout != "encoder":
        result["beam"] = [each.text for each in translate(run, LINES, 2, override(own, {"decode.beam": 3}))]
        texts = [""] * len(LINES)
        for piece in Writer(run, own).write([line for _, line in LINES]):
            texts[piece.row] += piece.text
        result["generate"] = texts
        assert texts == result["translate"]
    return result


def test_what_a_model_likes_best_is_not_written_where_it_is_special(run, monkeypatch):
    never = unwritten(LAYOUTS[load_recipe(run / "recipe.toml").data.layout].decoder)
    plain, load_run = written(run), loading.load_run

    def liking(*given):
        found = load_run(*given)
        liked = torch.zeros(found.model.config.vocab_size)
        liked[never] = torch.tensor([99.0 + (id == UNK) for id in never])
        found.model.head.register_forward_hook(lambda module, inputs, output: output + liked)
        return found

    monkeypatch.setattr(loading, "load_run", liking)
    assert written(run) == plain
    assert all("<unk>" not in each for texts in plain.values() for each in texts)


def test_which_tokens_are_never_written():
    assert unwritten() == [PAD, BOS, UNK, SEP, BLANK]
    assert unwritten(objective="spans") == [PAD, BOS, UNK, BLANK]
    assert unwritten(ends=False) == [PAD, BOS, UNK, SEP, BLANK, EOS]
    assert unwritten(left_to_right=False) == [*range(len(SPECIALS))]
    logits = torch.zeros(2, 9)
    assert without([1, 3])(logits, Context([0, 1], [[], []], [[], []])).isneginf().nonzero().tolist() == [
        [0, 1],
        [0, 3],
        [1, 1],
        [1, 3],
    ]
    assert not logits.any()


@pytest.mark.parametrize(("objective", "never"), [("spans", []), ("noise", [SEP])])
def test_only_a_model_of_hidden_spans_writes_what_separates_them(tmp_path, objective, never):
    follow(start(text_recipe(book(tmp_path), objective, training__steps=1), tmp_path / "run"))
    expected = [PAD, BOS, UNK, *never, BLANK]
    assert Writer(tmp_path / "run", load_recipe(tmp_path / "run" / "recipe.toml")).never() == expected


def test_a_beginning_counts_apart_where_no_length_is_asked_for(tmp_path):
    """The source and ten more are 12 tokens, and the beginning has 15."""
    run = trained(tmp_path, decode__max_new_tokens=None)
    [answer] = translate(run, [(1, "a")], 1, constraints=Constraints(begin=BEGIN))
    assert answer.text.startswith(BEGIN)
    assert answer.cut is None or len(answer.text.split()) == 15 + 12
    writer = Writer(run, load_recipe(run / "recipe.toml"))
    assert "".join(piece.text for piece in writer.write(["a"], constraints=Constraints(begin=BEGIN))) == answer.text


@pytest.mark.parametrize(("requested", "message"), [
    (None, r"may have 9 \(max_len\). Shorten the beginning\.$"),
    (12, r"may have 9 \(max_len\)"),
    (4, "max_new_tokens to 15"),
])  # fmt: skip
def test_a_beginning_that_has_no_room_is_refused(tmp_path, requested, message):
    run = trained(tmp_path, model__max_len=9, decode__max_new_tokens=requested)
    with pytest.raises(ConfigError, match=rf"has 15 tokens, and a text .*{message}"):
        next(translate(run, [(1, "a")], 1, constraints=Constraints(begin=BEGIN)))
