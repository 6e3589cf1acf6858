"""Lines that are too long, figures that say what was cut, and settings that would change nothing."""

from pathlib import Path

import pytest

from glassformer.train.recipe import Recipe, dumps_recipe, override


@pytest.mark.parametrize("size", ["1", "2", "9"])
def test_translate_answers_what_comes_before_a_line_that_is_too_long(run, session, a_run, size):
    data = b"a\n\nlong, long\n \nfar too long\nb\n"
    answer = run("translate", "runs/old", "--batch-size", size, stdin=data)
    assert (answer.code, answer.out) == (2, "A\n\nLONG, LONG\n\n")
    assert answer.err == (
        "1 line (3): the answer was cut before its end, by decode.max_new_tokens=4.\nglassformer: line 5 is too long\n"
    )


@pytest.mark.parametrize(("split", "flag", "remedy"), [
    ("test", "--data.dev-size", "Remove it, or score that split: glassformer evaluate RUN --split dev."),
    ("test", "--data.dev-source", "Remove it, or score that split: glassformer evaluate RUN --split dev."),
    ("test", "--data.train-size", "split. Remove it."),
    ("dev", "--data.test", "Remove it, or score that split: glassformer evaluate RUN --split test."),
])  # fmt: skip
def test_evaluate_refuses_what_would_change_nothing(refused, session, a_run, split, flag, remedy):
    message = refused("evaluate", "runs/old", "--split", split, flag, "9")
    assert f"The {split} split is scored, but {flag} belongs to the " in message
    assert message.endswith(f"{remedy}\n")
    assert session.calls == []


def test_help_of_evaluate_says_what_each_figure_is(run):
    """Every figure that evaluating may print, but those of labels, which have a page of their own."""
    help_text = " ".join(run("evaluate", "--help").out.split())
    for name in (
        "exact_match Share",
        "token_accuracy Share",
        "loss Nats",
        "n Pairs",
        "unknown Tokens",
        "bleu,",
        "chrf",
    ):
        assert f" {name}" in help_text
    assert "cut Answers that reached a limit (decode.max_new_tokens, model.max_len) before their end" in help_text


@pytest.mark.parametrize("flag", ["--decode.max-new-tokens", "--decode.seed"])
def test_settings_of_writing_are_refused_where_blanks_are_filled(refused, session, flag):
    path = Path("runs/filled")
    path.mkdir(parents=True)
    recipe = override(Recipe("filled"), {"data.task": "copy", "data.layout": "encoder", "decode.max_new_tokens": 4})
    (path / "recipe.toml").write_text(dumps_recipe(recipe))
    message = f"fills all blanks at once, so {flag} would have no effect. Remove it."
    for verb in ("evaluate", "translate"):
        assert f"but runs/filled {message}" in refused(verb, "runs/filled", flag, "9")
    assert f"but the recipe copy {message}" in refused("train", "copy", "--data.layout", "encoder", flag, "9")
    assert session.calls == []


def test_all_settings_without_effect_are_named_at_once(refused, session, a_run):
    words = ("--decode.seed", "9", "--decode.beam", "2", "--decode.max-new-tokens", "3")
    text = refused("train", "classify", *words)
    assert "so --decode.seed, --decode.beam and --decode.max-new-tokens would have no effect. Remove them." in text
    text = refused("evaluate", "runs/old", "--decode.top-k", "3", "--decode.top-p", "0.5")
    assert "--decode.top-k and --decode.top-p select the tokens to sample from, but --decode.temperature 0 does" in (
        text
    )
    assert "got --decode.top-k 3 and --decode.top-p 0.5. Try --decode.temperature 1.0, or remove them." in text
    assert session.calls == []


@pytest.mark.parametrize("verb", ["evaluate", "translate"])
def test_a_seed_is_refused_where_nothing_is_drawn(refused, session, a_run, verb):
    message = "draws nothing, so --decode.seed 3 would have no effect. Remove --decode.seed, or sample instead"
    assert f"Greedy decoding {message}" in refused(verb, "runs/old", "--decode.seed", "3")
    assert f"Beam search {message}" in refused(verb, "runs/old", "--decode.seed", "3", "--decode.beam", "2")
    assert session.calls == []


def test_settings_that_blanks_are_filled_by_are_taken(run, session):
    settings = ("--decode.batch-size", "2", "--decode.precision", "int8", "--decode.threads", "1")
    assert run("train", "copy", "--data.layout", "encoder", *settings).code == 0
