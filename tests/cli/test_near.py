"""What is suggested for a flag or setting that does not exist, and where nothing is."""

import pytest

from glassformer.base.errors import ConfigError
from glassformer.cli.arguments import read_arguments
from glassformer.cli.near import ELSEWHERE
from glassformer.cli.settings import flags_of
from glassformer.cli.verbs import SECTIONS, VERBS


def said(verb: str, flag: str) -> str:
    """What comes before the way to all flags in the error for a flag, and behind the known names of settings."""
    with pytest.raises(ConfigError) as caught:
        read_arguments(verb, VERBS[verb], ["x", flag, "1"])
    return str(caught.value).partition(" All flags: ")[0].rpartition(". ")[2]


@pytest.mark.parametrize(
    ("verb", "typed", "meant"),
    [
        ("train", "--training.batch-size", "--training.batch-tokens"),
        ("train", "--data.batch-size", "--training.batch-tokens"),
        ("train", "--batch-size", "--training.batch-tokens"),
        ("train", "--lr", "--training.learning-rate"),
        ("train", "--model.lr", "--training.learning-rate"),
        ("train", "--epochs", "--training.steps"),
        ("train", "--training.max-epochs", "--training.steps"),
        ("train", "--model.hidden-size", "--model.d-model"),
        ("train", "--steps", "--training.steps"),
        ("train", "--seed", "--training.seed"),
        ("train", "--learning-rte", "--training.learning-rate"),
        ("train", "--early-stopping", "--training.patience"),
        ("train", "--training.d-model", "--model.d-model"),
        ("translate", "--temperature", "--decode.temperature"),
        ("translate", "--seed", "--decode.seed"),
        ("translate", "--num-beams", "--beam"),
        ("generate", "--num-beams", "--beam"),
        ("translate", "--early-stopping", "--decode.early-stop"),
        ("evaluate", "--batch-size", "--decode.batch-size"),
        ("generate", "--max-length", "--max-new-tokens"),
        ("generate", "--topk", "--top-k"),
        ("generate", "--decode.temp", "--decode.temperature"),
        ("generate", "--num-return-sequences", "--n"),
        ("generate", "-n", "--n"),
        ("translate", "--beam-size", "--beam"),
        ("train", "--output-dir", "--out"),
    ],
)
def test_what_was_meant(verb, typed, meant):
    assert said(verb, typed) == f"Did you mean {meant!r}?"


@pytest.mark.parametrize(
    ("verb", "typed", "meant"),
    [
        ("generate", "--top", "'--stop', '--top-p' or '--top-k'"),
        ("serve", "--serve.max-prompt", "'--max-prompt'"),
        ("train", "--device", "'--training.device'"),
        ("train", "--gpu", "'--training.device'"),
    ],
)
def test_the_closest_few(verb, typed, meant):
    assert said(verb, typed) == f"Did you mean {meant}?"


def test_an_unknown_flag_is_not_answered_with_all_that_there_are():
    with pytest.raises(ConfigError) as caught:
        read_arguments("generate", VERBS["generate"], ["runs/lm", "--wurst", "3"])
    assert str(caught.value) == ("`glassformer generate` has no flag --wurst. All flags: glassformer generate --help.")


@pytest.mark.parametrize("typed", ["--device", "--cuda"])
def test_the_device_of_a_run(refused, a_run, typed):
    told = refused("generate", "runs/old", typed, "cuda")
    assert f"has no flag {typed}. A run is used on the device that `training.device` in its recipe.toml names" in told
    assert "It is a flag of verify" in refused("plot", "runs/old", "--dtype", "float32")


def test_a_recipe_where_a_run_is_needed(refused, a_run):
    told = "lm is not a run folder: it does not exist."
    first = "It names a recipe, which must be trained first: `glassformer train lm`."
    assert f"{told} {first}" in refused("generate", "lm")
    a_run.rename("runs/lm")
    assert f"{told} Did you mean 'runs/lm'?" in refused("generate", "lm")


@pytest.mark.parametrize(
    ("verb", "typed", "others"),
    [("translate", "--n", "generate"), ("generate", "--n-best", "translate"), ("serve", "--seed", "generate, rollout")],
)
def test_a_flag_of_another_verb(verb, typed, others):
    """Neither `--ban` for `--n`, nor a setting that the verb refuses."""
    assert said(verb, typed) == f"It is a flag of {others}."


@pytest.mark.parametrize(
    ("verb", "typed"),
    [("train", "--wurst"), ("train", "--n"), ("params", "--seeds-of"), ("evaluate", "--model.d-ff"), ("plot", "--x")],
)
def test_no_suggestion_is_better_than_a_wrong_one(verb, typed):
    assert "mean" not in said(verb, typed)


def test_another_tools_name_for_a_flag_of_another_verb():
    assert said("serve", "--num-beams") == "--beam is a flag of generate, translate."


def test_a_flag_is_given_once():
    words = ["x", "--prompt", "one", "--greedy", "--greedy", "--prompt=two"]
    with pytest.raises(ConfigError, match=r"--prompt takes one value; got 'one' and 'two'\. Give one of them\."):
        read_arguments("generate", VERBS["generate"], words)
    assert read_arguments("generate", VERBS["generate"], words[:-1]).options == {"prompt": "one", "greedy": ""}


def test_other_tools_names_stand_for_something():
    """Each for a setting or flag that exists, and none for itself."""
    known = {*flags_of(SECTIONS), *(option.name for verb in VERBS.values() for option in verb.options)}
    for name, places in ELSEWHERE.items():
        assert {*places.split()} <= known, name
        assert name not in {place.partition(".")[2] for place in flags_of(SECTIONS)} or " " in places, name
